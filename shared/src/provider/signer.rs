//! Signs each request of a provider instance: as AWS requires, or as extensions do.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderName, HeaderValue};

use super::sigv4::{self, Signable};
use crate::secret::Secret;
use crate::standard_webhooks::{SECRET_PREFIX, WebhookKey};

/// Signs the requests of one provider instance.
#[derive(Debug)]
pub enum RequestSigner {
    /// With a key pair of AWS.
    Aws(sigv4::Signer),
    /// With the secret of an extension.
    Extension(ExtensionSigner),
}

/// Signs requests to an extension as Standard Webhooks define. Each request has its own ID.
#[derive(Debug)]
pub struct ExtensionSigner {
    secret: Secret<String>,
    key: WebhookKey,
    /// The beginning of the IDs, which no other signer has.
    prefix: String,
    next: AtomicU64,
}

impl RequestSigner {
    /// Returns the headers that sign `request`, sent `unix_s` seconds after the Unix epoch.
    pub fn sign(&self, request: &Signable<'_>, unix_s: u64) -> Vec<(HeaderName, HeaderValue)> {
        match self {
            Self::Aws(signer) => signer.sign(request, unix_s),
            Self::Extension(signer) => {
                let number = signer.next.fetch_add(1, Ordering::Relaxed);
                let id = format!("{}{number}", signer.prefix);
                signer.key.sign(&id, unix_s, request.body.iter().map(|piece| &**piece))
            }
        }
    }

    /// Returns the secrets that requests contain besides the credential of the instance.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let secret = match self {
            Self::Aws(_) => None,
            Self::Extension(signer) => Some(signer.secret.expose().as_str()),
        };
        secret.into_iter().flat_map(|secret| [secret, secret.trim_start_matches(SECRET_PREFIX)])
    }
}

impl ExtensionSigner {
    /// Creates a signer with the secret of an extension; `prefix` must differ from those of all other signers. Returns
    /// `None` if the secret does not have the form of Standard Webhooks.
    pub fn new(secret: &Secret<String>, prefix: String) -> Option<Self> {
        let key = WebhookKey::read(secret.expose())?;
        Some(Self { secret: secret.clone(), key, prefix, next: AtomicU64::new(0) })
    }
}
