//! Pitfalls in native Responses answers, one test each.
#![expect(clippy::needless_pass_by_value, reason = "tests read better with values")]

use bytes::Bytes;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::usage::TokenCounts;

use super::{stream, synthesize_stream};
use crate::cutting;
use crate::native::{HELD_BYTES_MAX, whole_answer};
use crate::stream::{AnswerStream, StreamOptions, StreamState, Trouble};

/// Returns events with their names and numbers.
fn text_of(events: &[Value]) -> String {
    let numbered = events.iter().enumerate().map(|(number, data)| {
        let mut data = data.clone();
        data["sequence_number"] = number.into();
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
    });
    numbered.collect()
}

fn relay(input: &str) -> (String, StreamState) {
    let options =
        StreamOptions { secrets: vec!["sk-secret-0123456789abc".to_owned()], ..StreamOptions::default() };
    let (out, state) = cutting::relay(stream(options), &[Bytes::copy_from_slice(input.as_bytes())]);
    (String::from_utf8(out).unwrap(), state)
}

/// Checks that all events pass and returns the resulting state.
fn state_of(events: &[Value]) -> StreamState {
    let input = text_of(events);
    let (out, state) = relay(&input);
    assert_eq!(out, input);
    state
}

fn response(status: &str, members: Value) -> Value {
    let mut response = json!({"id": "resp_up", "object": "response", "created_at": 1_795_000_000, "model": "up-model",
        "status": status, "error": null, "output": [], "usage": null});
    response.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    response
}

fn created() -> Value {
    json!({"type": "response.created", "response": response("in_progress", json!({"tools": [{"usage": {"input_tokens": 9}}]}))})
}

fn text(text: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text, "logprobs": []})
}

fn completed(members: Value) -> Value {
    json!({"type": "response.completed", "response": response("completed", members)})
}

fn usage() -> Value {
    json!({"input_tokens": 120, "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 5},
        "output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 12}, "total_tokens": 150})
}

const COUNTS: TokenCounts = TokenCounts {
    input: 15,
    cache_read: 100,
    cache_write: 5,
    output: 18,
    reasoning: 12,
    ..TokenCounts::ZERO
};

fn item(kind: &str, item: Value) -> Value {
    json!({"type": format!("response.output_item.{kind}"), "output_index": 0, "item": item})
}

#[test]
fn lifecycle_events_are_no_output() {
    let message = json!({"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []});
    let rows = [
        created(),
        json!({"type": "response.queued", "response": response("queued", json!({}))}),
        json!({"type": "response.in_progress", "response": response("in_progress", json!({}))}),
        item("added", message.clone()),
        item(
            "added",
            json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "partial"}),
        ),
        item("done", message),
        json!({"type": "response.content_part.added", "part": {"type": "output_text", "text": "", "annotations": []}}),
        json!({"type": "response.reasoning_summary_part.added", "part": {"type": "summary_text", "text": ""}}),
        text(""),
        json!({"type": "response.output_text.done", "text": ""}),
        json!({"type": "response.something.new", "x": "y"}),
    ];
    for row in rows {
        assert!(!state_of(std::slice::from_ref(&row)).content, "{row}");
    }
}

#[test]
fn every_kind_of_output_counts_as_content() {
    let rows = [
        text("hi"),
        json!({"type": "response.refusal.delta", "delta": "No"}),
        json!({"type": "response.function_call_arguments.delta", "delta": "{"}),
        json!({"type": "response.custom_tool_call_input.delta", "delta": "x"}),
        json!({"type": "response.reasoning_summary_text.delta", "delta": "hm"}),
        json!({"type": "response.reasoning_text.delta", "delta": "hm"}),
        json!({"type": "response.audio.delta", "delta": "AAAA"}),
        json!({"type": "response.shell_call_output_content.delta", "delta": {"stdout": "x"}}),
        json!({"type": "response.from_the_future.delta", "delta": "x"}),
        json!({"type": "response.image_generation_call.partial_image", "partial_image_b64": "AAAA"}),
        item("added", json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""})),
        item("added", json!({"type": "web_search_call", "id": "ws_1", "status": "in_progress"})),
        item("done", json!({"type": "message", "content": [{"type": "output_text", "text": "hi"}]})),
        item("done", json!({"type": "reasoning", "summary": [], "encrypted_content": "gAAA"})),
        json!({"type": "response.content_part.added", "part": {"type": "output_text", "text": "hi"}}),
        json!({"type": "response.output_text.done", "text": "hi"}),
        completed(
            json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]}),
        ),
    ];
    for row in rows {
        assert!(state_of(&[created(), row.clone()]).content, "{row}");
    }
}

#[test]
fn text_repeated_in_done_events_is_counted_once() {
    let output = json!([{"type": "message", "content": [{"type": "output_text", "text": "12345"}]}]);
    let done = json!({"type": "response.output_text.done", "text": "12345"});
    let state = state_of(&[
        text("123"),
        text("45"),
        done.clone(),
        item("done", output[0].clone()),
        completed(json!({"output": output})),
    ]);
    assert_eq!((state.output_bytes, state.content_events), (5, 2));
    let state = state_of(&[done, completed(json!({"output": output}))]);
    assert_eq!(state.output_bytes, 5, "no delta had it");
}

#[test]
fn usage_is_read_from_the_final_response_only() {
    let state = state_of(&[created(), text("hi")]);
    assert_eq!(state.usage, None);
    let state = state_of(&[created(), text("hi"), completed(json!({"usage": usage()}))]);
    assert_eq!(state.usage, Some(COUNTS));
    let state = state_of(&[
        text("hi"),
        completed(json!({"output": [{"usage": usage()}], "metadata": {"usage": usage()}})),
    ]);
    assert_eq!(state.usage, None, "an item's and a client's own usage are none");
}

#[test]
fn each_terminal_event_ends_the_stream() {
    for kind in ["response.completed", "response.incomplete"] {
        let last = json!({"type": kind, "response": response("incomplete", json!({"incomplete_details": {"reason": "max_output_tokens"}, "usage": usage()}))});
        let state = state_of(&[text("hi"), last]);
        assert!(state.done && state.finished && state.error.is_none(), "{kind}");
        assert_eq!(state.usage, Some(COUNTS));
    }
    let state = state_of(&[text("hi")]);
    assert!(!state.done && !state.finished);
    let (_, state) = relay(&format!("{}data: [DONE]\n\n", text_of(&[text("hi")])));
    assert!(!state.done, "[DONE] is Azure's, and ends nothing by itself");
    let input = format!("{}data: [DONE]\n\n", text_of(&[text("hi"), completed(json!({}))]));
    assert_eq!(relay(&input).0, input, "it passes");
}

#[test]
fn a_huge_last_event_passes_unbuffered_and_its_usage_is_read() {
    let output = json!([{"type": "image_generation_call", "result": "A".repeat(40 * HELD_BYTES_MAX)}]);
    let response = response("completed", json!({"output": output})).to_string();
    let response = format!("{},\"usage\":{}}}", &response[..response.len() - 1], usage());
    let last = format!(
        "event: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":{response},\"sequence_number\":2}}\n\n"
    );
    let input = text_of(&[created(), text("hi")]) + &last;
    let (mut stream, mut out) = (stream(StreamOptions::default()), Vec::new());
    let (mut sent, mut held_most) = (0, 0);
    for piece in input.as_bytes().chunks(1000) {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
        sent += piece.len();
        held_most = held_most.max(sent - out.iter().map(Bytes::len).sum::<usize>());
    }
    assert!(held_most <= HELD_BYTES_MAX + 1000, "{held_most}");
    assert!(out.concat() == input.as_bytes());
    assert_eq!(stream.state().usage, Some(COUNTS));
    assert!(stream.state().done && !stream.state().event_open);
}

fn failed(message: &str) -> Value {
    json!({"type": "response.failed", "response": response("failed", json!({"error": {"code": "rate_limit_exceeded", "message": message},
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "sk-secret-0123456789abc"}]}]}))})
}

#[test]
fn a_failed_response_passes_unchanged_and_ends_the_stream() {
    let input = text_of(&[created(), failed("Slow down.")]);
    let (out, state) = relay(&format!("{input}{}", text_of(&[text("more")])));
    assert_eq!(out, input);
    let error = state.error.unwrap();
    assert_eq!(
        (error.message.as_str(), error.code.as_deref(), error.status),
        ("Slow down.", Some("rate_limit_exceeded"), Some(429))
    );
    assert!(!state.content && !state.done);
    let silent = json!({"type": "response.failed", "response": response("failed", json!({}))});
    assert_eq!(relay(&text_of(&[silent])).1.error.unwrap().message, "The response failed.");
}

#[test]
fn only_the_error_of_a_failed_response_is_redacted() {
    let input = text_of(&[failed("Bad key sk-secret-0123456789abc.")]);
    let (out, state) = relay(&input);
    let data = |text: &str| {
        serde_json::from_str::<Value>(text.strip_prefix("event: response.failed\ndata: ").unwrap()).unwrap()
    };
    let (mut got, want) = (data(&out), data(&input));
    let error = got["response"]["error"].take();
    assert_eq!(got["response"]["output"], want["response"]["output"], "the model's own words stay");
    assert_eq!(got["sequence_number"], 0);
    assert!(
        error["code"] == "rate_limit_exceeded" && !error["message"].as_str().unwrap().contains("0123456789"),
        "{error}"
    );
    assert!(!state.error.unwrap().message.contains("0123456789"));
}

#[test]
fn error_events_pass_and_other_shapes_are_rewritten() {
    let flat =
        r#"{"type":"error","code":"rate_limit_exceeded","message":"slow","param":null,"sequence_number":3}"#;
    let nested = r#"{"type":"error","error":{"type":"server_error","message":"slow"}}"#;
    let plain = r#"{"error":{"type":"server_error","message":"slow"}}"#;
    for data in [flat, nested, plain] {
        let input = format!("event: error\ndata: {data}\n\n");
        let (out, state) = relay(&format!("{input}{}", text_of(&[text("more")])));
        assert_eq!(out, input);
        assert_eq!(state.error.unwrap().message, "slow");
    }
    let (out, _) =
        relay(&format!("event: error\ndata: {}\n\n", flat.replace("slow", "key sk-secret-0123456789abc")));
    assert!(out.starts_with("event: error\ndata: {") && !out.contains("0123456789"), "{out}");
    for (name, data) in
        [("detail", r#"{"detail":"slow"}"#), ("an array", r#"[{"error":{"message":"slow"}}]"#)]
    {
        let (out, state) = relay(&format!("{}data: {data}\n\n", text_of(&[created(), text("hi")])));
        let last: Value = serde_json::from_str(out.rsplit("event: error\ndata: ").next().unwrap()).unwrap();
        assert_eq!(
            last,
            json!({"type": "error", "code": null, "message": "slow", "param": null, "sequence_number": 2}),
            "{name}"
        );
        assert!(state.error.is_some());
    }
}

#[test]
fn an_error_after_the_last_event_is_dropped() {
    let whole = text_of(&[text("hi"), completed(json!({}))]);
    for error in [
        r#"{"type":"error","message":"late"}"#,
        r#"{"error":{"message":"late"}}"#,
        r#"{"type":"response.failed","response":{}}"#,
    ] {
        let (out, state) = relay(&format!("{whole}data: {error}\n\n"));
        assert_eq!((out.as_str(), state.error), (whole.as_str(), None), "{error}");
    }
}

#[test]
fn null_and_empty_errors_of_a_response_are_ignored() {
    let state = state_of(&[created(), text("hi"), completed(json!({"error": null}))]);
    assert!(state.error.is_none() && state.done);
    let incomplete =
        json!({"type": "response.incomplete", "response": response("incomplete", json!({"error": {}}))});
    assert!(state_of(&[incomplete]).error.is_none());
}

#[test]
fn events_with_changing_numbers_and_padding_are_recognized() {
    let event = |number: u64, text: &str, padding: &str| {
        format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{number},\"item_id\":\"m\",\"delta\":\"{text}\",\"logprobs\":[],\"obfuscation\":\"{padding}\"}}\n\n"
        )
    };
    let input: String =
        (0..120).map(|n| event(n, "ab", &"x".repeat(usize::try_from(n % 7).unwrap()))).collect();
    let (out, state) = relay(&input);
    assert_eq!(out, input);
    assert_eq!((state.content_events, state.output_bytes), (120, 240));
}

fn trouble_after(input: &str) -> Value {
    let (mut stream, mut out) = (stream(StreamOptions::default()), Vec::new());
    stream.push(Bytes::copy_from_slice(input.as_bytes()), &mut out);
    let row = ErrorKind::UpstreamCut.row();
    let event = stream.trouble(Trouble { row, message: "cut", request_id: "req_0a1b" });
    let before = out.len();
    stream.push(Bytes::from(text_of(&[text("more")])), &mut out);
    stream.end(&mut out);
    assert_eq!(out.len(), before, "nothing comes after it");
    let event = String::from_utf8(event.to_vec()).unwrap();
    serde_json::from_str(event.strip_prefix("event: response.failed\ndata: ").unwrap()).unwrap()
}

#[test]
fn a_gateway_error_is_a_failed_response_with_the_next_sequence_number() {
    let many: Vec<Value> = std::iter::once(created()).chain((0..40).map(|_| text("hi"))).collect();
    let event = trouble_after(&text_of(&many));
    assert_eq!((&event["type"], &event["sequence_number"]), (&json!("response.failed"), &json!(41)));
    let response = &event["response"];
    for (name, want) in [
        ("id", json!("resp_up")),
        ("model", json!("up-model")),
        ("created_at", json!(1_795_000_000)),
        ("status", json!("failed")),
        ("object", json!("response")),
        ("error", json!({"code": "upstream_stream_broken", "message": "cut"})),
        ("output", json!([])),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("parallel_tool_calls", json!(true)),
    ] {
        assert_eq!(response[name], want, "{name}");
    }
    let event = trouble_after("data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n");
    assert_eq!(event["response"]["id"], "resp_0a1b", "the response never began");
    assert_eq!(event["sequence_number"], 1, "events without numbers are counted");
}

#[test]
fn a_huge_failed_response_is_shortened_and_redacted() {
    let huge = json!({"type": "response.failed", "response": response("failed", json!({"error": {"code": "server_error", "message": "sk-secret-0123456789abc"},
        "output": "A".repeat(2 * HELD_BYTES_MAX)}))});
    let pieces: Vec<Bytes> =
        text_of(&[created(), huge]).as_bytes().chunks(1000).map(Bytes::copy_from_slice).collect();
    let secrets = vec!["sk-secret-0123456789abc".to_owned()];
    let (out, state) = cutting::relay(stream(StreamOptions { secrets, ..StreamOptions::default() }), &pieces);
    let out = String::from_utf8(out).unwrap();
    let last: Value =
        serde_json::from_str(out.rsplit("event: response.failed\ndata: ").next().unwrap()).unwrap();
    assert_eq!(last["response"]["status"], "failed");
    assert_eq!(last["response"]["id"], "resp_up");
    assert!(!out.contains("0123456789") && out.len() < 3000 && state.error.is_some(), "{}", out.len());
}

#[test]
fn whole_responses_report_their_usage_and_errors() {
    let output = json!([{"type": "message", "content": [{"type": "output_text", "text": "12345"}]}, {"type": "function_call", "arguments": "{}"}]);
    for (status, fails) in [("completed", false), ("incomplete", false), ("failed", true)] {
        let body = response(status, json!({"usage": usage(), "output": output}));
        let answer = whole_answer(Dialect::Responses, body.to_string().as_bytes());
        assert_eq!(
            (answer.usage, answer.is_json, answer.error.is_some()),
            (Some(COUNTS), true, fails),
            "{status}"
        );
    }
    let body = response("completed", json!({"output": output})).to_string();
    assert_eq!(whole_answer(Dialect::Responses, body.as_bytes()).output_bytes, 7);
    let body =
        response("failed", json!({"error": {"code": "server_error", "message": "oh"}, "usage": usage()}))
            .to_string();
    let error = whole_answer(Dialect::Responses, body.as_bytes()).error.unwrap();
    assert_eq!((error.message.as_str(), error.status), ("oh", Some(500)));
    for body in ["", "[]", "<html>", r#"{"object":"response""#] {
        assert!(!whole_answer(Dialect::Responses, body.as_bytes()).is_json, "{body}");
    }
}

#[test]
fn a_body_that_is_no_response_is_not_synthesized_into_a_stream() {
    let failed = response("failed", json!({})).to_string();
    for body in ["", "[]", "{}", r#"{"output":1}"#, r#"{"output":[1]}"#, &failed] {
        assert_eq!(synthesize_stream(body.as_bytes()), None, "{body}");
    }
}
