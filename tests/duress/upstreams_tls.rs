//! Upstreams over TLS: handshakes that trickle, records of one byte, answers that are cut without the end of
//! TLS, certificates that change, resumption, early data, and protocols that were not negotiated.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Rig;
use crate::support::h2_frames::settings;
use crate::support::tls::Authority;
use crate::support::tls_upstream::{ClientAuthority, ClientCertificate};
use crate::support::{Answer, Upstream, Yaml, chat};

/// Accepts connections and runs `serve` on each. It stops listening when dropped.
pub(super) struct Peer {
    address: SocketAddr,
    listening: tokio::task::JoinHandle<()>,
}

impl Peer {
    pub(super) async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listening = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let _ = tcp.set_nodelay(true);
                tokio::spawn(serve(tcp));
            }
        });
        Self { address, listening }
    }

    pub(super) fn base_url(&self) -> String {
        format!("https://localhost:{}/v1", self.address.port())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// A gateway that trusts `ca`, before an upstream at `base_url`.
async fn before(base_url: String, members: &str, ca: &std::path::Path) -> Rig {
    let yaml = Yaml::new().provider_with("up", base_url, members);
    Rig::with(yaml, None, |setup| setup.env("LLMGW_EXTRA_CA_FILE", ca.to_str().unwrap())).await
}

async fn served(rig: &Rig) {
    let (status, body) = rig.ask("up/m").await.expect("an answer");
    assert_eq!(status, 200, "{body:?}\n{}", rig.gateway.log());
}

/// Returns the text of the error with which a request fails.
async fn failure(rig: &Rig) -> String {
    let (status, body) = rig.ask("up/m").await.expect("an answer");
    assert_eq!(status, 502, "{body:?}\n{}", rig.gateway.log());
    serde_json::from_slice::<serde_json::Value>(&body).unwrap()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Reads one request; returns false once the gateway has closed the connection.
async fn read_request(stream: &mut TlsStream<TcpStream>) -> bool {
    let mut received = Vec::new();
    while !received.ends_with(b"}") {
        if !stream.read_buf(&mut received).await.is_ok_and(|length| length > 0) {
            return false;
        }
    }
    true
}

/// Returns an answer with a length.
fn whole() -> String {
    let body = chat::completion("ok");
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Answers requests until the gateway closes the connection.
async fn answer_all(mut stream: TlsStream<TcpStream>) {
    while read_request(&mut stream).await {
        let _ = stream.write_all(whole().as_bytes()).await;
        let _ = stream.flush().await;
    }
}

#[tokio::test]
async fn an_answer_in_records_of_one_byte_is_whole() {
    let authority = Authority::new(&[b"http/1.1"]);
    let acceptor = authority.acceptor();
    let peer = Peer::start(move |tcp| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(tcp).await else { return };
            while read_request(&mut stream).await {
                for byte in whole().as_bytes().chunks(1) {
                    let _ = stream.write_all(byte).await;
                    let _ = stream.flush().await;
                }
            }
        }
    })
    .await;
    let rig = before(peer.base_url(), "", &authority.ca_file()).await;
    rig.row("upstream: an answer in TLS records of one byte", async {
        for _ in 0..5 {
            served(&rig).await;
        }
    })
    .await;
}

/// An answer whose connection closes without the end of TLS (close_notify) is not whole, even if only the close ends it.
#[tokio::test]
async fn an_answer_that_is_cut_without_the_end_of_tls_is_an_error() {
    let body = chat::completion("ok");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let until_close = format!("{head}connection: close\r\n\r\n{body}");
    for (name, answer, ends, status) in [
        ("an answer that the close ends, with the end of TLS", until_close.clone(), true, 200),
        ("an answer that the close ends", until_close.clone(), false, 502),
        ("half an answer that the close ends", until_close[..until_close.len() - 20].to_owned(), false, 502),
        ("half an answer with a length", whole()[..whole().len() - 20].to_owned(), false, 502),
        (
            "half an answer in chunks",
            format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n", body.len()),
            false,
            502,
        ),
    ] {
        let authority = Authority::new(&[b"http/1.1"]);
        let acceptor = authority.acceptor();
        let peer = Peer::start(move |tcp| {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            async move {
                let Ok(mut stream) = acceptor.accept(tcp).await else { return };
                read_request(&mut stream).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.flush().await;
                match ends {
                    true => drop(stream.shutdown().await),
                    false => drop(stream.into_inner().0.shutdown().await),
                }
            }
        })
        .await;
        let rig = before(peer.base_url(), "", &authority.ca_file()).await;
        let (found, body) = rig.row(&format!("upstream: {name}"), rig.ask("up/m")).await.expect("an answer");
        assert_eq!(found, status, "{name}: {body:?}");
    }
}

#[tokio::test]
async fn a_handshake_that_trickles_succeeds() {
    let authority = Authority::new(&[b"http/1.1"]);
    let upstream = Upstream::start_tls(authority.acceptor()).await;
    upstream.always(Answer::completion("ok"));
    let behind =
        upstream.base_url().rsplit(':').next().unwrap().trim_end_matches("/v1").parse::<u16>().unwrap();
    let slow = Peer::start(move |tcp| async move {
        let far = TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
        let ((mut near_read, mut near_write), (mut far_read, mut far_write)) =
            (tcp.into_split(), far.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut near_read, &mut far_write).await });
        let mut byte = [0];
        while far_read.read_exact(&mut byte).await.is_ok() && near_write.write_all(&byte).await.is_ok() {}
    })
    .await;
    let rig = before(slow.base_url(), "", &authority.ca_file()).await;
    rig.row("upstream: a handshake that trickles", served(&rig)).await;
}

/// TLS negotiates a protocol, and the upstream speaks another one, or it knows none of those that are offered.
#[tokio::test]
async fn a_protocol_that_was_not_negotiated_is_an_error() {
    for (name, protocols, version, says) in [
        ("h2 negotiated, HTTP/1.1 spoken", &[&b"h2"[..]][..], "auto", whole().into_bytes()),
        ("http/1.1 negotiated, HTTP/2 spoken", &[b"http/1.1"], "auto", settings(&[])),
        ("nothing negotiated, HTTP/2 spoken", &[], "auto", settings(&[])),
        ("only another protocol known", &[b"smtp"], "auto", Vec::new()),
        ("only http/1.1 known where HTTP/2 is required", &[b"http/1.1"], "2", whole().into_bytes()),
    ] {
        let authority = Authority::new(protocols);
        let acceptor = authority.acceptor();
        let peer = Peer::start(move |tcp| {
            let (acceptor, says) = (acceptor.clone(), says.clone());
            async move {
                let Ok(mut stream) = acceptor.accept(tcp).await else { return };
                let mut received = [0; 4 << 10];
                let _ = stream.read(&mut received).await;
                let _ = stream.write_all(&says).await;
                let _ = stream.flush().await;
                while stream.read(&mut received).await.is_ok_and(|length| length > 0) {}
            }
        })
        .await;
        let members = format!("timeout: 5\nhttp_version: \"{version}\"");
        let rig = before(peer.base_url(), &members, &authority.ca_file()).await;
        let text = rig.row(&format!("upstream: {name}"), failure(&rig)).await;
        assert!(!text.is_empty(), "{name}");
    }
}

/// Returns the configuration of a server that shows `certificate`.
fn server(certificate: &ClientCertificate) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

/// The facts of the handshake of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Made {
    kind: Option<HandshakeKind>,
    has_early_data: bool,
}

/// An upstream whose TLS changes between connections, and which records how each was made.
struct Changing {
    current: Arc<Mutex<Arc<ServerConfig>>>,
    made: Arc<Mutex<Vec<Made>>>,
    peer: Peer,
}

impl Changing {
    /// Each connection takes one request if `once` is true.
    async fn start(config: ServerConfig, once: bool) -> Self {
        let current = Arc::new(Mutex::new(Arc::new(config)));
        let made = Arc::<Mutex<Vec<Made>>>::default();
        let (shown, record) = (Arc::clone(&current), Arc::clone(&made));
        let peer = Peer::start(move |tcp| {
            let config = Arc::clone(&shown.lock().unwrap_or_else(PoisonError::into_inner));
            let record = Arc::clone(&record);
            async move {
                let Ok(mut stream) = TlsAcceptor::from(config).accept(tcp).await else { return };
                let connection = stream.get_mut().1;
                let has_early_data = connection.early_data().is_some();
                let made = Made { kind: connection.handshake_kind(), has_early_data };
                record.lock().unwrap_or_else(PoisonError::into_inner).push(made);
                if !once {
                    return answer_all(stream).await;
                }
                read_request(&mut stream).await;
                let answer = whole().replacen("\r\n", "\r\nconnection: close\r\n", 1);
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        })
        .await;
        Self { current, made, peer }
    }

    /// Shows this from the next connection on.
    fn change(&self, config: ServerConfig) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    fn made(&self) -> Vec<Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An authority for servers, with a file of its certificate.
fn authority() -> (ClientAuthority, tempfile::NamedTempFile) {
    let authority = ClientAuthority::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
    (authority, file)
}

/// A connection that was made with a valid certificate serves on; the next one shows the new certificate.
#[tokio::test]
async fn a_certificate_that_expires_fails_the_next_connection_only() {
    let (servers, ca) = authority();
    let upstream = Changing::start(server(&servers.issue("localhost")), false).await;
    let rig = before(upstream.peer.base_url(), "", ca.path()).await;
    rig.row("upstream: its certificate expires while a connection is open", async {
        served(&rig).await;
        upstream.change(server(&servers.issue_until("localhost", 2_020)));
        served(&rig).await;
        assert_eq!(upstream.made().len(), 1, "the connection is reused");
    })
    .await;
    for (certificate, wanted) in [
        (servers.issue_until("localhost", 2_020), Some("its certificate has expired")),
        (servers.issue("other.example"), Some("its certificate is for another name")),
        (
            ClientAuthority::named("another").issue("localhost"),
            Some("its certificate is from an unknown authority"),
        ),
        (servers.issue("localhost"), None),
    ] {
        let upstream = Changing::start(server(&servers.issue("localhost")), true).await;
        let rig = before(upstream.peer.base_url(), "", ca.path()).await;
        served(&rig).await;
        upstream.change(server(&certificate));
        match wanted {
            Some(wanted) => {
                let text = failure(&rig).await;
                assert!(text.contains(wanted), "{text}");
                assert_eq!(upstream.made().len(), 1, "no request is sent to it");
                upstream.change(server(&servers.issue("localhost")));
                served(&rig).await;
            }
            None => served(&rig).await,
        }
    }
}

/// Tickets work, a server that does not know a ticket is asked for a whole handshake, and nothing is sent before it.
#[tokio::test]
async fn sessions_are_resumed_and_no_request_is_sent_as_early_data() {
    let (servers, ca) = authority();
    let certificate = servers.issue("localhost");
    let config = |is_early: bool| {
        let mut config = server(&certificate);
        match is_early {
            // The library accepts early data only with sessions that it keeps.
            true => config.max_early_data_size = 16 << 10,
            false => config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap(),
        }
        config
    };
    for is_early in [true, false] {
        let upstream = Changing::start(config(is_early), true).await;
        let rig = before(upstream.peer.base_url(), "", ca.path()).await;
        rig.row(&format!("upstream: resumption, early data offered: {is_early}"), async {
            for _ in 0..3 {
                served(&rig).await;
            }
            upstream.change(config(is_early));
            served(&rig).await;
        })
        .await;
        let made = |kind| Made { kind: Some(kind), has_early_data: false };
        let (full, resumed) = (made(HandshakeKind::Full), made(HandshakeKind::Resumed));
        assert_eq!(upstream.made(), [full, resumed, resumed, full]);
    }
}
