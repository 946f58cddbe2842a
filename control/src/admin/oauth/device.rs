//! A sign-in on another device (RFC 8628), for a gateway that no browser reaches: a task asks the vendor until the human
//! has consented. After a restart the task goes on.

use std::sync::Arc;
use std::time::Duration;

use shared::clock::unix_ms;

use super::super::App;
use super::completion::{Completion, Granted};
use super::flows::{DeviceFlow, FlowWay, SignIn, opened};
use crate::common::credential::oauth::TokenFailure;
use crate::db::sign_in_flows;

/// Goes on with the sign-ins on other devices that an earlier process began.
pub(crate) async fn resume(app: Arc<App>) {
    let rows = match app.readers.ask(sign_in_flows::all).await {
        Ok(rows) => rows,
        Err(error) => {
            return tracing::warn!("cannot go on with sign-ins on other devices: {error}");
        }
    };
    for row in rows {
        let ends_at_ms = row.ends_at_ms;
        if let Some((sign_in, FlowWay::Device(device))) = opened(&app.keys, row) {
            tokio::spawn(wait_for_consent(Completion::of(&app), sign_in, device, ends_at_ms));
        }
    }
}

/// Asks the vendor for tokens until the human has consented or the code has expired, and completes the sign-in.
pub(super) async fn wait_for_consent(
    completion: Completion,
    sign_in: SignIn,
    device: DeviceFlow,
    ends_at_ms: u64,
) {
    let left = Duration::from_millis(ends_at_ms.saturating_sub(unix_ms()));
    let granted = match tokio::time::timeout(left, ask(&completion, &sign_in, &device)).await {
        Ok(Some(granted)) => granted,
        // The sign-in was cancelled or replaced.
        Ok(None) => return,
        Err(_) => Err("the code expired before the human had consented".to_owned()),
    };
    let granted = completion.still_admitted(&sign_in).and(granted);
    if granted.is_ok() && !completion.take(&sign_in).await.unwrap_or(false) {
        return;
    }
    let provider = sign_in.provider.clone();
    if let Err(why) = completion.complete(sign_in, granted).await {
        tracing::warn!(provider.id = provider, "the sign-in with a device code failed: {why}");
    }
}

/// Repeats the question at the pace that the vendor asks for (RFC 8628 section 3.5). Returns `None` once the sign-in is no
/// longer under way.
async fn ask(
    completion: &Completion,
    sign_in: &SignIn,
    device: &DeviceFlow,
) -> Option<Result<Granted, String>> {
    let mut interval_s = device.interval_s;
    loop {
        tokio::time::sleep(Duration::from_secs(interval_s)).await;
        if !completion.begun.has(&sign_in.id) {
            return None;
        }
        let issuer = match completion.issuer(sign_in) {
            Ok(issuer) => issuer,
            Err(why) => return Some(Err(why)),
        };
        let request = issuer.device_token_request(&device.device_code);
        match completion.vendor.tokens(request, &[device.device_code.expose()]).await {
            Ok(tokens) => return Some(Ok(Granted { tokens, issuer })),
            Err(TokenFailure::Refused { code, .. }) if code == "authorization_pending" => {}
            Err(TokenFailure::Refused { code, .. }) if code == "slow_down" => interval_s += 5,
            Err(TokenFailure::Refused { text, .. }) => {
                return Some(Err(format!("the vendor answered {text}")));
            }
            Err(TokenFailure::Unclear(_)) => interval_s = (interval_s * 2).min(INTERVAL_S_MAX),
        }
    }
}

/// The longest interval after failures of the network.
const INTERVAL_S_MAX: u64 = 60;
