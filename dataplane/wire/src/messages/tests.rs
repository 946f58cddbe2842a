//! Pitfalls in native Messages answers, one test each.
#![expect(clippy::needless_pass_by_value, reason = "tests read better with values")]

use bytes::Bytes;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::usage::TokenCounts;

use super::{stream, synthesize_stream, token_counts};
use crate::cutting;
use crate::native::{HELD_BYTES_MAX, whole_answer};
use crate::stream::{AnswerStream, StreamOptions, StreamState, Trouble};
use shared::operation::Dialect;

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn text_of(events: &[Value]) -> String {
    events.iter().map(event).collect()
}

fn relay(input: &str) -> (String, StreamState) {
    let options =
        StreamOptions { secrets: vec!["sk-ant-secret-0123456789".to_owned()], ..StreamOptions::default() };
    let (out, state) = cutting::relay(stream(options), &[Bytes::copy_from_slice(input.as_bytes())]);
    (String::from_utf8(out).unwrap(), state)
}

fn relay_in_pieces(input: &str) -> (String, StreamState) {
    let pieces: Vec<Bytes> = input.as_bytes().chunks(1000).map(Bytes::copy_from_slice).collect();
    let (out, state) = cutting::relay(stream(StreamOptions::default()), &pieces);
    (String::from_utf8(out).unwrap(), state)
}

/// Checks that all events pass and returns the resulting state.
fn state_of(events: &[Value]) -> StreamState {
    let input = text_of(events);
    let (out, state) = relay(&input);
    assert_eq!(out, input);
    state
}

fn start(usage: Value) -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "content": [], "stop_reason": null, "usage": usage}})
}

fn block(block: Value) -> Value {
    json!({"type": "content_block_start", "index": 0, "content_block": block})
}

fn delta(delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": 0, "delta": delta})
}

fn text() -> Value {
    delta(json!({"type": "text_delta", "text": "hi"}))
}

fn stop(usage: Value) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": usage})
}

fn end() -> Value {
    json!({"type": "message_stop"})
}

fn counts(input: u64, cache_read: u64, cache_write: u64, output: u64, reasoning: u64) -> Option<TokenCounts> {
    Some(TokenCounts { input, cache_read, cache_write, output, reasoning, ..TokenCounts::ZERO })
}

#[test]
fn lifecycle_events_are_no_output() {
    let rows = [
        start(json!({"input_tokens": 1, "output_tokens": 1})),
        json!({"type": "ping"}),
        block(json!({"type": "text", "text": ""})),
        block(json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(json!({"type": "text_delta", "text": ""})),
        delta(json!({"type": "thinking_delta", "thinking": "", "estimated_tokens": 12})),
        delta(json!({"type": "input_json_delta", "partial_json": ""})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "something_new", "text": "x"}),
        stop(json!({"output_tokens": 1})),
    ];
    for row in rows {
        assert!(!state_of(std::slice::from_ref(&row)).content, "{row}");
    }
}

#[test]
fn every_kind_of_output_counts_as_content() {
    let rows = [
        (text(), 2),
        (delta(json!({"type": "text_delta", "text": " "})), 1),
        (delta(json!({"type": "thinking_delta", "thinking": "hm"})), 2),
        (delta(json!({"type": "signature_delta", "signature": "c2ln"})), 4),
        (delta(json!({"type": "input_json_delta", "partial_json": "{\"a"})), 4),
        (
            delta(
                json!({"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x"}}),
            ),
            14,
        ),
        (delta(json!({"type": "new_delta", "words": ["x"]})), 1),
        (block(json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}})), 0),
        (block(json!({"type": "redacted_thinking", "data": "ZW5j"})), 0),
        (block(json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})), 0),
        (block(json!({"type": "text", "text": "hi"})), 2),
    ];
    for (row, bytes) in rows {
        let state = state_of(std::slice::from_ref(&row));
        assert!(state.content, "{row}");
        assert_eq!((state.content_events, state.output_bytes), (1, bytes), "{row}");
    }
}

#[test]
fn later_usage_replaces_earlier_usage_and_is_never_summed() {
    let start = start(
        json!({"input_tokens": 20, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 70,
        "output_tokens": 1, "server_tool_use": {"web_search_requests": 5}, "cache_creation": {"output_tokens": 9}}),
    );
    let state = state_of(&[start.clone(), text()]);
    assert_eq!(state.usage, None, "nothing is known of the output");
    assert_eq!(state.input, counts(20, 70, 30, 1, 0));
    let rows = [
        (vec![json!({"output_tokens": 30})], counts(20, 70, 30, 30, 0)),
        (vec![json!({"output_tokens": 10}), json!({"output_tokens": 30})], counts(20, 70, 30, 30, 0)),
        (vec![json!({"output_tokens": 30, "input_tokens": 21})], counts(21, 70, 30, 30, 0)),
        (
            vec![json!({"output_tokens": 30, "input_tokens": null, "cache_read_input_tokens": 0})],
            counts(20, 0, 30, 30, 0),
        ),
        (
            vec![json!({"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}})],
            counts(20, 70, 30, 18, 12),
        ),
    ];
    for (usages, want) in rows {
        let mut events = vec![start.clone(), text()];
        events.extend(usages.iter().cloned().map(stop));
        assert_eq!(state_of(&events).usage, want, "{usages:?}");
    }
    assert_eq!(
        token_counts(&json!({"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 2})),
        counts(5, 3, 0, 2, 0)
    );
    assert_eq!(token_counts(&json!({"service_tier": "standard"})), None);
}

#[test]
fn a_stop_reason_finishes_the_message_and_message_stop_ends_it() {
    let state = state_of(&[text()]);
    assert!(!state.finished && !state.done);
    let state = state_of(&[text(), stop(json!({"output_tokens": 1}))]);
    assert!(state.finished && !state.done);
    assert!(state_of(&[text(), stop(json!({"output_tokens": 1})), end()]).done);
    let no_reason =
        json!({"type": "message_delta", "delta": {"stop_reason": null}, "usage": {"output_tokens": 3}});
    assert!(!state_of(&[text(), no_reason]).finished);
    let sequence =
        json!({"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}});
    let state = state_of(&[sequence]);
    assert!(state.finished && !state.content, "a stop sequence is no output");
}

#[test]
fn events_are_read_by_type_without_names_and_by_name_without_types() {
    let unnamed: String = [text(), stop(json!({"output_tokens": 3})), end()]
        .iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect();
    let (out, state) = relay(&unnamed);
    assert_eq!(out, unnamed);
    assert!(state.content && state.finished && state.done);
    let named = "event: content_block_delta\ndata: {\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\nevent: message_stop\ndata: {}\n\n";
    let (out, state) = relay(named);
    assert_eq!(out, named);
    assert!(state.content && state.done);
}

const ERROR: &str =
    r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#;

#[test]
fn an_error_event_passes_unchanged_and_ends_the_stream() {
    let input = format!("{}event: error\ndata: {ERROR}\n\n", event(&text()));
    let (out, state) = relay(&format!("{input}{}", event(&text())));
    assert_eq!(out, input);
    let error = state.error.unwrap();
    assert_eq!((error.message.as_str(), error.status), ("Overloaded", Some(503)));
    assert_eq!(error.kind.as_deref(), Some("overloaded_error"));
}

#[test]
fn an_error_that_quotes_a_key_is_cleaned() {
    let bad = ERROR.replace("Overloaded", "Bad key sk-ant-secret-0123456789");
    let (out, state) = relay(&format!("event: error\ndata: {bad}\n\n"));
    assert!(out.starts_with("event: error\ndata: {") && !out.contains("secret-0123"), "{out}");
    assert!(!state.error.unwrap().message.contains("secret-0123"));
    let (out, _) = relay(&format!(
        "{}{}",
        event(&text()),
        event(&delta(json!({"type": "text_delta", "text": "sk-ant-secret-0123456789"})))
    ));
    assert!(out.contains("secret-0123"), "the model's text is never sanitized");
}

#[test]
fn an_error_event_that_sdks_ignore_is_rewritten() {
    let rows = [
        ("no name", format!("data: {ERROR}\n\n"), "overloaded_error", "Overloaded"),
        (
            "OpenAI's shape",
            "data: {\"error\":{\"message\":\"slow\",\"type\":\"rate_limit_exceeded\"}}\n\n".to_owned(),
            "rate_limit_error",
            "slow",
        ),
        (
            "text alone",
            "event: error\ndata: {\"type\":\"error\",\"message\":\"oh\"}\n\n".to_owned(),
            "api_error",
            "oh",
        ),
        ("detail", "data: {\"detail\":\"no\"}\n\n".to_owned(), "api_error", "no"),
        (
            "an array",
            "data: [{\"error\":{\"code\":429,\"message\":\"quota\"}}]\n\n".to_owned(),
            "rate_limit_error",
            "quota",
        ),
    ];
    for (name, input, kind, message) in rows {
        let (out, state) = relay(&input);
        let data = out.strip_prefix("event: error\ndata: ").unwrap_or_else(|| panic!("{name}: {out}"));
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], "error", "{name}");
        assert_eq!(
            (&data["error"]["type"], &data["error"]["message"]),
            (&json!(kind), &json!(message)),
            "{name}"
        );
        assert_eq!(state.error.unwrap().message, message, "{name}");
    }
}

#[test]
fn an_error_after_message_stop_is_dropped() {
    let whole = text_of(&[text(), end()]);
    let (out, state) = relay(&format!("{whole}event: error\ndata: {ERROR}\n\n"));
    assert_eq!((out, state.error), (whole, None));
}

#[test]
fn unknown_events_and_deltas_pass() {
    let odd = "event: from_the_future\ndata: {\"type\":\"from_the_future\",\"x\":[{\"y\":1}]}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"other_delta\"}}\n\nevent: ping\ndata: not json\n\n: comment\n\n";
    let (out, state) = relay(&format!("{odd}{}", text_of(&[text(), end()])));
    assert!(out.starts_with(odd));
    assert!(state.content && state.done && state.error.is_none());
}

#[test]
fn padding_does_not_change_the_counts() {
    let padded: String = [3, 0, 12, 1, 0, 7]
        .map(|blanks| {
            let data = text().to_string();
            format!(
                "event: content_block_delta\ndata: {}{}}}\n\n",
                &data[..data.len() - 1],
                " ".repeat(blanks)
            )
        })
        .concat();
    let (out, state) = relay(&padded);
    assert_eq!(out, padded);
    assert_eq!((state.content_events, state.output_bytes), (6, 12));
}

#[test]
fn text_that_quotes_errors_and_ends_is_plain_content() {
    let tricky = [r#""},"type":"error"#, "\n\nevent: error\ndata: {}\n\n", "message_stop", "usage", "error"];
    let deltas: Vec<Value> =
        tricky.iter().map(|text| delta(json!({"type": "text_delta", "text": text}))).collect();
    let state = state_of(&deltas);
    assert!(state.error.is_none() && !state.done && state.usage.is_none());
    assert_eq!(state.content_events, 5);
}

#[test]
fn a_gateway_error_has_the_anthropic_shape_and_ends_the_stream() {
    let (mut stream, mut out) = (stream(StreamOptions::default()), Vec::new());
    stream.push(Bytes::from(text_of(&[text()])), &mut out);
    let row = ErrorKind::UpstreamCut.row();
    let event = stream.trouble(Trouble { row, message: "cut", request_id: "req_1" });
    let event = String::from_utf8(event.to_vec()).unwrap();
    let data: Value = serde_json::from_str(event.strip_prefix("event: error\ndata: ").unwrap()).unwrap();
    assert_eq!(
        data,
        json!({"type": "error", "error": {"type": "api_error", "message": "cut"}, "request_id": "req_1"})
    );
    let before = out.len();
    stream.push(Bytes::from(text_of(&[text(), end()])), &mut out);
    stream.end(&mut out);
    assert_eq!(out.len(), before);
}

#[test]
fn a_huge_event_is_forwarded_at_once_and_a_huge_error_is_not() {
    let huge = "A".repeat(4 * HELD_BYTES_MAX);
    let input = text_of(&[
        block(json!({"type": "web_search_tool_result", "content": huge})),
        stop(json!({"input_tokens": 1, "output_tokens": 2})),
    ]);
    let (mut stream, mut out) = (stream(StreamOptions::default()), Vec::new());
    let mut held_most = 0;
    let mut sent = 0;
    for piece in input.as_bytes().chunks(1000) {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
        sent += piece.len();
        held_most = held_most.max(sent - out.iter().map(Bytes::len).sum::<usize>());
    }
    assert!(held_most <= HELD_BYTES_MAX + 1000, "{held_most}");
    assert_eq!(out.concat(), input.as_bytes());
    assert_eq!(stream.state().usage, counts(1, 0, 0, 2, 0));
    assert!(stream.state().content && !stream.state().event_open);
    let error = ERROR.replace("Overloaded", &huge);
    let (out, state) = relay_in_pieces(&format!("event: error\ndata: {error}\n\n"));
    assert!(
        state.error.is_some() && out.len() < 1000 && out.starts_with("event: error\ndata: "),
        "{}",
        out.len()
    );
}

#[test]
fn whole_messages_report_their_usage_and_errors() {
    let answer = whole_answer(
        Dialect::Messages,
        br#" {"type":"message","content":[{"type":"text","text":"12345"},{"type":"tool_use","id":"t","input":{"a":"67"}}],
            "usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":5,"output_tokens_details":{"thinking_tokens":1}}}"#,
    );
    assert!(answer.is_json && answer.error.is_none());
    assert_eq!((answer.usage, answer.output_bytes), (counts(3, 4, 0, 4, 1), 7));
    for (body, message) in [
        (ERROR, "Overloaded"),
        (r#"{"error":"no"}"#, "no"),
        (r#"{"type":"error"}"#, "The upstream answered with an error."),
    ] {
        assert_eq!(whole_answer(Dialect::Messages, body.as_bytes()).error.unwrap().message, message);
    }
    for body in ["", "[]", "<html>", r#"{"type":"message""#] {
        assert!(!whole_answer(Dialect::Messages, body.as_bytes()).is_json, "{body}");
    }
}

#[test]
fn a_body_that_is_no_message_is_not_synthesized_into_a_stream() {
    for body in
        ["", "[]", "{}", ERROR, r#"{"type":"message","content":"x"}"#, r#"{"type":"message","content":[1]}"#]
    {
        assert_eq!(synthesize_stream(body.as_bytes()), None, "{body}");
    }
}
