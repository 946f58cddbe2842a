//! TLS of single provider instances: their own authorities, and the certificates by which the gateway identifies itself.
//!
//! The settings of an instance have a session cache of their own: a session that one certificate has begun must not be
//! resumed with another, or without one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore};
use shared::clock::unix_ms;
use shared::secret::Secret;
use shared::upstream_tls::{CertificateEnd, TlsFault, TlsReader, TlsTexts, UpstreamTls};

use super::certificates;
use super::validity::{Validity, validity};

/// The client configurations with one trust and one identity, by their ALPN protocols.
#[derive(Debug)]
pub(crate) struct ClientConfigs {
    /// HTTP/2 or HTTP/1.1, as the upstream chooses.
    pub(crate) auto: Arc<ClientConfig>,
    /// HTTP/1.1.
    pub(crate) http1: Arc<ClientConfig>,
    /// HTTP/2.
    pub(crate) http2: Arc<ClientConfig>,
}

impl ClientConfigs {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        let with = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Self { auto: with(&[H2, b"http/1.1"]), http1: with(&[]), http2: with(&[H2]) }
    }
}

/// The ALPN name of HTTP/2.
pub(crate) const H2: &[u8] = b"h2";

/// The authorities and the client certificate of a provider instance.
#[derive(Debug)]
pub(crate) struct OwnSettings {
    verifier: Option<Arc<WebPkiServerVerifier>>,
    identity: Option<Arc<CertifiedKey>>,
    /// The configurations, which the first connection creates from those of the gateway.
    configs: OnceLock<ClientConfigs>,
}

impl OwnSettings {
    /// Returns the configurations. `base` has the authorities of the gateway and no identity.
    pub(crate) fn configs(&self, base: &ClientConfig) -> &ClientConfigs {
        self.configs.get_or_init(|| {
            let mut config = base.clone();
            config.resumption = Resumption::default();
            if let Some(verifier) = &self.verifier {
                config.dangerous().set_certificate_verifier(Arc::<WebPkiServerVerifier>::clone(verifier));
            }
            if let Some(identity) = &self.identity {
                config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(Arc::clone(identity)));
            }
            ClientConfigs::new(&config)
        })
    }

    fn read(texts: &TlsTexts, crypto: &Arc<CryptoProvider>) -> Result<Self, Vec<TlsFault>> {
        let mut faults = Vec::new();
        let mut kept = |fault| faults.push(fault);
        let verifier = texts.ca.as_ref().map(|pem| verifier(pem.expose(), crypto)).transpose();
        let verifier = verifier.map_err(|message| kept(TlsFault { member: CA, message }));
        let identity = texts.identity.as_ref();
        let identity =
            identity.map(|(chain, key)| certified(chain.expose(), key.expose(), crypto)).transpose();
        let identity = identity.map_err(|found| found.into_iter().for_each(kept));
        match (verifier, identity) {
            (Ok(verifier), Ok(identity)) => {
                Ok(Self { verifier, identity: identity.map(Arc::new), configs: OnceLock::new() })
            }
            _ => Err(faults),
        }
    }
}

/// Returns what verifies the certificates of upstreams by the authorities in `pem` alone.
fn verifier(pem: &str, crypto: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem.as_bytes()).map_err(|why| format!("{why}; {WRITE_CERTIFICATES}"))? {
        roots.add(certificate).map_err(|error| format!("contains an invalid certificate: {error}"))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(crypto)).build();
    verifier.map_err(|error| format!("cannot be used: {error}"))
}

/// Returns the certificate in `chain` with its private key.
fn certified(chain: &str, key: &str, crypto: &CryptoProvider) -> Result<CertifiedKey, Vec<TlsFault>> {
    let of = |member, message| TlsFault { member, message };
    let chain = certificates(chain.as_bytes());
    let chain = chain.map_err(|why| of(CERTIFICATE, format!("{why}; {WRITE_CERTIFICATES}")));
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let key = key.map_err(|_| of("key", WRITE_KEY.to_owned()));
    let (chain, key) = match (chain, key) {
        (Ok(chain), Ok(key)) => (chain, key),
        (chain, key) => return Err([chain.err(), key.err()].into_iter().flatten().collect()),
    };
    CertifiedKey::from_der(chain, key, crypto).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => vec![of("key", OF_ANOTHER.to_owned())],
        Error::InvalidCertificate(why) => vec![of(CERTIFICATE, format!("is invalid: {why:?}"))],
        // The texts of rustls contain nothing of the key.
        error => vec![of("key", format!("cannot be used: {error}; use an RSA, ECDSA or Ed25519 key"))],
    })
}

const WRITE_CERTIFICATES: &str =
    "write certificates in PEM, each from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----";
const WRITE_KEY: &str = "contains no private key that can be read; write an unencrypted one in PEM, from \
                         -----BEGIN PRIVATE KEY----- to -----END PRIVATE KEY-----";
const OF_ANOTHER: &str =
    "is not the key of the first certificate in certificate; set the two that were issued together";

/// Reads the settings of provider instances, and knows those in use.
#[derive(Default)]
pub struct TlsSettings {
    known: Mutex<HashMap<Box<str>, Weak<OwnSettings>>>,
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings").finish_non_exhaustive()
    }
}

impl TlsReader for TlsSettings {
    fn read(&self, texts: &TlsTexts) -> Result<UpstreamTls, Vec<TlsFault>> {
        let digest = texts.digest();
        // Only readers of configurations take this lock.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = match known.get(&digest).and_then(Weak::upgrade) {
            Some(settings) => settings,
            None => {
                let settings = OwnSettings::read(texts, &Arc::new(rustls::crypto::ring::default_provider()))?;
                Arc::new(settings)
            }
        };
        known.retain(|_, settings| settings.strong_count() > 0);
        known.insert(digest.clone(), Arc::downgrade(&settings));
        let read = ReadCertificates::of(texts);
        let (warnings, ends) = (read.warnings(unix_ms() / 1_000), read.ends());
        Ok(UpstreamTls { digest, settings, warnings, ends })
    }
}

/// The certificates of a provider instance by their member of the configuration.
struct ReadCertificates([(&'static str, Vec<CertificateDer<'static>>); 2]);

impl ReadCertificates {
    fn of(texts: &TlsTexts) -> Self {
        let chain = texts.identity.as_ref().map(|(certificate, _)| certificate);
        let read = |pem: Option<&Secret<String>>| {
            pem.and_then(|pem| certificates(pem.expose().as_bytes()).ok()).unwrap_or_default()
        };
        Self([(CA, read(texts.ca.as_ref())), (CERTIFICATE, read(chain))])
    }

    /// Returns a text for each certificate that is outside its time or soon will be. `now` is in seconds since the Unix epoch.
    fn warnings(&self, now: u64) -> Vec<String> {
        let each = self.0.iter().flat_map(|(member, found)| {
            let all = found.iter().zip(1_usize..);
            all.map(move |(certificate, place)| (*member, place, certificate))
        });
        let outside = each.filter_map(|(member, place, certificate)| {
            Some(format!("{member}: certificate {place} {}", outside(certificate, now)?))
        });
        outside.collect()
    }

    fn ends(&self) -> Vec<CertificateEnd> {
        let ends = self.0.iter().filter_map(|(member, found)| {
            let ends = found.iter().filter_map(|certificate| Some(validity(certificate)?.not_after));
            let at_seconds = if *member == CA { ends.max() } else { ends.min() };
            Some(CertificateEnd { member, at_seconds: at_seconds? })
        });
        ends.collect()
    }
}

fn outside(certificate: &CertificateDer<'_>, now: u64) -> Option<String> {
    let Validity { not_before, not_after } = validity(certificate)?;
    let shown = |seconds: u64| {
        let time = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
        time.map(|time| time.to_string()).unwrap_or_default()
    };
    if now > not_after {
        Some(format!("expired at {}; renew it", shown(not_after)))
    } else if now < not_before {
        Some(format!("is not valid before {}", shown(not_before)))
    } else if now.saturating_add(SOON_SECONDS) > not_after {
        Some(format!("expires at {}; renew it", shown(not_after)))
    } else {
        None
    }
}

const CA: &str = "ca";
const CERTIFICATE: &str = "certificate";
/// A certificate that expires within two weeks is a warning.
const SOON_SECONDS: u64 = 14 * 24 * 3_600;
