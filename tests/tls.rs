//! The gateway serves TLS itself, to a client that checks the certificate (OPS, P12).

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

use crate::support::figure::figure;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::raw::post;
use crate::support::tls::Authority;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, proc, wait};

fn setup(upstream: &Upstream, authority: &Authority) -> Setup {
    Setup::new(&Yaml::one(upstream.base_url()))
        .env("LLMGW_TLS_CERT_FILE", authority.ca_file().to_str().unwrap())
        .env("LLMGW_TLS_KEY_FILE", authority.key_file().to_str().unwrap())
}

async fn gateway(upstream: &Upstream, authority: &Authority) -> Gateway {
    setup(upstream, authority).launch().await
}

async fn connect(
    gateway: &Gateway,
    authority: &Authority,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(gateway.address()).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = authority.connector(protocols).connect(name, tcp);
    wait::within(wait::PATIENCE, "the handshake", connecting).await
}

fn post_over_hyper(body: String) -> http::Request<Full<Bytes>> {
    http::Request::post("https://localhost/v1/chat/completions")
        .header("host", "localhost")
        .header("authorization", format!("Bearer {ADMIN_KEY}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap()
}

#[tokio::test]
async fn tls_clients_negotiate_either_http_version_and_stream() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::events(&chat::events(&["a", "b"])));
    let authority = Authority::new(&[]);
    let gateway = gateway(&upstream, &authority).await;
    for (offered, chosen) in
        [(&[&b"h2"[..], b"http/1.1"][..], Some(&b"h2"[..])), (&[b"http/1.1"], Some(b"http/1.1")), (&[], None)]
    {
        let stream = connect(&gateway, &authority, offered).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
        let io = TokioIo::new(stream);
        let request = post_over_hyper(chat::stream_request("m"));
        let answer = if chosen == Some(b"h2") {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        };
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(body.ends_with(b"data: [DONE]\n\n"), "{body:?}");
    }
}

#[tokio::test]
async fn plain_http_and_untrusting_tls_clients_get_no_response() {
    let upstream = Upstream::start().await;
    let authority = Authority::new(&[]);
    let gateway = gateway(&upstream, &authority).await;
    assert!(connect(&gateway, &Authority::new(&[]), &[b"http/1.1"]).await.is_err(), "another authority");
    assert!(connect(&gateway, &authority, &[b"smtp"]).await.is_err(), "no protocol in common");
    let mut plain = TcpStream::connect(gateway.address()).await.unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    wait::within(wait::PATIENCE, "the end", plain.read_to_end(&mut answer)).await.ok();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(upstream.requests().len(), 0);
}

/// Opens a connection that asks for a stream and accepts few bytes at a time.
async fn ask(gateway: &Gateway, authority: &Authority) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let tcp = socket.connect(gateway.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = authority.connector(&[b"http/1.1"]).connect(name, tcp);
    let mut stream = wait::within(wait::PATIENCE, "the handshake", connecting).await.unwrap();
    let request = post(ADMIN_KEY, "connection: close\r\n", &chat::stream_request("m"));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

/// LIM-5: over TLS, what a client does not read waits in the buffer of the TLS session.
#[tokio::test]
async fn a_tls_client_that_stops_reading_costs_no_cpu_time() {
    const WINDOW: Duration = Duration::from_millis(500);
    const WINDOWS: usize = 4;
    const CHUNKS: usize = 1_000;
    let upstream = Upstream::start().await;
    let event = chat::content(&"x".repeat(16 << 10));
    let chunks = Answer::stream().times_chunk(CHUNKS, &event);
    upstream.always(chunks.chunk(chat::finish()).chunk(chat::done()).end());
    let authority = Authority::new(&[]);
    let gateway = gateway(&upstream, &authority).await;
    let mut stream = ask(&gateway, &authority).await;
    let mut head = [0; 64];
    wait::within(wait::PATIENCE, "the head", stream.read_exact(&mut head)).await.unwrap();
    let mut sent = 0;
    wait::eventually_within(2 * wait::PATIENCE, "the upstream to stop", async || {
        tokio::time::sleep(WINDOW).await;
        let sent_before = std::mem::replace(&mut sent, upstream.sent_bytes());
        (sent == sent_before).then_some(())
    })
    .await;
    let mut least = WINDOW;
    for _ in 0..WINDOWS {
        let before = proc::cpu_time(gateway.pid());
        tokio::time::sleep(WINDOW).await;
        least = least.min(proc::cpu_time(gateway.pid()).saturating_sub(before));
    }
    figure("LIM-5", format!("a TLS client that stops reading: {:.1} % of a core", percent(least, WINDOW)));
    assert!(least < WINDOW / 20, "{least:?} of {WINDOW:?}");
    let mut rest = Vec::new();
    wait::within(3 * wait::PATIENCE, "the rest", stream.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() > CHUNKS * event.len(), "the reader that goes on gets everything: {}", rest.len());
    assert!(rest.ends_with(b"data: [DONE]\n\n\r\n0\r\n\r\n"), "{:?}", rest.last_chunk::<64>());
}

fn percent(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64() * 100.0
}

/// LIM-5: a TLS client could not read an answer in clear text.
#[tokio::test]
async fn a_tls_listener_closes_connections_over_the_limit_without_a_word() {
    let upstream = Upstream::start().await;
    let authority = Authority::new(&[]);
    let setup = setup(&upstream, &authority).env("LLMGW_MAX_CONNECTIONS", "1");
    let gateway = setup.launch().await;
    let _only = connect(&gateway, &authority, &[b"http/1.1"]).await.unwrap();
    let mut second = TcpStream::connect(gateway.address()).await.unwrap();
    let mut received = Vec::new();
    wait::within(wait::PATIENCE, "the end", second.read_to_end(&mut received)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&received), "");
}
