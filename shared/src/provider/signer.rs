//! Signs each request of a provider instance: as AWS requires, or as extensions do.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};

use super::sigv4::{self, Signable};
use crate::secret::Secret;
use crate::standard_webhooks::{MessageSigning, SECRET_PREFIX, WebhookKey};

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

/// A signature in the making, which reads the body of its request piece by piece.
pub struct RequestSigning<'a> {
    unix_s: u64,
    by: SigningBy<'a>,
}

enum SigningBy<'a> {
    Aws(&'a sigv4::Signer, Context),
    Extension(MessageSigning),
}

impl fmt::Debug for RequestSigning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestSigning").field("unix_s", &self.unix_s).finish_non_exhaustive()
    }
}

impl RequestSigner {
    /// Begins the signature of a request that is sent `unix_s` seconds after the Unix epoch.
    pub fn begin(&self, unix_s: u64) -> RequestSigning<'_> {
        let by = match self {
            Self::Aws(signer) => SigningBy::Aws(signer, Context::new(&SHA256)),
            Self::Extension(signer) => SigningBy::Extension(signer.begin(unix_s)),
        };
        RequestSigning { unix_s, by }
    }

    /// Returns the headers that sign `request`, sent `unix_s` seconds after the Unix epoch.
    pub fn sign(&self, request: &Signable<'_>, unix_s: u64) -> Vec<(HeaderName, HeaderValue)> {
        let mut signing = self.begin(unix_s);
        request.body.iter().for_each(|piece| signing.update(piece));
        signing.finish(request)
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

impl RequestSigning<'_> {
    /// Adds the next piece of the body.
    pub fn update(&mut self, piece: &[u8]) {
        match &mut self.by {
            SigningBy::Aws(_, body) => body.update(piece),
            SigningBy::Extension(signing) => signing.update(piece),
        }
    }

    /// Returns the headers that sign `request`. The body consists of the pieces that were added; that of `request` is not
    /// read.
    pub fn finish(self, request: &Signable<'_>) -> Vec<(HeaderName, HeaderValue)> {
        match self.by {
            SigningBy::Aws(signer, body) => signer.sign_hashed(request, body.finish().as_ref(), self.unix_s),
            SigningBy::Extension(signing) => signing.finish(),
        }
    }
}

impl ExtensionSigner {
    /// Creates a signer with the secret of an extension; `prefix` must differ from those of all other signers. Returns
    /// `None` if the secret does not have the form of Standard Webhooks.
    pub fn new(secret: &Secret<String>, prefix: String) -> Option<Self> {
        let key = WebhookKey::read(secret.expose())?;
        Some(Self { secret: secret.clone(), key, prefix, next: AtomicU64::new(0) })
    }

    /// Begins the signature of a request that is sent `unix_s` seconds after the Unix epoch.
    pub fn begin(&self, unix_s: u64) -> MessageSigning {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.key.begin(&format!("{}{number}", self.prefix), unix_s)
    }

    /// Returns the secret of the extension.
    pub fn secret(&self) -> &Secret<String> {
        &self.secret
    }
}
