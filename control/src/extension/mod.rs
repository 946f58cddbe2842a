//! Extensions: services outside the process that provide models in the protocol of `docs/extensions.md`. Each call carries
//! the shared secret as a bearer token, and a signature over its ID, its time and its body.

pub(crate) mod probe;
pub(crate) mod protocol;
pub(crate) mod shown;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderName, HeaderValue, Method, Request};
use shared::clock::unix_ms;
use shared::port::SocketPath;
use shared::secret::Secret;
use shared::standard_webhooks::WebhookKey;

use crate::config::BaseUrl;
use crate::db::extensions::ExtensionRow;
use crate::db::ids::new_id;
use crate::vault::{SealError, SealPlace, VaultKeys};

/// The address of an extension and the secret that it shares with the gateway.
#[derive(Clone, Debug)]
pub(crate) struct ExtensionAccess {
    address: BaseUrl,
    secret: Secret<String>,
    key: WebhookKey,
}

impl ExtensionAccess {
    /// Opens the secret of a row.
    pub(crate) fn open(row: &ExtensionRow, keys: &VaultKeys) -> Result<Self, SealError> {
        let plain = keys.open(&place(&row.name), &row.secret)?;
        let secret = std::str::from_utf8(plain.expose()).map_err(|_| SealError)?;
        let address = BaseUrl::extension(&row.url).map_err(|_| SealError)?;
        let key = WebhookKey::read(secret).ok_or(SealError)?;
        Ok(Self { address, secret: Secret::new(secret.to_owned()), key })
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> &BaseUrl {
        &self.address
    }

    /// Returns the shared secret.
    pub(crate) fn secret(&self) -> &Secret<String> {
        &self.secret
    }

    /// Returns the texts that must not be repeated: the secret, and its part after the prefix.
    pub(crate) fn secrets(&self) -> [&str; 2] {
        let whole = self.secret.expose().as_str();
        [whole, whole.split_once('_').map_or(whole, |(_, rest)| rest)]
    }

    /// Returns a signed request for `path`.
    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Bytes>, String> {
        let id = new_id("msg", unix_ms()).map_err(|error| error.to_string())?;
        let signed = self.key.sign(&id, unix_ms() / 1_000, std::iter::once(body.as_ref()));
        let mut request = Request::builder()
            .method(method)
            .uri(self.address.below(path))
            .body(body)
            .map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.extend(bearer(&self.secret));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.extend(signed);
        if let Some(path) = self.address.socket() {
            request.extensions_mut().insert(SocketPath(path.into()));
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

/// Seals the shared secret of the extension called `name`.
pub(crate) fn seal_secret(keys: &VaultKeys, name: &str, secret: &str) -> Result<Vec<u8>, SealError> {
    keys.seal(&place(name), secret.as_bytes())
}

fn place(name: &str) -> SealPlace<'_> {
    SealPlace { table: "extensions", column: "secret", id: name }
}
