//! Calls to the issuers of tokens: OAuth addresses of vendors, and extensions. Each is bounded in time and size, follows
//! no redirect, and reaches only addresses that upstream requests may reach.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use shared::port::{HttpClient, HttpLimits};
use shared::sanitize::guarded;
use shared::secret::Secret;

use crate::common::credential::oauth::extension::page_answer;
use crate::common::credential::oauth::{
    Consent, DeviceAnswer, OauthTokens, TokenFailure, TokenIssuer, TokenSet, account, device_answer,
    token_answer,
};

/// A client of the issuers of tokens.
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

    /// Sends a token request, which contains the secrets `sent`, and reads its answer. Texts in the error contain neither
    /// these nor other secrets of the gateway.
    pub(crate) async fn tokens(
        &self,
        request: Result<Request<Bytes>, &'static str>,
        sent: &[&str],
    ) -> Result<TokenSet, TokenFailure> {
        let answer = self.send(request).await.map_err(TokenFailure::Unclear)?;
        token_answer(answer.status().as_u16(), answer.body(), sent)
    }

    /// Returns the page on which a human consents.
    pub(crate) async fn consent_page(
        &self,
        issuer: &TokenIssuer,
        consent: &Consent<'_>,
    ) -> Result<String, TokenFailure> {
        let issuer = match issuer {
            TokenIssuer::Extension(issuer) => issuer,
            TokenIssuer::Vendor(settings) => {
                let page = settings.consent_page(consent);
                return page
                    .ok_or_else(|| TokenFailure::Unclear("oauth.authorize_url is not set".to_owned()));
            }
        };
        let answer = self.send(issuer.consent_request(consent)).await.map_err(TokenFailure::Unclear)?;
        page_answer(answer.status().as_u16(), answer.body(), &[consent.state])
    }

    /// Requests a device code. `None` if the vendor has no address for it.
    pub(crate) async fn device_code(
        &self,
        issuer: &TokenIssuer,
    ) -> Option<Result<DeviceAnswer, TokenFailure>> {
        let answer = self.send(issuer.device_request()?).await;
        let answer = answer.map_err(TokenFailure::Unclear);
        Some(answer.and_then(|answer| device_answer(answer.status().as_u16(), answer.body())))
    }

    /// Returns the name of the account that granted `access`; `None` if the vendor does not state it.
    pub(crate) async fn account(&self, issuer: &TokenIssuer, access: &Secret<String>) -> Option<String> {
        let request = issuer.settings()?.userinfo_request(access)?;
        let answer = self.send(Ok(request)).await.ok()?;
        account(answer.body()).filter(|_| answer.status().as_u16() == 200)
    }

    /// Revokes tokens at their issuer, the refresh token first. `None` if it has no address for that.
    pub(crate) async fn revoke(
        &self,
        issuer: &TokenIssuer,
        tokens: &OauthTokens,
    ) -> Option<Result<(), String>> {
        let mut may_lack = issuer.may_lack_revocation();
        let refresh = tokens.refresh.as_ref().map(|token| (token, "refresh_token"));
        for (token, hint) in refresh.into_iter().chain([(&tokens.access, "access_token")]) {
            let answer = match self.send(issuer.revocation_request(token, hint)?).await {
                Ok(answer) => answer,
                Err(why) => return Some(Err(why)),
            };
            match answer.status() {
                status if status.is_success() => may_lack = false,
                StatusCode::NOT_FOUND if may_lack => return None,
                status => return Some(Err(format!("it answered with status {status}"))),
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
