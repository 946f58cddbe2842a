//! Calls to the OAuth addresses of vendors. Each is bounded in time and size, follows no redirect, and reaches only
//! addresses that upstream requests may reach.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use shared::port::{HttpClient, HttpLimits};
use shared::sanitize::guarded;
use shared::secret::Secret;

use crate::credential::oauth::{
    DeviceAnswer, OauthSettings, OauthTokens, TokenFailure, TokenSet, account, device_answer, token_answer,
};

/// A client of the OAuth addresses of vendors.
#[derive(Clone)]
pub(crate) struct Vendor(Arc<dyn HttpClient>);

impl std::fmt::Debug for Vendor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vendor")
    }
}

impl Vendor {
    pub(crate) fn new(http: &Arc<dyn HttpClient>) -> Self {
        Self(Arc::clone(http))
    }

    /// Sends a token request and reads its answer. Texts in the error contain no secrets of the gateway.
    pub(crate) async fn tokens(
        &self,
        request: Result<Request<Bytes>, &'static str>,
    ) -> Result<TokenSet, TokenFailure> {
        let answer = self.send(request).await.map_err(TokenFailure::Unclear)?;
        token_answer(answer.status().as_u16(), answer.body()).map_err(|failure| match failure {
            TokenFailure::Refused { code, text } => {
                TokenFailure::Refused { code, text: guarded(&text).into_owned() }
            }
            TokenFailure::Unclear(text) => TokenFailure::Unclear(text),
        })
    }

    /// Requests a device code. `None` without `device_authorization_url`.
    pub(crate) async fn device_code(
        &self,
        settings: &OauthSettings,
    ) -> Option<Result<DeviceAnswer, TokenFailure>> {
        let answer = match self.send(settings.device_request()?).await {
            Ok(answer) => answer,
            Err(why) => return Some(Err(TokenFailure::Unclear(why))),
        };
        Some(device_answer(answer.status().as_u16(), answer.body()))
    }

    /// Returns the name of the account that granted `access`; `None` if the vendor does not state it.
    pub(crate) async fn account(&self, settings: &OauthSettings, access: &Secret<String>) -> Option<String> {
        let request = settings.userinfo_request(access)?;
        let answer = self.send(Ok(request)).await.ok()?;
        account(answer.body()).filter(|_| answer.status().as_u16() == 200)
    }

    /// Revokes tokens at the vendor, the refresh token first. `None` without `revocation_url`.
    pub(crate) async fn revoke(
        &self,
        settings: &OauthSettings,
        tokens: &OauthTokens,
    ) -> Option<Result<(), String>> {
        let refresh = tokens.refresh.as_ref().map(|token| (token, "refresh_token"));
        for (token, hint) in refresh.into_iter().chain([(&tokens.access, "access_token")]) {
            let answer = match self.send(settings.revocation_request(token, hint)?).await {
                Ok(answer) => answer,
                Err(why) => return Some(Err(why)),
            };
            if !answer.status().is_success() {
                return Some(Err(format!("it answered with status {}", answer.status())));
            }
        }
        Some(Ok(()))
    }

    async fn send(&self, request: Result<Request<Bytes>, &'static str>) -> Result<Response<Bytes>, String> {
        let request = request?;
        let host = request.uri().host().unwrap_or_default().to_owned();
        let answer = self.0.send(request, LIMITS).await;
        answer.map_err(|error| guarded(&format!("{host}: {error}")).into_owned())
    }
}

/// The limits of one call.
const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(10), body_bytes_max: 64 << 10 };
