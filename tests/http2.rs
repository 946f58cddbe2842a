//! HTTP/2 on both sides, TLS to upstreams, and frame-level attacks (P12).

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::figure::promised;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::h2_frames::{DATA, END_HEADERS, HEADERS, SETTINGS, frame};
use crate::support::h2_upstream::{H2Answer, H2Upstream};
use crate::support::tls::Authority;
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat};

/// Opens a connection to the gateway that uses HTTP/2 with prior knowledge.
pub(crate) async fn connect(gateway: &Gateway) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Returns a chat request with the administrator key.
pub(crate) fn post(body: String) -> http::Request<Full<Bytes>> {
    http::Request::post("http://gateway.test/v1/chat/completions")
        .header("authorization", format!("Bearer {ADMIN_KEY}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap()
}

fn whole(text: &str) -> H2Answer {
    let pieces = vec![Bytes::from(chat::completion(text))];
    H2Answer { status: 200, content_type: "application/json", pieces, gate: None, reset: false }
}

fn stream(pieces: Vec<Bytes>, gate: Option<Gate>, reset: bool) -> H2Answer {
    H2Answer { status: 200, content_type: "text/event-stream", pieces, gate, reset }
}

#[tokio::test]
async fn many_exchanges_share_one_client_connection() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.always(Answer::gated_events(&chat::events(&["a"]), &gate));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let mut sender = connect(&gateway).await;
    let mut exchanges = Vec::new();
    for _ in 0..50 {
        sender.ready().await.unwrap();
        exchanges.push(tokio::spawn(sender.send_request(post(chat::stream_request_with_usage("m")))));
    }
    upstream.request(49).await;
    gate.open(50 * chat::events(&["a"]).len());
    for exchange in exchanges {
        let answer = exchange.await.unwrap().unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.headers().get("connection").is_none());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, chat::events(&["a"]).concat());
    }
}

#[tokio::test]
async fn a_reset_stream_closes_only_its_own_upstream_connection() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let begun = || Answer::stream().chunk(chat::content("a"));
    upstream.then(begun().hang());
    upstream.then(begun().wait(&gate).chunk(chat::finish()).chunk(chat::done()).end());
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let mut sender = connect(&gateway).await;
    let leaving = sender.send_request(post(chat::stream_request("m"))).await.unwrap();
    sender.ready().await.unwrap();
    let staying = sender.send_request(post(chat::stream_request("m"))).await.unwrap();
    let left = Instant::now();
    drop(leaving);
    let closed = upstream.closed(0).await;
    assert!(closed.saturating_duration_since(left) < promised(Duration::from_millis(250)));
    gate.open(1);
    let body = staying.into_body().collect().await.unwrap().to_bytes();
    assert!(body.ends_with(b"data: [DONE]\n\n"));
    let records = gateway.records(2).await;
    let cancelled = records.iter().filter(|record| record["outcome"] == "cancelled").count();
    assert_eq!(cancelled, 1, "{records:?}");
}

#[tokio::test]
async fn an_upstream_can_use_http2() {
    let upstream = H2Upstream::start(whole("over frames")).await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "http_version: \"2\"");
    let gateway = Gateway::start(&yaml).await;
    let answer = gateway.client().chat(chat::request("m")).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "over frames");
    let received = upstream.request(0).await;
    assert_eq!(received.header("authorization"), Some("Bearer upstream-secret-of-up"));
    assert_eq!(received.header("connection"), None);
    assert_eq!(received.json()["model"], "m");
}

#[tokio::test]
async fn an_http2_stream_passes_event_by_event() {
    let gate = Gate::new();
    let events = chat::events(&["a", "b", "c"]);
    let upstream = H2Upstream::start(stream(events.clone(), Some(gate.clone()), false)).await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "http_version: \"2\"");
    let gateway = Gateway::start(&yaml).await;
    gate.open(2);
    let mut flow = gateway.client().chat_flow(chat::stream_request_with_usage("m")).await;
    assert_eq!(flow.event().await.bytes, events[0]);
    assert_eq!(flow.event().await.bytes, events[1]);
    for event in &events[2..] {
        gate.open(1);
        assert_eq!(flow.event().await.bytes, *event);
    }
    assert!(flow.next().await.is_none());
}

#[tokio::test]
async fn a_client_disconnect_resets_the_upstream_http2_stream() {
    let gate = Gate::new();
    let upstream = H2Upstream::start(stream(chat::events(&["a", "b"]), Some(gate.clone()), false)).await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "http_version: \"2\"");
    let gateway = Gateway::start(&yaml).await;
    gate.open(2);
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    let left = Instant::now();
    drop(flow);
    let released = upstream.released(0).await;
    assert!(released.saturating_duration_since(left) < promised(Duration::from_millis(250)));
    assert_eq!(gateway.records(1).await[0]["outcome"], "cancelled");
    assert_eq!(upstream.requests().len(), 1);
}

/// A restarting upstream sends GOAWAY: running requests continue, and later ones use another connection.
#[tokio::test]
async fn a_graceful_goaway_costs_no_request() {
    let gate = Gate::new();
    let upstream = H2Upstream::start(stream(chat::events(&["a", "b"]), Some(gate.clone()), false)).await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "http_version: \"2\"");
    let yaml = yaml.policies("retry_max_attempts: 1\ncircuit_failure_threshold: 1");
    // One worker, so that all requests share a connection.
    let gateway = Setup::new(&yaml).env("LLMGW_WORKERS", "1").start().await;
    gate.open(2);
    let mut running = gateway.client().chat_flow(chat::stream_request("m")).await;
    running.event().await;
    upstream.answer(whole("ok"));
    upstream.go_away();
    // The gateway reads the frame at an unknown time; until then the old connection is used.
    while upstream.connections() < 2 {
        let answer = gateway.client().chat(chat::request("m")).await;
        assert_eq!((answer.status, answer.header("x-llmgw-attempts")), (200, Some("1")), "{:?}", answer.body);
    }
    gate.open(10);
    let (events, whole) = running.rest().await;
    assert!(whole && events.last().unwrap().bytes == chat::done(), "what ran has gone on");
}

#[tokio::test]
async fn an_http2_reset_after_content_ends_with_an_error_event() {
    let upstream = H2Upstream::start(stream(vec![chat::role(), chat::content("a")], None, true)).await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "http_version: \"2\"");
    let gateway = Gateway::start(&yaml).await;
    let (events, _) = gateway.client().chat_flow(chat::stream_request("m")).await.rest().await;
    let text: String =
        events.iter().map(|event| String::from_utf8_lossy(&event.bytes).into_owned()).collect();
    assert!(text.contains("\"error\"") && !text.contains("[DONE]"), "{text}");
    assert_eq!(gateway.records(1).await[0]["outcome"], "cut");
}

#[tokio::test]
async fn tls_upstreams_need_a_certificate_that_is_trusted() {
    let authority = Authority::new(&[b"http/1.1"]);
    let upstream = Upstream::start_tls(authority.acceptor()).await;
    upstream.always(Answer::completion("behind TLS"));
    let yaml = Yaml::one(upstream.base_url());
    let trusting = Setup::new(&yaml).env("LLMGW_EXTRA_CA_FILE", authority.ca_file().to_str().unwrap());
    let answer = trusting.start().await.client().chat(chat::request("m")).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "behind TLS", "{answer:?}");
    let answer = Gateway::start(&yaml).await.client().chat(chat::request("m")).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (502, "upstream_unreachable"));
    let text = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(text.contains("its certificate is"), "{text}");
    assert_eq!(upstream.requests().len(), 1, "no request is sent to an untrusted server");
}

/// A handwritten HTTP/2 upstream: answers the first stream of a connection with `count` interim answers (1xx), then
/// with a completion.
async fn interim_upstream(count: usize) -> (std::net::SocketAddr, tokio::task::JoinHandle<usize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut read, mut write) = stream.into_split();
        let mut received = Vec::new();
        // The request is complete when its JSON is.
        while !received.ends_with(b"}") {
            assert_ne!(read.read_buf(&mut received).await.unwrap(), 0);
        }
        let settings = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])].concat();
        write.write_all(&settings).await.unwrap();
        // `:status` is the eighth entry of the static table.
        let interim = frame(HEADERS, END_HEADERS, 1, b"\x08\x03102");
        let mut sent = 0;
        while sent < count {
            let frames = (count - sent).min(1_000);
            if write.write_all(&interim.repeat(frames)).await.is_err() {
                return sent;
            }
            sent += frames;
        }
        let completion = chat::completion("after a while");
        let answer = [frame(HEADERS, END_HEADERS, 1, &[0x88]), frame(DATA, 1, 1, completion.as_bytes())];
        let _ = write.write_all(&answer.concat()).await;
        while read.read_buf(&mut received).await.is_ok_and(|length| length > 0) {}
        sent
    });
    (address, serving)
}

/// LIM-5: interim answers are limited over HTTP/2 as they are over HTTP/1.1.
#[tokio::test]
async fn interim_answers_over_http2_without_end_are_an_error() {
    for (count, status) in [(100, 200), (50_000_000, 502)] {
        let (address, serving) = interim_upstream(count).await;
        let yaml = Yaml::new().provider_with("up", format!("http://{address}/v1"), "http_version: \"2\"");
        let gateway = Gateway::start(&yaml).await;
        let answer = gateway.client().chat(chat::request("m")).await;
        assert_eq!(answer.status, status, "{count}: {answer:?}");
        if status == 502 {
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains("interim"), "{message}");
            let sent = serving.await.unwrap();
            assert!(sent < count / 10, "{sent} were read");
        }
    }
}
