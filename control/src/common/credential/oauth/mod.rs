//! OAuth 2.0 as a client: the addresses of a vendor, the requests to them, and the tokens that they return.
//!
//! The code flow (RFC 6749 section 4.1) with PKCE (RFC 7636, method S256), refreshes (RFC 6749 section 6), revocation
//! (RFC 7009), the device flow (RFC 8628) and the issuer in the redirect (RFC 9207) are written by hand, because the
//! crate `oauth2` brings 61 more crates, five of them in a second version, for what this folder does in a few hundred
//! lines. Nothing here opens a connection or reads a clock.

mod answer;
pub(crate) mod extension;
mod issuer;
mod requests;
mod schedule;

use std::collections::BTreeMap;

use shared::secret::Secret;

#[cfg(test)]
pub(crate) use answer::DeviceCode;
pub(crate) use answer::{DeviceAnswer, TokenFailure, TokenSet, account, device_answer, plain, token_answer};
pub(crate) use extension::ExtensionIssuer;
pub(crate) use issuer::TokenIssuer;
pub(crate) use requests::{Consent, challenge};
pub(crate) use schedule::{DueRefresh, RefreshSchedule};

/// The `oauth` settings of a provider instance, and the operator's OAuth client.
#[derive(Clone, Debug)]
pub(crate) struct OauthSettings {
    /// The page on which a human consents; opened by browsers, never by the gateway.
    pub(crate) authorize_url: Option<String>,
    pub(crate) token_url: String,
    /// The address that names the signed-in account.
    pub(crate) userinfo_url: Option<String>,
    pub(crate) revocation_url: Option<String>,
    pub(crate) device_authorization_url: Option<String>,
    /// The issuer that redirects must name (RFC 9207).
    pub(crate) issuer: Option<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) client_auth: ClientAuth,
    /// Additional parameters of the consent page.
    pub(crate) authorize_params: BTreeMap<String, String>,
    /// The operator's client; `None` if `LLMGW_PARTNER_CLIENT_ID` is not set.
    pub(crate) client: Option<OauthClient>,
}

/// The means by which a client with a secret authenticates at the token address (RFC 6749 section 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    /// In the header `Authorization: Basic`.
    Basic,
    /// In the body.
    Post,
}

/// The OAuth client that the operator registered with the vendor.
#[derive(Clone, Debug)]
pub(crate) struct OauthClient {
    pub(crate) id: String,
    /// `None` for a public client.
    pub(crate) secret: Option<Secret<String>>,
}

/// The sign-in of a human at a vendor: its tokens and their state.
#[derive(Clone, Debug)]
pub(crate) struct OauthConnection {
    /// The ID of the provider instance.
    pub(crate) provider: String,
    /// The ID of the human who signed in.
    pub(crate) owner: String,
    /// Grows with each change of the tokens; never used again for other tokens.
    pub(crate) serial: u64,
    /// The [`TokenIssuer::binding`] that the tokens were granted for.
    pub(crate) binding: String,
    /// `None` after the vendor refused a refresh.
    pub(crate) tokens: Option<OauthTokens>,
    /// The account as the vendor names it.
    pub(crate) account: Option<String>,
    pub(crate) scopes: Vec<String>,
    /// The expiry of the access token; `None` if the vendor does not state it.
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) connected_at_ms: u64,
    pub(crate) refreshed_at_ms: Option<u64>,
    /// The time at which a refresh began whose result is not stored; it may have been lost.
    pub(crate) refresh_began_at_ms: Option<u64>,
    /// The time and reason of the refusal.
    pub(crate) failure: Option<(u64, String)>,
}

/// The tokens of a connection.
#[derive(Clone, Debug)]
pub(crate) struct OauthTokens {
    pub(crate) access: Secret<String>,
    pub(crate) refresh: Option<Secret<String>>,
}

impl OauthConnection {
    /// Returns the tokens, or the reason why requests cannot use them.
    pub(crate) fn usable(&self, binding: &str, now_ms: u64) -> Result<&OauthTokens, &'static str> {
        let tokens = self.tokens.as_ref().ok_or(REFUSED)?;
        if self.binding != binding {
            return Err(MOVED);
        }
        if tokens.refresh.is_none() && self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            return Err(ENDED);
        }
        Ok(tokens)
    }

    /// Returns the time from which the access token is to be refreshed: after four fifths of its lifetime. `None` if
    /// its expiry is unknown or there is no refresh token.
    pub(crate) fn refresh_at_ms(&self) -> Option<u64> {
        self.tokens.as_ref()?.refresh.as_ref()?;
        if self.refresh_began_at_ms.is_some() {
            // The result of that refresh is unknown: only another one shows if the refresh token still works.
            return Some(0);
        }
        let (end_ms, start_ms) = (self.expires_at_ms?, self.refreshed_at_ms.unwrap_or(self.connected_at_ms));
        let life_ms = end_ms.saturating_sub(start_ms);
        Some(start_ms.saturating_add((life_ms / 5 * 4).max(REFRESH_PAUSE_MS_MIN)))
    }
}

/// The least time between two refreshes ahead of expiry, however short the tokens live.
const REFRESH_PAUSE_MS_MIN: u64 = 5_000;
/// The reason while no human has signed in.
pub(crate) const NO_SIGN_IN: &str = "its OAuth sign-in is missing";
pub(crate) const NO_SETTINGS: &str = "its OAuth sign-in is missing, and it has no oauth settings";
pub(crate) const NO_CLIENT: &str = "LLMGW_PARTNER_CLIENT_ID is not set";
const REFUSED: &str = "the vendor refused to renew its sign-in; connect it again";
const MOVED: &str =
    "its sign-in was granted for another client ID, token address or API address; connect it again";
const ENDED: &str = "its access token has expired and the vendor issued no refresh token; connect it again";

#[cfg(test)]
mod tests;
