//! The `oauth` settings of a provider instance, and the OAuth client of the environment.

use std::sync::Arc;

use shared::provider::{Auth, ProviderKind, Reach};

use super::address::oauth_address;
use super::model::ConnectionAuth;
use super::provider::{ProviderReader, key};
use super::raw;
use crate::common::credential::oauth::{ClientAuth, OauthClient, OauthSettings, TokenIssuer};

impl ProviderReader<'_> {
    /// Reads the `oauth` settings. `None` if there are none, if they are faulty, or if an extension issues the tokens.
    pub(super) fn oauth(&mut self, kind: &ProviderKind, auth: ConnectionAuth) -> Option<Arc<TokenIssuer>> {
        let raw = self.raw;
        let Some(oauth) = &raw.oauth else {
            if kind.auth == Auth::Oauth {
                self.note(&[key("oauth")], "oauth is missing: set authorize_url, token_url and scopes");
            }
            return None;
        };
        if auth != ConnectionAuth::Oauth {
            self.note(&[key("oauth")], format!("auth {} has no oauth settings; omit them", auth.name()));
            return None;
        }
        if matches!(kind.reach, Reach::Extension) {
            if *oauth != raw::Oauth::default() {
                self.note(&[key("oauth")], "the extension knows its vendor; write oauth: {}");
            }
            return None;
        }
        if self.raw.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            let message = "oauth and the header authorization cannot be combined; keep one";
            self.note(&[key("oauth")], message);
        }
        let authorize_url = self.oauth_url("authorize_url", oauth.authorize_url.as_ref());
        let token_url = self.oauth_url("token_url", oauth.token_url.as_ref());
        let device_authorization_url =
            self.oauth_url("device_authorization_url", oauth.device_authorization_url.as_ref());
        if oauth.token_url.is_none() {
            self.note(&[key("oauth"), key("token_url")], "token_url is missing");
        }
        if oauth.authorize_url.is_none() && oauth.device_authorization_url.is_none() {
            let message = "authorize_url is missing; set it, or device_authorization_url";
            self.note(&[key("oauth"), key("authorize_url")], message);
        }
        self.oauth_texts(oauth);
        Some(Arc::new(TokenIssuer::Vendor(Box::new(OauthSettings {
            authorize_url,
            token_url: token_url?,
            userinfo_url: self.oauth_url("userinfo_url", oauth.userinfo_url.as_ref()),
            revocation_url: self.oauth_url("revocation_url", oauth.revocation_url.as_ref()),
            device_authorization_url,
            issuer: oauth.issuer.clone(),
            scopes: oauth.scopes.clone(),
            client_auth: match oauth.client_auth {
                raw::ClientAuth::Basic => ClientAuth::Basic,
                raw::ClientAuth::Post => ClientAuth::Post,
            },
            authorize_params: oauth.authorize_params.clone(),
            client: self.oauth_client(),
        }))))
    }

    fn oauth_url(&mut self, name: &str, url: Option<&String>) -> Option<String> {
        let url = url?.trim();
        match oauth_address(url) {
            Ok(()) => Some(url.to_owned()),
            Err(message) => {
                self.note(&[key("oauth"), key(name)], message);
                None
            }
        }
    }

    /// Checks scopes (RFC 6749 section 3.3) and the names of additional parameters.
    fn oauth_texts(&mut self, oauth: &raw::Oauth) {
        let is_scope = |scope: &String| {
            let fits = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
            (1..=SCOPE_BYTES_MAX).contains(&scope.len()) && scope.bytes().all(fits)
        };
        if let Some(scope) = oauth.scopes.iter().find(|scope| !is_scope(scope)) {
            let message = format!("'{}' is not a scope: write each scope as one item", scope.escape_debug());
            self.note(&[key("oauth"), key("scopes")], message);
        }
        if oauth.authorize_params.len() > PARAMS_MAX {
            let message = format!("has more than {PARAMS_MAX} parameters");
            self.note(&[key("oauth"), key("authorize_params")], message);
        }
        for name in oauth.authorize_params.keys().filter(|name| OWN_PARAMS.contains(&name.as_str())) {
            self.note(&[key("oauth"), key("authorize_params"), key(name)], "is set by llmgw itself");
        }
    }

    /// Returns the client that the operator registered.
    fn oauth_client(&self) -> Option<OauthClient> {
        let id = self.environment.text(CLIENT_ID).filter(|id| !id.is_empty())?;
        Some(OauthClient { id, secret: self.environment.secret(CLIENT_SECRET) })
    }
}

pub(super) const CLIENT_ID: &str = "LLMGW_PARTNER_CLIENT_ID";
pub(super) const CLIENT_SECRET: &str = "LLMGW_PARTNER_CLIENT_SECRET";
/// Parameters of the consent page that the gateway sets.
const OWN_PARAMS: [&str; 7] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "code_challenge",
    "code_challenge_method",
];
const SCOPE_BYTES_MAX: usize = 256;
const PARAMS_MAX: usize = 16;
