//! The access to an extension. Each call carries the shared secret as a bearer token, and a signature over its ID, its time
//! and its body.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request};
use serde::Serialize;
use shared::clock::unix_ms;
use shared::port::SocketPath;
use shared::provider::signer::ExtensionSigner;
use shared::secret::Secret;

/// The address of an extension and the secret that it shares with the gateway.
#[derive(Debug)]
pub(crate) struct ExtensionAccess {
    /// Without a trailing slash.
    url: String,
    socket: Option<Box<str>>,
    signer: ExtensionSigner,
}

impl ExtensionAccess {
    /// Creates the access to the extension at `url`, without a trailing slash, or behind the Unix socket `socket`.
    pub(crate) fn new(url: String, socket: Option<&str>, signer: ExtensionSigner) -> Self {
        Self { url, socket: socket.map(Into::into), signer }
    }

    /// Returns the shared secret.
    pub(crate) fn secret(&self) -> &Secret<String> {
        self.signer.secret()
    }

    /// Returns the texts that must not be repeated: the secret, and its part after the prefix.
    pub(crate) fn secrets(&self) -> [&str; 2] {
        let whole = self.secret().expose().as_str();
        [whole, whole.split_once('_').map_or(whole, |(_, rest)| rest)]
    }

    /// Returns the parts of the address, which distinguish it from others.
    pub(crate) fn address(&self) -> [&str; 2] {
        [&self.url, self.socket.as_deref().unwrap_or_default()]
    }

    /// Returns a signed `GET` of `path`.
    pub(crate) fn get(&self, path: &str) -> Result<Request<Bytes>, &'static str> {
        self.request(Method::GET, path, Bytes::new())
    }

    /// Returns a signed `POST` of `document` to `path`.
    pub(crate) fn post(&self, path: &str, document: &impl Serialize) -> Result<Request<Bytes>, &'static str> {
        let body = serde_json::to_vec(document).map_err(|_| "the request cannot be written as JSON")?;
        let mut request = self.request(Method::POST, path, body.into())?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(request)
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Bytes>, &'static str> {
        let mut signing = self.signer.begin(unix_ms() / 1_000);
        signing.update(&body);
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .body(body)
            .map_err(|_| "the address of the extension is invalid")?;
        let headers = request.headers_mut();
        headers.extend(bearer(self.secret()));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.extend(signing.finish());
        if let Some(path) = &self.socket {
            request.extensions_mut().insert(SocketPath(path.clone()));
        }
        Ok(request)
    }
}

/// Returns the header that carries the secret.
pub(crate) fn bearer(secret: &Secret<String>) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", secret.expose())).ok()?;
    value.set_sensitive(true);
    Some((AUTHORIZATION, value))
}
