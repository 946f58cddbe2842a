//! The issuer of the tokens of a provider instance. Sign-ins, refreshes and their bounds are the same for all issuers; an
//! issuer only builds the requests.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use ring::digest::{Context, SHA256};
use shared::hex;
use shared::provider::Auth;
use shared::routing::Origin;
use shared::secret::Secret;

use super::super::{bearer_header, plain_header};
use super::{ExtensionIssuer, OauthClient, OauthSettings};

/// The issuer of the tokens of a provider instance.
#[derive(Clone, Debug)]
pub(crate) enum TokenIssuer {
    /// A vendor, at the OAuth addresses of the configuration.
    Vendor(Box<OauthSettings>),
    /// A provider of an extension.
    Extension(ExtensionIssuer),
}

impl TokenIssuer {
    /// Returns the OAuth settings of a vendor.
    pub(crate) fn settings(&self) -> Option<&OauthSettings> {
        match self {
            Self::Vendor(settings) => Some(settings),
            Self::Extension(_) => None,
        }
    }

    /// Returns the operator's client at the vendor.
    pub(crate) fn client(&self) -> Option<&OauthClient> {
        self.settings()?.client.as_ref()
    }

    /// Returns the scopes that sign-ins request.
    pub(crate) fn scopes(&self) -> &[String] {
        self.settings().map(|settings| settings.scopes.as_slice()).unwrap_or_default()
    }

    /// True if a sign-in on another device may be possible.
    pub(crate) fn has_device_flow(&self) -> bool {
        self.settings().is_none_or(|settings| settings.device_authorization_url.is_some())
    }

    /// True if the status 404 in answer to a revocation means that the issuer revokes nothing: the path is optional for
    /// extensions.
    pub(crate) fn may_lack_revocation(&self) -> bool {
        self.settings().is_none()
    }

    /// Returns a digest of the client and of the addresses that tokens are sent to. Tokens are used only with the
    /// issuer that granted them, so a changed address never receives them.
    pub(crate) fn binding(&self, origin: Option<&Origin>) -> String {
        match self {
            Self::Vendor(settings) => {
                let client = settings.client.as_ref().map_or("", |client| client.id.as_str());
                let authority = origin.map_or("", |origin| origin.authority.as_str());
                let scheme = if origin.is_some_and(|origin| origin.tls) { "https" } else { "http" };
                digest_of(&[client, &settings.token_url, scheme, authority])
            }
            Self::Extension(issuer) => digest_of(&issuer.receiver()),
        }
    }

    /// Returns the header with which requests carry an access token; `auth` is the authentication of the provider kind.
    /// `Authorization` of an extension carries its secret.
    pub(crate) fn header(
        &self,
        auth: Auth,
        access: &Secret<String>,
    ) -> Result<(HeaderName, HeaderValue), &'static str> {
        match self {
            Self::Vendor(_) => bearer_header(access.expose()),
            Self::Extension(_) => plain_header(auth.header(), access.expose()),
        }
    }

    /// Builds the exchange of an authorization code for tokens.
    pub(crate) fn code_request(
        &self,
        code: &Secret<String>,
        verifier: &Secret<String>,
        redirect_uri: &str,
    ) -> Result<Request<Bytes>, &'static str> {
        match self {
            Self::Vendor(settings) => settings.code_request(code, verifier, redirect_uri),
            Self::Extension(issuer) => issuer.code_request(code, verifier, redirect_uri),
        }
    }

    /// Builds a refresh.
    pub(crate) fn refresh_request(&self, refresh: &Secret<String>) -> Result<Request<Bytes>, &'static str> {
        match self {
            Self::Vendor(settings) => settings.refresh_request(refresh),
            Self::Extension(issuer) => issuer.refresh_request(refresh),
        }
    }

    /// Builds the revocation of a token; `None` for a vendor without an address for it.
    pub(crate) fn revocation_request(
        &self,
        token: &Secret<String>,
        hint: &str,
    ) -> Option<Result<Request<Bytes>, &'static str>> {
        match self {
            Self::Vendor(settings) => settings.revocation_request(token, hint),
            Self::Extension(issuer) => Some(issuer.revocation_request(token, hint)),
        }
    }

    /// Builds the request for a device code; `None` for a vendor without an address for it.
    pub(crate) fn device_request(&self) -> Option<Result<Request<Bytes>, &'static str>> {
        match self {
            Self::Vendor(settings) => settings.device_request(),
            Self::Extension(issuer) => Some(issuer.device_request()),
        }
    }

    /// Builds a question if the human has consented on the other device.
    pub(crate) fn device_token_request(
        &self,
        device_code: &Secret<String>,
    ) -> Result<Request<Bytes>, &'static str> {
        match self {
            Self::Vendor(settings) => settings.device_token_request(device_code),
            Self::Extension(issuer) => issuer.device_token_request(device_code),
        }
    }
}

fn digest_of(parts: &[&str]) -> String {
    let mut digest = Context::new(&SHA256);
    for part in parts {
        digest.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(part.as_bytes());
    }
    hex::encode(digest.finish().as_ref())
}
