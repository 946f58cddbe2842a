//! The bodies that Cursor sends to `/v1/chat/completions`: requests of the Responses API, which endpoints with
//! `cursor_bodies` answer as chat, whatever their targets speak.

use serde_json::{Value, json};

use crate::kinds::root;
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

/// An endpoint `cursor` that accepts such bodies, with a chat target and a Messages target, and `strict`, which does not.
async fn start() -> (Gateway, Upstream, Upstream) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let line = json!([{"provider": "c", "model": "m"}, {"provider": "a", "model": "claude"}]);
    let file = json!({
        "providers": {
            "c": {"type": "compatible", "base_url": first.base_url(), "models": ["m"], "protocols": ["chat"]},
            "a": {"type": "anthropic", "base_url": root(&second), "models": ["claude"], "api_key": "k"},
        },
        "endpoints": {"cursor": {"cursor_bodies": true, "failover": line}, "strict": {"failover": line}},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    (Setup::new(&Yaml::new()).yaml(file.to_string()).start().await, first, second)
}

fn body(model: &str) -> Value {
    json!({
        "model": model, "stream": true, "stream_options": {"include_usage": true}, "store": false,
        "include": ["reasoning.encrypted_content"], "user": "u-1",
        "tools": [
            {"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {"a": {}, "z": {}}}},
            {"name": "read", "description": "Reads.", "input_schema": {"type": "object"}},
        ],
        "tool_choice": "auto",
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "What is here?"}]},
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "a.rs"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c2", "name": "read", "input": {"p": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "fn main"}]},
        ],
    })
}

#[tokio::test]
async fn a_body_of_cursor_is_answered_in_chat_chunks() {
    let (gateway, first, second) = start().await;
    first.then(Answer::events(&chat::events(&["hel", "lo"])));
    // `json!` sorts members.
    let unsorted = body("cursor").to_string().replace(r#"{"a":{},"z":{}}"#, r#"{"z":{},"a":{}}"#);
    let mut flow = gateway.client().chat_flow(unsorted).await;
    assert_eq!(flow.status, 200);
    let (events, is_whole) = flow.rest().await;
    let text: String =
        events.iter().map(|event| String::from_utf8_lossy(&event.bytes).into_owned()).collect();
    assert!(
        is_whole && text.contains("chat.completion.chunk") && text.ends_with("data: [DONE]\n\n"),
        "{text}"
    );
    let sent = first.request(0).await.json();
    assert_eq!(
        (&sent["model"], &sent["user"], sent.get("input")),
        (&json!("m"), &json!("u-1"), None),
        "{sent}"
    );
    let roles: Vec<_> = sent["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "tool"], "{sent}");
    assert_eq!(sent["messages"][5], json!({"role": "tool", "tool_call_id": "c2", "content": "fn main"}));
    let names: Vec<_> =
        sent["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["ls", "read"]);
    let raw = String::from_utf8_lossy(&first.requests()[0].body).into_owned();
    assert!(raw.contains(r#""properties":{"z":{},"a":{}}"#), "the order of properties stays: {raw}");

    // The next target of the endpoint gets the same request in its own protocol.
    first.then(Answer::error(503));
    second.then(Answer::json(
        200,
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "hello"}], "usage": {"input_tokens": 5, "output_tokens": 2}})
        .to_string(),
    ));
    let mut whole = body("cursor");
    (whole["stream"], whole["stream_options"]) = (json!(false), Value::Null);
    let answer = gateway.client().chat(whole.to_string()).await;
    assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("a")), "{answer:?}");
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "hello");
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    let told = ["operation", "selector", "endpoint"].map(|name| record[name].as_str().unwrap().to_owned());
    assert_eq!(told, ["chat_completions", "cursor", "cursor"]);
}

#[tokio::test]
async fn without_the_switch_the_error_tells_how_to_turn_it_on() {
    let (gateway, first, second) = start().await;
    for (model, words) in [
        ("strict", "set 'cursor_bodies: true' at the endpoint 'strict'"),
        ("c/m", "at an endpoint, and name that"),
    ] {
        let refused = gateway.client().chat(body(model).to_string()).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (400, "invalid_request"), "{refused:?}");
        let error = &refused.json()["error"];
        let message = error["message"].as_str().unwrap();
        assert!(error["param"] == "messages" && message.contains(words), "{error}");
        assert!(message.contains("send this request to /v1/responses"), "{message}");
    }
    let unknown = gateway.client().chat(body("nothing").to_string()).await;
    assert_eq!((unknown.status, unknown.error_code().as_str()), (404, "model_not_found"));
    for bad in [json!({"model": "cursor"}), json!({"model": "cursor", "input": 5})] {
        let refused = gateway.client().chat(bad.to_string()).await;
        assert_eq!(refused.status, 400, "{bad}");
        assert_eq!(refused.json()["error"]["param"], "messages", "the usual error: {refused:?}");
    }
    let mut stored = body("cursor");
    stored["previous_response_id"] = json!("resp_1");
    let refused = gateway.client().chat(stored.to_string()).await;
    assert_eq!(refused.json()["error"]["param"], "previous_response_id", "{refused:?}");
    assert!(first.requests().is_empty() && second.requests().is_empty());
}

#[tokio::test]
async fn the_switch_of_an_endpoint_is_set_through_the_api() {
    let (gateway, first, _) = start().await;
    first.always(Answer::completion("hello"));
    let admin = Admin(gateway.client());
    let failover = json!([{"provider": "c", "model": "m"}]);
    let made = admin.done("POST", "endpoints", json!({"name": "later", "failover": failover})).await;
    assert_eq!(made["cursor_bodies"], false, "{made}");
    let ask = async || {
        let mut body = body("later");
        (body["stream"], body["stream_options"]) = (json!(false), Value::Null);
        gateway.client().chat(body.to_string()).await.status
    };
    assert_eq!(ask().await, 400);
    let content = json!({"failover": failover, "cursor_bodies": true});
    let client = gateway.client().with("if-match", &format!("\"{}\"", made["version"]));
    let changed = Admin(client).done("PUT", "endpoints/later", content).await;
    assert_eq!(changed["cursor_bodies"], true, "{changed}");
    assert_eq!(ask().await, 200);
    let gateway = gateway.restart().await;
    let kept = Admin(gateway.client()).done("GET", "endpoints/later", Value::Null).await;
    assert_eq!(kept["cursor_bodies"], true, "{kept}");
}
