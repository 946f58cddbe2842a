//! Chat clients over Messages targets: requests of chat clients, and thinking options of the target.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::adapt::{Answers, Asking, Prepared, Rejection, Traits, find};
use wire::stream::StreamState;

use crate::known_rules::known;

pub(crate) fn prepare(request: &Value, target: &Traits<'_>) -> Result<Prepared, Rejection> {
    let body = request.to_string();
    let pair = find(Dialect::Chat, Dialect::Messages).unwrap();
    (pair.prepare)(&Asking {
        body: body.as_bytes(),
        target,
        selector: "fast",
        seed: "T",
        now_s: 1,
        input_tokens: 0,
    })
}

pub(crate) fn reasoning() -> Traits<'static> {
    Traits { reasoning: true, ..known("claude-sonnet-4-5") }
}

pub(crate) fn sent_to(request: &Value, target: &Traits<'_>) -> Value {
    serde_json::from_slice(&prepare(request, target).unwrap().body).unwrap()
}

pub(crate) fn sent(request: &Value) -> Value {
    sent_to(request, &Traits::of("claude"))
}

pub(crate) fn request(messages: &Value) -> Value {
    json!({"model": "fast", "messages": messages})
}

pub(crate) fn answers_with(patch: &Value) -> Box<dyn Answers> {
    let mut request =
        json!({"model": "fast", "messages": [{"role": "user", "content": "x"}], "stream": true});
    for (name, value) in patch.as_object().unwrap() {
        request[name] = value.clone();
    }
    prepare(&request, &Traits::of("claude")).unwrap().answers
}

pub(crate) fn usage_wanted() -> Value {
    json!({"stream_options": {"include_usage": true}})
}

pub(crate) fn relay_of(answers: &dyn Answers, pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (answers.stream(vec!["canary-secret".to_owned()]), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

pub(crate) fn relay(events: &[Value]) -> (Vec<u8>, StreamState) {
    relay_of(&*answers_with(&usage_wanted()), &[&sse(events)])
}

pub(crate) fn sse(events: &[Value]) -> Vec<u8> {
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    events.iter().map(event).collect::<String>().into_bytes()
}

pub(crate) fn message_start() -> Value {
    json!({"type": "message_start", "message": {"usage": {"input_tokens": 20, "output_tokens": 1}}})
}

pub(crate) fn block_start(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

pub(crate) fn tool(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

pub(crate) fn delta(index: u64, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

pub(crate) fn text(text: &str) -> Value {
    delta(0, &json!({"type": "text_delta", "text": text}))
}

pub(crate) fn arguments(index: u64, json: &str) -> Value {
    delta(index, &json!({"type": "input_json_delta", "partial_json": json}))
}

pub(crate) fn block_stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

pub(crate) fn message_delta(stop_reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 30}})
}

pub(crate) fn message_stop() -> Value {
    json!({"type": "message_stop"})
}

pub(crate) fn call(id: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}})
}

/// Returns the events of a complete stream: `message_start`, `events`, `message_delta` and `message_stop`.
pub(crate) fn streamed(events: &[Value], stop_reason: &str) -> Vec<Value> {
    [&[message_start()], events, &[message_delta(stop_reason), message_stop()]].concat()
}
// Requests of chat clients.

#[test]
fn results_of_parallel_calls_come_first_in_one_user_message() {
    let body = sent(&request(&json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [call("1", "{}"), call("2", "")]},
        {"role": "user", "content": "before the results"},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "two"}]},
    ])));
    assert_eq!(
        body["messages"][2],
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "2", "content": "two"},
            {"type": "text", "text": "before the results"}]})
    );
    assert_eq!(body["messages"].as_array().unwrap().len(), 3);
}

#[test]
fn text_that_is_empty_is_left_out() {
    let body = sent(&request(&json!([
        {"role": "system", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": null},
        {"role": "user", "content": ""},
        {"role": "user", "content": "b"},
    ])));
    assert_eq!(body.get("system"), None);
    let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(
        body["messages"],
        json!([{"role": "user", "content": blocks}]),
        "no other message is in between"
    );
}

#[test]
fn a_tool_result_without_content_becomes_an_empty_text() {
    for content in [json!(""), json!(null), json!([])] {
        let body = sent(&request(&json!([{"role": "tool", "tool_call_id": "1", "content": content}])));
        assert_eq!(
            body["messages"][0]["content"],
            json!([{"type": "tool_result", "tool_use_id": "1", "content": ""}])
        );
    }
}

#[test]
fn a_replaced_call_id_is_the_same_in_the_call_and_its_result() {
    let body = sent(&request(&json!([
        {"role": "assistant", "tool_calls": [call("functions.f:0", "{}"), call("functions.f:1", "{}")]},
        {"role": "tool", "tool_call_id": "functions.f:0", "content": "0"},
        {"role": "tool", "tool_call_id": "functions.f:1", "content": "1"},
    ])));
    for position in 0..2 {
        let id = &body["messages"][0]["content"][position]["id"];
        assert_eq!(*id, body["messages"][1]["content"][position]["tool_use_id"]);
        assert!(
            id.as_str().unwrap().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
            "{id}"
        );
    }
    assert_ne!(body["messages"][0]["content"][0]["id"], body["messages"][0]["content"][1]["id"]);
}

#[test]
fn arguments_keep_their_numbers_and_their_order() {
    let written = r#"{"z": 123456789012345678901, "a": 1e3, "m": 0.10}"#;
    let request = request(&json!([{"role": "assistant", "tool_calls": [call("1", written)]}]));
    let body = prepare(&request, &Traits::of("claude")).unwrap().body;
    assert!(String::from_utf8_lossy(&body).contains(&format!(r#""input":{written}"#)));
}

#[test]
fn a_null_member_of_a_chat_request_counts_as_absent() {
    let names = [
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "stop",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "parallel_tool_calls",
        "response_format",
        "reasoning_effort",
        "reasoning",
        "thinking",
        "user",
        "safety_identifier",
        "stream",
        "stream_options",
        "cache_control",
        "n",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "presence_penalty",
        "frequency_penalty",
        "modalities",
        "audio",
        "web_search_options",
        "moderation",
        "store",
        "seed",
        "metadata",
    ];
    let bare = request(&json!([{"role": "user", "content": "x"}]));
    let mut nulls = request(&json!([{"role": "user", "content": "x", "name": null, "cache_control": null}]));
    names.iter().for_each(|name| nulls[name] = Value::Null);
    assert_eq!(sent(&nulls), sent(&bare));
    let assistant = json!({"role": "assistant", "content": "x"});
    let mut nulls = assistant.clone();
    for name in ["refusal", "tool_calls", "function_call", "audio", "thinking_blocks", "reasoning_content"] {
        nulls[name] = Value::Null;
    }
    assert_eq!(sent(&request(&json!([nulls]))), sent(&request(&json!([assistant]))));
}

#[test]
fn members_with_default_values_are_accepted() {
    let bare = request(&json!([{"role": "user", "content": "x"}]));
    for (name, value) in [
        ("n", json!(1)),
        ("logprobs", json!(false)),
        ("top_logprobs", json!(0)),
        ("logit_bias", json!({})),
        ("presence_penalty", json!(0)),
        ("frequency_penalty", json!(0.0)),
        ("modalities", json!(["text"])),
        ("store", json!(false)),
        ("response_format", json!({"type": "text"})),
    ] {
        let mut request = bare.clone();
        request[name] = value;
        assert_eq!(sent(&request), sent(&bare), "{name}");
    }
}

#[test]
fn members_of_the_wrong_type_are_rejected_by_path() {
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let assistant = |calls: Value| json!({"messages": [{"role": "assistant", "tool_calls": calls}]});
    let rows = [
        (json!({"messages": "x"}), "messages"),
        (json!({"messages": null}), "messages"),
        (json!({"messages": ["x"]}), "messages.0"),
        (json!({"messages": [{"content": "x"}]}), "messages.0.role"),
        (json!({"messages": [{"role": "critic", "content": "x"}]}), "messages.0.role"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages.0.tool_call_id"),
        (user(json!(7)), "messages.0.content"),
        (user(json!(["x"])), "messages.0.content.0"),
        (user(json!([{"text": "x"}])), "messages.0.content.0.type"),
        (user(json!([{"type": "text"}])), "messages.0.content.0.text"),
        (user(json!([{"type": "tool_use"}])), "messages.0.content.0"),
        (user(json!([{"type": "image_url"}])), "messages.0.content.0.image_url"),
        (user(json!([{"type": "file"}])), "messages.0.content.0.file"),
        (user(json!([{"type": "file", "file": {}}])), "messages.0.content.0.file.file_data"),
        (
            json!({"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}),
            "messages.0.content.0",
        ),
        (assistant(json!({"a": 1})), "messages.0.tool_calls"),
        (assistant(json!([{"type": "function", "function": {"name": "f"}}])), "messages.0.tool_calls.0.id"),
        (assistant(json!([{"id": "1"}])), "messages.0.tool_calls.0.function"),
        (assistant(json!([{"id": "1", "function": {}}])), "messages.0.tool_calls.0.function.name"),
        (assistant(json!([call("1", "[]")])), "messages.0.tool_calls.0.function.arguments"),
        (assistant(json!([call("1", "{} x")])), "messages.0.tool_calls.0.function.arguments"),
        (assistant(json!([call("1", r#"{"a":"\x"}"#)])), "messages.0.tool_calls.0.function.arguments"),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [{"type": "function"}]}), "tools.0.function"),
        (json!({"tools": [{"type": "web_search"}]}), "tools.0.type"),
        (json!({"functions": [{}]}), "functions.0.name"),
        (json!({"tools": [], "tool_choice": {"type": "function"}}), "tool_choice.function"),
        (json!({"functions": [], "function_call": "any"}), "function_call"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"max_tokens": 1.5}), "max_tokens"),
        (json!({"stop": 7}), "stop"),
        (json!({"stop": [7]}), "stop.0"),
        (json!({"response_format": "json"}), "response_format"),
        (json!({"response_format": {"type": "xml"}}), "response_format"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
            "response_format.json_schema.schema",
        ),
    ];
    for (patch, param) in rows {
        let mut request = request(&json!([{"role": "user", "content": "x"}]));
        for (name, value) in patch.as_object().unwrap() {
            request[name] = value.clone();
        }
        let rejection = prepare(&request, &Traits::of("claude")).map(|prepared| prepared.body).unwrap_err();
        assert_eq!(rejection.param, param, "{patch}");
        assert!(
            rejection.message.contains(param) && rejection.message.ends_with('.'),
            "{}",
            rejection.message
        );
    }
}

#[test]
fn a_parameter_schema_without_type_becomes_an_object_schema() {
    let tools = |parameters: Value| {
        json!({"model": "m", "messages": [{"role": "user", "content": "x"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]})
    };
    let schema = |parameters: Value| sent(&tools(parameters))["tools"][0]["input_schema"].clone();
    assert_eq!(schema(json!({})), json!({"type": "object", "properties": {}}));
    assert_eq!(
        schema(json!({"properties": {"\"": {}}, "type": null})),
        json!({"type": "object", "properties": {"\"": {}}})
    );
    assert_eq!(schema(json!({"type": "object"})), json!({"type": "object"}));
}

#[test]
fn a_cache_mark_goes_to_the_matching_anthropic_block() {
    let mark = json!({"type": "ephemeral"});
    let part = json!({"type": "text", "text": "x", "cache_control": mark});
    let body = sent(&request(&json!([
        {"role": "system", "content": [part]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "cache_control": mark},
        {"role": "assistant", "content": [part], "tool_calls": [call("1", "{}")]},
        {"role": "tool", "tool_call_id": "1", "content": [part]},
    ])));
    assert_eq!(body["system"], json!([part]));
    assert_eq!(body["messages"][0]["content"][0].get("cache_control"), None);
    assert_eq!(body["messages"][0]["content"][1]["cache_control"], mark);
    assert_eq!(body["messages"][1]["content"][0], part);
    assert_eq!(
        body["messages"][2]["content"],
        json!([{"type": "tool_result", "tool_use_id": "1", "content": "x", "cache_control": mark}])
    );
}

#[test]
fn a_final_assistant_text_loses_its_trailing_blanks() {
    let last = |content: Value| {
        let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]);
        sent(&request(&messages))["messages"].get(1).cloned()
    };
    assert_eq!(last(json!("So: \n")), Some(json!({"role": "assistant", "content": "So:"})));
    assert_eq!(
        last(json!([{"type": "text", "text": "So: "}])),
        Some(json!({"role": "assistant", "content": "So:"}))
    );
    assert_eq!(last(json!(" ")), None);
}

// Thinking options of the target.

#[test]
fn sampling_members_are_omitted_while_thinking_is_enabled() {
    let mut request = request(&json!([{"role": "user", "content": "x"}]));
    for (name, value) in [("temperature", 0.5), ("top_p", 0.5), ("top_k", 3.0)] {
        request[name] = json!(value);
    }
    assert_eq!(sent_to(&request, &reasoning())["temperature"], 0.5);
    request["reasoning_effort"] = json!("low");
    let body = sent_to(&request, &reasoning());
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 1024}));
    for name in ["temperature", "top_p", "top_k"] {
        assert_eq!(body.get(name), None);
    }
}

#[test]
fn thinking_is_bounded_by_max_tokens_and_omitted_for_a_forced_tool() {
    let mut request = request(&json!([{"role": "user", "content": "x"}]));
    request["reasoning_effort"] = json!("high");
    request["max_tokens"] = json!(5000);
    assert_eq!(sent_to(&request, &reasoning())["thinking"]["budget_tokens"], 4096);
    request["max_tokens"] = json!(1000);
    assert_eq!(sent_to(&request, &reasoning()).get("thinking"), None);
    request["max_tokens"] = json!(5000);
    request["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    request["tool_choice"] = json!("required");
    let body = sent_to(&request, &reasoning());
    assert_eq!((body.get("thinking"), &body["tool_choice"]["type"]), (None, &json!("any")));
}

#[test]
fn a_tool_loop_without_signed_thinking_continues_without_thinking() {
    let thoughts = json!([{"type": "thinking", "thinking": "t", "signature": "s"}]);
    let talk = |blocks: &Value, then: &[Value]| {
        let mut messages = vec![
            json!({"role": "user", "content": "x"}),
            json!({"role": "assistant", "tool_calls": [call("1", "{}")], "thinking_blocks": blocks}),
            json!({"role": "tool", "tool_call_id": "1", "content": "1"}),
        ];
        messages.extend_from_slice(then);
        let mut request = request(&json!(messages));
        request["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        sent_to(&request, &reasoning())
    };
    assert_eq!(talk(&json!([]), &[]).get("thinking"), None);
    assert_eq!(talk(&thoughts, &[])["thinking"]["type"], "enabled");
    assert_eq!(talk(&thoughts, &[])["messages"][1]["content"][0], thoughts[0]);
    let turn = json!({"role": "user", "content": "y"});
    assert_eq!(talk(&json!([]), &[turn])["thinking"]["type"], "enabled", "a new turn");
}

#[test]
fn thinking_blocks_kept_in_pieces_are_joined() {
    let body = sent_to(
        &request(
            &json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "A", "thinking_blocks": [
            {"index": 0, "type": "thinking", "thinking": "a", "signature": ""},
            {"type": "thinking", "thinking": "b", "signature": null},
            {"type": "thinking", "thinking": "", "signature": "s"},
            {"type": "redacted_thinking", "data": "d", "index": 1}]}]),
        ),
        &reasoning(),
    );
    assert_eq!(
        body["messages"][1]["content"],
        json!([{"type": "thinking", "thinking": "ab", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"}, {"type": "text", "text": "A"}])
    );
}
