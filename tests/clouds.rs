//! Models of one vendor in the cloud of another: Claude in a project of Google Cloud (CFG-4).

use serde_json::{Value, json};

use crate::kinds::{first_line, generated, message, root, with};
use crate::support::{Answer, Gateway, Upstream, chat};

/// Where Vertex has Claude, up to the method.
const CLAUDE: &str =
    "/v1/projects/p-1/locations/europe-west1/publishers/anthropic/models/claude-sonnet-4-5@20250929";

async fn vertex(upstream: &Upstream) -> Gateway {
    let settings = json!({
        "type": "vertex", "base_url": root(upstream), "location": "europe-west1", "project": "p-1",
        "api_key": "ya29.given", "models": ["claude-sonnet-4-5@20250929", "gemini-x"],
    });
    with(&settings).start().await
}

fn stream() -> Answer {
    let events = [
        json!({"type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null,
            "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 1},
        }}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ];
    let events = events.map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    Answer::events(&events)
}

#[tokio::test]
async fn claude_on_vertex_gets_a_messages_clients_own_bytes() {
    let upstream = Upstream::start().await;
    let gateway = vertex(&upstream).await;
    let body = |stream: &str| {
        format!(
            r#"{{"max_tokens" : 9, "model":"p/claude-sonnet-4-5@20250929", {stream}"affinity_key":"k","messages":[{{"role":"user","content":"h\u00e9llo"}}], "temperature":1.0}}"#
        )
    };
    let want = |stream: &str| {
        format!(
            r#"{{"max_tokens" : 9, "anthropic_version":"vertex-2023-10-16"{stream},"messages":[{{"role":"user","content":"h\u00e9llo"}}], "temperature":1.0}}"#
        )
    };
    let client = gateway.client().with("anthropic-version", "2023-06-01").with("anthropic-beta", "fine-1");
    upstream.then(message()).then(stream());
    let answer = client.post("/v1/messages", body("")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(answer.json()["content"][0]["text"], "hello");
    let streamed = client.post("/v1/messages", body(r#""stream":true,"#)).await;
    assert_eq!(streamed.status, 200, "{:?}", streamed.body);
    assert!(std::str::from_utf8(&streamed.body).unwrap().contains("event: message_stop"));
    for (request, method, stream) in [
        (upstream.request(0).await, "rawPredict", ""),
        (upstream.request(1).await, "streamRawPredict", r#", "stream":true"#),
    ] {
        assert_eq!(first_line(&request), format!("POST {CLAUDE}:{method} HTTP/1.1"));
        assert_eq!(std::str::from_utf8(&request.body).unwrap(), want(stream));
        assert_eq!(request.header("authorization"), Some("Bearer ya29.given"));
        let version = request.header("anthropic-version");
        assert_eq!((version, request.header("anthropic-beta")), (None, Some("fine-1")), "the body says it");
    }
}

#[tokio::test]
async fn claude_on_vertex_serves_every_other_client_by_adaptation() {
    let upstream = Upstream::start().await;
    let gateway = vertex(&upstream).await;
    let model = "p/claude-sonnet-4-5@20250929";
    upstream.then(message()).then(stream()).then(message());
    let answer = gateway.client().chat(chat::request(model)).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "hello", "{:?}", answer.body);
    let answer = gateway.client().chat(chat::stream_request(model)).await;
    assert!(std::str::from_utf8(&answer.body).unwrap().contains("[DONE]"), "{:?}", answer.body);
    let answer =
        gateway.client().post("/v1/responses", json!({"model": model, "input": "hi"}).to_string()).await;
    assert_eq!(answer.json()["output"][0]["content"][0]["text"], "hello", "{:?}", answer.body);
    for (request, method) in upstream.requests().iter().zip(["rawPredict", "streamRawPredict", "rawPredict"])
    {
        assert_eq!(first_line(request), format!("POST {CLAUDE}:{method} HTTP/1.1"));
        let body = request.json();
        assert_eq!(body["anthropic_version"], "vertex-2023-10-16");
        assert_eq!(body["stream"] == true, method == "streamRawPredict", "{body}");
        assert!(body["model"].is_null() && body["max_tokens"].is_u64(), "{body}");
        assert_eq!(request.header("anthropic-version"), None);
    }
    // Each publisher's models speak their own protocol, beside one another.
    upstream.then(generated());
    assert_eq!(gateway.client().chat(chat::request("p/gemini-x")).await.status, 200);
    let last = upstream.requests().pop().unwrap();
    assert!(
        first_line(&last).contains("/publishers/google/models/gemini-x:generateContent"),
        "{}",
        last.head
    );
    assert!(last.json()["anthropic_version"].is_null());
}

#[tokio::test]
async fn claude_on_vertex_counts_tokens() {
    let upstream = Upstream::start().await;
    let gateway = vertex(&upstream).await;
    upstream.then(Answer::json(200, json!({"input_tokens": 14}).to_string()));
    let body =
        |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let count = async |model: &str| gateway.client().post("/v1/messages/count_tokens", body(model)).await;
    let answer = count("p/claude-sonnet-4-5@20250929").await;
    assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 14})));
    let request = upstream.request(0).await;
    let path = "/v1/projects/p-1/locations/europe-west1/publishers/anthropic/models/count-tokens:rawPredict";
    assert_eq!(first_line(&request), format!("POST {path} HTTP/1.1"));
    let asked = request.json();
    assert_eq!(
        (&asked["model"], &asked["anthropic_version"]),
        (&json!("claude-sonnet-4-5@20250929"), &json!("vertex-2023-10-16"))
    );
    // Gemini does not count what a Messages client asks.
    let answer = count("p/gemini-x").await;
    assert_eq!((answer.status, answer.header("x-llmgw-token-count")), (200, Some("estimate")));
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn errors_of_claude_on_vertex_are_read_in_both_shapes() {
    let upstream = Upstream::start().await;
    let gateway = vertex(&upstream).await;
    let own = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: too large"}});
    let googles =
        json!([{"error": {"code": 404, "status": "NOT_FOUND", "message": "Publisher Model was not found."}}]);
    upstream.then(Answer::json(400, own.to_string())).then(Answer::json(404, googles.to_string()));
    let body = json!({"model": "p/claude-sonnet-4-5@20250929", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    for (status, kind, message) in [
        (400, "invalid_request_error", "max_tokens: too large"),
        (404, "not_found_error", "Publisher Model was not found."),
    ] {
        let answer = gateway.client().post("/v1/messages", body.to_string()).await;
        let error: Value = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["type"]), (status, &json!(kind)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    }
}
