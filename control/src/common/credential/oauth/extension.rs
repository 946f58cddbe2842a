//! Sign-ins at a provider of an extension, in the protocol of `docs/extensions.md`. The extension speaks with its vendor;
//! its answers have the shapes of OAuth, and what it calls an access token is a credential of any form.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use serde::{Deserialize, Serialize};
use shared::secret::Secret;

use super::super::extension::ExtensionAccess;
use super::Consent;
use super::answer::{self, TokenFailure};

/// A provider of an extension as the issuer of credentials.
#[derive(Clone, Debug)]
pub(crate) struct ExtensionIssuer {
    access: Arc<ExtensionAccess>,
    provider: String,
}

/// The body of `POST /v1/{provider}/oauth/start`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "method", rename_all = "snake_case")]
pub(crate) enum SignInStart<'a> {
    /// A sign-in in a browser, which the answer `SignInPage` sends to the vendor.
    Browser {
        /// The address that the vendor must send the browser back to, with `state` and `code`, or with `state` and `error`.
        redirect_uri: &'a str,
        /// The text that the vendor must return with the code.
        state: &'a str,
        /// The challenge of PKCE (RFC 7636); `/oauth/exchange` gets its verifier.
        code_challenge: &'a str,
        /// `S256`.
        code_challenge_method: &'static str,
    },
    /// A sign-in on another device; the answer is a `DeviceCode`.
    Device,
}

/// The answer to the start of a sign-in in a browser.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SignInPage {
    /// The vendor's page on which the human consents, at most 8,192 bytes: `https://`, or `http://` on this machine.
    authorize_url: String,
}

/// The body of `POST /v1/{provider}/oauth/exchange`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CodeExchange<'a> {
    /// The code with which the vendor sent the browser back.
    code: &'a str,
    /// The address of the start.
    redirect_uri: &'a str,
    /// The verifier of the challenge of the start.
    code_verifier: &'a str,
}

/// The body of `POST /v1/{provider}/oauth/poll`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DevicePoll<'a> {
    /// The `device_code` of the answer to the start.
    device_code: &'a str,
}

/// The body of `POST /v1/{provider}/refresh`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CredentialRefresh<'a> {
    /// The last `refresh_token`.
    refresh_token: &'a str,
}

/// The body of `POST /v1/{provider}/oauth/revoke` (RFC 7009 section 2.1).
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CredentialRevocation<'a> {
    /// The credential or the `refresh_token` that is no longer used.
    token: &'a str,
    /// `refresh_token`, or `access_token` for the credential.
    token_type_hint: &'a str,
}

type Built = Result<Request<Bytes>, &'static str>;

impl ExtensionIssuer {
    pub(crate) fn new(access: &Arc<ExtensionAccess>, provider: &str) -> Self {
        Self { access: Arc::clone(access), provider: provider.to_owned() }
    }

    /// Returns the texts that distinguish the receiver of its credentials from others.
    pub(super) fn receiver(&self) -> [&str; 3] {
        let [url, socket] = self.access.address();
        [url, socket, &self.provider]
    }

    /// Builds the request for the consent page.
    pub(crate) fn consent_request(&self, consent: &Consent<'_>) -> Built {
        let start = SignInStart::Browser {
            redirect_uri: consent.redirect_uri,
            state: consent.state,
            code_challenge: consent.challenge,
            code_challenge_method: "S256",
        };
        self.post("oauth/start", &start)
    }

    pub(super) fn device_request(&self) -> Built {
        self.post("oauth/start", &SignInStart::Device)
    }

    pub(super) fn code_request(
        &self,
        code: &Secret<String>,
        verifier: &Secret<String>,
        redirect_uri: &str,
    ) -> Built {
        let exchange = CodeExchange { code: code.expose(), redirect_uri, code_verifier: verifier.expose() };
        self.post("oauth/exchange", &exchange)
    }

    pub(super) fn device_token_request(&self, device_code: &Secret<String>) -> Built {
        self.post("oauth/poll", &DevicePoll { device_code: device_code.expose() })
    }

    pub(super) fn refresh_request(&self, refresh: &Secret<String>) -> Built {
        self.post("refresh", &CredentialRefresh { refresh_token: refresh.expose() })
    }

    pub(super) fn revocation_request(&self, token: &Secret<String>, hint: &str) -> Built {
        let revocation = CredentialRevocation { token: token.expose(), token_type_hint: hint };
        self.post("oauth/revoke", &revocation)
    }

    fn post(&self, path: &str, document: &impl Serialize) -> Built {
        self.access.post(&format!("/v1/{}/{path}", self.provider), document)
    }
}

/// Reads the answer to [`ExtensionIssuer::consent_request`].
pub(crate) fn page_answer(status: u16, body: &[u8], sent: &[&str]) -> Result<String, TokenFailure> {
    if status != 200 {
        return Err(answer::failure(status, body, sent));
    }
    let page: Option<SignInPage> = serde_json::from_slice(body).ok();
    let address =
        page.map(|page| page.authorize_url).filter(|address| answer::is_page(address, PAGE_BYTES_MAX));
    address.ok_or_else(|| TokenFailure::Unclear("the answer contains no https address".to_owned()))
}

/// A consent page has the state, the challenge and the scopes in its address.
const PAGE_BYTES_MAX: usize = 8 << 10;
