//! Chat clients over Messages targets: what targets do in the field, and what chat clients need.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::usage::TokenCounts;
use wire::adapt::{Answers, Asking, BadAnswer, Prepared, Rejection, Traits, find};
use wire::stream::{StreamState, Trouble};

use crate::chat_reader::{plain, read_stream};
use crate::normal::decode;
use crate::pair::{cuttings, fixture, fixture_json};

fn prepare(request: &Value, target: &Traits<'_>) -> Result<Prepared, Rejection> {
    let body = request.to_string();
    let pair = find(Dialect::Chat, Dialect::Messages).unwrap();
    (pair.prepare)(&Asking { body: body.as_bytes(), target, selector: "fast", seed: "T", now_s: 1 })
}

fn reasoning() -> Traits<'static> {
    Traits { reasoning: true, effort_words: false, ..Traits::of("claude") }
}

fn said_to(request: &Value, target: &Traits<'_>) -> Value {
    serde_json::from_slice(&prepare(request, target).unwrap().body).unwrap()
}

fn said(request: &Value) -> Value {
    said_to(request, &Traits::of("claude"))
}

fn request(messages: &Value) -> Value {
    json!({"model": "fast", "messages": messages})
}

fn answers_with(patch: &Value) -> Box<dyn Answers> {
    let mut request =
        json!({"model": "fast", "messages": [{"role": "user", "content": "x"}], "stream": true});
    for (name, value) in patch.as_object().unwrap() {
        request[name] = value.clone();
    }
    prepare(&request, &Traits::of("claude")).unwrap().answers
}

fn usage_wanted() -> Value {
    json!({"stream_options": {"include_usage": true}})
}

fn relay_of(answers: &dyn Answers, pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (answers.stream(vec!["canary-secret".to_owned()]), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

fn relay(events: &[Value]) -> (Vec<u8>, StreamState) {
    relay_of(&*answers_with(&usage_wanted()), &[&sse(events)])
}

fn sse(events: &[Value]) -> Vec<u8> {
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    events.iter().map(event).collect::<String>().into_bytes()
}

fn message_start() -> Value {
    json!({"type": "message_start", "message": {"usage": {"input_tokens": 20, "output_tokens": 1}}})
}

fn block_start(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn tool(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

fn delta(index: u64, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn text(text: &str) -> Value {
    delta(0, &json!({"type": "text_delta", "text": text}))
}

fn arguments(index: u64, json: &str) -> Value {
    delta(index, &json!({"type": "input_json_delta", "partial_json": json}))
}

fn block_stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn message_delta(stop_reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 30}})
}

fn message_stop() -> Value {
    json!({"type": "message_stop"})
}

fn call(id: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}})
}

/// The stream of `events`, with the lifecycle around them.
fn streamed(events: &[Value], stop_reason: &str) -> Vec<Value> {
    [&[message_start()], events, &[message_delta(stop_reason), message_stop()]].concat()
}

// What chat clients say.

#[test]
fn results_of_parallel_calls_stand_first_in_one_user_message() {
    let body = said(&request(&json!([
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
    let body = said(&request(&json!([
        {"role": "system", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": null},
        {"role": "user", "content": ""},
        {"role": "user", "content": "b"},
    ])));
    assert_eq!(body.get("system"), None);
    let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(body["messages"], json!([{"role": "user", "content": blocks}]), "nobody spoke in between");
}

#[test]
fn a_result_without_content_is_an_empty_one() {
    for content in [json!(""), json!(null), json!([])] {
        let body = said(&request(&json!([{"role": "tool", "tool_call_id": "1", "content": content}])));
        assert_eq!(
            body["messages"][0]["content"],
            json!([{"type": "tool_result", "tool_use_id": "1", "content": ""}])
        );
    }
}

#[test]
fn an_id_that_the_target_would_refuse_is_the_same_in_the_call_and_its_result() {
    let body = said(&request(&json!([
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
fn null_is_absent_everywhere() {
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
    assert_eq!(said(&nulls), said(&bare));
    let assistant = json!({"role": "assistant", "content": "x"});
    let mut nulls = assistant.clone();
    for name in ["refusal", "tool_calls", "function_call", "audio", "thinking_blocks", "reasoning_content"] {
        nulls[name] = Value::Null;
    }
    assert_eq!(said(&request(&json!([nulls]))), said(&request(&json!([assistant]))));
}

#[test]
fn what_asks_for_nothing_more_is_not_refused() {
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
        assert_eq!(said(&request), said(&bare), "{name}");
    }
}

#[test]
fn what_is_of_the_wrong_kind_is_refused_by_its_path() {
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
fn a_schema_of_no_type_becomes_that_of_an_object() {
    let tools = |parameters: Value| {
        json!({"model": "m", "messages": [{"role": "user", "content": "x"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]})
    };
    let schema = |parameters: Value| said(&tools(parameters))["tools"][0]["input_schema"].clone();
    assert_eq!(schema(json!({})), json!({"type": "object", "properties": {}}));
    assert_eq!(
        schema(json!({"properties": {"\"": {}}, "type": null})),
        json!({"type": "object", "properties": {"\"": {}}})
    );
    assert_eq!(schema(json!({"type": "object"})), json!({"type": "object"}));
}

#[test]
fn a_mark_for_the_cache_goes_on_the_block_that_bears_one() {
    let mark = json!({"type": "ephemeral"});
    let part = json!({"type": "text", "text": "x", "cache_control": mark});
    let body = said(&request(&json!([
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
fn text_to_go_on_from_does_not_end_in_blanks() {
    let last = |content: Value| {
        let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]);
        said(&request(&messages))["messages"].get(1).cloned()
    };
    assert_eq!(last(json!("So: \n")), Some(json!({"role": "assistant", "content": "So:"})));
    assert_eq!(
        last(json!([{"type": "text", "text": "So: "}])),
        Some(json!({"role": "assistant", "content": "So:"}))
    );
    assert_eq!(last(json!(" ")), None);
}

// How the target is to think.

#[test]
fn a_target_that_thinks_gets_no_sampling() {
    let mut request = request(&json!([{"role": "user", "content": "x"}]));
    for (name, value) in [("temperature", 0.5), ("top_p", 0.5), ("top_k", 3.0)] {
        request[name] = json!(value);
    }
    assert_eq!(said_to(&request, &reasoning())["temperature"], 0.5);
    request["reasoning_effort"] = json!("low");
    let body = said_to(&request, &reasoning());
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 1024}));
    for name in ["temperature", "top_p", "top_k"] {
        assert_eq!(body.get(name), None);
    }
}

#[test]
fn thinking_leaves_tokens_for_the_answer_and_gives_way_to_a_forced_tool() {
    let mut request = request(&json!([{"role": "user", "content": "x"}]));
    request["reasoning_effort"] = json!("high");
    request["max_tokens"] = json!(5000);
    assert_eq!(said_to(&request, &reasoning())["thinking"]["budget_tokens"], 4096);
    request["max_tokens"] = json!(1000);
    assert_eq!(said_to(&request, &reasoning()).get("thinking"), None);
    request["max_tokens"] = json!(5000);
    request["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    request["tool_choice"] = json!("required");
    let body = said_to(&request, &reasoning());
    assert_eq!((body.get("thinking"), &body["tool_choice"]["type"]), (None, &json!("any")));
}

#[test]
fn a_tool_loop_that_began_without_signed_thoughts_goes_on_without() {
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
        said_to(&request, &reasoning())
    };
    assert_eq!(talk(&json!([]), &[]).get("thinking"), None);
    assert_eq!(talk(&thoughts, &[])["thinking"]["type"], "enabled");
    assert_eq!(talk(&thoughts, &[])["messages"][1]["content"][0], thoughts[0]);
    let asked = json!({"role": "user", "content": "y"});
    assert_eq!(talk(&json!([]), &[asked])["thinking"]["type"], "enabled", "a new turn");
}

#[test]
fn thoughts_kept_in_pieces_are_put_together() {
    let body = said_to(
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

// What targets answer.

#[test]
fn every_recorded_stream_becomes_one_that_says_the_same() {
    let index = fixture_json("messages/index.json");
    let streams = index["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == "stream");
    for case in streams {
        let (name, expect) = (case["id"].as_str().unwrap(), &case["expect"]);
        let input = fixture(case["file"].as_str().unwrap());
        for answers in
            [answers_with(&usage_wanted()), answers_with(&json!({"thinking": {"type": "adaptive"}}))]
        {
            let (out, state) = relay_of(&*answers, &[&input]);
            for pieces in cuttings(&input) {
                assert_eq!(relay_of(&*answers, &pieces), (out.clone(), state.clone()), "{name}");
            }
            if expect["truncated"] == true || expect["error"].is_string() {
                assert_eq!(state.error.map(|error| error.code.unwrap()).as_deref(), expect["error"].as_str());
                assert!(!state.done && !state.finished, "{name}");
                continue;
            }
            assert!(state.done && state.finished && state.content, "{name}");
            let message = &read_stream(&out)["choices"][0]["message"];
            let of_kind = |kind: &str, member: &str| -> String {
                let blocks = expect["blocks"].as_array().into_iter().flatten();
                blocks
                    .filter(|block| block["type"] == kind)
                    .map(|block| block[member].as_str().unwrap())
                    .collect()
            };
            if expect["blocks"].is_array() {
                assert_eq!(message["content"], of_kind("text", "text"), "{name}");
                assert_eq!(
                    message["reasoning_content"].as_str().unwrap_or(""),
                    of_kind("thinking", "thinking"),
                    "{name}"
                );
            } else {
                assert_eq!(message["content"], "Héllo 🚀", "{name}");
            }
        }
    }
}

#[test]
fn every_recorded_answer_becomes_a_completion_and_that_a_stream() {
    for (file, content, finish) in [
        ("response_full", Some("Héllo 🚀"), "tool_calls"),
        ("response_stop_sequence", None, "stop"),
        ("response_refusal", Some(""), "content_filter"),
        ("response_citations", None, "stop"),
    ] {
        let whole = answers_with(&json!({})).whole(&fixture(&format!("messages/{file}.json"))).unwrap();
        let body: Value = serde_json::from_slice(&whole.body).unwrap();
        let choice = &body["choices"][0];
        assert_eq!(choice["finish_reason"], finish, "{file}");
        if let Some(content) = content {
            assert_eq!(choice["message"]["content"], content, "{file}");
        }
        assert_eq!(wire::chat::token_counts(&body["usage"]), whole.usage, "{file}");
        let stream = wire::chat::synthesize_stream(&whole.body, true).unwrap();
        assert_eq!(read_stream(&stream)["choices"][0]["finish_reason"], finish, "{file}");
    }
}

#[test]
fn usage_comes_only_to_who_asked_for_it() {
    let events = streamed(&[text("a")], "end_turn");
    let (out, state) = relay_of(&*answers_with(&json!({})), &[&sse(&events)]);
    assert!(!String::from_utf8_lossy(&out).contains("usage"));
    assert_eq!(read_stream(&out)["usage"], Value::Null);
    assert_eq!(state.usage, Some(TokenCounts { input: 20, output: 30, ..TokenCounts::default() }));
    let (out, _) = relay(&events);
    let usage = read_stream(&out)["usage"].clone();
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(20), &json!(30)));
    assert_eq!(usage["total_tokens"], 50);
}

#[test]
fn usage_that_was_not_told_is_zero_for_the_client_and_unknown_to_us() {
    let events =
        [text("a"), json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}), message_stop()];
    let (out, state) = relay(&events);
    assert_eq!(read_stream(&out)["usage"]["total_tokens"], 0);
    assert_eq!(state.usage, None);
}

#[test]
fn nothing_is_content_before_there_is_output() {
    let answers = answers_with(&usage_wanted());
    let (mut stream, mut out) = (answers.stream(Vec::new()), Vec::new());
    let mut push = |event: Value| {
        stream.push(sse(&[event]).into(), &mut out);
        (stream.state().content, out.len())
    };
    for event in [
        message_start(),
        json!({"type": "ping"}),
        block_start(0, &json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, &json!({"type": "signature_delta", "signature": "s"})),
        block_stop(0),
        block_start(1, &json!({"type": "redacted_thinking", "data": "d"})),
        block_start(2, &json!({"type": "text", "text": ""})),
        text(""),
        json!({"type": "future_event", "delta": "odd", "index": {}}),
    ] {
        assert!(!push(event.clone()).0, "{event}");
    }
    let (content, before) = push(delta(2, &json!({"type": "text_delta", "text": "a"})));
    assert!(content);
    assert_eq!(push(delta(2, &json!({"type": "text_delta", "text": "b"}))), (true, before + 1), "at once");
}

#[test]
fn every_sort_of_output_is_content() {
    for event in [
        text("a"),
        delta(0, &json!({"type": "thinking_delta", "thinking": "t"})),
        block_start(0, &json!({"type": "text", "text": "a"})),
        block_start(0, &tool("t")),
    ] {
        assert!(relay(&[message_start(), event.clone()]).1.content, "{event}");
    }
}

#[test]
fn calls_are_counted_without_other_blocks_and_may_interleave() {
    let (out, state) = relay(&streamed(
        &[
            block_start(0, &json!({"type": "text", "text": "Hm"})),
            block_start(1, &tool("a")),
            block_start(2, &tool("b")),
            arguments(2, "{\"b\""),
            arguments(1, "{\"a\""),
            arguments(2, ":2}"),
            arguments(1, ":1}"),
            block_start(3, &tool("c")),
            block_stop(1),
            block_stop(3),
        ],
        "tool_use",
    ));
    let message = &read_stream(&out)["choices"][0]["message"];
    let calls: Vec<_> = message["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["id"].as_str().unwrap(), call["function"]["arguments"].as_str().unwrap()))
        .collect();
    assert_eq!(calls, [("a", "{\"a\":1}"), ("b", "{\"b\":2}"), ("c", "{}")]);
    assert!(state.done);
}

#[test]
fn input_that_comes_whole_with_its_block_is_arguments() {
    let block = json!({"type": "tool_use", "id": "t", "name": "f", "input": {"q": "a \"b\"\n", "n": 1}});
    let (out, _) = relay(&streamed(&[block_start(0, &block), block_stop(0)], "tool_use"));
    let arguments =
        read_stream(&out)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].clone();
    let arguments: Value = serde_json::from_str(arguments.as_str().unwrap()).unwrap();
    assert_eq!(arguments, block["input"]);
}

#[test]
fn what_the_target_does_by_itself_is_not_for_the_client() {
    let (out, _) = relay(&streamed(
        &[
            block_start(0, &json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
            arguments(0, "{\"query\":\"x\"}"),
            block_stop(0),
            block_start(1, &json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": []})),
            block_stop(1),
            delta(2, &json!({"type": "citations_delta", "citation": {}})),
            text("a"),
        ],
        "pause_turn",
    ));
    let completion = read_stream(&out);
    assert_eq!(
        completion["choices"][0]["message"],
        json!({"role": "assistant", "content": "a", "refusal": null})
    );
    assert_eq!(completion["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_stream_that_ends_after_its_reason_is_whole_and_one_before_is_left_open() {
    let events = streamed(&[text("a")], "max_tokens");
    let (out, state) = relay(&events[..3]);
    assert_eq!(read_stream(&out)["choices"][0]["finish_reason"], "length");
    assert!(state.done);
    let answers = answers_with(&usage_wanted());
    let (mut stream, mut out) = (answers.stream(Vec::new()), Vec::new());
    stream.push(sse(&events[..2]).into(), &mut out);
    stream.end(&mut out);
    assert!(!stream.state().done && !stream.state().finished);
    assert_eq!(stream.state().input.map(|counts| counts.input), Some(20));
    let row = ErrorKind::UpstreamCut.row();
    out.push(stream.trouble(Trouble { row, message: "It broke off.", request_id: "req_1" }));
    let events = decode(&out.concat());
    let error: Value = serde_json::from_str(&events.last().unwrap().data).unwrap();
    assert_eq!(
        (&error["error"]["message"], &error["error"]["type"]),
        (&json!("It broke off."), &json!("server_error"))
    );
    assert!(events.iter().all(|event| event.data != "[DONE]"));
}

#[test]
fn nothing_follows_the_end() {
    let mut events = streamed(&[text("a")], "end_turn");
    let whole = relay(&events).0;
    events.extend([text("b"), message_stop(), json!({"type": "error", "error": {"message": "late"}})]);
    assert_eq!(relay(&events).0, whole);
    let done = [sse(&events[..4]), b"data: [DONE]\n\n".to_vec()].concat();
    assert_eq!(relay_of(&*answers_with(&usage_wanted()), &[&done]).0, whole);
}

#[test]
fn an_error_ends_the_stream_in_words_that_chat_clients_know() {
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "Bearer canary-secret is busy"}, "request_id": "r"});
    let rows = [
        ("overloaded_error", "server_error", Some(503)),
        ("api_error", "server_error", Some(500)),
        ("timeout_error", "server_error", Some(504)),
        ("rate_limit_error", "rate_limit_error", Some(429)),
        ("billing_error", "insufficient_quota", None),
        ("not_found_error", "invalid_request_error", Some(404)),
        ("request_too_large", "invalid_request_error", None),
        ("invalid_request_error", "invalid_request_error", Some(400)),
        ("authentication_error", "authentication_error", Some(401)),
    ];
    for (kind, want, status) in rows {
        let (out, state) = relay(&[message_start(), error(kind), text("late")]);
        let events = decode(&out);
        assert_eq!(events.len(), 2, "the role, and the error");
        let said: Value = serde_json::from_str(&events[1].data).unwrap();
        assert_eq!(said["error"]["type"], want, "{kind}");
        assert!(!out.windows(13).any(|part| part == b"canary-secret"));
        assert!(!state.content && !state.done, "it may be tried elsewhere");
        assert_eq!(state.error.unwrap().status, status, "{kind}");
    }
}

#[test]
fn an_error_of_any_shape_is_seen() {
    for error in [
        json!({"type": "error", "error": "broken"}),
        json!({"type": "error"}),
        json!({"error": {"message": "broken", "code": 502}}),
    ] {
        let input = format!("data: {error}\n\n");
        let (out, state) = relay_of(&*answers_with(&json!({})), &[input.as_bytes()]);
        assert!(!state.error.unwrap().message.is_empty(), "{error}");
        assert!(String::from_utf8_lossy(&out).contains("\"error\""), "{error}");
        let unfinished = input.trim_end();
        assert!(relay_of(&*answers_with(&json!({})), &[unfinished.as_bytes()]).1.error.is_some(), "{error}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_what_is_no_json_is_passed_over() {
    for data in ["{\"type\":", "{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\x\"}}"] {
        let (_, state) = relay_of(&*answers_with(&json!({})), &[format!("data: {data}\n\n").as_bytes()]);
        assert!(state.error.is_some(), "{data}");
    }
    let nameless = block_start(0, &json!({"type": "tool_use", "id": "", "name": "f"}));
    assert!(relay(&[nameless]).1.error.is_some());
    let events = String::from_utf8(sse(&streamed(&[text("a")], "end_turn"))).unwrap();
    let noisy = format!("data: ok\n\n: c\n\ndata:\n\nid: 7\nretry: 5\n\n{events}");
    let (out, state) = relay_of(&*answers_with(&usage_wanted()), &[noisy.as_bytes()]);
    assert_eq!(out, relay(&streamed(&[text("a")], "end_turn")).0);
    assert!(state.done && !state.ids_seen);
}

#[test]
fn text_goes_on_in_the_bytes_it_came_in() {
    // A pair that a vendor cut between two deltas, each of which is no text by itself.
    for half in [r"\ud83d", r"\ude80", r"\u0000\/\b", "\u{7f}\u{2028}"] {
        let event = format!(
            "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{half}\"}}}}\n\n"
        );
        let (out, state) = relay_of(&*answers_with(&json!({})), &[event.as_bytes()]);
        assert!(String::from_utf8_lossy(&out).contains(&format!("\"content\":\"{half}\"")), "{half}");
        assert!(state.error.is_none());
    }
}

#[test]
fn bytes_that_are_no_text_are_replaced() {
    let mut event = sse(&[text("a~b")]);
    let at = event.iter().position(|byte| *byte == b'~').unwrap();
    event[at] = 0xff;
    let (out, state) = relay_of(&*answers_with(&json!({})), &[&event]);
    assert!(String::from_utf8_lossy(&out).contains("a\u{fffd}b") && std::str::from_utf8(&out).is_ok());
    assert!(state.error.is_none());
}

#[test]
fn what_is_kept_of_a_stream_is_bounded() {
    let blocks: Vec<Value> = (0..65).map(|index| block_start(index, &tool("t"))).collect();
    assert!(relay(&blocks[..64]).1.error.is_none());
    assert!(relay(&blocks).1.error.is_some());
    let answers = answers_with(&json!({}));
    let (mut stream, mut out) = (answers.stream(Vec::new()), Vec::new());
    let piece = Bytes::from(vec![b'a'; 1 << 20]);
    stream.push(Bytes::from_static(b"data: "), &mut out);
    let pushed = (0..64).find(|_| {
        stream.push(piece.clone(), &mut out);
        stream.state().error.is_some()
    });
    assert!(pushed.is_some(), "an event without an end is an error");
}

#[test]
fn a_refusal_says_why() {
    let details = json!({"type": "refusal", "category": "cyber", "explanation": "Not \"that\"."});
    let mut last = message_delta("refusal");
    last["delta"]["stop_details"] = details.clone();
    let (out, _) = relay(&[message_start(), last, message_stop()]);
    let whole = json!({"type": "message", "content": [], "stop_reason": "refusal", "stop_details": details});
    let whole = answers_with(&json!({})).whole(whole.to_string().as_bytes()).unwrap();
    for completion in [read_stream(&out), serde_json::from_slice(&whole.body).unwrap()] {
        assert_eq!(completion["choices"][0]["message"]["refusal"], "Not \"that\".");
        assert_eq!(completion["choices"][0]["finish_reason"], "content_filter");
    }
}

#[test]
fn an_answer_that_is_none_says_why() {
    for (body, why) in [
        ("", "it is not a JSON object"),
        ("<html>", "it is not a JSON object"),
        ("[]", "it is not a JSON object"),
        ("{}", "it has no content"),
        (r#"{"content":"x"}"#, "it has no content"),
        (r#"{"content":[7]}"#, "its content is no list of blocks"),
        (r#"{"content":[{"type":"tool_use","id":7,"name":"f"}]}"#, "it calls a tool without a name or an id"),
    ] {
        assert_eq!(
            answers_with(&json!({})).whole(body.as_bytes()).unwrap_err(),
            BadAnswer::Invalid(why),
            "{body}"
        );
    }
    let error = fixture("messages/error_overloaded.json");
    let Err(BadAnswer::Error(error)) = answers_with(&json!({})).whole(&error) else { panic!() };
    assert_eq!((error.kind.as_deref(), error.status), (Some("server_error"), Some(503)));
}

// What only some clients want.

#[test]
fn who_speaks_of_thinking_gets_blocks_that_can_be_sent_back() {
    let own = json!({"thinking": {"type": "enabled", "budget_tokens": 2000}, "stream_options": {"include_usage": true}});
    let input = fixture("messages/stream_thinking_tools.sse");
    let (out, _) = relay_of(&*answers_with(&own), &[&input]);
    let mut message = read_stream(&out)["choices"][0]["message"].clone();
    assert_eq!(message["reasoning_content"], "6 times 7");
    let kept = json!([{"type": "thinking", "thinking": "6 times 7", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZW5j"}]);
    assert_eq!(message["thinking_blocks"], kept);
    let whole = json!({"content": kept, "stop_reason": "end_turn"}).to_string();
    let whole = answers_with(&own).whole(whole.as_bytes()).unwrap();
    let whole: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(whole["choices"][0]["message"]["thinking_blocks"], kept);
    message["content"] = json!("Checking.");
    let again = said_to(&request(&json!([{"role": "user", "content": "x"}, message])), &reasoning());
    assert_eq!(again["messages"][1]["content"][0], kept[0]);
    assert_eq!(again["messages"][1]["content"][1], kept[1]);
    let (out, _) = relay_of(&*answers_with(&usage_wanted()), &[&input]);
    assert!(!String::from_utf8_lossy(&out).contains("thinking_blocks"), "nobody else does");
}

#[test]
fn who_asks_with_functions_is_answered_with_a_function_call() {
    let old = json!({"functions": [{"name": "f"}], "stream_options": {"include_usage": true}});
    let events = streamed(
        &[block_start(0, &tool("a")), arguments(0, "{\"a\":1}"), block_stop(0), block_start(1, &tool("b"))],
        "tool_use",
    );
    let (out, _) = relay_of(&*answers_with(&old), &[&sse(&events)]);
    let whole = json!({"content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"a": 1}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 20, "output_tokens": 30}});
    let whole = answers_with(&old).whole(whole.to_string().as_bytes()).unwrap();
    let whole: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(
        whole["choices"][0]["message"]["function_call"],
        json!({"name": "f", "arguments": "{\"a\":1}"})
    );
    assert_eq!(whole["choices"][0]["finish_reason"], "function_call");
    assert_eq!(plain(read_stream(&out)), plain(whole));
}
