//! Clients over TLS: handshakes that stand still, records of one byte, updates of keys without end, resumption, early data,
//! and connections that are cut.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, HandshakeKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Rig;
use crate::support::gateway::ADMIN_KEY;
use crate::support::{Answer, Upstream, Yaml, chat, raw, wait};

async fn rig() -> (Rig, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    (Rig::start(Yaml::one(upstream.base_url()), true, &[]).await, upstream)
}

fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

async fn connect(rig: &Rig, connector: &TlsConnector) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(rig.gateway.address()).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    wait::within(wait::PATIENCE, "the handshake", connector.connect(name(), tcp)).await.unwrap()
}

fn request() -> String {
    raw::post(ADMIN_KEY, "connection: close\r\n", &chat::request("up/m"))
}

/// Sends a request and returns the answer.
async fn ask(mut stream: TlsStream<TcpStream>) -> String {
    stream.write_all(request().as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    wait::within(wait::PATIENCE, "the answer", stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// The opening of a connection has a time limit; until then such clients cost little.
#[tokio::test]
async fn handshakes_that_stand_still_are_ended() {
    const CLIENTS: usize = 100;
    let (rig, _upstream) = rig().await;
    rig.row(&format!("{CLIENTS} handshakes that stand still or trickle"), async {
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let mut tcp = TcpStream::connect(rig.gateway.address()).await.unwrap();
            // The head of a ClientHello of 512 bytes, and no byte, a part or nearly all of it.
            let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 500]].concat();
            tcp.write_all(&hello[..number % 3 * 250]).await.unwrap();
            clients.push(tcp);
        }
        rig.rests("handshakes that stand still").await;
        assert!(rig.connections().await >= CLIENTS);
        for mut tcp in clients {
            let mut rest = Vec::new();
            let ending = tcp.read_to_end(&mut rest);
            wait::within(2 * wait::PATIENCE, "the end of the connection", ending).await.ok();
        }
    })
    .await;
}

#[tokio::test]
async fn records_of_one_byte_are_served() {
    let (rig, upstream) = rig().await;
    let connector = rig.tls().unwrap().connector(&[b"http/1.1"]);
    let answer = rig
        .row("a request in TLS records of one byte", async {
            let mut stream = connect(&rig, &connector).await;
            for byte in request().as_bytes().chunks(1) {
                stream.write_all(byte).await.unwrap();
                stream.flush().await.unwrap();
            }
            let mut answer = String::new();
            wait::within(wait::PATIENCE, "the answer", stream.read_to_string(&mut answer)).await.unwrap();
            answer
        })
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(upstream.requests().len(), 1);
}

/// Each update costs the other side two derivations of keys and a message.
#[tokio::test]
async fn updates_of_keys_without_end_cost_their_own_connection() {
    let (rig, _upstream) = rig().await;
    let connector = rig.tls().unwrap().connector(&[b"http/1.1"]);
    rig.row("TLS key updates without end", async {
        let mut stream = connect(&rig, &connector).await;
        for _ in 0..5_000 {
            stream.get_mut().1.refresh_traffic_keys().unwrap();
            if stream.flush().await.is_err() {
                return;
            }
        }
    })
    .await;
}

/// A session is resumed, one that the gateway does not know is not, and no request is accepted before the handshake.
#[tokio::test]
async fn sessions_are_resumed_and_early_data_is_never_accepted() {
    let (mut rig, upstream) = rig().await;
    let connector = rig.tls().unwrap().connector(&[b"http/1.1"]);
    let mut config = rustls::ClientConfig::clone(connector.config());
    config.enable_early_data = true;
    let config = Arc::new(config);
    let connector = TlsConnector::from(Arc::clone(&config));
    for (round, wanted) in
        [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed].into_iter().enumerate()
    {
        let stream = connect(&rig, &connector).await;
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(wanted), "{round}");
        assert!(!stream.get_ref().1.is_early_data_accepted());
        assert!(ask(stream).await.starts_with("HTTP/1.1 200"));
        let mut next = ClientConnection::new(Arc::clone(&config), name()).unwrap();
        assert!(next.early_data().is_none(), "the ticket does not allow early data");
    }
    rig.gateway = rig.gateway.relaunch().await;
    let stream = connect(&rig, &connector).await;
    assert_eq!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full), "the ticket is unknown");
    assert!(ask(stream).await.starts_with("HTTP/1.1 200"));
    assert_eq!(upstream.requests().len(), 4);
}

/// A request whose connection is cut, without the end of TLS, is never taken for whole.
#[tokio::test]
async fn a_request_that_is_cut_goes_nowhere() {
    let (rig, upstream) = rig().await;
    let connector = rig.tls().unwrap().connector(&[b"http/1.1"]);
    let whole = request();
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find(|line| line.starts_with("content-length")).unwrap();
    let chunked = head.replace(length, "transfer-encoding: chunked");
    let chunk = format!("{:x}\r\n{body}\r\n", body.len());
    rig.row("requests that are cut without the end of TLS", async {
        for sent in [
            format!("{head}\r\n\r\n{}", &body[..body.len() / 2]),
            format!("{chunked}\r\n\r\n{chunk}"),
            format!("{chunked}\r\n\r\n{chunk}0\r\n"),
        ] {
            let mut stream = connect(&rig, &connector).await;
            stream.write_all(sent.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            let (mut tcp, _) = stream.into_inner();
            tcp.shutdown().await.unwrap();
            let mut rest = Vec::new();
            wait::within(wait::PATIENCE, "the end", tcp.read_to_end(&mut rest)).await.ok();
        }
    })
    .await;
    assert_eq!(upstream.requests().len(), 0);
}
