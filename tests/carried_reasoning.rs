//! Reasoning of a Responses target in a conversation of a Gemini client: it comes back to the target that encrypted it.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

/// Starts a gateway with two accounts of a vendor that speaks Responses, and a chat target.
async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let account = json!({"type": "openai", "base_url": upstream.base_url(), "api_key": "k", "force_api_support": true,
        "models": [{"id": "gpt-5.2", "reasoning": true, "protocols": ["responses"]}, {"id": "gpt-4.1", "reasoning": false, "protocols": ["responses"]}]});
    let file = json!({
        "providers": {"one": account, "two": account,
            "chat": {"type": "compatible", "base_url": upstream.base_url(), "models": ["m"]}},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    (Setup::new(&Yaml::new()).yaml(file.to_string()).start().await, upstream)
}

/// Asks with a tool, and returns the answer's parts.
async fn ask(gateway: &Gateway, path: &str, contents: &Value) -> Vec<Value> {
    let body = json!({"contents": contents, "tools": [{"functionDeclarations": [{"name": "f"}]}]});
    let client = Client::new(gateway.address(), None).with("x-goog-api-key", ADMIN_KEY);
    let answer = client.post(&format!("/v1beta/models/{path}"), body.to_string()).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, 200, "{text}");
    let frames: Vec<Value> = match text.strip_prefix("data: ") {
        Some(_) => text
            .split("\r\n\r\n")
            .filter_map(|frame| serde_json::from_str(frame.strip_prefix("data: ")?).ok())
            .collect(),
        None => vec![answer.json()],
    };
    let parts = frames.iter().filter_map(|frame| frame["candidates"][0]["content"]["parts"].as_array());
    parts.flatten().cloned().collect()
}

fn question() -> Value {
    json!([{"role": "user", "parts": [{"text": "hi"}]}])
}

fn output() -> Value {
    let reasoning = |id: &str, sealed: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": sealed});
    let call = |id: &str| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "f", "arguments": "{}"});
    json!([
        reasoning("rs_1", "gAAA+/1="),
        call("call_1"),
        reasoning("rs_2", "gAAA2"),
        call("call_2"),
        call("call_3")
    ])
}

fn response() -> Value {
    let usage = json!({"input_tokens": 3, "output_tokens": 1, "total_tokens": 4});
    json!({"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "output": output(), "usage": usage})
}

fn streamed() -> Answer {
    let event = |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    let items = output();
    let items = items.as_array().unwrap().iter().enumerate();
    let mut events = vec![event(json!({"type": "response.created", "response": {}}))];
    for (index, item) in items {
        for kind in ["response.output_item.added", "response.output_item.done"] {
            events.push(event(json!({"type": kind, "output_index": index, "item": item})));
        }
    }
    events.push(event(json!({"type": "response.completed", "response": response()})));
    Answer::events(&events)
}

/// Returns the next turn: the parts as the client got them, and a result of each call.
fn next_turn(parts: &[Value]) -> Value {
    let results: Vec<Value> = parts
        .iter()
        .filter_map(|part| part.get("functionCall"))
        .map(|call| json!({"functionResponse": {"id": call["id"], "name": "f", "response": {"output": "done"}}}))
        .collect();
    json!([question()[0], {"role": "model", "parts": parts}, {"role": "user", "parts": results}])
}

async fn input_sent(upstream: &Upstream) -> Vec<Value> {
    let sent = upstream.request(upstream.requests().len() - 1).await.json();
    sent["input"].as_array().unwrap_or(&Vec::new()).clone()
}

#[tokio::test]
async fn encrypted_reasoning_comes_back_before_its_call() {
    let (gateway, upstream) = gateway().await;
    for (method, answer) in [
        ("generateContent", Answer::json(200, response().to_string())),
        ("streamGenerateContent?alt=sse", streamed()),
    ] {
        upstream.then(answer);
        let parts = ask(&gateway, &format!("one/gpt-5.2:{method}"), &question()).await;
        let sent = upstream.request(upstream.requests().len() - 1).await.json();
        assert_eq!(sent["include"], json!(["reasoning.encrypted_content"]), "{method}: {sent}");
        assert_eq!(sent["store"], false, "{method}: {sent}");
        let calls = parts.iter().filter(|part| part.get("functionCall").is_some());
        let signed: Vec<bool> = calls.map(|part| part.get("thoughtSignature").is_some()).collect();
        assert_eq!(signed, [true, true, false], "{method}: {parts:?}");

        upstream.then(Answer::json(200, response().to_string()));
        ask(&gateway, "one/gpt-5.2:generateContent", &next_turn(&parts)).await;
        let input = input_sent(&upstream).await;
        let kinds: Vec<&str> = input.iter().map(|item| item["type"].as_str().unwrap()).collect();
        let [call, output, reasoning] = ["function_call", "function_call_output", "reasoning"];
        assert_eq!(
            kinds,
            ["message", reasoning, call, reasoning, call, call, output, output, output],
            "{method}"
        );
        assert_eq!(input[1], output_item(0), "{method}");
        assert_eq!(input[3], output_item(2), "{method}");
    }
}

fn output_item(at: usize) -> Value {
    output()[at].clone()
}

#[tokio::test]
async fn other_targets_get_the_calls_without_the_reasoning() {
    let (gateway, upstream) = gateway().await;
    upstream.then(Answer::json(200, response().to_string()));
    let parts = ask(&gateway, "one/gpt-5.2:generateContent", &question()).await;
    for (path, answer) in [
        ("two/gpt-5.2", Answer::json(200, response().to_string())),
        ("one/gpt-4.1", Answer::json(200, response().to_string())),
        ("chat/m", Answer::completion("hello")),
    ] {
        upstream.then(answer);
        ask(&gateway, &format!("{path}:generateContent"), &next_turn(&parts)).await;
        let sent = upstream.request(upstream.requests().len() - 1).await;
        let text = String::from_utf8_lossy(&sent.body).into_owned();
        assert!(text.contains("call_1") && !text.contains("gAAA"), "{path}: {text}");
        let encoded = parts[0]["thoughtSignature"].as_str().unwrap();
        assert!(!text.contains(encoded), "{path}: {text}");
    }
    // A model that does not reason is not asked to encrypt its reasoning.
    let sent = upstream.request(2).await.json();
    assert_eq!((&sent["model"], sent.get("include")), (&json!("gpt-4.1"), None), "{sent}");
}

#[tokio::test]
async fn a_changed_signature_is_no_reasoning() {
    let (gateway, upstream) = gateway().await;
    let forged =
        base64::engine::general_purpose::STANDARD.encode("llmgw1:reasoning:one/gpt-5.2 without line ends");
    let parts =
        [json!({"functionCall": {"id": "call_1", "name": "f", "args": {}}, "thoughtSignature": forged})];
    upstream.then(Answer::json(200, response().to_string()));
    ask(&gateway, "one/gpt-5.2:generateContent", &next_turn(&parts)).await;
    let kinds: Vec<Value> = input_sent(&upstream).await.iter().map(|item| item["type"].clone()).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call_output"]);
}
