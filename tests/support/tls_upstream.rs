//! Upstreams that demand client certificates, and the authority that issues those. rustls judges the certificates. Each
//! request is recorded with the certificate of its connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::CertificateDer;
use rustls::{HandshakeKind, RootCertStore};
use shared::clock::unix_ms;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// An authority that issues client certificates.
pub(crate) struct ClientAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

/// A client certificate and its key.
pub(crate) struct ClientCertificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
    der: CertificateDer<'static>,
}

impl ClientAuthority {
    /// Creates an authority with the name of all others.
    pub(crate) fn new() -> Self {
        Self::named("an authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).unwrap();
        Self { certificate: own.der().clone(), pem: own.pem(), issuer: Issuer::new(params, key) }
    }

    /// Issues a certificate for this name.
    pub(crate) fn issue(&self, name: &str) -> ClientCertificate {
        self.issue_until(name, 4_096)
    }

    /// Issues a certificate that is valid until the beginning of `year`.
    pub(crate) fn issue_until(&self, name: &str, year: i32) -> ClientCertificate {
        self.issued(name, |params| params.not_after = date_time_ymd(year, 1, 1))
    }

    /// Issues a certificate that is valid for so many days from now on.
    pub(crate) fn issue_for_days(&self, name: &str, days: u64) -> ClientCertificate {
        let end = Duration::from_millis(unix_ms()) + Duration::from_secs(days * 24 * 3_600);
        self.issued(name, |params| params.not_after = date_time_ymd(1_970, 1, 1) + end)
    }

    fn issued(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> ClientCertificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let issued = params.signed_by(&key, &self.issuer).unwrap();
        ClientCertificate { certificate: issued.pem(), key: key.serialize_pem(), der: issued.der().clone() }
    }

    /// Returns the certificate of the authority.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the store that contains only this authority.
    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }
}

impl ClientCertificate {
    /// Writes both texts into `folder` and returns the lines of a provider's `tls` that refer to them.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> String {
        let (certificate, key) = self.paths(folder, name);
        std::fs::write(&certificate, &self.certificate).unwrap();
        std::fs::write(&key, &self.key).unwrap();
        format!("  certificate: ${{FILE:{}}}\n  key: ${{FILE:{}}}", certificate.display(), key.display())
    }

    fn paths(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")))
    }
}

/// A request, and what is known of its connection.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    client: Option<CertificateDer<'static>>,
    pub(crate) is_resumed: bool,
    pub(crate) is_http2: bool,
    pub(crate) server_name: Option<String>,
    pub(crate) host: String,
}

impl Seen {
    /// True if the connection was made with this certificate.
    pub(crate) fn is_of(&self, certificate: &ClientCertificate) -> bool {
        self.client.as_ref() == Some(&certificate.der)
    }
}

/// An upstream that answers every request with a completion. Connections of HTTP/1.1 take one request. It stops listening when
/// dropped.
pub(crate) struct TlsUpstream {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    listening: tokio::task::JoinHandle<()>,
}

impl TlsUpstream {
    /// Listens on a free port of the loopback address.
    pub(crate) async fn start(acceptor: TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let record = Arc::clone(&seen);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&record)));
            }
        });
        Self { address, seen, listening }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the value for a provider's `base_url`.
    pub(crate) fn base_url(&self) -> String {
        format!("https://localhost:{}/v1", self.address.port())
    }

    /// Returns all requests so far, and forgets them.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for TlsUpstream {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, record: Arc<Mutex<Vec<Seen>>>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let connection = stream.get_ref().1;
    let seen = Seen {
        client: connection
            .peer_certificates()
            .and_then(|chain| chain.first())
            .cloned()
            .map(CertificateDer::into_owned),
        is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        is_http2: connection.alpn_protocol() == Some(b"h2"),
        server_name: connection.server_name().map(str::to_owned),
        host: String::new(),
    };
    let is_http2 = seen.is_http2;
    let service = service_fn(move |request: Request<Incoming>| {
        let (seen, record) = (seen.clone(), Arc::clone(&record));
        async move { Ok::<_, Infallible>(answer(request, seen, &record).await) }
    });
    let io = TokioIo::new(stream);
    if is_http2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(io, service)
            .await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    }
}

async fn answer(request: Request<Incoming>, seen: Seen, record: &Mutex<Vec<Seen>>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let _ = body.collect().await;
    let of_header = head.headers.get("host").and_then(|host| host.to_str().ok()).map(str::to_owned);
    let host = of_header.or_else(|| head.uri.authority().map(ToString::to_string)).unwrap_or_default();
    record.lock().unwrap_or_else(PoisonError::into_inner).push(Seen { host, ..seen.clone() });
    let mut response = Response::builder().header("content-type", "application/json");
    if !seen.is_http2 {
        response = response.header("connection", "close");
    }
    response.body(Full::new(Bytes::from_static(COMPLETION.as_bytes()))).unwrap()
}

const COMPLETION: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
