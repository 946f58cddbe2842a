//! A sign-in on another device (RFC 8628), for a gateway that no browser reaches: a task asks the vendor until the human
//! has consented.

use std::time::Duration;

use super::completion::Completion;
use super::flows::{FlowId, SignIn};
use crate::common::credential::oauth::{DeviceAnswer, TokenFailure, TokenSet};

/// Asks the vendor for tokens until the human has consented or the code has expired, and completes the sign-in.
pub(super) async fn wait_for_consent(
    completion: Completion,
    sign_in: SignIn,
    device: DeviceAnswer,
    id: FlowId,
) {
    let end = tokio::time::Instant::now() + Duration::from_secs(device.life_s);
    let reply = tokio::time::timeout_at(end, ask(&completion, &sign_in, &device)).await;
    let tokens = reply.unwrap_or_else(|_| Err("the code expired before the human had consented".to_owned()));
    let tokens = completion.still_admitted(&sign_in).and(tokens);
    let provider = sign_in.provider.clone();
    if let Err(why) = completion.complete(sign_in, tokens).await {
        tracing::warn!(provider.id = provider, "the sign-in with a device code failed: {why}");
    }
    // Last, because it aborts this task.
    completion.flows.end(&id);
}

/// Repeats the question at the pace that the vendor asks for (RFC 8628 section 3.5).
async fn ask(completion: &Completion, sign_in: &SignIn, device: &DeviceAnswer) -> Result<TokenSet, String> {
    let mut interval_s = device.interval_s;
    loop {
        tokio::time::sleep(Duration::from_secs(interval_s)).await;
        let request = sign_in.issuer.device_token_request(&device.device_code);
        match completion.vendor.tokens(request, &[device.device_code.expose()]).await {
            Ok(tokens) => return Ok(tokens),
            Err(TokenFailure::Refused { code, .. }) if code == "authorization_pending" => {}
            Err(TokenFailure::Refused { code, .. }) if code == "slow_down" => interval_s += 5,
            Err(TokenFailure::Refused { text, .. }) => return Err(format!("the vendor answered {text}")),
            Err(TokenFailure::Unclear(_)) => interval_s = (interval_s * 2).min(INTERVAL_S_MAX),
        }
    }
}

/// The longest interval after failures of the network.
const INTERVAL_S_MAX: u64 = 60;
