//! Chat clients over Responses targets: the behaviour of real servers of that API, and the requirements of chat clients.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use wire::adapt::{Answers, Asking, BadAnswer, Traits, find};
use wire::stream::{StreamState, Trouble};

use crate::chat_client::{Read, read};
use crate::pair::{cuttings, fixture, fixture_json};

fn prepare(request: &Value) -> Result<(Value, Box<dyn Answers>), String> {
    let body = request.to_string();
    let asking = Asking {
        body: body.as_bytes(),
        target: &Traits::of("up"),
        selector: "fast",
        seed: "T",
        now_s: 7,
        input_tokens: 0,
    };
    let pair = find(Dialect::Chat, Dialect::Responses).unwrap();
    let prepared = (pair.prepare)(&asking).map_err(|rejection| rejection.param)?;
    Ok((serde_json::from_slice(&prepared.body).unwrap(), prepared.answers))
}

fn answers(include_usage: bool) -> Box<dyn Answers> {
    let messages = json!([{"role": "user", "content": "x"}]);
    let options = json!({"include_usage": include_usage});
    prepare(&json!({"model": "fast", "messages": messages, "stream": true, "stream_options": options}))
        .unwrap()
        .1
}

fn relay_with(answers: &dyn Answers, pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (answers.stream(vec!["canary-secret".to_owned()]), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

fn relay(pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    relay_with(&*answers(true), pieces)
}

/// Returns an SSE stream of these events, without the members that no reader in these tests uses.
fn events(events: &[Value]) -> Vec<u8> {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect::<String>().into_bytes()
}

fn completed(output: &Value) -> Value {
    let usage = json!({"input_tokens": 9, "output_tokens": 4, "total_tokens": 13});
    json!({"type": "response.completed", "response": {"status": "completed", "output": output, "usage": usage}})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "content": [{"type": "output_text", "text": text}]})
}

#[test]
fn every_recorded_responses_stream_becomes_equivalent_chunks() {
    let index = fixture_json("responses/index.json");
    for case in index["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == "stream") {
        let (name, expect) = (case["id"].as_str().unwrap(), &case["expect"]);
        let input = fixture(case["file"].as_str().unwrap());
        let (out, state) = relay(&[&input]);
        let got = read(&out);
        if let Some(text) = expect["text"].as_str() {
            assert_eq!(got.content, text, "{name}");
        }
        match expect["status"].as_str() {
            Some("completed") => assert!(got.done && state.done, "{name}"),
            Some("incomplete") => assert_eq!(got.finish.as_deref(), Some("length"), "{name}"),
            Some("failed") => assert!(got.error.is_some() && state.error.is_some(), "{name}"),
            _ if expect["truncated"] == true => assert!(!got.done && state.error.is_none(), "{name}"),
            _ => assert_eq!(got.error.unwrap()["code"], expect["error"], "{name}"),
        }
        if expect["usage"].is_object() {
            assert_eq!(state.usage, wire::chat::token_counts(&expect["usage"]), "{name}");
            assert_eq!(got.usage.unwrap()["prompt_tokens"], expect["usage"]["input_tokens"], "{name}");
        }
        for pieces in cuttings(&input).into_iter().rev().step_by(7) {
            assert_eq!(relay(&pieces), (out.clone(), state.clone()), "{name}");
        }
    }
}

#[test]
fn free_text_calls_stay_free_text_calls() {
    let got = read(&relay(&[&fixture("responses/stream_custom_tool.sse")]).0);
    assert_eq!(got.calls, [["call_p", "custom", "apply_patch", "*** Begin"].map(str::to_owned)]);
    assert_eq!(got.finish.as_deref(), Some("tool_calls"));
}

#[test]
fn lifecycle_events_are_no_content() {
    let (mut stream, mut out) = (answers(true).stream(Vec::new()), Vec::new());
    for event in [
        json!({"type": "response.created", "response": {"status": "in_progress"}}),
        json!({"type": "response.in_progress", "response": {}}),
        json!({"type": "response.queued", "response": {}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "summary": []}}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "content": []}}),
        json!({"type": "response.content_part.added", "output_index": 1, "content_index": 0, "part": {"type": "output_text", "text": ""}}),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": ""}),
        json!({"type": "response.web_search_call.in_progress", "output_index": 2}),
        json!({"type": "keepalive"}),
    ] {
        stream.push(events(std::slice::from_ref(&event)).into(), &mut out);
        assert!(!stream.state().content, "{event}");
    }
    let item = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""});
    let event = json!({"type": "response.output_item.added", "output_index": 3, "item": item});
    stream.push(events(&[event]).into(), &mut out);
    assert!(stream.state().content, "a call's name is output");
}

#[test]
fn errors_of_every_shape_end_the_stream_without_credentials() {
    for event in [
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "bad canary-secret", "param": null}),
        json!({"type": "error", "error": {"code": "rate_limit_exceeded", "message": "bad canary-secret"}}),
        json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "bad canary-secret"}}}),
    ] {
        let (out, state) = relay(&[&events(&[event.clone(), completed(&json!([]))])]);
        let got = read(&out);
        assert_eq!(got.error.unwrap()["message"], "bad [redacted]", "{event}");
        assert_eq!(state.error.unwrap().status, Some(429), "{event}");
        assert!(!state.done && !state.content);
    }
    let (out, state) = relay(&[b"data: {\"error\":{\"message\":\"no\"}}\n\n"]);
    assert_eq!((read(&out).error.unwrap()["message"].as_str(), state.error.is_some()), (Some("no"), true));
    let (_, state) = relay(&[&events(&[json!({"type": "response.failed", "response": {"error": null}})])]);
    assert!(state.error.unwrap().message.contains("without a reason"));
}

#[test]
fn output_without_deltas_is_sent_from_the_complete_item() {
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}"});
    let added = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""});
    let rows: [(&str, Vec<Value>); 4] = [
        (
            "in the events of parts",
            vec![
                json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "hi"}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": message("hi")}),
                json!({"type": "response.output_item.added", "output_index": 1, "item": added}),
                json!({"type": "response.function_call_arguments.done", "output_index": 1, "arguments": "{\"a\":1}"}),
                json!({"type": "response.output_item.done", "output_index": 1, "item": call}),
            ],
        ),
        (
            "in the events of items",
            vec![
                json!({"type": "response.output_item.done", "output_index": 0, "item": message("hi")}),
                json!({"type": "response.output_item.done", "output_index": 1, "item": call}),
            ],
        ),
        ("in the last event", vec![]),
        (
            "in deltas",
            vec![
                json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "h"}),
                json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "i"}),
                json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "hi"}),
                json!({"type": "response.output_item.added", "output_index": 1, "item": added}),
                json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{\"a\":1}"}),
                json!({"type": "response.function_call_arguments.done", "output_index": 1, "arguments": "{\"a\":1}"}),
                json!({"type": "response.output_item.done", "output_index": 1, "item": call}),
            ],
        ),
    ];
    for (name, mut incoming) in rows {
        incoming.push(completed(&json!([message("hi"), call])));
        let got = read(&relay(&[&events(&incoming)]).0);
        assert_eq!(got.content, "hi", "{name}");
        assert_eq!(got.calls, [["c", "function", "f", "{\"a\":1}"].map(str::to_owned)], "{name}");
        assert_eq!((got.finish.as_deref(), got.done), (Some("tool_calls"), true), "{name}");
    }
}

#[test]
fn calls_that_interleave_keep_their_numbers() {
    let item = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": ""});
    let added = |index: u64, id: &str| json!({"type": "response.output_item.added", "output_index": index, "item": item(id)});
    let more = |index: u64, delta: &str| json!({"type": "response.function_call_arguments.delta", "output_index": index, "delta": delta});
    let incoming =
        [added(2, "a"), added(5, "b"), more(5, "1"), more(2, "2"), more(5, "3"), completed(&json!([]))];
    let got = read(&relay(&[&events(&incoming)]).0);
    assert_eq!(
        got.calls,
        [["a", "function", "f", "2"], ["b", "function", "f", "13"]].map(|call| call.map(str::to_owned))
    );
}

#[test]
fn reasoning_parts_are_joined_as_paragraphs() {
    let summary = |item: u64, part: u64, delta: &str| {
        json!({"type": "response.reasoning_summary_text.delta",
        "output_index": item, "summary_index": part, "delta": delta})
    };
    let raw =
        json!({"type": "response.reasoning_text.delta", "output_index": 4, "content_index": 0, "delta": "e"});
    let incoming = [
        summary(0, 0, "a"),
        summary(0, 0, "b"),
        summary(0, 1, "c"),
        summary(1, 0, "d"),
        raw,
        completed(&json!([])),
    ];
    assert_eq!(read(&relay(&[&events(&incoming)]).0).reasoning, "ab\n\nc\n\nd\n\ne");
    let summaries = |texts: &[&str]| {
        texts.iter().map(|text| json!({"type": "summary_text", "text": text})).collect::<Vec<_>>()
    };
    let output = json!([{"type": "reasoning", "summary": summaries(&["ab", "c"])}, {"type": "reasoning", "summary": summaries(&["d"])},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "e"}]}]);
    let whole = answers(false)
        .whole(json!({"status": "completed", "output": output}).to_string().as_bytes())
        .unwrap();
    let body: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(body["choices"][0]["message"]["reasoning_content"], "ab\n\nc\n\nd\n\ne");
}

#[test]
fn response_statuses_become_finish_reasons() {
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    for (status, reason, output, want) in [
        ("completed", json!(null), json!([message("a")]), "stop"),
        ("completed", json!(null), json!([call]), "tool_calls"),
        ("incomplete", json!({"reason": "max_output_tokens"}), json!([message("a")]), "length"),
        ("incomplete", json!({"reason": "max_output_tokens"}), json!([call]), "length"),
        ("incomplete", json!({"reason": "content_filter"}), json!([message("a")]), "content_filter"),
        ("incomplete", json!(null), json!([message("a")]), "length"),
    ] {
        let response = json!({"status": status, "incomplete_details": reason, "output": output});
        let event = json!({"type": format!("response.{status}"), "response": response});
        assert_eq!(read(&relay(&[&events(&[event])]).0).finish.as_deref(), Some(want), "{response}");
        let whole = answers(false).whole(response.to_string().as_bytes()).unwrap();
        let body: Value = serde_json::from_slice(&whole.body).unwrap();
        assert_eq!(body["choices"][0]["finish_reason"], want, "{response}");
    }
}

#[test]
fn usage_is_sent_in_its_own_chunk_only_if_requested() {
    let input = events(&[completed(&json!([message("a")]))]);
    let (out, state) = relay_with(&*answers(false), &[&input]);
    assert!(read(&out).usage.is_none() && !String::from_utf8(out).unwrap().contains("usage"));
    assert_eq!(state.usage.unwrap().output, 4);
    let usage = read(&relay(&[&input]).0).usage.unwrap();
    assert_eq!(
        usage,
        json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0}})
    );
}

#[test]
fn a_broken_stream_stays_open_until_a_gateway_error_ends_it() {
    let (mut stream, mut out) = (answers(true).stream(Vec::new()), Vec::new());
    let delta =
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"});
    stream.push(events(&[delta]).into(), &mut out);
    stream.push(Bytes::from_static(b"event: response.completed\ndata: {\"type\":\"response.comp"), &mut out);
    stream.end(&mut out);
    assert!(!stream.state().done && stream.state().error.is_none());
    out.push(stream.trouble(Trouble {
        row: ErrorKind::UpstreamCut.row(),
        message: "It broke off.",
        request_id: "req_1",
    }));
    let got = read(&out.concat());
    assert_eq!((got.content.as_str(), &got.error.unwrap()["message"]), ("a", &json!("It broke off.")));
}

#[test]
fn an_unterminated_last_event_counts_and_a_done_after_it_is_ignored() {
    let input = events(&[completed(&json!([message("a")]))]);
    let (out, state) = relay(&[input.strip_suffix(b"\n\n").unwrap()]);
    assert!(state.done && read(&out).done);
    assert_eq!(relay(&[&input, b"data: [DONE]\n\n"]), (out, state), "Azure sends one");
}

#[test]
fn unknown_event_types_and_item_shapes_are_skipped() {
    let incoming = [
        json!({"type": "response.brand_new", "item": 5, "response": "x", "delta": {}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "web_search_call", "content": "x", "summary": 1}}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": "x"}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 9, "delta": "{}"}),
        completed(&json!([5, {"type": "program"}, message("a")])),
    ];
    let got = read(&relay(&[b"data: ping\n\n", &events(&incoming)]).0);
    assert_eq!((got.content.as_str(), got.done), ("a", true));
}

#[test]
fn the_parts_of_a_response_are_bounded() {
    let delta = |index: u64| json!({"type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": "a"});
    let incoming: Vec<Value> = (0..4096).map(delta).collect();
    let (mut stream, mut out) = (answers(true).stream(Vec::new()), Vec::new());
    stream.push(events(&incoming).into(), &mut out);
    assert!(stream.state().error.is_none());
    stream.push(events(&[delta(4096)]).into(), &mut out);
    assert!(stream.state().error.as_ref().unwrap().message.contains("too many parts"));
}

#[test]
fn recorded_responses_become_completions() {
    for name in ["response_full", "response_incomplete"] {
        let body = fixture(&format!("responses/{name}.json"));
        let whole = answers(false).whole(&body).unwrap();
        let got = Read::of_whole(&serde_json::from_slice(&whole.body).unwrap());
        let mut event = json!({"type": "response.completed"});
        event["response"] = serde_json::from_slice(&body).unwrap();
        let mut stream = read(&relay(&[&events(&[event])]).0);
        stream.reasoning.clone_from(&got.reasoning);
        assert_eq!(got, stream, "{name}");
    }
    let failed = answers(false).whole(&fixture("responses/response_failed.json")).unwrap_err();
    assert!(matches!(failed, BadAnswer::Error(_)), "{failed:?}");
}

#[test]
fn bodies_that_are_no_response_are_rejected() {
    for body in ["", "<html>", "{}", "[]", "{\"output\":5}", "{\"status\":\"completed\"}"] {
        assert!(matches!(answers(false).whole(body.as_bytes()), Err(BadAnswer::Invalid(_))), "{body}");
    }
    let error =
        answers(false).whole(br#"{"error":{"message":"no","code":"rate_limit_exceeded"}}"#).unwrap_err();
    assert!(matches!(error, BadAnswer::Error(error) if error.status == Some(429)));
}

#[test]
fn content_is_null_beside_calls_and_refusals_and_otherwise_a_string() {
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "no"}]});
    for (output, content, want) in [
        (json!([]), json!(""), json!(null)),
        (json!([call]), json!(null), json!(null)),
        (json!([refusal]), json!(null), json!("no")),
        (json!([message("a"), call]), json!("a"), json!(null)),
    ] {
        let body = json!({"status": "completed", "output": output}).to_string();
        let body: Value =
            serde_json::from_slice(&answers(false).whole(body.as_bytes()).unwrap().body).unwrap();
        let message = &body["choices"][0]["message"];
        assert_eq!((&message["content"], &message["refusal"]), (&content, &want), "{output}");
    }
}

#[test]
fn rejected_call_ids_are_replaced_in_calls_and_results() {
    let id = "functions.f:0";
    let call = json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": id, "content": "1"}]);
    let (body, _) = prepare(&json!({"model": "m", "messages": messages})).unwrap();
    let made = body["input"][0]["call_id"].as_str().unwrap();
    assert!(made.starts_with("call_") && made.len() == 29, "{made}");
    assert_eq!(body["input"][1]["call_id"], made);
}

#[test]
fn malformed_requests_are_refused_with_the_place() {
    let messages = json!([{"role": "user", "content": "x"}]);
    for (request, param) in [
        (json!({"model": "m"}), "messages"),
        (json!({"model": "m", "messages": "x"}), "messages"),
        (json!({"model": "m", "messages": ["x"]}), "messages.0"),
        (json!({"model": "m", "messages": [{"role": "user"}]}), "messages.0.content"),
        (json!({"model": "m", "messages": [{"content": "x"}]}), "messages.0.role"),
        (
            json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "messages.0.content.0.image_url",
        ),
        (json!({"model": "m", "messages": [{"role": "tool", "content": "x"}]}), "messages.0.tool_call_id"),
        (
            json!({"model": "m", "messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}),
            "messages.0.tool_calls.0.function",
        ),
        (json!({"model": "m", "messages": messages, "tools": [{"type": "function"}]}), "tools.0.function"),
        (
            json!({"model": "m", "messages": messages, "tools": [{"type": "function", "function": {}}]}),
            "tools.0.function.name",
        ),
        (json!({"model": "m", "messages": messages, "response_format": "json"}), "response_format"),
    ] {
        assert_eq!(prepare(&request).map(|(body, _)| body).unwrap_err(), param, "{request}");
    }
}

#[test]
fn members_with_default_values_pass() {
    let messages = json!([{"role": "user", "content": "x"}]);
    for (member, value) in [
        ("n", json!(1)),
        ("stop", json!(null)),
        ("stop", json!([])),
        ("logprobs", json!(false)),
        ("presence_penalty", json!(0)),
        ("frequency_penalty", json!(0.0)),
        ("logit_bias", json!({})),
        ("modalities", json!(["text"])),
        ("store", json!(false)),
    ] {
        let (body, _) = prepare(&json!({"model": "m", "messages": messages, member: value})).unwrap();
        assert!(body.get(member).is_none_or(|kept| *kept == json!(false)), "{member}");
        assert_eq!(body["store"], false, "nothing is kept");
    }
}
