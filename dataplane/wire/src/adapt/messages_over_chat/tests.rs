//! Variants of vendors' chat streams that a Messages client must not notice.
#![expect(clippy::needless_pass_by_value, reason = "documents are given away where they are written")]

use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::provider::quirks::ToolIds;

use super::*;
use crate::adapt::{Prepared, Traits};
use crate::json::Scanner;
use crate::sse::SseDecoder;
use crate::stream::{StreamState, Trouble};

fn prepared(request: &Value) -> Prepared {
    let target = Traits::of("target-model");
    let body = request.to_string();
    let asking = Asking {
        body: body.as_bytes(),
        target: &target,
        selector: "fast",
        seed: "S",
        now_s: 1,
        input_tokens: 0,
    };
    (PAIR.prepare)(&asking).unwrap()
}

fn request(more: Value) -> Value {
    let mut request =
        json!({"model": "fast", "max_tokens": 10, "messages": [{"role": "user", "content": "x"}]});
    let members = more.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(members);
    request
}

/// Returns the events that a client of `request` receives for `chunks`.
fn stream_of(request: &Value, chunks: &[Value]) -> (Vec<Value>, StreamState) {
    let data: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    relay(request, &(data + "data: [DONE]\n\n"))
}

fn relay(request: &Value, stream: &str) -> (Vec<Value>, StreamState) {
    let mut reader = prepared(request).answers.stream(vec!["canary-secret".to_owned()]);
    let (mut out, mut decoder) = (Vec::new(), SseDecoder::default());
    reader.push(bytes::Bytes::copy_from_slice(stream.as_bytes()), &mut out);
    reader.end(&mut out);
    decoder.push(&out.concat()).unwrap();
    let events = std::iter::from_fn(|| decoder.next_event());
    (events.map(|event| serde_json::from_str(&event.data).unwrap()).collect(), reader.state().clone())
}

/// Returns the blocks of a message, assembled as the SDK does it.
fn blocks(events: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut json = String::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(event["index"], blocks.len(), "blocks follow each other");
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                assert_eq!(event["index"], blocks.len() - 1, "only the last block grows");
                let (block, delta) = (blocks.last_mut().unwrap(), &event["delta"]);
                for member in ["text", "thinking"] {
                    if let Some(more) = delta[member].as_str() {
                        block[member] = json!(block[member].as_str().unwrap().to_owned() + more);
                    }
                }
                json.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if !json.is_empty() => {
                blocks.last_mut().unwrap()["input"] = serde_json::from_str(&json).unwrap_or_default();
                json.clear();
            }
            _ => {}
        }
    }
    blocks
}

fn ending(events: &[Value]) -> &Value {
    let at = events.len() - 2;
    assert_eq!(events[at + 1], json!({"type": "message_stop"}));
    &events[at]["delta"]
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn call(index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    let mut call = json!({"function": {"arguments": arguments}});
    if let Some(index) = index {
        call["index"] = json!(index);
    }
    if let Some(id) = id {
        call["id"] = json!(id);
    }
    if let Some(name) = name {
        call["function"]["name"] = json!(name);
    }
    call
}

fn calls(calls: &[Value]) -> Value {
    delta(json!({"tool_calls": calls}))
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn tool(id: &str, name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

#[test]
fn chunks_before_the_first_text_produce_no_output() {
    let mut reader = prepared(&request(json!({}))).answers.stream(Vec::new());
    let mut out = Vec::new();
    let before = [
        ": waiting\n\n".to_owned(),
        "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n".to_owned(),
        format!("data: {}\n\n", delta(json!({"role": "assistant", "content": "", "refusal": null}))),
        format!("data: {}\n\n", delta(json!({"reasoning_content": "hidden"}))),
        format!("data: {}\n\n", calls(&[call(Some(0), Some("a"), None, "")])),
    ];
    for event in before {
        reader.push(event.into(), &mut out);
        assert!(!reader.state().content);
    }
    reader.push(format!("data: {}\n\n", delta(json!({"content": "x"}))).into(), &mut out);
    assert!(reader.state().content);
    assert_eq!((reader.state().content_events, reader.state().output_bytes), (1, 1));
}

#[test]
fn an_error_before_output_is_the_only_event() {
    for stream in [
        "data: {\"error\":{\"message\":\"no canary-secret\",\"code\":429}}\n\n",
        "event: error\ndata: [{\"error\":{\"message\":\"no canary-secret\",\"code\":429}}]\n\n",
        "data: {\"detail\":\"no canary-secret\"}\n\n",
    ] {
        let (events, state) = relay(&request(json!({})), stream);
        assert!(!state.content);
        assert_eq!(state.error.unwrap().message, "no [redacted]", "{stream}");
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["type"], "error");
    }
}

#[test]
fn an_error_chunk_of_openrouter_ends_the_stream_with_its_kind() {
    let error = json!({"id": "x", "error": {"code": 429, "message": "slow down"},
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]});
    let (events, state) = stream_of(
        &request(json!({})),
        &[delta(json!({"content": "a"})), error, delta(json!({"content": "b"}))],
    );
    assert!(state.content && !state.done);
    assert_eq!(events.last().unwrap()["error"], json!({"type": "rate_limit_error", "message": "slow down"}));
    assert!(!events.iter().any(|event| event["delta"]["text"] == "b"));
}

#[test]
fn usage_is_read_from_any_chunk_and_never_summed() {
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 3});
    let last = json!({"choices": [], "usage": usage});
    let mut on_finish = finish("stop");
    on_finish["usage"] = usage.clone();
    let mut running = delta(json!({"content": "a"}));
    running["usage"] = json!({"prompt_tokens": 7, "completion_tokens": 1});
    for chunks in [vec![running.clone(), finish("stop"), last], vec![running, on_finish]] {
        let (events, state) = stream_of(&request(json!({})), &chunks);
        assert_eq!(state.usage.unwrap().output, 3);
        let usage = &events[events.len() - 2]["usage"];
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(7), &json!(3)));
    }
}

#[test]
fn tool_calls_without_distinct_indexes_stay_separate() {
    let want = [tool("a", "f", json!({"x": 1})), tool("b", "g", json!({}))];
    let whole = |index| {
        vec![calls(&[
            call(index, Some("a"), Some("f"), "{\"x\":1}"),
            call(index, Some("b"), Some("g"), "{}"),
        ])]
    };
    let parts = |index| {
        vec![
            calls(&[call(index, Some("a"), Some("f"), "")]),
            calls(&[call(index, None, None, "{\"x\":")]),
            calls(&[call(index, None, None, "1}")]),
            calls(&[call(index, Some("b"), Some("g"), "{}")]),
        ]
    };
    for mut chunks in [whole(None), whole(Some(0)), parts(None), parts(Some(0))] {
        chunks.push(finish("stop"));
        let (events, state) = stream_of(&request(json!({})), &chunks);
        assert_eq!(blocks(&events), want);
        assert_eq!(ending(&events)["stop_reason"], "tool_use", "regardless of the vendor's reason");
        assert!(state.done);
    }
}

#[test]
fn interleaved_tool_calls_are_sent_whole_and_in_order() {
    let chunks = [
        calls(&[call(Some(1), Some("b"), Some("g"), "{\"y\":"), call(Some(0), Some("a"), Some("f"), "{")]),
        calls(&[call(Some(0), None, None, "\"s\":\"}{\\\"\""), call(Some(2), Some("c"), Some("h"), "")]),
        delta(json!({"content": "late"})),
        calls(&[call(Some(2), None, None, "{}"), call(Some(1), None, None, "2}")]),
        calls(&[call(Some(0), None, None, "}")]),
        finish("tool_calls"),
    ];
    let (events, _) = stream_of(&request(json!({})), &chunks);
    let want = [
        tool("b", "g", json!({"y": 2})),
        tool("a", "f", json!({"s": "}{\""})),
        tool("c", "h", json!({})),
        json!({"type": "text", "text": "late"}),
    ];
    assert_eq!(blocks(&events), want);
}

#[test]
fn a_call_opens_with_its_name_and_streams_from_then_on() {
    let mut reader = prepared(&request(json!({}))).answers.stream(Vec::new());
    let mut sent = |chunk: Value| {
        let mut out = Vec::new();
        reader.push(format!("data: {chunk}\n\n").into(), &mut out);
        String::from_utf8(out.concat()).unwrap()
    };
    assert!(!sent(calls(&[call(Some(0), Some("a"), None, "{\"x\"")])).contains("content_block"));
    let opened = sent(calls(&[call(Some(0), None, Some("f"), ":")]));
    assert!(opened.contains("tool_use") && opened.contains(r#""partial_json":"{\"x\":""#), "{opened}");
    assert!(sent(calls(&[call(Some(0), None, None, "1}")])).contains(r#""partial_json":"1}""#));
}

#[test]
fn object_arguments_and_unusual_ids_are_accepted() {
    let mut odd = call(Some(0), Some("functions.f:0"), Some("f"), "");
    odd["function"]["arguments"] = json!({"x": "\"é"});
    let mut none = call(Some(1), None, Some("g"), "");
    none["id"] = Value::Null;
    let (events, _) = stream_of(&request(json!({})), &[calls(&[odd, none]), finish("tool_calls")]);
    let blocks = blocks(&events);
    assert_eq!(blocks[0]["input"], json!({"x": "\"é"}));
    assert!(blocks[0]["id"].as_str().unwrap().starts_with("toolu_"));
    assert_eq!(blocks[1], tool("toolu_S_1", "g", json!({})));
    // The id is sent back in the next request and must be the same for call and result.
    let id = &blocks[0]["id"];
    let next = prepared(&request(json!({"messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [blocks[0]]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "r"}]},
    ]})));
    let next: Value = serde_json::from_slice(&next.body).unwrap();
    assert_eq!(next["messages"][1]["tool_calls"][0]["id"], *id);
    assert_eq!(next["messages"][2]["tool_call_id"], *id);
}

#[test]
fn too_many_pending_calls_or_bytes_end_the_stream_with_an_error() {
    let piece = "x".repeat(calls::WAITING_BYTES_MAX / 2 + 1);
    let first = calls(&[call(Some(0), Some("a"), Some("f"), "{"), call(Some(1), Some("b"), Some("g"), "{")]);
    let more = calls(&[call(Some(1), None, None, &piece)]);
    let (events, state) = stream_of(&request(json!({})), &[first, more.clone(), more]);
    assert!(state.error.is_some() && !state.done);
    assert_eq!(events.last().unwrap()["error"]["type"], "api_error");
    let many: Vec<Value> =
        (0..=calls::CALLS_MAX as u64).map(|index| call(Some(index), None, None, "")).collect();
    assert!(stream_of(&request(json!({})), &[calls(&many)]).1.error.is_some());
}

#[test]
fn reasoning_is_sent_only_to_clients_that_enabled_thinking() {
    let chunks = [
        delta(json!({"reasoning": "hm"})),
        delta(json!({"reasoning_content": "m", "reasoning": "m"})),
        delta(json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "!"}]}]})),
        delta(json!({"content": [{"type": "text", "text": "Hé"}]})),
        delta(json!({"content": "!"})),
        finish("stop"),
    ];
    let text = json!({"type": "text", "text": "Hé!"});
    let thoughts = json!({"type": "thinking", "thinking": "hmm!", "signature": ""});
    let rows = [
        (json!({}), vec![text.clone()]),
        (json!({"thinking": {"type": "disabled"}}), vec![text.clone()]),
        (json!({"thinking": {"type": "adaptive", "display": "omitted"}}), vec![text.clone()]),
        (json!({"thinking": {"type": "adaptive"}}), vec![thoughts.clone(), text.clone()]),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}), vec![thoughts, text]),
    ];
    for (members, want) in rows {
        assert_eq!(blocks(&stream_of(&request(members.clone()), &chunks).0), want, "{members}");
    }
}

#[test]
fn finish_reasons_become_anthropic_stop_reasons() {
    let client_request = request(json!({"stop_sequences": ["END"]}));
    let mut at_stop = finish("stop");
    at_stop["choices"][0]["stop_reason"] = json!("END");
    let mut at_token = finish("stop");
    at_token["choices"][0]["stop_reason"] = json!(128_009);
    let text = delta(json!({"content": "x"}));
    let cut = calls(&[call(Some(0), Some("a"), Some("f"), "{\"x")]);
    let whole = calls(&[call(Some(0), Some("a"), Some("f"), "{}")]);
    let rows = [
        (text.clone(), finish("stop"), "end_turn", json!(null)),
        (text.clone(), finish("eos"), "end_turn", json!(null)),
        (text.clone(), finish("length"), "max_tokens", json!(null)),
        (text.clone(), finish("model_length"), "model_context_window_exceeded", json!(null)),
        (text.clone(), finish("content_filter"), "refusal", json!(null)),
        (delta(json!({"refusal": "no"})), finish("stop"), "refusal", json!(null)),
        (text.clone(), at_stop, "stop_sequence", json!("END")),
        (text, at_token, "end_turn", json!(null)),
        (whole.clone(), finish("length"), "tool_use", json!(null)),
        (whole, finish("stop"), "tool_use", json!(null)),
        (cut, finish("length"), "max_tokens", json!(null)),
    ];
    for (output, end, reason, sequence) in rows {
        let (events, _) = stream_of(&client_request, &[output, end.clone()]);
        assert_eq!(ending(&events), &json!({"stop_reason": reason, "stop_sequence": sequence}), "{end}");
    }
}

#[test]
fn a_failed_response_never_becomes_a_complete_message() {
    let client_request = request(json!({}));
    for (reason, status) in [("error", 502), ("abort", 502), ("insufficient_system_resource", 503)] {
        let text = delta(json!({"content": "half an ans"}));
        let (events, state) = stream_of(&client_request, &[text, finish(reason)]);
        assert_eq!(events.last().unwrap()["type"], "error", "{reason}");
        assert!(events.iter().all(|event| event["type"] != "message_stop"), "{reason}");
        assert_eq!((state.error.unwrap().status, state.done), (Some(status), false), "{reason}");
        let body = json!({"choices": [{"finish_reason": reason, "message": {"content": "half an ans"}}]});
        let error = whole(&client_request, &body).unwrap_err();
        assert!(matches!(error, BadAnswer::Error(error) if error.status == Some(status)), "{reason}");
    }
}

#[test]
fn a_stream_is_complete_only_at_done_or_a_finish_reason() {
    let text = format!("data: {}\n\n", delta(json!({"content": "x"})));
    let end = format!("data: {}", finish("stop"));
    let rows = [
        (text.clone() + "data: [DONE]\n\n" + &text, true),
        (text.clone() + "data: [DONE]", true),
        (text.clone() + &end + "\n\n", true),
        (text.clone() + &end, true),
        (text.clone() + &end[..end.len() - 1], false),
        (text, false),
    ];
    for (stream, done) in rows {
        let (events, state) = relay(&request(json!({})), &stream);
        assert_eq!((state.done, state.error), (done, None), "{stream}");
        assert_eq!(events.last().unwrap()["type"] == "message_stop", done, "{stream}");
        assert_eq!(events.iter().filter(|event| event["delta"]["text"] == "x").count(), 1, "{stream}");
    }
    let mut reader = prepared(&request(json!({}))).answers.stream(Vec::new());
    let trouble = Trouble { row: ErrorKind::UpstreamCut.row(), message: "broke off", request_id: "req_1" };
    let event = reader.trouble(trouble);
    assert!(event.starts_with(b"event: error\ndata: {") && event.ends_with(b"}\n\n"));
}

#[test]
fn other_choices_and_null_members_are_ignored() {
    let second = json!({"choices": [{"index": 1, "delta": {"content": "other"}}]});
    let odd = json!({"choices": [{"delta": null}, {"index": 0, "delta": {"content": null, "tool_calls": null}}],
        "usage": {}, "error": null});
    let (events, state) =
        stream_of(&request(json!({})), &[odd, second, delta(json!({"content": "x"})), finish("stop")]);
    assert_eq!(blocks(&events), [json!({"type": "text", "text": "x"})]);
    assert!(state.usage.is_none() && state.done);
    let (_, state) = relay(&request(json!({})), "data: <html>\n\n");
    assert!(state.error.is_some());
}

#[test]
fn a_data_ping_does_not_end_the_stream() {
    let text = format!("data: {}\n\n", delta(json!({"content": "x"})));
    let (events, state) = relay(&request(json!({})), &format!("data: ping\n\n{text}data: [DONE]\n\n"));
    assert_eq!(blocks(&events), [json!({"type": "text", "text": "x"})]);
    assert!(state.error.is_none() && state.done);
}

fn whole(request: &Value, answer: &Value) -> Result<Value, BadAnswer> {
    let whole = prepared(request).answers.whole(answer.to_string().as_bytes())?;
    Ok(serde_json::from_slice(&whole.body).unwrap())
}

#[test]
fn an_unusable_whole_response_is_an_upstream_error_or_invalid() {
    let plain = request(json!({}));
    let call = |arguments: &str, finish: &str| {
        let calls = [call(None, Some("a"), Some("f"), "{}"), call(None, Some("b"), Some("g"), arguments)];
        json!({"choices": [{"finish_reason": finish, "message": {"content": null, "tool_calls": calls}}]})
    };
    let error = whole(&plain, &json!({"error": {"message": "no", "code": 503}}));
    assert!(matches!(error, Err(BadAnswer::Error(error)) if error.status == Some(503)));
    for answer in [json!({"choices": []}), json!({"choices": [{}]}), json!({}), call("{", "tool_calls")] {
        assert!(matches!(whole(&plain, &answer), Err(BadAnswer::Invalid(_))), "{answer}");
    }
    let cut = whole(&plain, &call("{", "length")).unwrap();
    assert_eq!(cut["content"], json!([tool("a", "f", json!({}))]));
    assert_eq!(cut["stop_reason"], "max_tokens");
    let parts = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "x"}]);
    let parts = json!({"choices": [{"finish_reason": "stop", "message": {"content": parts}}]});
    assert_eq!(whole(&plain, &parts).unwrap()["content"], json!([{"type": "text", "text": "x"}]));
}

#[test]
fn arguments_and_schemas_keep_the_order_of_their_members() {
    let body = r#"{"max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":
        [{"type":"tool_use","id":"t","name":"f","input":{"z":1,"a":"é\u0001"}}]},{"role":"user","content":"y"}],
        "tools":[{"name":"f","input_schema":{"type":"object","properties":{"z":{},"a":{}}}}]}"#;
    let target = Traits::of("m");
    let asking = Asking {
        body: body.as_bytes(),
        target: &target,
        selector: "s",
        seed: "S",
        now_s: 1,
        input_tokens: 0,
    };
    let prepared = (PAIR.prepare)(&asking).unwrap();
    let text = String::from_utf8(prepared.body.to_vec()).unwrap();
    assert!(text.contains(r#""arguments":"{\"z\":1,\"a\":\"é\\u0001\"}""#), "{text}");
    assert!(text.contains(r#""properties":{"z":{},"a":{}}"#), "{text}");
    let answer = r#"{"choices":[{"message":{"tool_calls":[{"id":"t","function":{"name":"f",
        "arguments":"{\"z\": 1.50, \"a\":2}"}}]},"finish_reason":"tool_calls"}]}"#;
    let whole = prepared.answers.whole(answer.as_bytes()).unwrap();
    let text = String::from_utf8(whole.body.to_vec()).unwrap();
    assert!(text.contains(r#""input":{"z": 1.50, "a":2}"#), "{text}");
    let mut scanner = Scanner::new();
    struct Deaf;
    impl crate::json::JsonSink for Deaf {}
    scanner.push(&whole.body, &mut Deaf).unwrap();
    scanner.finish().unwrap();
}

#[test]
fn requests_of_the_wrong_shape_name_the_member() {
    let rows = [
        (json!({"messages": "x"}), "messages"),
        (json!({"messages": [{"content": "x"}]}), "messages.0.role"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages.0.role"),
        (json!({"messages": [{"role": "user"}]}), "messages.0.content"),
        (json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}), "messages.0.content.0.text"),
        (json!({"messages": [{"role": "user", "content": [{}]}]}), "messages.0.content.0.type"),
        (json!({"max_tokens": null}), "max_tokens"),
        (json!({"system": 5}), "system"),
        (json!({"system": [{"type": "image"}]}), "system.0"),
        (json!({"tools": [{}]}), "tools.0.name"),
        (json!({"tools": {}}), "tools"),
        (json!({"stop_sequences": "x"}), "stop_sequences"),
        (json!({"output_config": {"format": {"type": "json_schema"}}}), "output_config.format.schema"),
    ];
    for (more, param) in rows {
        let body = request(more.clone()).to_string();
        let target = Traits::of("m");
        let asking = Asking {
            body: body.as_bytes(),
            target: &target,
            selector: "s",
            seed: "S",
            now_s: 1,
            input_tokens: 0,
        };
        let rejection = (PAIR.prepare)(&asking).unwrap_err();
        assert_eq!(rejection.param, param, "{more}");
        assert!(rejection.message.starts_with(&format!("'{param}' ")), "{}", rejection.message);
    }
}

#[test]
fn members_of_the_chat_request_are_traced_to_the_clients_members() {
    let body = request(json!({
        "system": "s",
        "output_config": {"format": {"type": "json_schema", "schema": {}}},
        "tools": [{"type": "tool_search_tool_regex_20251119", "name": "s"}, {"name": "f"}],
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "text", "text": "t"},
                {"type": "tool_result", "tool_use_id": "a", "content": "r"},
                {"type": "tool_result", "tool_use_id": "b", "content": "r"},
                {"type": "image", "source": {"type": "url", "url": "https://x"}}]},
            {"role": "system", "content": [
                {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "g"}}}]}],
    }));
    let body = body.to_string();
    let target = Traits::of("m");
    let asking = Asking {
        body: body.as_bytes(),
        target: &target,
        selector: "s",
        seed: "S",
        now_s: 1,
        input_tokens: 0,
    };
    let rows = [
        ("messages.0.content", Some("system")),
        ("messages.1.content", Some("messages.0.content")),
        ("messages.2.tool_calls.1.function.arguments", Some("messages.1.content.2.input")),
        ("messages.2.tool_calls.0", Some("messages.1.content.1")),
        ("messages.4.tool_call_id", Some("messages.2.content.2.tool_use_id")),
        ("messages.5.content.1.image_url", Some("messages.2.content.3.source")),
        ("messages.5.content.1.image_url.url", Some("messages.2.content.3.source")),
        ("messages.5.content.0", Some("messages.2.content.0")),
        ("messages", Some("messages")),
        ("tools.0.function.parameters", Some("tools.1.input_schema")),
        ("tools.1.function.name", Some("messages.3.content.0.tool.definition.name")),
        ("response_format", Some("output_config.format")),
        ("reasoning_effort", Some("thinking")),
        ("stop", Some("stop_sequences")),
        ("max_tokens", Some("max_tokens")),
        ("logit_bias", None),
    ];
    for (param, want) in rows {
        assert_eq!(origin::origin(&asking, param).as_deref(), want, "{param}");
    }
}

#[test]
fn the_request_follows_the_traits_of_the_target() {
    let body = json!({
        "model": "s", "max_tokens": 9, "stream": true,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_01A", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01A", "content": "r"}]},
        ],
    })
    .to_string();
    let target = Traits { tool_ids: ToolIds::Nine, stream_options: false, ..Traits::of("t") };
    let asking = Asking {
        body: body.as_bytes(),
        target: &target,
        selector: "s",
        seed: "seed",
        now_s: 0,
        input_tokens: 0,
    };
    let prepared = (PAIR.prepare)(&asking).unwrap();
    let chat: Value = serde_json::from_slice(&prepared.body).unwrap();
    assert_eq!((&chat["stream"], chat.get("stream_options")), (&json!(true), None));
    let id = chat["messages"][1]["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(chat["messages"][2]["tool_call_id"], id);
}
