//! A test completion uses a protocol that the model supports, on the path that clients use (ADM-8).

use serde_json::{Value, json};

use crate::clouds::message_stream;
use crate::kinds::{first_line, root, with};
use crate::support::admin::Admin;
use crate::support::{Answer, Upstream, chat};

/// Returns a stream of Responses with the text "hello".
fn responses() -> Answer {
    let response = |status: &str| {
        json!({
            "id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "gpt-x", "output": [],
            "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
        })
    };
    let events = [
        json!({"type": "response.created", "sequence_number": 0, "response": response("in_progress")}),
        json!({"type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_1", "output_index": 0,
            "content_index": 0, "delta": "hello"}),
        json!({"type": "response.completed", "sequence_number": 2, "response": response("completed")}),
    ];
    Answer::events(
        &events.map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())),
    )
}

fn gemini() -> Answer {
    let chunk = json!({
        "candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4},
    });
    Answer::events(&[chat::event(&chunk.to_string())])
}

#[tokio::test]
async fn a_provider_test_uses_a_dialect_of_the_model() {
    let stream = include_bytes!("../dataplane/wire/fixtures/bedrock/converse_stream.bin");
    let bedrock = Answer::whole(200, &[("content-type", "application/vnd.amazon.eventstream")], stream);
    let hello = Answer::events(&[chat::content("hello"), chat::finish(), chat::usage(), chat::done()]);
    for (settings, answer, protocol, path) in [
        (json!({"type": "openai", "v1": true}), hello, "chat", "/v1/chat/completions"),
        (json!({"type": "anthropic"}), message_stream(), "messages", "/v1/messages"),
        (
            json!({"type": "openai", "v1": true, "models": [{"id": "m", "protocols": ["responses"]}]}),
            responses(),
            "responses",
            "/v1/responses",
        ),
        (json!({"type": "gemini"}), gemini(), "chat", "/v1beta/models/m:streamGenerateContent?alt=sse"),
        (json!({"type": "bedrock", "region": "r"}), bedrock, "chat", "/model/m/converse-stream"),
    ] {
        let upstream = Upstream::start().await;
        upstream.always(answer);
        let mut given = settings;
        let is_versioned = given.as_object_mut().unwrap().remove("v1").is_some();
        given["base_url"] = if is_versioned { upstream.base_url() } else { root(&upstream) }.into();
        given["api_key"] = "k".into();
        if given["models"].is_null() {
            given["models"] = json!(["m"]);
        }
        let gateway = with(&given).start().await;
        let report = Admin(gateway.client()).done("POST", "providers/p/test", json!({"model": "m"})).await;
        assert_eq!((&report["ok"], &report["protocol"]), (&json!(true), &json!(protocol)), "{report}");
        assert!(report["answer"].as_str().unwrap().len() > 2, "{report}");
        assert!(report["usage"].is_object() && report["first_content_ms"].is_u64(), "{report}");
        assert_eq!(first_line(&upstream.request(0).await), format!("POST {path} HTTP/1.1"));
        assert_eq!(report["record"]["operation"], json!(operation(protocol)), "{report}");
        let shown = Admin(gateway.client()).done("GET", "providers/p", Value::Null).await;
        assert_eq!(shown["evidence"]["inference"]["model"], "m", "{shown}");
    }
}

fn operation(protocol: &str) -> &str {
    if protocol == "chat" { "chat_completions" } else { protocol }
}

#[tokio::test]
async fn errors_are_read_in_every_protocol() {
    for (kind, protocols) in [("anthropic", "messages"), ("openai", "responses")] {
        let upstream = Upstream::start().await;
        let error =
            json!({"type": "error", "error": {"type": "permission_error", "message": "Not for you."}});
        upstream.always(Answer::json(403, error.to_string()));
        let base = if kind == "openai" { upstream.base_url() } else { root(&upstream) };
        let settings = json!({
            "type": kind, "base_url": base, "api_key": "k", "models": ["m"], "protocols": [protocols],
        });
        let gateway = with(&settings).start().await;
        let report = Admin(gateway.client()).done("POST", "providers/p/test", json!({"model": "m"})).await;
        assert_eq!((&report["ok"], &report["status"]), (&json!(false), &json!(403)), "{report}");
        assert!(report["error"].as_str().unwrap().contains("Not for you."), "{report}");
    }
}

#[tokio::test]
async fn testing_a_model_without_a_conversation_dialect_is_rejected() {
    let upstream = Upstream::start().await;
    let settings = json!({
        "type": "compatible", "base_url": upstream.base_url(),
        "models": [{"id": "e", "protocols": ["embeddings"]}, {"id": "m"}],
    });
    let gateway = with(&settings).start().await;
    let admin = Admin(gateway.client());
    let refused = admin.call("POST", "providers/p/test", json!({"model": "e"})).await;
    let error = refused.json()["error"].clone();
    assert_eq!((refused.status, &error["param"]), (400, &json!("model")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("it supports embeddings only"), "{error}");
    assert_eq!(upstream.requests().len(), 0, "nothing is spent on it");
}

#[tokio::test]
async fn an_endpoint_of_responses_only_models_is_tested_with_responses() {
    let upstream = Upstream::start().await;
    upstream.always(responses());
    let settings = json!({
        "type": "openai", "base_url": upstream.base_url(), "api_key": "k",
        "models": [{"id": "m", "protocols": ["responses"]}],
    });
    let gateway = with(&settings).start().await;
    let admin = Admin(gateway.client());
    let line = json!({"name": "line", "failover": [{"provider": "p", "model": "m"}]});
    admin.done("POST", "endpoints", line).await;
    let report = admin.done("POST", "endpoints/line/test", json!({"prompt": "Greet me."})).await;
    assert_eq!((&report["ok"], &report["answer"]), (&json!(true), &json!("hello")), "{report}");
    assert_eq!(upstream.request(0).await.json()["input"][0]["content"], "Greet me.");
}
