//! Encryption by rustls, with the checks that the URL asks for.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, ErrorKind};
use crate::settings::{Check, Encryption};

/// Returns what encrypts connections. The tokens of channel binding (SCRAM-SHA-256-PLUS) come with it.
pub(crate) fn connector(encryption: &Encryption) -> Result<MakeRustlsConnect, Error> {
    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&crypto))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?;
    let builder = match encryption.check {
        Check::Nothing => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Partly { crypto, authorities: None })),
        Check::Authority => {
            let roots = Arc::new(authorities(encryption)?);
            let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&crypto))
                .build()
                .map_err(|error| refused(&error))?;
            let verifier = Partly { crypto, authorities: Some(inner) };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        Check::Name => builder.with_root_certificates(authorities(encryption)?),
    };
    let config = match &encryption.client {
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| refused(&error))?
        }
        None => builder.with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

/// Returns the authorities of `sslrootcert`, or the public ones of this binary and those of the system: an image without
/// a certificate trusts the servers that providers' addresses may have.
fn authorities(encryption: &Encryption) -> Result<RootCertStore, Error> {
    let Some(path) = &encryption.authorities else {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(path)?);
    if roots.is_empty() {
        return Err(Error::new(
            ErrorKind::Refused,
            format!(
                "{} of sslrootcert has no certificate of an authority; name a file with one in PEM",
                path.display()
            ),
        ));
    }
    Ok(roots)
}

/// Reads a file of certificates in PEM.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Refused, format!("cannot read {}: {error}", path.display()))
}

fn refused(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Refused, error.to_string())
}

/// Checks less than `verify-full`: that an authority signed the certificate, for whichever host, or nothing. The
/// signatures of the handshake are always checked.
#[derive(Debug)]
struct Partly {
    crypto: Arc<CryptoProvider>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Partly {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(verifier) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        match verifier.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.crypto.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.crypto.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.crypto.signature_verification_algorithms.supported_schemes()
    }
}
