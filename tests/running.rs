//! Running exchanges: what `GET running` shows of them at each stage, and what a cancellation does to the client, the
//! upstream and the record (CAN-1, ERR-3).

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::http2::{connect, post};
use crate::support::admin::Admin;
use crate::support::client::Event;
use crate::support::figure::{figure, promised};
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::raw::{self, Raw};
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

/// The maximum time from a cancellation to the close of the upstream connection.
const CLOSE_MAX: Duration = Duration::from_millis(100);

/// Starts a gateway whose provider `up` retries once after the wait that the upstream asks for.
async fn gateway(upstream: &Upstream) -> Gateway {
    let yaml = Yaml::one(upstream.base_url());
    Gateway::start(&yaml.policies("retry_max_attempts: 2\ncircuit_failure_threshold: 0")).await
}

async fn running(gateway: &Gateway) -> Vec<Value> {
    let page = Admin(gateway.client()).done("GET", "running", Value::Null).await;
    page["data"].as_array().unwrap().clone()
}

/// Waits until an exchange is at `stage`, and returns its description.
async fn at(gateway: &Gateway, stage: &str) -> Value {
    wait::eventually(&format!("an exchange at the stage {stage}"), async || {
        let running = running(gateway).await;
        running.into_iter().find(|exchange| exchange["stage"] == stage)
    })
    .await
}

/// Cancels `exchange` and returns its request ID and the time of the request.
async fn cancel(gateway: &Gateway, exchange: &Value) -> (String, Instant) {
    let request_id = exchange["request_id"].as_str().unwrap().to_owned();
    let cancelled_at = Instant::now();
    let answer =
        Admin(gateway.client()).call("POST", &format!("requests/{request_id}/cancel"), Value::Null).await;
    assert_eq!((answer.status, answer.json()), (202, json!({"request_id": request_id})));
    (request_id, cancelled_at)
}

/// Checks that request number `index` of the upstream was let go soon after `cancelled_at`.
async fn let_go(upstream: &Upstream, index: usize, cancelled_at: Instant, when: &str) {
    let taken = upstream.closed(index).await.saturating_duration_since(cancelled_at);
    figure(
        "CAN-1",
        format!("cancelled {when}, until the upstream is let go: {:.2} ms", taken.as_secs_f64() * 1e3),
    );
    assert!(taken <= promised(CLOSE_MAX), "{when}: {taken:?}");
}

/// Checks the record of a cancelled exchange.
async fn recorded(gateway: &Gateway, request_id: &str) -> Value {
    let record = gateway.record_of(request_id).await;
    assert_eq!(
        (&record["outcome"], &record["error"]),
        (&json!("cancelled"), &json!("cancelled")),
        "{record}"
    );
    assert_eq!(record["cancelled_by"], "administrator");
    let message = record["message"].as_str().unwrap();
    assert!(message.starts_with("An administrator cancelled this request."), "{record}");
    record
}

/// Sends a chat request with these lines in its head.
async fn send(gateway: &Gateway, body: &str) -> Raw {
    let mut client = Raw::open(gateway.address()).await;
    let head = "user-agent: claude-cli/2.1.329 (external, cli)\r\n";
    client.send(raw::post(ADMIN_KEY, head, body)).await;
    client
}

/// Answers that leave an exchange at each stage after its request has been read.
fn stages() -> [(&'static str, Answer); 4] {
    let busy = chat::error("busy", "busy");
    let streaming = Answer::stream().chunk(chat::role()).chunk(chat::content("some words of output"));
    [
        ("waiting", Answer::hang_forever()),
        ("held", Answer::stream().chunk(chat::role()).hang()),
        ("paused", Answer::whole(503, &[("content-type", "application/json"), ("retry-after", "5")], busy)),
        ("streaming", streaming.hang()),
    ]
}

#[tokio::test]
async fn an_exchange_is_listed_at_every_stage() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    assert_eq!(
        Admin(gateway.client()).done("GET", "running", Value::Null).await,
        json!({"data": [], "more": 0})
    );
    let request = raw::post(ADMIN_KEY, "user-agent: OpenAI/Python 2.8.1\r\n", &chat::request("m"));
    let mut client = Raw::open(gateway.address()).await;
    client.send(request.split_at(request.len() - 9).0).await;
    let reading = at(&gateway, "reading").await;
    assert_eq!(
        (&reading["client"], &reading["selector"]),
        (&json!("OpenAI/Python 2.8.1"), &json!("")),
        "{reading}"
    );
    assert_eq!((&reading["provider"], &reading["attempt"]), (&Value::Null, &json!(0)), "{reading}");
    drop(client);
    for (stage, answer) in stages() {
        upstream.then(answer);
        let client = send(&gateway, &chat::stream_request("m")).await;
        let exchange = at(&gateway, stage).await;
        let want = json!({
            "key": "admin", "client": "claude-cli/2.1.329", "operation": "chat_completions", "selector": "m",
            "provider": "up", "model": "m", "attempt": 1,
        });
        for (name, value) in want.as_object().unwrap() {
            assert_eq!(&exchange[name], value, "{stage}: {exchange}");
        }
        let started = exchange["started_at_ms"].as_u64().unwrap();
        if stage == "streaming" {
            let relayed = wait::eventually("the relayed content", async || {
                let exchange = at(&gateway, stage).await;
                (exchange["bytes_out"].as_u64()? > 0).then_some(exchange)
            })
            .await;
            let sent = chat::role().len() + chat::content("some words of output").len();
            assert_eq!(relayed["bytes_out"], sent, "{relayed}");
            assert!(relayed["pieces"].as_u64().unwrap() >= 1, "{relayed}");
            assert!(relayed["last_piece_at_ms"].as_u64().unwrap() >= started, "{relayed}");
            assert_eq!(relayed["output_tokens_estimate"], 5, "{relayed}");
        } else {
            assert_eq!((&exchange["pieces"], &exchange["last_piece_at_ms"]), (&json!(0), &Value::Null));
        }
        drop(client);
        wait::eventually("no running exchange", async || running(&gateway).await.is_empty().then_some(()))
            .await;
    }
}

#[tokio::test]
async fn a_request_that_is_cancelled_before_its_answer_gets_an_error() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    for (index, (stage, answer)) in stages().into_iter().take(3).enumerate() {
        upstream.then(answer);
        let mut client = send(&gateway, &chat::request("m")).await;
        let (request_id, cancelled_at) = cancel(&gateway, &at(&gateway, stage).await).await;
        let reply = client.read_until("request_cancelled").await;
        assert!(reply.starts_with("HTTP/1.1 499 "), "{stage}: {reply}");
        assert!(reply.contains("\r\nx-should-retry: false\r\n"), "{stage}: {reply}");
        if stage != "paused" {
            let_go(&upstream, index, cancelled_at, stage).await;
        }
        let record = recorded(&gateway, &request_id).await;
        assert_eq!(record["status"], 499, "{record}");
        let billed = record["tokens"]["input"].as_u64().unwrap();
        assert_eq!(billed > 0, stage != "paused", "what has gone upstream is billed: {stage}: {record}");
        assert_eq!(upstream.requests().len(), index + 1, "no retry");
    }
}

#[tokio::test]
async fn a_request_can_be_cancelled_while_its_body_is_read() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let mut client = Raw::open(gateway.address()).await;
    let request = raw::post(ADMIN_KEY, "", &chat::request("m"));
    client.send(request.split_at(request.len() - 9).0).await;
    cancel(&gateway, &at(&gateway, "reading").await).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.closed), (499, true), "{reply:?}");
    assert!(reply.text.contains("request_cancelled"), "{reply:?}");
    assert_eq!(running(&gateway).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_stream_that_is_cancelled_ends_with_an_error_event() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let [.., (_, streaming)] = stages();
    upstream.always(streaming);
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    flow.event().await;
    let (request_id, cancelled_at) = cancel(&gateway, &at(&gateway, "streaming").await).await;
    let (events, _) = flow.rest().await;
    let text = text(&events);
    assert!(text.contains("\"code\":\"request_cancelled\""), "{text}");
    let_go(&upstream, 0, cancelled_at, "in a stream").await;
    let record = recorded(&gateway, &request_id).await;
    let output = record["tokens"]["output"].as_u64().unwrap();
    assert!((1..20).contains(&output), "what was relayed is billed: {record}");
    assert_eq!(record["status"], 200, "{record}");
}

#[tokio::test]
async fn a_cancelled_stream_gets_the_error_event_of_its_dialect() {
    let upstream = Upstream::start().await;
    let members = "protocols: [chat, messages]";
    let gateway = Gateway::start(&Yaml::new().provider_with("up", upstream.base_url(), members)).await;
    let delta =
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}});
    let begin = json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "m", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}}});
    let block =
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let event = |name: &str, data: &Value| format!("event: {name}\ndata: {data}\n\n");
    upstream.always(
        Answer::stream()
            .chunk(event("message_start", &begin))
            .chunk(event("content_block_start", &block))
            .chunk(event("content_block_delta", &delta))
            .hang(),
    );
    let body = json!({"model": "m", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "a"}]});
    let client = gateway.client().with("content-type", "application/json");
    let mut flow = client.open("POST", "/v1/messages", body.to_string().into()).await.unwrap();
    flow.event().await;
    cancel(&gateway, &at(&gateway, "streaming").await).await;
    let (events, _) = flow.rest().await;
    let text = text(&events);
    assert!(text.contains("event: error\n") && text.contains("An administrator cancelled"), "{text}");
}

#[tokio::test]
async fn a_stream_that_was_kept_alive_without_content_can_be_cancelled() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::hang_forever());
    let gateway =
        Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_STREAM_KEEPALIVE_SECONDS", "1").start().await;
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    assert!(flow.event().await.bytes.starts_with(b":"), "a keep-alive");
    let (request_id, cancelled_at) = cancel(&gateway, &at(&gateway, "waiting").await).await;
    let (events, _) = flow.rest().await;
    let text = text(&events);
    assert!(text.contains("\"code\":\"request_cancelled\""), "{text}");
    let_go(&upstream, 0, cancelled_at, "behind keep-alives").await;
    recorded(&gateway, &request_id).await;
}

#[tokio::test]
async fn a_cancellation_closes_the_upstream_while_the_client_reads_nothing() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    upstream.always(Answer::stream().chunk(chat::role()).repeat_chunk(chat::content(&"more ".repeat(2_000))));
    let client = send(&gateway, &chat::stream_request("m")).await;
    upstream.request(0).await;
    let mut stuck = upstream.sent_bytes();
    wait::eventually("a full connection", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let before = std::mem::replace(&mut stuck, upstream.sent_bytes());
        (before > 0 && before == stuck).then_some(())
    })
    .await;
    let (_, cancelled_at) = cancel(&gateway, &at(&gateway, "streaming").await).await;
    let_go(&upstream, 0, cancelled_at, "while the client reads nothing").await;
    drop(client);
}

#[tokio::test]
async fn one_stream_of_an_http2_connection_is_cancelled_and_no_other() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let gate = crate::support::Gate::new();
    let begun = || Answer::stream().chunk(chat::role()).chunk(chat::content("a"));
    upstream.then(begun().hang());
    upstream.then(begun().wait(&gate).chunk(chat::finish()).chunk(chat::done()).end());
    upstream.then(Answer::hang_forever());
    let mut sender = connect(&gateway).await;
    let cancelled = sender.send_request(post(chat::stream_request("m"))).await.unwrap();
    let exchange = at(&gateway, "streaming").await;
    sender.ready().await.unwrap();
    let staying = sender.send_request(post(chat::stream_request("m"))).await.unwrap();
    let (_, cancelled_at) = cancel(&gateway, &exchange).await;
    let body = cancelled.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("request_cancelled"), "{body:?}");
    let_go(&upstream, 0, cancelled_at, "on HTTP/2").await;
    sender.ready().await.unwrap();
    let waiting = tokio::spawn(sender.send_request(post(chat::request("m"))));
    let (_, cancelled_at) = cancel(&gateway, &at(&gateway, "waiting").await).await;
    assert_eq!(waiting.await.unwrap().unwrap().status(), 499);
    let_go(&upstream, 2, cancelled_at, "on HTTP/2, before the head").await;
    gate.open(1);
    let body = staying.into_body().collect().await.unwrap().to_bytes();
    assert!(body.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_cancellation_is_audited_and_an_ended_request_cannot_be_cancelled() {
    let upstream = Upstream::start().await;
    upstream.then(Answer::completion("done"));
    upstream.then(Answer::hang_forever());
    let gateway = gateway(&upstream).await;
    let admin = Admin(gateway.client());
    let ended = gateway.client().with("x-request-id", "ended-1").chat(chat::request("m")).await;
    assert_eq!(ended.status, 200);
    for id in ["ended-1", "never-seen"] {
        let refused = admin.call("POST", &format!("requests/{id}/cancel"), Value::Null).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (404, "not_found"), "{id}");
    }
    let _client = send(&gateway, &chat::request("m")).await;
    let exchange = at(&gateway, "waiting").await;
    let path = format!("requests/{}/cancel", exchange["request_id"].as_str().unwrap());
    let repeated = Admin(gateway.client().with("idempotency-key", "once"));
    for _ in 0..2 {
        let answer = repeated.call("POST", &path, Value::Null).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    let audit = admin.done("GET", "audit?action=request.cancel", Value::Null).await;
    let entries = audit["data"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{audit}");
    assert_eq!(
        (&entries[0]["actor"], &entries[0]["object_id"]),
        (&json!("admin"), &exchange["request_id"]),
        "{audit}"
    );
}

#[tokio::test]
async fn the_list_holds_the_200_most_silent_requests_and_counts_the_rest() {
    let upstream = Upstream::start().await;
    upstream.then(Answer::stream().chunk(chat::role()).chunk(chat::content("then silence")).hang());
    upstream.always(Answer::hang_forever());
    let gateway = gateway(&upstream).await;
    let silent = gateway.client().with("x-request-id", "silent").chat_flow(chat::stream_request("m")).await;
    let mut clients = Vec::new();
    for _ in 0..203 {
        clients.push(send(&gateway, &chat::request("m")).await);
    }
    upstream.request(203).await;
    let page = Admin(gateway.client()).done("GET", "running", Value::Null).await;
    let listed = page["data"].as_array().unwrap();
    assert_eq!((listed.len(), &page["more"]), (200, &json!(4)));
    let silent_since = |exchange: &Value| {
        let last = exchange["last_piece_at_ms"].as_u64();
        last.or_else(|| exchange["started_at_ms"].as_u64()).unwrap()
    };
    assert!(listed.is_sorted_by_key(silent_since), "{page}");
    assert!(listed.iter().any(|exchange| exchange["request_id"] == "silent"), "{page}");
    drop((clients, silent));
    wait::eventually("an empty list", async || running(&gateway).await.is_empty().then_some(())).await;
}

#[tokio::test]
async fn the_health_of_a_provider_shows_its_attempts_in_flight_and_its_own_limits() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let health = async || {
        let page = Admin(gateway.client()).done("GET", "health/providers", Value::Null).await;
        page["data"][0].clone()
    };
    let idle = health().await;
    assert_eq!((&idle["running"], &idle["limits"]), (&json!(0), &json!([])), "{idle}");
    let body = chat::completion("hello");
    let fields = [
        ("content-type", "application/json"),
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1m0s"),
    ];
    upstream.always(Answer::whole(200, &fields, &body));
    let limits = wait::eventually("the limits of the upstream", async || {
        // One answer a second is read.
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
        let limits = health().await["limits"].clone();
        (limits != json!([])).then_some(limits)
    })
    .await;
    let limit = &limits[0];
    assert_eq!(
        (&limit["name"], &limit["limit"], &limit["remaining"]),
        (&json!("requests"), &json!(60), &json!(59)),
        "{limits}"
    );
    let (seen, resets) = (limit["seen_at_ms"].as_u64().unwrap(), limit["resets_at_ms"].as_u64().unwrap());
    assert_eq!(resets - seen, 60_000, "{limits}");
    upstream.then(Answer::hang_forever());
    let client = send(&gateway, &chat::request("m")).await;
    at(&gateway, "waiting").await;
    assert_eq!(health().await["running"], 1);
    drop(client);
}

/// Returns the bytes of `events` as text.
fn text(events: &[Event]) -> String {
    let bytes: Vec<Bytes> = events.iter().map(|event| event.bytes.clone()).collect();
    String::from_utf8(bytes.concat()).unwrap()
}
