//! A certificate authority for one test, so that an upstream or the gateway can use TLS and the other side can trust
//! it.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The names in the certificate. The last one stands for an upstream that only a proxy finds.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "models.example"];

/// A certificate for these names and the file that makes it trusted.
pub(crate) struct Authority {
    folder: TempDir,
    acceptor: TlsAcceptor,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    /// Creates an authority that negotiates the given protocols by ALPN.
    pub(crate) fn new(protocols: &[&[u8]]) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(NAMES.map(ToOwned::to_owned).to_vec()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), signing_key.serialize_pem()).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.clone_key())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let certificate = cert.der().clone();
        Self { folder, acceptor: TlsAcceptor::from(Arc::new(config)), certificate, key }
    }

    /// Returns an acceptor that demands a certificate of one of the authorities in `clients`.
    pub(crate) fn demanding(
        &self,
        clients: rustls::RootCertStore,
        protocols: &[&[u8]],
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Returns an acceptor for connections.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Returns a connector that trusts the certificate and offers `protocols`.
    pub(crate) fn connector(&self, protocols: &[&[u8]]) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }

    /// Returns the path of the private key in PEM.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// Returns the path of the PEM file to trust.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}
