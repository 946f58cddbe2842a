//! Tests of in-process requests: they take the same path as requests from the network, and are cancelled when their
//! caller stops waiting.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use shared::access::{Access, Role};
use shared::port::{self, HttpLimits};
use shared::routing::EchoOptions;
use shared::usage::Outcome;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::fixture::{ADMIN, Fixture, asks, echo, insider, whole};

const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(5), body_bytes_max: 100 };

fn administrator() -> port::Insider {
    insider(Access::new("admin", Role::Administrator))
}

#[tokio::test]
async fn an_in_process_request_uses_its_access_and_is_recorded() {
    let mut fixture = Fixture::start(vec![echo("a", EchoOptions::default())]);
    let (status, answer) = whole(fixture.chat(&asks("a/m", false), Some(administrator())).await).await;
    assert_eq!((status, answer["object"].as_str()), (200, Some("chat.completion")), "{answer}");
    let event = fixture.events.recv().await.unwrap();
    assert_eq!((event.key.as_str(), event.outcome), ("admin", Outcome::Completed));
}

#[tokio::test]
async fn no_header_replaces_the_key_of_a_request_without_an_insider() {
    let fixture = Fixture::start(vec![echo("a", EchoOptions::default())]);
    let request = |name: &str, value: &str| {
        Request::post("/v1/chat/completions")
            .header(name, value)
            .body(port::full(asks("a/m", false)))
            .unwrap()
    };
    for (name, value, want) in [
        ("x-api-key", ADMIN, 200),
        ("x-api-key", "wrong", 401),
        ("x-llmgw-insider", "admin", 401),
        ("x-llmgw-explain", "true", 401),
        ("insider", r#"{"access":{"key":"admin","role":"administrator"}}"#, 401),
    ] {
        let (status, _) = whole(fixture.send(request(name, value)).await).await;
        assert_eq!(status, want, "{name}: {value}");
    }
}

#[tokio::test]
async fn in_process_streams_arrive_in_frames_and_are_cancelled_when_dropped() {
    let slow = EchoOptions { chunk_delay: Duration::from_millis(1), ..EchoOptions::default() };
    let mut fixture = Fixture::start(vec![echo("a", slow)]);
    let mut whole = fixture.chat(&asks("m", true), Some(administrator())).await.into_body();
    let (mut frames, mut text) = (0, String::new());
    while let Some(frame) = whole.frame().await {
        text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        frames += 1;
    }
    assert!(frames > 1 && text.ends_with("data: [DONE]\n\n"), "{frames} frames: {text}");
    assert_eq!(fixture.events.recv().await.unwrap().outcome, Outcome::Completed);

    let hang = EchoOptions { hang: true, ..EchoOptions::default() };
    let mut fixture = Fixture::start(vec![echo("a", hang)]);
    let body = asks("m", true);
    let waiting = fixture.chat(&body, Some(administrator()));
    assert!(tokio::time::timeout(Duration::from_millis(20), waiting).await.is_err(), "it hangs");
    assert_eq!(fixture.events.recv().await.unwrap().outcome, Outcome::Cancelled, "before an answer");

    let words = EchoOptions { chunk_delay: Duration::from_millis(20), ..EchoOptions::default() };
    let mut fixture = Fixture::start(vec![echo("a", words)]);
    let mut body = fixture.chat(&asks("m", true), Some(administrator())).await.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(fixture.events.recv().await.unwrap().outcome, Outcome::Cancelled, "in the middle");
}

#[tokio::test]
async fn workers_stop_while_handlers_are_still_held() {
    let fixture = Fixture::start(vec![echo("a", EchoOptions { hang: true, ..EchoOptions::default() })]);
    let (handler, http) = (fixture.dataplane.handler(), fixture.dataplane.http_client());
    let mut request = Request::post("/v1/chat/completions").body(port::full(asks("m", false))).unwrap();
    request.extensions_mut().insert(administrator());
    let peer = ([127, 0, 0, 1], 1).into();
    let hanging = tokio::spawn(handler.handle(request, peer));
    fixture.dataplane.drain(&Notify::new()).await;
    fixture.dataplane.stop().await;
    assert_eq!(hanging.await.unwrap().status(), 503);
    assert_eq!(handler.handle(Request::new(port::full("")), peer).await.status(), 503);
    let request = Request::get("http://127.0.0.1:1/").body(bytes::Bytes::new()).unwrap();
    assert_eq!(http.send(request, LIMITS).await.unwrap_err().to_string(), "The gateway is stopping.");
}

/// Serves one connection with `answer`. Returns the URL and a task that returns the received request.
async fn serve_once(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"END") && !request.ends_with(b"content-length: 0\r\n\r\n") {
            assert_ne!(socket.read_buf(&mut request).await.unwrap(), 0);
        }
        socket.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, served)
}

#[tokio::test]
async fn outgoing_calls_send_given_headers_except_framing_and_host() {
    let fixture = Fixture::start(Vec::new());
    let http = fixture.dataplane.http_client();
    let (url, served) = serve_once("HTTP/1.1 201 Created\r\nx-a: b\r\ncontent-length: 2\r\n\r\nok").await;
    let request = Request::post(format!("{url}/v1/models?a=b"))
        .header("authorization", "Bearer k")
        .header("host", "elsewhere")
        .header("content-length", "9999")
        .header("transfer-encoding", "chunked")
        .body(bytes::Bytes::from_static(b"a body END"))
        .unwrap();
    let response = http.send(request, LIMITS).await.unwrap();
    assert_eq!((response.status().as_u16(), &response.body()[..]), (201, &b"ok"[..]));
    assert_eq!(response.headers()["x-a"], "b");
    let sent = served.await.unwrap();
    assert!(sent.starts_with("POST /v1/models?a=b HTTP/1.1\r\nhost: 127.0.0.1:"), "{sent}");
    assert!(sent.contains("\r\nauthorization: Bearer k\r\n") && sent.contains("\r\ncontent-length: 10\r\n"));
    assert!(!sent.contains("elsewhere") && !sent.contains("9999") && !sent.contains("chunked"), "{sent}");
}

#[tokio::test]
async fn outgoing_calls_are_bounded_and_follow_no_redirect() {
    let fixture = Fixture::start(Vec::new());
    let http = fixture.dataplane.http_client();
    let get = |url: &str| Request::get(url).body(bytes::Bytes::new()).unwrap();
    let (url, _served) =
        serve_once("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(http.send(get(&url), LIMITS).await.unwrap().status(), 302);
    for (answer, want) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n", "the connection broke inside the response"),
        (
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n",
            "the response is compressed, which llmgw did not request",
        ),
        ("SSH-2.0-OpenSSH\r\n", "its response is not valid HTTP"),
        (TOO_LONG, "the response is larger than 100 bytes"),
    ] {
        let (url, _served) = serve_once(answer).await;
        assert_eq!(http.send(get(&url), LIMITS).await.unwrap_err().to_string(), want);
    }
    for (url, want) in [
        ("http://169.254.169.254/latest", "169.254.169.254 is a link-local or metadata address"),
        ("ftp://127.0.0.1/", "the address is neither http nor https"),
        ("http://user:word@127.0.0.1/", "the address contains a user name or password"),
    ] {
        assert_eq!(http.send(get(url), LIMITS).await.unwrap_err().to_string(), want, "{url}");
    }
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let short = HttpLimits { timeout: Duration::from_millis(20), ..LIMITS };
    assert_eq!(http.send(get(&url), short).await.unwrap_err().to_string(), "no complete response in time");
}

const TOO_LONG: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789x";
