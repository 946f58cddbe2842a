//! Responses clients over chat targets: the behaviour of real chat servers, and the requirements of Responses clients.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::usage::TokenCounts;
use wire::adapt::{Answers, Asking, BadAnswer, Traits, find};
use wire::stream::{StreamState, Trouble};

use crate::pair::{cuttings, fixture, fixture_json};
use crate::responses_reader::{Read, check_usage, read};

fn asking<'a>(body: &'a str, target: &'a Traits<'a>) -> Asking<'a> {
    Asking { body: body.as_bytes(), target, selector: "s", seed: "T", now_s: 1, input_tokens: 0 }
}

fn answers_to(request: &Value) -> Box<dyn Answers> {
    let target = Traits { custom_tools: true, ..Traits::of("target-model") };
    let body = request.to_string();
    let asking = Asking { selector: "codex", now_s: 1_795_000_000, ..asking(&body, &target) };
    let pair = find(Dialect::Responses, Dialect::Chat).unwrap();
    (pair.prepare)(&asking).unwrap().answers
}

fn answers() -> Box<dyn Answers> {
    answers_to(&json!({"model": "codex", "input": "x", "stream": true}))
}

fn relay(pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (answers().stream(vec!["canary-secret".to_owned()]), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

/// Returns a stream of these chunks, followed by `[DONE]`.
fn events(chunks: &[Value]) -> Vec<u8> {
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect::<String>();
    (events + "data: [DONE]\n\n").into_bytes()
}

fn deltas(deltas: &[Value], finish: &str) -> Vec<u8> {
    let mut chunks: Vec<Value> =
        deltas.iter().map(|delta| json!({"choices": [{"index": 0, "delta": delta}]})).collect();
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}));
    events(&chunks)
}

fn read_deltas(input: &[Value], finish: &str) -> Read {
    let (out, state) = relay(&[&deltas(input, finish)]);
    assert!(state.done && state.error.is_none(), "{state:?}");
    read(&out)
}

fn called(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), arguments.to_owned())
}

#[test]
fn every_recorded_chat_stream_keeps_its_meaning() {
    let index = fixture_json("chat/index.json");
    let cases = index["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == "stream");
    for case in cases {
        let (name, expect) = (case["id"].as_str().unwrap(), &case["expect"]);
        let input = fixture(case["file"].as_str().unwrap());
        let (out, state) = relay(&[&input]);
        let got = read(&out);
        if !expect["error"].is_null() {
            assert_eq!(state.error.as_ref().unwrap().message, expect["error"].as_str().unwrap(), "{name}");
            assert_eq!(got.end, "failed", "{name}");
        } else if expect["truncated"] == true {
            assert!(!state.done && !state.finished && got.end.is_empty(), "{name}");
        } else {
            assert!(state.done, "{name}");
            assert_eq!(state.usage, wire::chat::token_counts(&expect["usage"]), "{name}");
            if let Some(text) = expect["text"].as_str() {
                assert_eq!(got.text("output_text"), text, "{name}");
            }
            let calls = expect["tool_calls"].as_array().cloned().unwrap_or_default();
            let text = |call: &Value, path: &str| call.pointer(path).unwrap().as_str().unwrap().to_owned();
            let calls: Vec<_> = calls
                .iter()
                .map(|call| (text(call, "/id"), text(call, "/name"), text(call, "/arguments")))
                .collect();
            assert_eq!(got.calls(), calls, "{name}");
        }
        if input.len() < 20_000 {
            for pieces in cuttings(&input).into_iter().rev().step_by(7) {
                assert_eq!(relay(&pieces), (out.clone(), state.clone()), "{name}");
            }
        }
    }
}

#[test]
fn every_recorded_completion_becomes_an_equivalent_response() {
    let index = fixture_json("chat/index.json");
    let cases = index["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == "response");
    for case in cases {
        let name = case["id"].as_str().unwrap();
        let input = fixture(case["file"].as_str().unwrap());
        let body: Value = serde_json::from_slice(&input).unwrap();
        let message = &body["choices"][0]["message"];
        let whole = answers().whole(&input).unwrap();
        let got: Value = serde_json::from_slice(&whole.body).unwrap();
        check_usage(&got);
        let incomplete = body["choices"][0]["finish_reason"] == "length";
        assert_eq!(got["status"], if incomplete { "incomplete" } else { "completed" }, "{name}");
        let got = Read { items: got["output"].as_array().unwrap().clone(), ..Read::default() };
        assert_eq!(got.text("output_text"), message["content"].as_str().unwrap_or(""), "{name}");
        assert_eq!(got.text("refusal"), message["refusal"].as_str().unwrap_or(""), "{name}");
        assert_eq!(got.text("reasoning_text"), message["reasoning_content"].as_str().unwrap_or(""), "{name}");
        let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
        assert_eq!(got.calls().len(), calls, "{name}");
        assert!(got.items.iter().all(|item| item["status"].is_string()), "{name}: every item has a status");
        assert_eq!(whole.usage, wire::chat::token_counts(&body["usage"]), "{name}");
    }
}

#[test]
fn the_last_event_of_a_stream_equals_the_whole_response() {
    let message = json!({"role": "assistant", "content": "hi", "reasoning": "hm",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let whole = answers().whole(body.to_string().as_bytes()).unwrap();
    let got: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(got, read_deltas(&[message], "tool_calls").response);
}

#[test]
fn no_event_is_sent_before_the_first_content() {
    let (mut stream, mut out) = (answers().stream(Vec::new()), Vec::new());
    let lifecycle = [
        "",
        ": OPENROUTER PROCESSING\n\n",
        "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"\"}}]}\n\n",
    ];
    for event in lifecycle {
        stream.push(Bytes::from_static(event.as_bytes()), &mut out);
        assert!(out.is_empty() && !stream.state().content, "{event}");
    }
    stream.push(Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"content\":\"H\"}}]}\n\n"), &mut out);
    assert!(stream.state().content);
    assert_eq!(stream.state().output_bytes, 1);
    let kinds: Vec<_> = crate::normal::decode(&out.concat()).into_iter().map(|event| event.event).collect();
    let want = ["created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"];
    assert_eq!(kinds, want.map(|kind| format!("response.{kind}")));
}

#[test]
fn an_error_before_content_fails_the_response_and_is_redacted() {
    let rows = [
        json!({"error": {"message": "bad canary-secret", "type": "server_error", "code": null}}),
        json!({"id": "x", "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            "error": {"code": 502, "message": "bad canary-secret"}}),
        json!({"object": "error", "message": "bad canary-secret"}),
        json!({"detail": "bad canary-secret"}),
        json!([{"error": {"message": "bad canary-secret"}}]),
    ];
    for row in rows {
        let (out, state) = relay(&[format!("data: {row}\n\n").as_bytes()]);
        assert!(!state.content && !state.done, "{row}");
        assert_eq!(state.error.unwrap().message, "bad [redacted]", "{row}");
        let got = read(&out);
        assert_eq!(
            (got.end.as_str(), &got.response["error"]["message"]),
            ("failed", &json!("bad [redacted]"))
        );
    }
}

#[test]
fn error_codes_known_to_codex_are_kept_and_others_are_server_error() {
    for (error, want) in [
        (json!({"message": "m", "code": "rate_limit_exceeded"}), "rate_limit_exceeded"),
        (json!({"message": "m", "type": "rate_limit_error"}), "rate_limit_exceeded"),
        (json!({"message": "m", "code": "context_length_exceeded"}), "context_length_exceeded"),
        (json!({"message": "m", "code": "insufficient_quota"}), "insufficient_quota"),
        (json!({"message": "m", "code": 500}), "server_error"),
    ] {
        let (out, _) = relay(&[format!("data: {}\n\n", json!({"error": error})).as_bytes()]);
        assert_eq!(read(&out).response["error"]["code"], want, "{error}");
    }
}

#[test]
fn falsy_error_members_of_a_chunk_are_ignored() {
    for error in [json!(null), json!(false), json!(""), json!({})] {
        let chunk = json!({"error": error, "choices": [{"index": 0, "delta": {"content": "a"}}]});
        let (out, state) = relay(&[&events(&[chunk])]);
        assert!(state.error.is_none() && state.done, "{error}");
        assert_eq!(read(&out).text("output_text"), "a");
    }
}

#[test]
fn an_error_finish_reason_fails_the_response() {
    for finish in ["error", "insufficient_system_resource", "abort"] {
        let (out, state) = relay(&[&deltas(&[json!({"content": "a"})], finish)]);
        assert!(state.error.is_some(), "{finish}");
        assert_eq!(read(&out).end, "failed", "{finish}");
        let body = json!({"choices": [{"message": {"content": "a"}, "finish_reason": finish}]}).to_string();
        assert!(matches!(answers().whole(body.as_bytes()), Err(BadAnswer::Error(_))), "{finish}");
    }
}

#[test]
fn chat_finish_reasons_become_response_statuses() {
    for (finish, status, reason) in [
        ("stop", "completed", json!(null)),
        ("tool_calls", "completed", json!(null)),
        ("eos", "completed", json!(null)),
        ("length", "incomplete", json!({"reason": "max_output_tokens"})),
        ("model_length", "incomplete", json!({"reason": "max_output_tokens"})),
        ("content_filter", "incomplete", json!({"reason": "content_filter"})),
    ] {
        let got = read_deltas(&[json!({"content": "a"})], finish);
        assert_eq!((got.end.as_str(), &got.response["incomplete_details"]), (status, &reason), "{finish}");
        assert_eq!(got.items[0]["status"], status, "{finish}");
    }
}

#[test]
fn a_broken_stream_stays_open_until_a_gateway_error_ends_it() {
    let (mut stream, mut out) = (answers().stream(Vec::new()), Vec::new());
    let chunk = json!({"choices": [{"index": 0, "delta": {"reasoning": "r"}}]});
    stream.push(format!("data: {chunk}\n\n").into(), &mut out);
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "c"}}]});
    stream.push(format!("data: {chunk}\n\ndata: {{\"choices\":[{{\"delta\"").into(), &mut out);
    stream.end(&mut out);
    assert!(!stream.state().done && stream.state().error.is_none());
    let trouble =
        Trouble { row: ErrorKind::UpstreamCut.row(), message: "It broke off.", request_id: "req_1" };
    out.push(stream.trouble(trouble));
    let got = read(&out.concat());
    assert_eq!(got.response["error"], json!({"code": "server_error", "message": "It broke off."}));
    let whole = got.response["output"].as_array().unwrap();
    assert_eq!(whole.len(), 1, "the reasoning was whole, the message was not");
    out.clear();
    stream.push(Bytes::from_static(b"data: [DONE]\n\n"), &mut out);
    stream.end(&mut out);
    assert!(out.is_empty(), "nothing comes after the end");
}

#[test]
fn a_stream_without_done_is_complete_after_a_finish_reason() {
    let input = deltas(&[json!({"content": "a"})], "stop");
    let without = input.strip_suffix(b"data: [DONE]\n\n").unwrap();
    let (out, state) = relay(&[without]);
    assert!(state.done && state.finished);
    assert_eq!(out, relay(&[&input]).0);
    let usage = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}";
    let (out, state) = relay(&[without, usage]);
    assert_eq!(state.usage.unwrap().input, 3, "usage that lacks its blank line counts");
    assert_eq!(read(&out).response["usage"]["input_tokens"], 3);
}

#[test]
fn events_after_done_are_ignored() {
    let mut input = deltas(&[json!({"content": "a"})], "stop");
    let out = relay(&[&input]).0;
    input.extend_from_slice(&deltas(&[json!({"content": "b"})], "stop"));
    assert_eq!(relay(&[&input]).0, out);
}

#[test]
fn usage_of_the_last_chunk_replaces_earlier_usage() {
    let chunk = |usage: Value| json!({"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": usage});
    let usage = |completion: u64| json!({"prompt_tokens": 10, "completion_tokens": completion});
    let (out, state) = relay(&[&events(&[chunk(usage(1)), chunk(usage(2)), chunk(json!(null))])]);
    assert_eq!(state.usage, Some(TokenCounts { input: 10, output: 2, ..TokenCounts::default() }));
    assert_eq!(read(&out).response["usage"]["total_tokens"], 12);
    let groq = json!({"choices": [], "x_groq": {"usage": usage(7)}});
    assert_eq!(relay(&[&events(&[groq])]).1.usage.unwrap().output, 7);
}

#[test]
fn reasoning_tokens_counted_on_top_are_added_to_the_output() {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115,
        "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 100}});
    let (out, _) = relay(&[&events(&[json!({"choices": [], "usage": usage})])]);
    let want = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 105, "output_tokens_details": {"reasoning_tokens": 100}, "total_tokens": 115});
    assert_eq!(read(&out).response["usage"], want);
}

#[test]
fn further_choices_are_ignored() {
    let chunk = json!({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"},
        {"index": 0, "delta": {"content": "yes"}}]});
    let (out, _) = relay(&[&events(&[chunk])]);
    let got = read(&out);
    assert_eq!((got.text("output_text").as_str(), got.end.as_str()), ("yes", "completed"));
}

#[test]
fn another_id_under_the_same_index_is_another_call() {
    let call = |id: &str, name: &str| json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": name, "arguments": "{}"}}]});
    let got = read_deltas(&[call("a", "f"), call("b", "g")], "tool_calls");
    assert_eq!(got.calls(), [called("a", "f", "{}"), called("b", "g", "{}")]);
}

#[test]
fn the_same_id_again_is_the_same_call() {
    let call = |part: &str| json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": part}}]});
    let got = read_deltas(&[call("{\"x\""), call(":1}")], "tool_calls");
    assert_eq!(got.calls(), [called("a", "f", "{\"x\":1}")]);
}

#[test]
fn calls_without_an_index_are_separated_by_id_or_position() {
    let start = |id: &str| json!({"tool_calls": [{"id": id, "function": {"name": "f", "arguments": ""}}]});
    let more = |part: &str| json!({"tool_calls": [{"function": {"arguments": part}}]});
    let got = read_deltas(&[start("a"), more("1"), start("b"), more("2")], "tool_calls");
    assert_eq!(got.calls(), [called("a", "f", "1"), called("b", "f", "2")]);
    let both = json!({"tool_calls": [{"function": {"name": "f", "arguments": "1"}}, {"id": "b", "function": {"name": "g", "arguments": "2"}}]});
    let got = read_deltas(&[both], "tool_calls");
    assert_eq!(got.calls()[1], called("b", "g", "2"));
    assert!(got.calls()[0].0.starts_with("call_T_"), "a missing ID is generated");
}

#[test]
fn arguments_that_are_an_object_become_text() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"q": "\"ü\""}}}]});
    assert_eq!(read_deltas(&[call], "tool_calls").calls(), [called("a", "f", "{\"q\":\"\\\"ü\\\"\"}")]);
}

#[test]
fn a_call_without_arguments_gets_an_empty_object() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "now"}}]});
    assert_eq!(read_deltas(&[call], "stop").calls(), [called("a", "now", "{}")]);
}

#[test]
fn a_call_is_buffered_until_its_name_arrives_up_to_a_limit() {
    let part = |part: &str| json!({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": part}}]});
    let name = json!({"tool_calls": [{"index": 0, "function": {"name": "f"}}]});
    let got = read_deltas(&[part("{"), name, part("}")], "tool_calls");
    assert_eq!(got.calls(), [called("a", "f", "{}")]);
    assert_eq!(read_deltas(&[part("{}")], "tool_calls").calls(), [called("a", "", "{}")], "it never came");
    let (out, state) =
        relay(&[deltas(&[part("{}")], "stop").split(|byte| *byte == b'\n').next().unwrap(), b"\n\n"]);
    assert!(out.is_empty() && !state.content, "what waits is not sent, and is no content yet");
    let bound = "x".repeat(64 * 1024);
    assert!(relay(&[&deltas(&[part(&bound)], "tool_calls")]).1.error.is_none());
    let (out, state) = relay(&[&deltas(&[part(&bound), part("x")], "tool_calls")]);
    assert!(state.error.unwrap().message.contains("too large"));
    assert_eq!(read(&out).end, "failed");
}

#[test]
fn the_size_of_a_response_is_bounded() {
    let (mut stream, mut out) = (answers().stream(Vec::new()), Vec::new());
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(1024 * 1024 - 64)}}]});
    let chunk = Bytes::from(format!("data: {chunk}\n\n"));
    for _ in 0..16 {
        stream.push(chunk.clone(), &mut out);
        out.clear();
        assert!(stream.state().error.is_none());
    }
    stream.push(chunk, &mut out);
    assert!(stream.state().error.as_ref().unwrap().message.contains("too large"));
}

#[test]
fn free_text_calls_become_custom_calls() {
    let tools = json!([{"type": "custom", "name": "apply_patch"}]);
    let call = |part: &str| {
        json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "p", "type": "custom",
        "custom": {"name": "apply_patch", "input": part}}]}}]})
    };
    let answers = answers_to(&json!({"model": "m", "input": "x", "tools": tools, "stream": true}));
    let (mut stream, mut out) = (answers.stream(Vec::new()), Vec::new());
    stream.push(Bytes::from(events(&[call("*** Begin\n"), call("*** End\n")])), &mut out);
    let got = read(&out.concat());
    assert_eq!(
        got.items,
        [json!({"id": "ctc_T_0", "type": "custom_tool_call", "status": "completed", "call_id": "p",
            "name": "apply_patch", "input": "*** Begin\n*** End\n"})]
    );
    assert_eq!(got.response["tools"], tools, "the answer repeats the request's tools");
}

#[test]
fn text_and_calls_of_one_delta_are_both_sent() {
    let delta = json!({"content": "so", "tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]});
    let got = read_deltas(&[delta], "stop");
    assert_eq!((got.text("output_text").as_str(), got.calls().len()), ("so", 1));
    let kinds: Vec<_> = got.items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "function_call"]);
}

#[test]
fn content_in_parts_holds_text_and_thinking() {
    let thinking = json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h\"m"}]}]});
    let got = read_deltas(&[thinking, json!({"content": [{"type": "text", "text": "hi"}]})], "stop");
    assert_eq!((got.text("reasoning_text"), got.text("output_text")), ("h\"m".to_owned(), "hi".to_owned()));
}

#[test]
fn reasoning_under_two_names_is_sent_once() {
    let got =
        read_deltas(&[json!({"reasoning": "r", "reasoning_content": "r"}), json!({"content": "c"})], "stop");
    assert_eq!(got.text("reasoning_text"), "r");
    assert_eq!(got.items[0]["type"], "reasoning");
}

#[test]
fn escapes_pass_unchanged_even_with_a_split_surrogate_pair() {
    let input =
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\u00fc\\n\\ud83d\\ude80\"}}]}\n\ndata: [DONE]\n\n";
    let (out, _) = relay(&[input.as_bytes()]);
    assert_eq!(read(&out).text("output_text"), "ü\n\u{1f680}");
    let halves = "data: {\"choices\":[{\"delta\":{\"content\":\"\\ud83d\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"\\ude80\"}}]}\n\ndata: [DONE]\n\n";
    let out = String::from_utf8(relay(&[halves.as_bytes()]).0).unwrap();
    assert!(out.contains(r#""text":"\ud83d\ude80""#), "joined they are whole: {out}");
}

#[test]
fn a_malformed_chunk_fails_the_response_and_non_json_data_is_skipped() {
    let text = "data: ping\n\ndata:\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let (_, state) = relay(&[text.as_bytes()]);
    assert!(state.error.is_none() && state.content);
    let (out, state) = relay(&[text.as_bytes(), b"data: {\"choices\":{}}\n\n"]);
    assert!(state.error.unwrap().message.contains("not a chat completion chunk"));
    assert_eq!(read(&out).end, "failed");
}

#[test]
fn bodies_that_are_no_completion_are_rejected() {
    for body in ["", "<html>", "{}", "{\"choices\":[]}", "[]", "{\"choices\":[{}"] {
        assert!(matches!(answers().whole(body.as_bytes()), Err(BadAnswer::Invalid(_))), "{body}");
    }
    let error = answers().whole(br#"{"error":{"message":"no","code":"rate_limit_exceeded"}}"#).unwrap_err();
    assert!(matches!(error, BadAnswer::Error(error) if error.status == Some(429)));
}

#[test]
fn the_response_repeats_members_of_its_request() {
    let request = json!({"model": "codex", "input": "x", "instructions": "Be \"brief\".", "max_output_tokens": 9,
        "metadata": {"a": "b"}, "user": "u", "reasoning": {"effort": "low"}, "temperature": 0.5,
        "parallel_tool_calls": null, "store": false});
    let body = br#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let got: Value = serde_json::from_slice(&answers_to(&request).whole(body).unwrap().body).unwrap();
    for member in ["instructions", "max_output_tokens", "metadata", "user", "temperature", "store"] {
        assert_eq!(got[member], request[member], "{member}");
    }
    assert_eq!((&got["id"], &got["model"]), (&json!("resp_T"), &json!("codex")));
    assert_eq!(got["reasoning"], json!({"effort": "low", "summary": null}));
    assert_eq!(got["parallel_tool_calls"], true, "null is absent");
}

fn prepare(request: &Value) -> Result<Value, String> {
    let body = request.to_string();
    let target = Traits::of("t");
    let asking = asking(&body, &target);
    let pair = find(Dialect::Responses, Dialect::Chat).unwrap();
    let prepared = (pair.prepare)(&asking).map_err(|rejection| rejection.param)?;
    Ok(serde_json::from_slice(&prepared.body).unwrap())
}

#[test]
fn a_codex_request_is_rejected_by_an_adapted_target_by_member() {
    let mut request = fixture_json("responses/request_codex.json");
    assert_eq!(prepare(&request).unwrap_err(), "include");
    request["include"] = json!([]);
    assert_eq!(prepare(&request).unwrap_err(), "input.2.encrypted_content");
    request["input"].as_array_mut().unwrap().remove(2);
    assert_eq!(prepare(&request).unwrap_err(), "input.2.type", "a custom call");
    request["input"].as_array_mut().unwrap().truncate(2);
    assert_eq!(prepare(&request).unwrap_err(), "tools.1.type", "a custom tool");
    request["tools"].as_array_mut().unwrap().truncate(1);
    assert!(
        prepare(&request).is_ok(),
        "client_metadata, prompt_cache_key, store: false and reasoning do no harm"
    );
}

#[test]
fn a_null_member_of_a_responses_request_counts_as_absent() {
    let mut request =
        json!({"model": "m", "input": [{"type": null, "role": "user", "content": "x", "id": null}]});
    let plain = prepare(&request).unwrap();
    for member in [
        "background",
        "include",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "previous_response_id",
        "max_output_tokens",
        "temperature",
        "instructions",
        "stream",
        "truncation",
        "anything",
    ] {
        request[member] = json!(null);
    }
    assert_eq!(prepare(&request).unwrap(), plain);
}

#[test]
fn assistant_text_after_calls_joins_the_message_with_the_calls() {
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let turn = |text: &str| json!({"role": "assistant", "content": text});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "1"});
    let reasoning = json!({"type": "reasoning", "summary": []});
    let input = json!([
        turn("a"),
        turn("b"),
        reasoning,
        call("c1"),
        reasoning,
        call("c2"),
        turn("c"),
        output("c1"),
        output("c2")
    ]);
    let got = prepare(&json!({"model": "m", "input": input})).unwrap();
    let roles: Vec<_> =
        got["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["assistant", "assistant", "tool", "tool"]);
    assert_eq!(got["messages"][0]["content"], "a");
    assert_eq!(got["messages"][1]["content"], "b\n\nc");
    assert_eq!(got["messages"][1]["tool_calls"].as_array().unwrap().len(), 2);
}

#[test]
fn malformed_requests_are_refused_with_the_place() {
    for (request, param) in [
        (json!({"model": "m"}), "input"),
        (json!({"model": "m", "input": 5}), "input"),
        (json!({"model": "m", "input": [5]}), "input.0"),
        (json!({"model": "m", "input": [{"role": "user"}]}), "input.0.content"),
        (json!({"model": "m", "input": [{"role": "robot", "content": "x"}]}), "input.0.role"),
        (
            json!({"model": "m", "input": [{"role": "user", "content": [{"text": "x"}]}]}),
            "input.0.content.0.type",
        ),
        (
            json!({"model": "m", "input": [{"type": "function_call", "name": "f", "arguments": ""}]}),
            "input.0.call_id",
        ),
        (json!({"model": "m", "input": [{"type": "function_call_output", "output": ""}]}), "input.0.call_id"),
        (json!({"model": "m", "input": "x", "tools": {}}), "tools"),
        (json!({"model": "m", "input": "x", "tools": [{"type": "function"}]}), "tools.0.name"),
        (json!({"model": "m", "input": "x", "text": "json"}), "text"),
        (json!({"model": "m", "input": [{"id": "msg_1"}]}), "input.0.type"),
    ] {
        assert_eq!(prepare(&request).unwrap_err(), param, "{request}");
    }
}

#[test]
fn a_rejected_member_with_its_default_value_passes() {
    for (member, value) in [
        ("include", json!([])),
        ("background", json!(false)),
        ("store", json!(false)),
        ("top_logprobs", json!(0)),
        ("conversation", json!("")),
        ("context_management", json!([])),
    ] {
        assert!(prepare(&json!({"model": "m", "input": "x", member: value})).is_ok(), "{member}");
    }
}

#[test]
fn paths_in_the_chat_request_are_traced_to_the_clients_members() {
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let input = json!([{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:x"}]},
        {"type": "reasoning", "summary": []}, call, {"type": "function_call_output", "call_id": "c", "output": "1"}]);
    let body = json!({"model": "m", "instructions": "Be.", "input": input}).to_string();
    let target = Traits::of("t");
    let asking = asking(&body, &target);
    let origin = find(Dialect::Responses, Dialect::Chat).unwrap().origin.unwrap();
    for (path, want) in [
        ("messages.0", "instructions"),
        ("messages.1.content.1.image_url", "input.0.content.1"),
        ("messages.2.tool_calls.0.function.arguments", "input.2"),
        ("messages.3", "input.3"),
        ("tools.1.function.parameters", "tools.1.parameters"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("max_tokens", "max_output_tokens"),
        ("temperature", "temperature"),
    ] {
        assert_eq!(origin(&asking, path).as_deref(), Some(want), "{path}");
    }
}
