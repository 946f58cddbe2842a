//! TLS configurations from PEM text: the server's certificate, the trust roots for upstreams, and the authorities and client
//! certificates of single provider instances.

mod own;
mod validity;

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub use self::own::TlsSettings;
pub(crate) use self::own::{ClientConfigs, H2, OwnSettings};

/// Returns a server configuration for a certificate chain and its key that offers HTTP/2 and HTTP/1.1. The error names
/// which of the two is invalid, and why.
pub fn server(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates(chain).map_err(|error| format!("the certificate chain {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("the private key cannot be read: {error}"))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| format!("the private key does not match the certificate: {error}"))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns a client configuration that trusts the built-in roots, the system's roots if `system` is true, and the
/// certificates in `extra`.
pub fn client(extra: Option<&[u8]>, system: bool) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if system {
        let found = rustls_native_certs::load_native_certs();
        let (added, ignored) = roots.add_parsable_certificates(found.certs);
        tracing::debug!(added, ignored, faults = found.errors.len(), "the system's trust roots");
    }
    for certificate in extra.map(certificates).transpose()?.unwrap_or_default() {
        roots.add(certificate).map_err(|error| format!("contains an invalid certificate: {error}"))?;
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Returns the certificates in `pem`, of which there must be one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("contains no PEM certificate".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}
