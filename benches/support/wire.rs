//! How the rig reaches a proxy, and how the proxy reaches the upstream: in clear text or by TLS, with HTTP/1.1 or HTTP/2.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A connection to or from the rig.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

/// The encrypted part of a request's way, and the version of HTTP to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wire {
    /// HTTP/1.1 in clear text on both sides.
    #[default]
    Clear,
    /// TLS from clients.
    TlsClients,
    /// TLS to the upstream, with HTTP/1.1.
    TlsUpstream,
    /// TLS to the upstream, with HTTP/2.
    Http2Upstream,
}

impl Wire {
    /// Every wire, with its name on the command line of a process.
    const NAMES: [(Self, &str); 4] = [
        (Self::Clear, "clear"),
        (Self::TlsClients, "tls-clients"),
        (Self::TlsUpstream, "tls-upstream"),
        (Self::Http2Upstream, "http2-upstream"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(wire, _)| *wire == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(wire, _)| *wire)
    }

    /// True if the upstream is reached by TLS.
    pub(crate) fn encrypts_upstream(self) -> bool {
        matches!(self, Self::TlsUpstream | Self::Http2Upstream)
    }
}

/// A certificate for `localhost` that signs itself, and its key, in files.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    folder: PathBuf,
}

impl Certificate {
    /// Makes a certificate in a folder.
    pub(crate) fn make(folder: &Path) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let made = Self { folder: folder.to_owned() };
        fs::write(made.path(), cert.pem()).unwrap();
        fs::write(made.key_path(), signing_key.serialize_pem()).unwrap();
        made
    }

    /// Returns the certificate that [`Self::make`] left in a folder.
    pub(crate) fn made_in(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    pub(crate) fn key_path(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// Returns a client's configuration that trusts it and offers these protocols.
    pub(crate) fn client(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path()).unwrap()).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = encoded(protocols);
        Arc::new(config)
    }

    /// Returns a server's configuration that offers these protocols.
    pub(crate) fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let chain = vec![CertificateDer::from_pem_file(self.path()).unwrap()];
        let key = PrivateKeyDer::from_pem_file(self.key_path()).unwrap();
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = encoded(protocols);
        Arc::new(config)
    }
}

fn encoded(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect()
}
