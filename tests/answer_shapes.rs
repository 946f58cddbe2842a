//! The first bytes of an answer decide what it is, not its label: a stream called JSON, a whole answer called a stream,
//! events for a client that wants none, pages, and compressed bytes.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::kinds::root;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

async fn gateway(kind: &str, upstream: &Upstream) -> Gateway {
    let url = if kind == "compatible" { upstream.base_url() } else { root(upstream) };
    let config = json!({
        "providers": {"p": {
            "type": kind, "base_url": url, "api_key": "k", "models": ["m"],
            "protocols": if kind == "compatible" { json!(["chat", "responses"]) } else { Value::Null },
        }},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    let mut config = config;
    if kind != "compatible" {
        config["providers"]["p"].as_object_mut().unwrap().remove("protocols");
    }
    Setup::new(&Yaml::new()).yaml(config.to_string()).start().await
}

fn request(path: &str, stream: bool) -> String {
    let turns = json!([{"role": "user", "content": "hi"}]);
    match path {
        "/v1/responses" => json!({"model": "p/m", "stream": stream, "input": "hi"}),
        "/v1/messages" => json!({"model": "p/m", "stream": stream, "max_tokens": 9, "messages": turns}),
        _ => json!({"model": "p/m", "stream": stream, "messages": turns}),
    }
    .to_string()
}

fn labelled(label: &str, body: impl AsRef<[u8]>) -> Answer {
    match label {
        "" => Answer::whole(200, &[], body),
        label => Answer::whole(200, &[("content-type", label)], body),
    }
}

fn messages_events() -> String {
    [
        json!({"type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null,
            "usage": {"input_tokens": 3, "output_tokens": 0},
        }}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "so "}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "str"}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "eamed"}}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"x\":"}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "1}"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ]
    .iter()
    .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
    .collect()
}

fn responses_events() -> String {
    let item = json!({"id": "m1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "streamed", "annotations": []}]});
    let response = |status: &str, output: Value| {
        json!({"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m", "output": output,
            "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}})
    };
    [
        json!({"type": "response.created", "response": response("in_progress", json!([]))}),
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "streamed"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": response("completed", json!([]))}),
    ]
    .iter()
    .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
    .collect()
}

fn chat_events() -> String {
    let bytes: Vec<u8> = chat::events(&["stream", "ed"]).concat();
    String::from_utf8(bytes).unwrap()
}

fn gemini_events() -> String {
    [
        json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "stream"}]}}]}),
        json!({"candidates": [{"index": 0, "content": {"parts": [{"text": "ed"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5}}),
    ]
    .iter()
    .map(|event| format!("data: {event}\n\n"))
    .collect()
}

const LABELS: [&str; 4] = ["application/json", "text/plain", "application/octet-stream", ""];

/// xiaoliu10/claude-code-router-next#45, Wei-Shaw/sub2api#2826, cita-777/metapi#177, microsoft/foundry-dev-tools#195,
/// vllm-project/vllm-ascend#6985.
#[tokio::test]
async fn a_stream_under_a_wrong_label_is_a_stream() {
    for (kind, events, paths) in [
        ("compatible", chat_events(), ["/v1/chat/completions", "/v1/messages"]),
        ("anthropic", messages_events(), ["/v1/messages", "/v1/chat/completions"]),
        ("gemini", gemini_events(), ["/v1/chat/completions", "/v1/responses"]),
    ] {
        let upstream = Upstream::start().await;
        let gateway = gateway(kind, &upstream).await;
        for label in LABELS {
            upstream.always(labelled(label, &events));
            for path in paths {
                let answer = gateway.client().post(path, request(path, true)).await;
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                assert_eq!(answer.status, 200, "{kind} {label} {path}: {text}");
                assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
                assert!(
                    text.contains("str") && text.contains("data: ") && text.contains("eam"),
                    "{path}: {text}"
                );
            }
        }
    }
}

/// QuantumNous/new-api#4557, quangdang46/openproxy#306, BYK/loreai#605, BYK/loreai#1195,
/// Alishahryar1/free-claude-code#486.
#[tokio::test]
async fn events_for_a_client_that_wants_none_become_one_answer() {
    for (kind, path, events) in [
        ("compatible", "/v1/chat/completions", chat_events()),
        ("compatible", "/v1/messages", chat_events()),
        ("compatible", "/v1/responses", responses_events()),
        ("anthropic", "/v1/messages", messages_events()),
        ("anthropic", "/v1/chat/completions", messages_events()),
        ("anthropic", "/v1/responses", messages_events()),
        ("gemini", "/v1/chat/completions", gemini_events()),
        ("gemini", "/v1/messages", gemini_events()),
    ] {
        let upstream = Upstream::start().await;
        let gateway = gateway(kind, &upstream).await;
        for label in ["text/event-stream", "application/json", ""] {
            upstream.always(labelled(label, &events));
            let answer = gateway.client().post(path, request(path, false)).await;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(answer.status, 200, "{kind} {label} {path}: {text}");
            assert_eq!(answer.header("content-type"), Some("application/json"), "{kind} {path}");
            let (answer, whole) = (answer.json(), text.contains("\"streamed\""));
            assert!(whole, "{kind} {label} {path}: {answer}");
            let usage = &answer["usage"];
            let input = usage["input_tokens"].as_u64().or_else(|| usage["prompt_tokens"].as_u64());
            assert!(matches!(input, Some(3 | 11)), "{kind} {path}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_collected_answer_has_its_calls_and_thoughts() {
    let upstream = Upstream::start().await;
    let gateway = gateway("anthropic", &upstream).await;
    upstream.always(labelled("text/event-stream", messages_events()));
    let answer = gateway.client().post("/v1/messages", request("/v1/messages", false)).await.json();
    let want = json!([
        {"type": "thinking", "thinking": "so ", "signature": "sig"},
        {"type": "text", "text": "streamed"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}},
    ]);
    assert_eq!((&answer["content"], &answer["stop_reason"]), (&want, &json!("tool_use")), "{answer}");
    assert_eq!((&answer["usage"]["input_tokens"], &answer["usage"]["output_tokens"]), (&json!(3), &json!(5)));
}

/// decolua/9router#3492, gumieri/nenya#17, decolua/9router#3301.
#[tokio::test]
async fn a_whole_answer_that_is_framed_like_a_stream_is_whole() {
    let upstream = Upstream::start().await;
    let gateway = gateway("compatible", &upstream).await;
    for (label, end) in [
        ("text/event-stream", ""),
        ("text/event-stream", "\ndata: [DONE]\n\n"),
        ("application/json", "data: [DONE]"),
    ] {
        upstream.always(labelled(label, chat::completion("whole") + end));
        for (path, stream) in
            [("/v1/chat/completions", false), ("/v1/messages", false), ("/v1/chat/completions", true)]
        {
            let answer = gateway.client().post(path, request(path, stream)).await;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(answer.status, 200, "{label} {end} {path}: {text}");
            assert!(text.contains("whole"), "{path}: {text}");
            assert!(stream || answer.json().is_object());
        }
    }
}

#[tokio::test]
async fn events_that_break_off_or_report_an_error_are_no_answer() {
    let upstream = Upstream::start().await;
    let gateway = gateway("compatible", &upstream).await;
    let cut: String = chat_events().split_inclusive("\n\n").take(2).collect();
    let error = format!("{cut}data: {}\n\n", json!({"error": {"message": "slow down", "code": 429}}));
    for (events, status, words) in
        [(cut.as_str(), 502, "before the answer was complete"), (error.as_str(), 429, "slow down")]
    {
        upstream.always(labelled("text/event-stream", events));
        let answer = gateway.client().chat(request("/v1/chat/completions", false)).await;
        let message = answer.json()["error"]["message"].to_string();
        assert!(answer.status == status && message.contains(words), "{} {message}", answer.status);
    }
}

#[tokio::test]
async fn a_page_and_compressed_bytes_are_named_for_what_they_are() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(chat::completion("hidden").as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let page = b"<!doctype html><html><title>Just a moment</title><script>x</script></html>".to_vec();
    let upstream = Upstream::start().await;
    let gateway = gateway("compatible", &upstream).await;
    for (body, words) in [(gzip, "compressed"), (page, "web page instead of an answer")] {
        for (label, stream) in
            [("application/json", false), ("text/event-stream", true), ("", true), ("", false)]
        {
            upstream.always(labelled(label, &body));
            let answer = gateway.client().chat(request("/v1/chat/completions", stream)).await;
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(answer.status == 502 && message.contains(words), "{message}");
            assert!(!message.contains("script"), "{message}");
        }
    }
    // The label alone does not make bytes unreadable.
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    upstream.always(Answer::whole(200, &headers, chat::completion("plain")));
    let answer = gateway.client().chat(request("/v1/chat/completions", false)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}
