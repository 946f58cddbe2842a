//! Chat clients over Messages targets: the answers of targets, and their translation for chat clients.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::usage::TokenCounts;
use wire::adapt::BadAnswer;
use wire::stream::Trouble;

use crate::chat_over_messages::{
    answers_with, arguments, block_start, block_stop, delta, message_delta, message_start, message_stop,
    reasoning, relay, relay_of, request, sent_to, sse, streamed, text, tool, usage_wanted,
};
use crate::chat_reader::{plain, read_stream};
use crate::normal::decode;
use crate::pair::{cuttings, fixture, fixture_json};

// Answers of targets.

#[test]
fn every_recorded_stream_keeps_its_meaning() {
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
fn every_recorded_message_becomes_a_completion_and_a_stream() {
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
fn usage_is_sent_only_to_clients_that_requested_it() {
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
fn missing_usage_is_zero_for_the_client_and_unknown_in_the_record() {
    let events =
        [text("a"), json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}), message_stop()];
    let (out, state) = relay(&events);
    assert_eq!(read_stream(&out)["usage"]["total_tokens"], 0);
    assert_eq!(state.usage, None);
}

#[test]
fn events_before_the_first_output_are_no_content() {
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
fn every_kind_of_output_of_a_message_counts_as_content() {
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
fn tool_calls_are_numbered_without_text_blocks_and_may_interleave() {
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
fn tool_input_in_the_block_start_becomes_arguments() {
    let block = json!({"type": "tool_use", "id": "t", "name": "f", "input": {"q": "a \"b\"\n", "n": 1}});
    let (out, _) = relay(&streamed(&[block_start(0, &block), block_stop(0)], "tool_use"));
    let arguments =
        read_stream(&out)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].clone();
    let arguments: Value = serde_json::from_str(arguments.as_str().unwrap()).unwrap();
    assert_eq!(arguments, block["input"]);
}

#[test]
fn server_tool_blocks_and_citations_are_not_sent_to_the_client() {
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
fn a_stream_is_complete_only_if_it_ends_after_its_stop_reason() {
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
fn events_after_the_end_are_ignored() {
    let mut events = streamed(&[text("a")], "end_turn");
    let whole = relay(&events).0;
    events.extend([text("b"), message_stop(), json!({"type": "error", "error": {"message": "late"}})]);
    assert_eq!(relay(&events).0, whole);
    let done = [sse(&events[..4]), b"data: [DONE]\n\n".to_vec()].concat();
    assert_eq!(relay_of(&*answers_with(&usage_wanted()), &[&done]).0, whole);
}

#[test]
fn an_anthropic_error_becomes_a_chat_error_and_ends_the_stream() {
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
        let shown: Value = serde_json::from_str(&events[1].data).unwrap();
        assert_eq!(shown["error"]["type"], want, "{kind}");
        assert!(!out.windows(13).any(|part| part == b"canary-secret"));
        assert!(!state.content && !state.done, "it may be tried elsewhere");
        assert_eq!(state.error.unwrap().status, status, "{kind}");
    }
}

#[test]
fn errors_of_every_shape_are_recognized() {
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
fn malformed_json_is_an_error_and_non_json_data_is_skipped() {
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
fn escaped_text_is_forwarded_in_its_original_bytes() {
    // The first two are a surrogate pair that a vendor split between two deltas; neither half is valid text alone.
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
fn invalid_utf8_is_replaced() {
    let mut event = sse(&[text("a~b")]);
    let at = event.iter().position(|byte| *byte == b'~').unwrap();
    event[at] = 0xff;
    let (out, state) = relay_of(&*answers_with(&json!({})), &[&event]);
    assert!(String::from_utf8_lossy(&out).contains("a\u{fffd}b") && std::str::from_utf8(&out).is_ok());
    assert!(state.error.is_none());
}

#[test]
fn open_blocks_and_unfinished_events_are_bounded() {
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
fn a_refusal_includes_the_explanation() {
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
fn an_invalid_message_is_rejected_with_the_reason() {
    for (body, why) in [
        ("", "it is not a JSON object"),
        ("<html>", "it is not a JSON object"),
        ("[]", "it is not a JSON object"),
        ("{}", "it has no content"),
        (r#"{"content":"x"}"#, "it has no content"),
        (r#"{"content":[7]}"#, "its content is not a list of blocks"),
        (r#"{"content":[{"type":"tool_use","id":7,"name":"f"}]}"#, "it calls a tool without a name or an ID"),
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

// Answers that only some clients ask for.

#[test]
fn clients_that_use_thinking_get_thinking_blocks_to_send_back() {
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
    let again = sent_to(&request(&json!([{"role": "user", "content": "x"}, message])), &reasoning());
    assert_eq!(again["messages"][1]["content"][0], kept[0]);
    assert_eq!(again["messages"][1]["content"][1], kept[1]);
    let (out, _) = relay_of(&*answers_with(&usage_wanted()), &[&input]);
    assert!(!String::from_utf8_lossy(&out).contains("thinking_blocks"), "other models do not");
}

#[test]
fn a_request_with_functions_is_answered_with_a_function_call() {
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
