//! HTTP/1.1 requests to the gateway (LIM-5, P10): ambiguous or malformed requests are rejected and their connection is
//! closed; no part of them is forwarded, and nothing after them is executed.

use std::time::Duration;

use bytes::Bytes;

use crate::support::figure::figure;
use crate::support::gateway::ADMIN_KEY;
use crate::support::raw::{self, Raw};
use crate::support::upstream::Step;
use crate::support::{Answer, Client, Gate, Gateway, Upstream, Yaml, chat};

async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    (Gateway::start(&Yaml::one(upstream.base_url())).await, upstream)
}

/// A complete request that would be executed if the gateway read the preceding bytes as shorter than they are.
fn smuggled() -> String {
    raw::post(ADMIN_KEY, "x-smuggled: yes\r\n", &chat::request("m"))
}

/// Returns a chat request with this request line and these header lines, and a valid body.
fn request(line: &str, head: &str) -> String {
    format!("{line}\r\nauthorization: Bearer {ADMIN_KEY}\r\n{head}\r\n{}", chat::request("m"))
}

const LINE: &str = "POST /v1/chat/completions HTTP/1.1";

/// Heads with invalid framing.
fn wrong_framing() -> Vec<(&'static str, String)> {
    let length = chat::request("m").len();
    let with = |lines: &str| request(LINE, &format!("host: a\r\n{lines}"));
    let own = format!("content-length: {length}\r\n");
    vec![
        ("a length and a coding", with(&format!("{own}transfer-encoding: chunked\r\n"))),
        ("a coding and a length", with(&format!("transfer-encoding: chunked\r\n{own}"))),
        ("two lengths that differ", with(&format!("{own}content-length: 0\r\n"))),
        ("two lengths in a list", with(&format!("content-length: {length}, 0\r\n"))),
        ("a length with a sign", with(&format!("content-length: +{length}\r\n"))),
        ("a negative length", with("content-length: -1\r\n")),
        ("a length in hex", with("content-length: 0x10\r\n")),
        ("an empty length", with("content-length:\r\n")),
        ("a length with a space inside", with("content-length: 1 0\r\n")),
        ("a length past 64 bits", with("content-length: 99999999999999999999999\r\n")),
        ("chunked twice", with("transfer-encoding: chunked, chunked\r\n")),
        ("two codings in two lines", with("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n")),
        ("an unknown coding", with("transfer-encoding: xchunked\r\n")),
        ("gzip and chunked", with("transfer-encoding: gzip, chunked\r\n")),
        ("chunked and then gzip", with("transfer-encoding: chunked, gzip\r\n")),
        ("identity", with("transfer-encoding: identity\r\n")),
        ("a coding behind a control character", with("transfer-encoding: \u{b}chunked\r\n")),
        (
            "a coding in HTTP/1.0",
            request("POST /v1/chat/completions HTTP/1.0", "host: a\r\ntransfer-encoding: chunked\r\n"),
        ),
    ]
}

/// Heads with invalid syntax.
fn wrong_syntax() -> Vec<(&'static str, String)> {
    let length = chat::request("m").len();
    let own = format!("host: a\r\ncontent-length: {length}\r\n");
    let with = |lines: &str| request(LINE, &format!("{own}{lines}"));
    let line = |line: &str| request(line, &own);
    vec![
        ("no host", request(LINE, &format!("content-length: {length}\r\n"))),
        ("two hosts", with("host: b\r\n")),
        ("the same host twice", with("host: a\r\n")),
        ("a host with a space", request(LINE, &format!("host: a b\r\ncontent-length: {length}\r\n"))),
        ("a host with a path", request(LINE, &format!("host: a/b\r\ncontent-length: {length}\r\n"))),
        (
            "a host with user information",
            request(LINE, &format!("host: u@a\r\ncontent-length: {length}\r\n")),
        ),
        ("a folded line", with("x-a: 1\r\n 2\r\n")),
        ("a folded line by tab", with("x-a: 1\r\n\t2\r\n")),
        ("a space before the colon", with("x-a : 1\r\n")),
        ("a line without a colon", with("x-a\r\n")),
        ("an empty name", with(": 1\r\n")),
        ("a space in a name", with("x a: 1\r\n")),
        ("a NUL in a value", with("x-a: 1\0\r\n")),
        ("a control character in a value", with("x-a: \u{1}\r\n")),
        ("a bare CR in a value", with("x-a: 1\r2\r\n")),
        ("a bare LF after a header", with("x-a: 1\n")),
        ("bare LF everywhere", with("").replace("\r\n", "\n")),
        ("a space before the first header", request(LINE, &format!(" x-a: 1\r\n{own}"))),
        ("an unknown version", line("POST /v1/chat/completions HTTP/9.9")),
        ("HTTP/2.0 in text", line("POST /v1/chat/completions HTTP/2.0")),
        ("a version in small letters", line("POST /v1/chat/completions http/1.1")),
        ("no version", line("POST /v1/chat/completions")),
        ("two spaces before the target", line("POST  /v1/chat/completions HTTP/1.1")),
        ("a tab before the version", line("POST /v1/chat/completions\tHTTP/1.1")),
        ("a space in the target", line("POST /v1/chat completions HTTP/1.1")),
        ("a NUL in the target", line("POST /v1/chat\0/completions HTTP/1.1")),
        ("a control character in the method", line("PO\u{1}ST /v1/chat/completions HTTP/1.1")),
        ("a space after the version", line("POST /v1/chat/completions HTTP/1.1 ")),
    ]
}

/// Invalid chunked bodies.
fn wrong_chunks() -> Vec<(&'static str, String)> {
    let body = chat::request("m");
    let length = body.len();
    let with = |chunks: &str| {
        format!(
            "{LINE}\r\nhost: a\r\nauthorization: Bearer {ADMIN_KEY}\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"
        )
    };
    vec![
        ("no hex digit", with(&format!("zz\r\n{body}\r\n0\r\n\r\n"))),
        ("an empty size", with(&format!("\r\n{body}\r\n0\r\n\r\n"))),
        ("a negative size", with(&format!("-1\r\n{body}\r\n0\r\n\r\n"))),
        ("a size with 0x", with(&format!("0x{length:x}\r\n{body}\r\n0\r\n\r\n"))),
        ("a size with a sign", with(&format!("+{length:x}\r\n{body}\r\n0\r\n\r\n"))),
        ("a size past 64 bits", with(&format!("1{length:016x}\r\n{body}\r\n0\r\n\r\n"))),
        ("a space before the size", with(&format!(" {length:x}\r\n{body}\r\n0\r\n\r\n"))),
        ("a chunk longer than its size", with(&format!("1\r\n{body}\r\n0\r\n\r\n"))),
        ("a bare LF after a size", with(&format!("{length:x}\n{body}\r\n0\r\n\r\n"))),
        ("a bare LF after a chunk", with(&format!("{length:x}\r\n{body}\n0\r\n\r\n"))),
        ("a bare CR after a size", with(&format!("{length:x}\r{body}\r\n0\r\n\r\n"))),
        (
            "an extension of 64 KiB",
            with(&format!("{length:x};{}\r\n{body}\r\n0\r\n\r\n", "x".repeat(64 << 10))),
        ),
    ]
}

/// Returns `body` in chunked codings that another parser might read differently: bytes after a chunk size, and
/// trailers.
fn codings_in_doubt(body: &str) -> Vec<(&'static str, Vec<u8>)> {
    let length = body.len();
    let sized =
        |size: &[u8]| [format!("{length:x}").as_bytes(), size, body.as_bytes(), b"\r\n0\r\n\r\n"].concat();
    let ended = |trailers: &[u8]| [format!("{length:x}\r\n{body}\r\n0\r\n").as_bytes(), trailers].concat();
    let extended = body
        .as_bytes()
        .iter()
        .flat_map(|byte| [format!("1;{}\r\n", "x".repeat(1 << 10)).as_bytes(), &[*byte], b"\r\n"].concat());
    let many: String = (0..100).map(|index| format!("x-{index}: 1\r\n")).collect();
    vec![
        ("two carriage returns after a size", sized(b"\r\r\n")),
        ("a form feed after a size", sized(b"\x0c\r\n")),
        ("a vertical tab after a size", sized(b"\x0b\r\n")),
        ("a word after a size", sized(b" x\r\n")),
        ("a comma after a size", sized(b",1\r\n")),
        ("a bare CR in an extension", sized(b";a\rb\r\n")),
        ("a NUL in an extension", sized(b";a\0b\r\n")),
        ("a DEL in an extension", sized(b";a\x7f\r\n")),
        ("a bare LF after an extension", sized(b";a\n")),
        ("extensions of 1 KiB without end", extended.chain(*b"0\r\n\r\n").collect()),
        ("a request line as trailer", ended(b"GET /x HTTP/1.1\r\n\r\n")),
        ("a bare CR in a trailer", ended(b"A: b\rTransfer-Encoding: x\r\n\r\n")),
        ("a NUL in a trailer's name", ended(b"A\0: b\r\n\r\n")),
        ("a NUL in a trailer's value", ended(b"A: b\0\r\n\r\n")),
        ("a trailer without a colon", ended(b"A\r\n\r\n")),
        ("a space before a trailer's colon", ended(b"A : b\r\n\r\n")),
        ("a folded trailer", ended(b"A: b\r\n c\r\n\r\n")),
        ("a trailer that ends in a bare LF", ended(b"A: b\n\r\n")),
        ("a bare LF for the empty line", ended(b"\n")),
        ("a hundred trailers", ended(format!("{many}\r\n").as_bytes())),
    ]
}

const CHUNKED: &str = "host: a\r\ntransfer-encoding: chunked\r\n";

/// LIM-5, P10: the codings of requests, each followed by a second request.
#[tokio::test]
async fn an_ambiguous_chunked_request_is_rejected() {
    let (gateway, upstream) = gateway().await;
    let head = format!("{LINE}\r\nauthorization: Bearer {ADMIN_KEY}\r\n{CHUNKED}\r\n");
    let send = async |coding: &[u8]| {
        let mut connection = Raw::open(gateway.address()).await;
        connection.send([head.as_bytes(), coding, smuggled().as_bytes()].concat()).await;
        connection.reply_within(Duration::from_secs(5)).await
    };
    for (name, coding) in codings_in_doubt(&chat::request("m")) {
        let reply = send(&coding).await;
        assert!(reply.status == 400 && reply.closed && reply.answers() == 1, "{name}: {reply:?}");
        assert!(reply.text.contains("bad_http"), "{name}: {reply:?}");
        assert_eq!(upstream.requests().len(), 0, "{name}");
    }
    let body = chat::request("m");
    let plain = format!("{:x} \t; a=\"b\" ;c\r\n{body}\r\n0;last\r\nX-Sum: 1\r\nx-b:\r\n\r\n", body.len());
    let reply = send(plain.as_bytes()).await;
    assert_eq!((reply.status, reply.answers()), (200, 2), "{reply:?}");
}

/// Codings that are unambiguous in an answer: extensions and trailers are dropped, and every reader finds the same end.
const DROPPED: [&str; 3] = ["a NUL in an extension", "a DEL in an extension", "a hundred trailers"];

/// LIM-5: the codings of answers. No answer with an ambiguous end is relayed as complete.
#[tokio::test]
async fn an_ambiguous_chunked_response_is_an_error() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let head =
        |kind: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
    for (name, coding) in codings_in_doubt(&chat::completion("never whole")) {
        upstream.then(Answer::new().send([head("application/json").as_bytes(), &coding].concat()).close());
        let reply = gateway.client().chat(chat::request("m")).await;
        assert_eq!(reply.status, if DROPPED.contains(&name) { 200 } else { 502 }, "{name}: {reply:?}");
    }
    let events = String::from_utf8(chat::events(&["a"]).concat()).unwrap();
    for (name, coding) in codings_in_doubt(&events) {
        // A chunk of content passes before the ambiguous part.
        let content = chat::content("begun");
        let begun =
            [head("text/event-stream").as_bytes(), format!("{:x}\r\n", content.len()).as_bytes()].concat();
        let whole = [begun.as_slice(), &content, b"\r\n"].concat();
        let gate = Gate::new();
        upstream.then(Answer::new().send(whole).wait(&gate).send(coding).close());
        let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
        flow.event().await;
        gate.open(1);
        let (events, _) = flow.rest().await;
        let last = events.last().map(|event| String::from_utf8_lossy(&event.bytes).into_owned());
        let is_error = last.as_ref().is_some_and(|last| last.contains("\"error\""));
        assert_eq!(is_error, !DROPPED.contains(&name), "{name}: {last:?}");
    }
}

/// LIM-5: interim answers (1xx) are limited per answer, in number and in bytes.
#[tokio::test]
async fn interim_answers_without_end_are_an_error() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let small = "HTTP/1.1 102 Processing\r\n\r\n";
    let large = format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "x".repeat(8 << 10));
    for (name, interim) in [("small", small), ("large", &large)] {
        upstream.then(Answer { steps: vec![Step::Repeat(Bytes::from(interim.repeat(64)))] });
        let before = upstream.sent_bytes();
        let reply = gateway.client().chat(chat::request("m")).await;
        assert_eq!(reply.status, 502, "{name}: {reply:?}");
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains("interim"), "{name}: {reply:?}");
        let sent = upstream.sent_bytes() - before;
        assert!(sent < 64 << 20, "{name}: {sent} bytes were taken");
        let completion = Answer::completion("after a while");
        let patient = completion.steps.iter().fold(Answer::new().send(small.repeat(100)), |answer, step| {
            Answer { steps: answer.steps.into_iter().chain([step.clone()]).collect() }
        });
        upstream.then(patient);
        assert_eq!(
            gateway.client().chat(chat::request("m")).await.status,
            200,
            "{name}: a hundred are none too many"
        );
    }
}

/// P10: each case is followed by a second request, which must never be executed.
#[tokio::test]
async fn malformed_requests_are_rejected_and_their_connections_closed() {
    let (gateway, upstream) = gateway().await;
    let mut wrong = Vec::new();
    let cases = [wrong_framing(), wrong_syntax(), wrong_chunks()].concat();
    let count = cases.len();
    for (name, bytes) in cases {
        let before = upstream.requests().len();
        let mut connection = Raw::open(gateway.address()).await;
        connection.send(bytes + &smuggled()).await;
        let reply = connection.reply_within(Duration::from_secs(5)).await;
        let refused = [400, 501, 505].contains(&reply.status);
        let forwarded = upstream.requests().len() - before;
        if !(refused && reply.closed && reply.answers() == 1 && forwarded == 0) {
            wrong.push((name, reply, forwarded));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    figure("P10", format!("{count} of {count} refused with their connection, nothing forwarded"));
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200, "and the gateway lives");
}

#[tokio::test]
async fn a_malformed_http_request_gets_an_error_in_the_envelope() {
    let (gateway, _upstream) = gateway().await;
    let mut connection = Raw::open(gateway.address()).await;
    connection.send(request(LINE, "content-length: 2\r\n")).await;
    let reply = connection.reply().await;
    assert!(reply.text.contains(r#""code":"bad_http""#), "{}", reply.text);
    assert!(reply.text.to_ascii_lowercase().contains("connection: close"), "{}", reply.text);
}

#[tokio::test]
async fn heads_over_the_limits_are_refused() {
    let (gateway, upstream) = gateway().await;
    let length = chat::request("m").len();
    let own = format!("host: a\r\ncontent-length: {length}\r\n");
    let many: String = (0..300).map(|index| format!("x-{index}: 1\r\n")).collect();
    let path = "a".repeat(200 << 10);
    for (name, line, head) in [
        ("300 headers", LINE, format!("{own}{many}")),
        ("a header of 1 MiB", LINE, format!("{own}x-a: {}\r\n", "a".repeat(1 << 20))),
        ("a path of 200 KiB", &format!("POST /v1/{path} HTTP/1.1"), own.clone()),
    ] {
        let mut connection = Raw::open(gateway.address()).await;
        connection.send(request(line, &head)).await;
        let reply = connection.reply().await;
        assert!(reply.status == 431 && reply.closed, "{name}: {reply:?}");
        assert!(reply.text.contains(r#""code":"bad_http""#), "{name}: {reply:?}");
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn hop_by_hop_headers_are_not_forwarded() {
    let (gateway, upstream) = gateway().await;
    let body = chat::completion("ok");
    let headers = [
        ("content-type", "application/json"),
        ("connection", "x-nominated"),
        ("x-nominated", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-authenticate", "Basic"),
        ("upgrade", "h2c"),
        ("trailer", "x-t"),
        ("set-cookie", "a=b"),
        ("alt-svc", "h3=\":443\""),
        ("server", "scripted"),
        ("strict-transport-security", "max-age=1"),
        ("x-ratelimit-remaining-requests", "5"),
        ("openai-organization", "tenant"),
    ];
    upstream.always(Answer::whole(200, &headers, body));
    let client = gateway
        .client()
        .with("connection", "x-drop, keep-alive")
        .with("x-drop", "1")
        .with("te", "trailers")
        .with("trailer", "x-t")
        .with("proxy-authorization", "Basic x")
        .with("proxy-connection", "keep-alive")
        .with("upgrade", "h2c")
        .with("http2-settings", "AAMAAABkAAQAAP__");
    let answer = client.chat(chat::request("m")).await;
    assert_eq!(answer.status, 200);
    for (name, _) in &headers[2..] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    let received = upstream.request(0).await;
    for name in [
        "x-drop",
        "te",
        "trailer",
        "proxy-authorization",
        "proxy-connection",
        "upgrade",
        "http2-settings",
        "keep-alive",
    ] {
        assert_eq!(received.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn a_wrong_method_returns_405_with_the_allowed_methods() {
    let (gateway, upstream) = gateway().await;
    for (method, path, allow) in [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/embeddings", "POST"),
        ("GET", "/messages", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/up/m", "GET"),
        ("POST", "/health", "GET"),
        ("PUT", "/ready", "GET"),
        ("POST", "/metrics", "GET"),
    ] {
        let answer = gateway.client().send(method, path, Bytes::new()).await.unwrap();
        assert_eq!(answer.status, 405, "{method} {path}");
        let allowed = answer.header("allow").unwrap_or_default().to_owned();
        assert!(allowed.split(", ").any(|method| method == allow), "{method} {path}: {allowed}");
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn head_answers_as_get_does_without_a_body() {
    let (gateway, _upstream) = gateway().await;
    for path in ["/health", "/ready", "/v1/models", "/models", "/v1/models/up/m"] {
        let get = gateway.client().get(path).await.unwrap();
        let head = gateway.client().send("HEAD", path, Bytes::new()).await.unwrap();
        assert_eq!((get.status, head.status), (200, 200), "{path}");
        assert!(head.body.is_empty() && !get.body.is_empty(), "{path}");
    }
}

/// M-216.
#[tokio::test]
async fn bare_paths_are_equivalent_to_versioned_paths() {
    let (gateway, upstream) = gateway().await;
    let client = gateway.client();
    assert_eq!(client.get("/models").await.unwrap().body, client.get("/v1/models").await.unwrap().body);
    for (index, path) in ["/v1/chat/completions", "/chat/completions", "/completions"].into_iter().enumerate()
    {
        assert_eq!(client.post(path, chat::request("m")).await.status, 200, "{path}");
        assert!(upstream.request(index).await.head.starts_with("POST /v1/chat/completions "), "{path}");
    }
    for path in [
        "/responses",
        "/messages",
        "/messages/count_tokens",
        "/embeddings",
        "/audio/transcriptions",
        "/audio/speech",
        "/images/generations",
        "/videos/generations",
    ] {
        let bare = client.post(path, chat::request("m")).await;
        let versioned = client.post(&format!("/v1{path}"), chat::request("m")).await;
        assert_eq!(bare.status, versioned.status, "{path}");
        assert_ne!(bare.status, 404, "{path}");
    }
    for path in ["/v1/completions", "/v1/unknown", "/v2/chat/completions", "/v1/chat/completions/"] {
        let answer = client.post(path, chat::request("m")).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.error_code(), "not_found", "{path}");
    }
}

#[tokio::test]
async fn requests_in_one_write_are_answered_in_order() {
    let (gateway, upstream) = gateway().await;
    upstream.then(Answer::completion("one")).then(Answer::completion("two"));
    let mut connection = Raw::open(gateway.address()).await;
    let last = raw::post(ADMIN_KEY, "connection: close\r\n", &chat::request("m"));
    connection.send(raw::post(ADMIN_KEY, "", &chat::request("m")) + &last).await;
    let reply = connection.reply().await;
    assert_eq!(reply.answers(), 2, "{}", reply.text);
    assert!(reply.text.find("\"one\"") < reply.text.find("\"two\""), "{}", reply.text);
}

#[tokio::test]
async fn a_request_pipelined_after_a_chunked_one_is_answered() {
    let (gateway, upstream) = gateway().await;
    upstream.then(Answer::completion("one")).then(Answer::completion("two"));
    let body = chat::request("m");
    let first = format!(
        "{LINE}\r\nhost: a\r\nauthorization: Bearer {ADMIN_KEY}\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let mut connection = Raw::open(gateway.address()).await;
    connection.send(first + &raw::post(ADMIN_KEY, "connection: close\r\n", &body)).await;
    let reply = connection.reply().await;
    assert_eq!(reply.answers(), 2, "{}", reply.text);
    assert!(reply.text.find("\"one\"") < reply.text.find("\"two\""), "{}", reply.text);
}

#[tokio::test]
async fn an_http_1_0_client_gets_a_response_without_chunks() {
    let (gateway, upstream) = gateway().await;
    upstream.always(Answer::stream().chunk(chat::role()).chunk(chat::content("some")).chunk(chat::done()));
    let body = chat::stream_request("m");
    let mut connection = Raw::open(gateway.address()).await;
    connection
        .send(format!(
            "POST /v1/chat/completions HTTP/1.0\r\nauthorization: Bearer {ADMIN_KEY}\r\nconnection: keep-alive\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    let reply = connection.reply().await;
    assert!(reply.status == 200 && reply.closed, "{reply:?}");
    let head = reply.text.to_ascii_lowercase();
    assert!(!head.contains("transfer-encoding") && head.contains("connection: close"), "{head}");
    assert!(reply.text.ends_with("data: [DONE]\n\n"), "{}", reply.text);
}

#[tokio::test]
async fn a_client_that_waits_for_100_gets_it() {
    let (gateway, upstream) = gateway().await;
    let body = chat::request("m");
    let request = raw::post(ADMIN_KEY, "expect: 100-continue\r\nconnection: close\r\n", &body);
    let (head, _) = request.split_at(request.len() - body.len());
    let mut connection = Raw::open(gateway.address()).await;
    connection.send(head).await;
    connection.read_until("HTTP/1.1 100 Continue\r\n\r\n").await;
    connection.send(body).await;
    assert_eq!(connection.reply().await.status, 200);
    assert_eq!(upstream.request(0).await.header("expect"), None);
}

#[tokio::test]
async fn a_web_socket_is_refused_at_once() {
    let (gateway, _upstream) = gateway().await;
    let mut connection = Raw::open(gateway.address()).await;
    connection
        .send(format!(
            "GET /v1/responses HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {ADMIN_KEY}\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        ))
        .await;
    assert_eq!(connection.reply().await.status, 426);
}

#[tokio::test]
async fn a_valid_request_id_is_kept_and_an_invalid_one_is_replaced() {
    let (gateway, _upstream) = gateway().await;
    let answer = gateway.client().with("x-request-id", "my-id.1").chat(chat::request("m")).await;
    assert_eq!(answer.header("x-request-id"), Some("my-id.1"));
    for bad in ["", "has space", "semi;colon", &"x".repeat(129)] {
        let answer = gateway.client().with("x-request-id", bad).chat(chat::request("m")).await;
        let id = answer.header("x-request-id").unwrap();
        let digits = id.strip_prefix("req_").unwrap_or_else(|| panic!("{id} for {bad:?}"));
        assert!(digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{id}");
    }
}

#[tokio::test]
async fn a_selector_matches_only_an_exact_model_id_or_endpoint() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::new()
        .provider_with("a", upstream.base_url(), "models: [shared, only-a, with/slash]")
        .provider_with("b", upstream.base_url(), "models: [shared]")
        .endpoint("line", &[("a", "shared"), ("b", "shared")]);
    let gateway = Gateway::start(&yaml).await;
    for (selector, status) in [
        ("line", 200),
        ("a/shared", 200),
        ("b/shared", 200),
        ("only-a", 200),
        ("with/slash", 200),
        ("a/with/slash", 200),
        ("shared", 404),
        ("line/shared", 404),
        ("Line", 404),
        ("a", 404),
        ("b/only-a", 404),
        ("", 404),
        ("nothing", 404),
    ] {
        let answer = gateway.client().chat(chat::request(selector)).await;
        assert!(
            answer.status == status || (selector.is_empty() && answer.status == 400),
            "{selector:?}: {answer:?}"
        );
        if answer.status == 404 {
            assert_eq!(answer.error_code(), "model_not_found", "{selector:?}");
        }
    }
    let listed = gateway.client().get("/v1/models").await.unwrap().json();
    let mut ids: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    let expected = ["a/only-a", "a/shared", "a/with/slash", "b/shared", "line", "only-a", "with/slash"];
    assert_eq!(ids, expected);
    for id in ids {
        let one = gateway.client().get(&format!("/v1/models/{id}")).await.unwrap();
        assert_eq!(one.json()["id"], *id);
        let encoded = gateway.client().get(&format!("/v1/models/{}", id.replace('/', "%2F"))).await.unwrap();
        assert_eq!(encoded.json()["id"], *id);
    }
}

#[tokio::test]
async fn health_needs_no_provider_and_names_the_build() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let answer = Client::new(gateway.address(), None).get("/health").await.unwrap();
    assert_eq!(answer.json()["status"], "ok");
    assert!(answer.json()["version"].is_string(), "{:?}", answer.body);
}
