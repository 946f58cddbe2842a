//! The gateway serves TLS itself, to a client that checks the certificate (OPS, P12).

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::tls::Authority;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

async fn gateway(upstream: &Upstream, authority: &Authority) -> Gateway {
    Setup::new(&Yaml::one(upstream.base_url()))
        .env("LLMGW_TLS_CERT_FILE", authority.ca_file().to_str().unwrap())
        .env("LLMGW_TLS_KEY_FILE", authority.key_file().to_str().unwrap())
        .launch()
        .await
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

fn post(body: String) -> http::Request<Full<Bytes>> {
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
        let request = post(chat::stream_request("m"));
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
