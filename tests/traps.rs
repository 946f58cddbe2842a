//! Upstream behaviour towards an event relay that only shows with a whole gateway. Traps in the bytes themselves have
//! their tests beside the decoders and scanners.

use bytes::Bytes;
use serde_json::json;

use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::raw::{self, Raw};
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat};

/// Starts a gateway with two upstreams behind the endpoint `line`: the first responds with `first`, the next with
/// `second`.
async fn line(first: Answer) -> (Gateway, Upstream, Upstream) {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    one.always(first);
    two.always(Answer::events(&chat::events(&["second"])));
    let yaml = Yaml::new()
        .provider_with("p0", one.base_url(), "timeout: 0.3\nstream_idle_timeout: 0.3")
        .provider("p1", two.base_url())
        .endpoint("line", &[("p0", "m"), ("p1", "m")]);
    (Gateway::start(&yaml).await, one, two)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn typed(status: u16, kind: &str, body: &str) -> Answer {
    Answer::whole(status, &[("content-type", kind)], body)
}

#[tokio::test]
async fn an_invalid_body_with_status_200_fails_over_and_is_never_shown() {
    let failed = chat::error("no capacity", "overloaded");
    let page = "<!doctype html><html><title>busy</title></html>";
    let cases = [
        ("an error in JSON", typed(200, "application/json", &failed)),
        ("a page called JSON", typed(200, "application/json", page)),
        ("a page called a stream", typed(200, "text/event-stream", page)),
        ("a page called nothing", Answer::whole(200, &[], page)),
        ("blank lines and the end", typed(200, "application/json", "\n\n\n")),
        ("a role and silence", Answer::stream().chunk(chat::role()).hang()),
        ("comments and silence", Answer::stream().chunk(": PROCESSING\n\n").hang()),
    ];
    for (name, answer) in cases {
        for body in [chat::stream_request("line"), chat::request("line")] {
            let is_stream = body.contains("stream");
            let (gateway, first, second) = line(answer.clone()).await;
            if !is_stream {
                second.always(Answer::completion("second"));
            }
            let answer = gateway.client().chat(body).await;
            assert_eq!(answer.status, 200, "{name}, stream {is_stream}: {answer:?}");
            let body = text(&answer.body);
            assert!(body.contains("second") && !body.contains("html"), "{name}: {body}");
            assert_eq!((first.requests().len(), second.requests().len()), (1, 1), "{name}");
        }
    }
}

#[tokio::test]
async fn a_non_json_error_keeps_its_status_and_gets_the_gateway_envelope() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let event = format!("event: error\ndata: {}\n\n", chat::error("slow down", "rate"));
    for (status, kind, body, message) in [
        (429, "text/event-stream", event.as_str(), "slow down"),
        (400, "text/event-stream", event.as_str(), "slow down"),
        (502, "text/html", "<html><title>Bad gateway</title><body>nginx</body></html>", "Bad gateway"),
        (503, "text/plain", "try later", "try later"),
        (500, "", "", "status 500"),
    ] {
        upstream.always(typed(status, kind, body));
        for request in [chat::request("m"), chat::stream_request("m")] {
            let answer = gateway.client().chat(request).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(answer.header("content-type"), Some("application/json"));
            let shown = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(shown.contains(message) && !shown.contains('<'), "{status}: {shown}");
        }
    }
}

#[tokio::test]
async fn blank_lines_before_a_response_do_not_prevent_failover() {
    let body = format!("\n\n\n{}", chat::completion("first"));
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n\n\n",
        body.len()
    );
    for (name, answer, served) in [
        ("then the answer", Answer::new().send(head.clone()).send(body[2..].to_owned()), "first"),
        ("then the end", Answer::new().send(head.clone()).close(), "second"),
        ("then a reset", Answer::new().send(head.clone()).reset(), "second"),
    ] {
        let (gateway, _first, second) = line(answer).await;
        second.always(Answer::completion("second"));
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!(answer.json()["choices"][0]["message"]["content"], served, "{name}");
    }
}

#[tokio::test]
async fn trailers_are_not_relayed() {
    let upstream = Upstream::start().await;
    let stream = Answer::stream().chunk(chat::content("a")).chunk(chat::finish()).chunk(chat::done());
    upstream.always(stream.send("0\r\nx-trailer: of-the-upstream\r\nset-cookie: a=b\r\n\r\n"));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let mut client = Raw::open(gateway.address()).await;
    let request = raw::post(ADMIN_KEY, "te: trailers\r\nconnection: close\r\n", &chat::stream_request("m"));
    client.send(request).await;
    let reply = client.reply().await;
    assert!(reply.text.ends_with("\r\n0\r\n\r\n") && !reply.text.contains("a=b"), "{}", reply.text);
}

#[tokio::test]
async fn a_stream_ends_with_its_end_marker_though_the_connection_stays_open() {
    let upstream = Upstream::start().await;
    let stream = Answer::stream().chunk(chat::content("a")).chunk(chat::finish()).chunk(chat::done());
    upstream.always(stream.hang());
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let (events, whole) = gateway.client().chat_flow(chat::stream_request("m")).await.rest().await;
    assert!(whole && events.last().unwrap().bytes == chat::done(), "{events:?}");
    assert_eq!(gateway.records(1).await[0]["outcome"], "completed");
    upstream.closed(0).await;
}

/// FAIL-6. Keep-alives are comments for clients of Chat, and `ping` for those of Messages; none follows an `id:` line,
/// after which OpenAI's Python SDK takes a comment for an event.
#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_events_of_its_dialect() {
    let upstream = Upstream::start().await;
    let setup = Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_STREAM_KEEPALIVE_SECONDS", "1");
    let gateway = setup.start().await;
    let gate = Gate::new();
    let silent = |first: &Bytes| {
        let begun = Answer::stream().chunk(first).wait(&gate);
        begun.chunk(chat::finish()).chunk(chat::done()).end()
    };
    let (plain, numbered) = (chat::content("a"), Bytes::from([b"id: 7\n", &chat::content("a")[..]].concat()));

    upstream.then(silent(&numbered));
    let mut with_id = gateway.client().chat_flow(chat::stream_request("m")).await;
    assert_eq!(with_id.event().await.bytes, numbered);
    upstream.then(silent(&plain));
    let mut chat = gateway.client().chat_flow(chat::stream_request("m")).await;
    assert_eq!(chat.event().await.bytes, plain);
    for _ in 0..2 {
        assert_eq!(chat.event().await.bytes, ": keep-alive\n\n");
    }

    upstream.then(Answer::hang_forever());
    let body = json!({"model": "m", "max_tokens": 5, "stream": true, "messages": [{"role": "user", "content": "x"}]});
    let client = gateway.client().with("content-type", "application/json");
    let mut messages = client.open("POST", "/v1/messages", body.to_string().into()).await.unwrap();
    assert_eq!(messages.status, 200, "committed before there is an answer");
    for _ in 0..2 {
        assert_eq!(messages.event().await.bytes, "event: ping\ndata: {\"type\": \"ping\"}\n\n");
    }
    gate.open(2);
    for (mut flow, may_be_kept_alive) in [(with_id, false), (chat, true)] {
        let (events, whole) = flow.rest().await;
        let mut events: Vec<Bytes> = events.into_iter().map(|event| event.bytes).collect();
        if may_be_kept_alive {
            events.retain(|bytes| bytes != ": keep-alive\n\n");
        }
        assert!(whole);
        assert_eq!(events, [chat::finish(), chat::done()]);
    }
}
