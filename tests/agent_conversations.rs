//! Conversations of agents that public issues of other gateways report as refused by a vendor or lost on the way.

use serde_json::{Value, json};

use crate::kinds::root;
use crate::support::client::Whole;
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::{Answer, Client, Gateway, Upstream, Yaml};

/// Starts a gateway with a target of each protocol: `c/m` chat, `a/m` Messages, `r/m` Responses.
async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let file = json!({
        "providers": {
            "c": {"type": "compatible", "base_url": upstream.base_url(), "responses_fallback": "agents", "models": ["m"]},
            "a": {"type": "anthropic", "base_url": root(&upstream), "api_key": "k", "responses_fallback": "agents", "models": ["m"]},
            "r": {"type": "openai", "base_url": upstream.base_url(), "api_key": "k", "force_api_support": true,
                "models": [{"id": "m", "protocols": ["responses"], "reasoning": true}]},
        },
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    (Setup::new(&Yaml::new()).yaml(file.to_string()).start().await, upstream)
}

async fn ask(gateway: &Gateway, path: &str, body: &Value) -> Whole {
    let header = if path.starts_with("/v1beta") { "x-goog-api-key" } else { "x-api-key" };
    let client = Client::new(gateway.address(), None).with(header, ADMIN_KEY);
    client.with("anthropic-version", "2023-06-01").post(path, body.to_string()).await
}

fn response(status: &str, output: &Value) -> Answer {
    let usage = json!({"input_tokens": 3, "output_tokens": 16, "total_tokens": 19});
    let details = if status == "incomplete" { json!({"reason": "max_output_tokens"}) } else { Value::Null };
    let body = json!({"id": "resp_1", "object": "response", "created_at": 1, "status": status, "incomplete_details": details, "output": output, "usage": usage});
    Answer::json(200, body.to_string())
}

fn message(text: &str) -> Value {
    let text = json!({"type": "output_text", "text": text, "annotations": []});
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]})
}

fn anthropic(text: &str) -> Answer {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 1}});
    Answer::json(200, body.to_string())
}

/// Asks each target and returns what it was sent.
async fn sent(gateway: &Gateway, upstream: &Upstream, path: &str, body: &Value) -> Value {
    upstream.then(match path {
        path if path.contains("@a/m") || path.contains("models/a/m") => anthropic("well"),
        path if path.contains("models/r/m") => response("completed", &json!([message("well")])),
        _ => Answer::completion("well"),
    });
    let (path, model) = path.split_once('@').unwrap_or((path, ""));
    let mut body = body.clone();
    if !model.is_empty() {
        body["model"] = model.into();
    }
    let answer = ask(gateway, path, &body).await;
    assert_eq!(answer.status, 200, "{path} {model}: {:?}", answer.body);
    upstream.request(upstream.requests().len() - 1).await.json()
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

fn result(id: &str, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": text})
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn roles(sent: &Value) -> Vec<(String, Value)> {
    let messages = sent["messages"].as_array().unwrap();
    messages.iter().map(|of| (of["role"].as_str().unwrap().to_owned(), of["content"].clone())).collect()
}

/// Codex puts a message between a call and its result: <https://github.com/Oaklight/llm-rosetta/pull/83>.
#[tokio::test]
async fn a_note_of_codex_between_a_call_and_its_result_follows_the_result() {
    let (gateway, upstream) = gateway().await;
    let input = json!({"input": [user("hi"), call("c1"), call("c2"), user("note"), result("c2", "two"), result("c1", "one")]});
    let chat = sent(&gateway, &upstream, "/v1/responses@c/m", &input).await;
    let named = |role: &str, content: Value| (role.to_owned(), content);
    let want = [
        named("user", json!("hi")),
        named("assistant", Value::Null),
        named("tool", json!("one")),
        named("tool", json!("two")),
        named("user", json!("note")),
    ];
    assert_eq!(roles(&chat), want);
    let messages = sent(&gateway, &upstream, "/v1/responses@a/m", &input).await;
    let content = &messages["messages"][2]["content"];
    let kinds: Vec<&Value> = content.as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text"], "{messages}");
}

/// Codex hands over the result of a tool that another thread called, without the ID of a call:
/// <https://github.com/router-for-me/CLIProxyAPI/issues/5831>.
#[tokio::test]
async fn a_result_without_a_call_is_a_users_message() {
    let (gateway, upstream) = gateway().await;
    let input = json!({"input": [user("hi"), result("", "from a thread"), user("go on")]});
    let chat = sent(&gateway, &upstream, "/v1/responses@c/m", &input).await;
    let texts: Vec<(String, Value)> =
        ["hi", "from a thread", "go on"].map(|text| ("user".to_owned(), json!(text))).into();
    assert_eq!(roles(&chat), texts);
    let messages = sent(&gateway, &upstream, "/v1/responses@a/m", &input).await;
    let content = messages["messages"][0]["content"].to_string();
    assert!(content.contains("from a thread") && !content.contains("tool_result"), "{messages}");
}

/// A call that a Gemini client interrupted has no result, which vendors refuse:
/// <https://github.com/microsoft/vscode/issues/299295>.
#[tokio::test]
async fn an_interrupted_call_of_a_gemini_client_has_a_result_for_every_target() {
    let (gateway, upstream) = gateway().await;
    let calls =
        json!([{"functionCall": {"name": "f", "args": {}}}, {"functionCall": {"name": "g", "args": {}}}]);
    let answered = json!({"functionResponse": {"name": "f", "response": {"output": "done"}}});
    let contents = json!({"contents": [
        {"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": calls},
        {"role": "user", "parts": [answered]}, {"role": "user", "parts": [{"text": "stop that"}]}]});
    let path = |model: &str| format!("/v1beta/models/{model}:generateContent");
    let chat = sent(&gateway, &upstream, &path("c/m"), &contents).await;
    let after: Vec<(String, Value)> = roles(&chat).split_off(2);
    let want = [("tool", "done"), ("tool", "aborted"), ("user", "stop that")];
    assert_eq!(after, want.map(|(role, text)| (role.to_owned(), json!(text))));
    let messages = sent(&gateway, &upstream, &path("a/m"), &contents).await;
    let text = messages["messages"][2].to_string();
    assert_eq!(text.matches("tool_result").count(), 2, "{messages}");
    let responses = sent(&gateway, &upstream, &path("r/m"), &contents).await;
    let outputs: Vec<&Value> = responses["input"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["type"] == "function_call_output")
        .map(|item| &item["output"])
        .collect();
    assert_eq!(outputs, ["done", "aborted"], "{responses}");
}

/// A gateway in front sends its own IDs, and the results in another order than the calls:
/// <https://github.com/router-for-me/CLIProxyAPI/issues/3878>.
#[tokio::test]
async fn results_of_a_gemini_client_belong_to_the_calls_with_their_ids() {
    let (gateway, upstream) = gateway().await;
    let calls = json!([{"functionCall": {"id": "call_b", "name": "f"}}, {"functionCall": {"id": "call_a", "name": "f"}}]);
    let result = |id: &str| json!({"functionResponse": {"id": id, "name": "f", "response": {"output": id}}});
    let contents = json!({"contents": [
        {"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": calls},
        {"role": "user", "parts": [result("call_a"), result("call_b")]}]});
    let path = |model: &str| format!("/v1beta/models/{model}:generateContent");
    let chat = sent(&gateway, &upstream, &path("c/m"), &contents).await;
    for message in chat["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool") {
        assert_eq!(message["tool_call_id"], message["content"], "{chat}");
    }
    let messages = sent(&gateway, &upstream, &path("a/m"), &contents).await;
    for block in messages["messages"][2]["content"].as_array().unwrap() {
        assert_eq!(block["tool_use_id"], block["content"], "{messages}");
    }
}

/// Claude Code probes a model with one token; a model that reasons answers nothing within it:
/// <https://github.com/BerriAI/litellm/issues/35061>.
#[tokio::test]
async fn a_probe_of_claude_code_with_one_token_is_answered_by_a_responses_target() {
    let (gateway, upstream) = gateway().await;
    let probe = json!({"model": "r/m", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]});
    upstream.then(response("incomplete", &json!([{"type": "reasoning", "id": "rs_1", "summary": []}])));
    let answer = ask(&gateway, "/v1/messages", &probe).await;
    let read = answer.json();
    assert_eq!(
        (answer.status, &read["content"], &read["stop_reason"]),
        (200, &json!([]), &json!("max_tokens")),
        "{read}"
    );
    let least = upstream.request(0).await.json()["max_output_tokens"].clone();
    assert_eq!(least, 16, "the vendor refuses fewer");
}

/// The classifier of Claude Code's auto mode sends stop sequences, for which the Responses API has no member:
/// <https://github.com/BerriAI/litellm/issues/33075>.
#[tokio::test]
async fn answers_of_a_responses_target_end_at_the_stop_sequences_of_claude_code() {
    let (gateway, upstream) = gateway().await;
    let mut question = json!({"model": "r/m", "max_tokens": 100, "stop_sequences": ["</verdict>", "</x>"], "messages": [{"role": "user", "content": "hello"}]});
    let output = json!([message("<verdict>yes</verdict> and more"), call("c1")]);
    upstream.then(response("completed", &output));
    let read = ask(&gateway, "/v1/messages", &question).await.json();
    assert_eq!(read["content"], json!([{"type": "text", "text": "<verdict>yes"}]), "{read}");
    let end = (&read["stop_reason"], &read["stop_sequence"]);
    assert_eq!(end, (&json!("stop_sequence"), &json!("</verdict>")), "{read}");
    assert_eq!(upstream.request(0).await.json().get("stop"), None);

    let event = |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    let delta = |text: &str| {
        event(
            json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}),
        )
    };
    let usage = json!({"input_tokens": 3, "output_tokens": 16, "total_tokens": 19});
    let done = json!({"id": "resp_1", "status": "completed", "output": output, "usage": usage});
    let mut events = vec![event(json!({"type": "response.created", "response": {}}))];
    events.extend(["<verdict>y", "es</ver", "dict", "> and more"].map(delta));
    events.push(event(json!({"type": "response.output_item.added", "output_index": 1, "item": call("c1")})));
    events.push(event(json!({"type": "response.completed", "response": done})));
    upstream.then(Answer::events(&events));
    question["stream"] = json!(true);
    let answer = ask(&gateway, "/v1/messages", &question).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let data =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let data: Vec<Value> = data.collect();
    let shown: String = data.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(shown, "<verdict>yes", "{text}");
    let ends: Vec<&Value> =
        data.iter().filter(|event| event["type"] == "message_delta").map(|event| &event["delta"]).collect();
    assert_eq!(ends, [&json!({"stop_reason": "stop_sequence", "stop_sequence": "</verdict>"})], "{text}");
    assert!(!text.contains("tool_use"), "{text}");
    let records = gateway.records(2).await;
    assert!(
        records.iter().all(|record| record["tokens"]["output"] == 16),
        "what follows is billed: {records:?}"
    );
}
