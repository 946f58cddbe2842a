//! Native answers: bytes pass, and usage, reasons and errors are read, at any split.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::usage::Finish;

use crate::native::{self, WholeScan};
use crate::stream::{StreamOptions, StreamState, Trouble};

fn relay(pieces: &[&[u8]]) -> (String, StreamState) {
    let options = StreamOptions { secrets: vec!["canary-secret".to_owned()], ..StreamOptions::default() };
    let (mut stream, mut out) = (native::stream(Dialect::Gemini, options), Vec::new());
    pieces.iter().for_each(|piece| stream.push(Bytes::copy_from_slice(piece), &mut out));
    stream.end(&mut out);
    (String::from_utf8(out.concat()).unwrap(), stream.state().clone())
}

fn event(parts: &Value, end: &Value, output: u64) -> String {
    let data = json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": end, "index": 0}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": output, "totalTokenCount": 9 + output}});
    format!("data: {data}\r\n\r\n")
}

fn text(text: &str, output: u64) -> String {
    event(&json!([{"text": text}]), &Value::Null, output)
}

#[test]
fn a_stream_passes_unchanged_and_is_understood_at_any_split() {
    let last = event(&json!([{"functionCall": {"name": "f", "args": {"a": "bc"}}}]), &json!("STOP"), 7);
    let stream = [text("a", 1), text("bc", 3), text("d\\\"", 5), last].concat();
    let (whole, want) = relay(&[stream.as_bytes()]);
    assert_eq!(whole, stream);
    assert_eq!((want.content, want.finished, want.finish), (true, true, Some(Finish::Stop)));
    assert_eq!(want.usage.map(|usage| (usage.input, usage.output)), Some((9, 7)));
    for at in 0..=stream.len() {
        let (first, second) = stream.as_bytes().split_at(at);
        assert_eq!(relay(&[first, second]), (whole.clone(), want.clone()), "cut at {at}");
    }
    // The running count of an interrupted stream is that of its last event.
    let cut = [text("a", 1), text("b", 2), text("c", 3), text("d", 4)].concat();
    let (_, state) = relay(&[cut.as_bytes()]);
    assert_eq!((state.usage.map(|usage| usage.output), state.finished), (Some(4), false));
}

#[test]
fn only_output_is_content() {
    let rows = [
        (json!([{"text": ""}]), false),
        (json!([{"thoughtSignature": "c2ln"}]), false),
        (json!([{"text": "t", "thought": true}]), true),
        (json!([{"functionCall": {"name": "f"}}]), true),
        (json!([{"inlineData": {"mimeType": "image/png", "data": "QQ=="}}]), true),
    ];
    for (parts, want) in rows {
        let stream = event(&parts, &Value::Null, 0);
        assert_eq!(relay(&[stream.as_bytes()]).1.content, want, "{parts}");
    }
    assert!(!relay(&[b"data: {}\r\n\r\n"]).1.content);
    let blocked = "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\r\n\r\n";
    let state = relay(&[blocked.as_bytes()]).1;
    assert_eq!((state.finished, state.finish), (true, Some(Finish::ContentFilter)));
}

#[test]
fn an_error_ends_the_stream_without_its_secrets() {
    let error = |message: &str| {
        format!(
            "data: {}\r\n\r\n",
            json!({"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}})
        )
    };
    let plain = [text("a", 1), error("Overloaded"), text("b", 2)].concat();
    let (out, state) = relay(&[plain.as_bytes()]);
    assert_eq!(out, [text("a", 1), error("Overloaded")].concat());
    assert_eq!(state.error.and_then(|error| error.status), Some(503));
    let (out, _) = relay(&[error("canary-secret").as_bytes()]);
    assert!(!out.contains("canary-secret") && out.contains("UNAVAILABLE"), "{out}");
    let mut stream = native::stream(Dialect::Gemini, StreamOptions::default());
    let trouble = Trouble { row: ErrorKind::UpstreamCut.row(), message: "cut", request_id: "req_1" };
    let event = String::from_utf8(stream.trouble(trouble).to_vec()).unwrap();
    assert!(event.starts_with("data: {\"error\":{\"code\":503,") && event.ends_with("}\r\n\r\n"), "{event}");
}

#[test]
fn whole_answers_are_read_at_once_and_in_pieces() {
    let answer =
        json!({"candidates": [{"content": {"parts": [{"text": "abc"}]}, "finishReason": "MAX_TOKENS",
        "groundingMetadata": {"webSearchQueries": ["x", "y"]}}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}})
        .to_string();
    let whole = native::whole_answer(Dialect::Gemini, answer.as_bytes());
    assert_eq!((whole.finish, whole.extras.units.searches, whole.output_bytes), (Some(Finish::Length), 2, 3));
    assert_eq!(whole.usage.map(|usage| (usage.input, usage.output, usage.reasoning)), Some((5, 2, 3)));
    let mut scan = WholeScan::new(Dialect::Gemini);
    answer.as_bytes().chunks(3).for_each(|piece| scan.push(piece));
    assert_eq!(scan.finish(), whole);
    let error = native::whole_answer(Dialect::Gemini, br#"{"error":{"code":400,"message":"No."}}"#);
    assert_eq!(error.error.map(|error| error.message), Some("No.".to_owned()));
    let stream = native::synthesize_stream(Dialect::Gemini, b"{ \"candidates\" : [ ] }\n", false).unwrap();
    assert_eq!(stream, b"data: {\"candidates\":[]}\r\n\r\n");
}
