//! The requests of an OAuth client, and the address of the consent page.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderValue, Request};
use ring::digest::{SHA256, digest};
use shared::secret::Secret;

use super::super::grant::{encoded, post};
use super::{ClientAuth, NO_CLIENT, OauthClient, OauthSettings};

/// The values of one visit to the consent page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consent<'a> {
    pub(crate) redirect_uri: &'a str,
    pub(crate) state: &'a str,
    /// The [`challenge`] of the flow's verifier.
    pub(crate) challenge: &'a str,
}

/// Returns the PKCE challenge of a verifier (RFC 7636 section 4.2).
pub(crate) fn challenge(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
}

impl OauthSettings {
    /// Returns the address of the consent page (RFC 6749 section 4.1.1); `None` without `authorize_url` or a client.
    pub(crate) fn consent_page(&self, consent: &Consent<'_>) -> Option<String> {
        let (page, client) = (self.authorize_url.as_deref()?, self.client.as_ref()?);
        let scope = self.scopes.join(" ");
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", consent.redirect_uri),
            ("state", consent.state),
            ("code_challenge", consent.challenge),
            ("code_challenge_method", "S256"),
        ];
        if !scope.is_empty() {
            fields.push(("scope", &scope));
        }
        fields.extend(self.authorize_params.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let joint = if page.contains('?') { '&' } else { '?' };
        Some(format!("{page}{joint}{}", fields.join("&")))
    }

    /// Builds the exchange of an authorization code for tokens (RFC 6749 section 4.1.3).
    pub(crate) fn code_request(
        &self,
        code: &Secret<String>,
        verifier: &Secret<String>,
        redirect_uri: &str,
    ) -> Result<Request<Bytes>, &'static str> {
        self.client_request(
            &self.token_url,
            &[
                ("grant_type", "authorization_code"),
                ("code", code.expose()),
                ("redirect_uri", redirect_uri),
                ("code_verifier", verifier.expose()),
            ],
        )
    }

    /// Builds a refresh (RFC 6749 section 6).
    pub(crate) fn refresh_request(&self, refresh: &Secret<String>) -> Result<Request<Bytes>, &'static str> {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh.expose().as_str())];
        self.client_request(&self.token_url, &fields)
    }

    /// Builds the request for a device code (RFC 8628 section 3.1); `None` without `device_authorization_url`.
    pub(crate) fn device_request(&self) -> Option<Result<Request<Bytes>, &'static str>> {
        let (address, scope) = (self.device_authorization_url.as_deref()?, self.scopes.join(" "));
        let mut fields = vec![("scope", scope.as_str())];
        // A client that authenticates in the header names itself in the body too (RFC 8628 section 3.1).
        if let Some(client) = &self.client
            && client.secret.is_some()
            && self.client_auth == ClientAuth::Basic
        {
            fields.push(("client_id", &client.id));
        }
        fields.retain(|(_, value)| !value.is_empty());
        Some(self.client_request(address, &fields))
    }

    /// Builds a question if the human has consented on the other device (RFC 8628 section 3.4).
    pub(crate) fn device_token_request(
        &self,
        device_code: &Secret<String>,
    ) -> Result<Request<Bytes>, &'static str> {
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        let fields = [("grant_type", grant), ("device_code", device_code.expose().as_str())];
        self.client_request(&self.token_url, &fields)
    }

    /// Builds the revocation of a token (RFC 7009 section 2.1); `None` without `revocation_url`.
    pub(crate) fn revocation_request(
        &self,
        token: &Secret<String>,
        hint: &str,
    ) -> Option<Result<Request<Bytes>, &'static str>> {
        let address = self.revocation_url.as_deref()?;
        Some(self.client_request(address, &[("token", token.expose()), ("token_type_hint", hint)]))
    }

    /// Builds the request for the account's name (OpenID Connect Core section 5.3); `None` without `userinfo_url`.
    pub(crate) fn userinfo_request(&self, access: &Secret<String>) -> Option<Request<Bytes>> {
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", access.expose())).ok()?;
        bearer.set_sensitive(true);
        let request = Request::get(self.userinfo_url.as_deref()?).header(AUTHORIZATION, bearer);
        request.header(ACCEPT, "application/json").body(Bytes::new()).ok()
    }

    /// Builds a form that the client sends with its identity.
    fn client_request(&self, address: &str, fields: &[(&str, &str)]) -> Result<Request<Bytes>, &'static str> {
        let client = self.client.as_ref().ok_or(NO_CLIENT)?;
        let mut fields = fields.to_vec();
        let mut basic = None;
        match (&client.secret, self.client_auth) {
            (None, _) => fields.push(("client_id", &client.id)),
            (Some(secret), ClientAuth::Post) => {
                fields.extend([("client_id", client.id.as_str()), ("client_secret", secret.expose())]);
            }
            (Some(secret), ClientAuth::Basic) => basic = Some(basic_of(client, secret)?),
        }
        let mut request = post(address, &fields)?;
        if let Some(basic) = basic {
            request.headers_mut().insert(AUTHORIZATION, basic);
        }
        Ok(request)
    }
}

/// Returns the value of `Authorization`; both parts are form-encoded first (RFC 6749 section 2.3.1).
fn basic_of(client: &OauthClient, secret: &Secret<String>) -> Result<HeaderValue, &'static str> {
    let pair = Secret::new(format!("{}:{}", encoded(&client.id), encoded(secret.expose())));
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(pair.expose())))
        .map_err(|_| NO_CLIENT)?;
    value.set_sensitive(true);
    Ok(value)
}
