//! TLS of the connections to one provider instance: its own authorities and client certificate, as configured and as the
//! data plane uses them.
//!
//! The private key is in no text that this module returns.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::hex;
use crate::secret::Secret;

/// The PEM texts of a provider instance.
#[derive(Clone, Debug, Default)]
pub struct TlsTexts {
    /// The only authorities that may have issued the upstream's certificate; `None` for those of the gateway.
    pub ca: Option<Secret<String>>,
    /// The certificate of the gateway with its intermediates, and the private key of the certificate.
    pub identity: Option<(Secret<String>, Secret<String>)>,
}

impl TlsTexts {
    /// Returns a digest that distinguishes the texts.
    pub fn digest(&self) -> Box<str> {
        let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
        let identity = self.identity.as_ref();
        let texts =
            [self.ca.as_ref(), identity.map(|(certificate, _)| certificate), identity.map(|(_, key)| key)];
        for text in texts {
            let bytes = text.map(|text| text.expose().as_bytes()).unwrap_or_default();
            digest.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(bytes);
        }
        hex::encode(digest.finish().as_ref()).into()
    }
}

/// A fault in one of the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFault {
    /// The member of the configuration: `ca`, `certificate` or `key`.
    pub member: &'static str,
    /// What is wrong, and what to do.
    pub message: String,
}

/// Converts the texts of provider instances. The data plane implements it, because control contains no TLS.
pub trait TlsReader: Send + Sync {
    /// Returns the settings, or all faults of the texts. The same texts give the same settings while those are in use, so
    /// that a new snapshot keeps the sessions of TLS.
    fn read(&self, texts: &TlsTexts) -> Result<UpstreamTls, Vec<TlsFault>>;
}

/// The TLS settings of a provider instance.
#[derive(Clone)]
pub struct UpstreamTls {
    /// Distinguishes the settings from others.
    pub digest: Box<str>,
    /// The settings in the data plane's form.
    pub settings: Arc<dyn Any + Send + Sync>,
    /// Certificates that are outside their time or soon will be; each begins with its member of the configuration.
    pub warnings: Vec<String>,
    /// The times at which the texts end to be of use.
    pub ends: Vec<CertificateEnd>,
}

/// The time at which the certificates of a text end to be of use: for `certificate` the first end of the chain, for `ca` the last
/// one, because a bundle may contain an authority and its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateEnd {
    /// The member of the configuration: `ca` or `certificate`.
    pub member: &'static str,
    /// In seconds since the Unix epoch.
    pub at_seconds: u64,
}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for UpstreamTls {}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls").field("digest", &self.digest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_distinguish_each_text() {
        let secret = |text: &str| Secret::new(text.to_owned());
        let texts = |ca: Option<&str>, identity: Option<(&str, &str)>| TlsTexts {
            ca: ca.map(secret),
            identity: identity.map(|(certificate, key)| (secret(certificate), secret(key))),
        };
        let all = [
            texts(None, None),
            texts(Some("a"), None),
            texts(Some("b"), None),
            texts(None, Some(("a", "b"))),
            texts(None, Some(("ab", ""))),
            texts(Some("a"), Some(("a", "b"))),
            texts(Some("a"), Some(("a", "c"))),
        ];
        for (place, one) in all.iter().enumerate() {
            assert_eq!(one.digest(), one.clone().digest());
            assert!(all[..place].iter().all(|other| other.digest() != one.digest()), "{place}");
        }
    }
}
