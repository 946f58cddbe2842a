//! Runs the recorded chat, SSE and Bedrock exchanges in `fixtures/`, whole and cut at every byte.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may")]

use std::path::PathBuf;

use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::native::{WholeAnswer, WholeScan};
use wire::request::{Head, HeadScan, Naming};
use wire::sse::{SseDecoder, SseEvent};
use wire::stream::{StreamOptions, StreamState};

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn cases(folder: &str) -> Vec<Value> {
    let index = std::fs::read(fixtures().join(folder).join("index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    index["cases"].as_array().unwrap().clone()
}

fn chat(kind: &str) -> Vec<(Value, Vec<u8>)> {
    let of_kind = cases("chat").into_iter().filter(|case| case["kind"] == kind);
    let cases: Vec<_> = of_kind
        .map(|case| {
            let bytes = std::fs::read(fixtures().join(case["file"].as_str().unwrap())).unwrap();
            (case, bytes)
        })
        .collect();
    assert!(cases.len() >= 4, "{kind}");
    cases
}

/// Returns the ways to cut the input: in two pieces at every byte, and in pieces of 1, 7 and 1,000 bytes. An input of
/// more than 20,000 bytes is cut in two only near its ends and at every 1,499th byte.
fn cuttings(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let every = if input.len() > 20_000 { 1_499 } else { 1 };
    let near_an_end = |at: &usize| *at < 300 || input.len() - *at < 300;
    let mut cuttings: Vec<Vec<&[u8]>> = (0..=input.len())
        .filter(|at| at % every == 0 || near_an_end(at))
        .map(|at| vec![&input[..at], &input[at..]])
        .collect();
    cuttings.push(input.chunks(1).collect());
    cuttings.push(input.chunks(7).collect());
    cuttings.push(input.chunks(1_000).collect());
    cuttings
}

fn relay(pieces: &[&[u8]], options: &StreamOptions) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (wire::native::stream(Dialect::Chat, options.clone()), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

fn decode(pieces: &[&[u8]]) -> Vec<SseEvent> {
    let (mut decoder, mut events) = (SseDecoder::default(), Vec::new());
    for piece in pieces {
        decoder.push(piece).unwrap();
        events.extend(std::iter::from_fn(|| decoder.next_event()));
    }
    events
}

/// Concatenates the text `member` of every delta, as a client does.
fn text_of(stream: &[u8], member: &str) -> String {
    let chunks = decode(&[stream]).into_iter().filter_map(|event| serde_json::from_str(&event.data).ok());
    chunks
        .flat_map(|chunk: Value| chunk["choices"].as_array().cloned().unwrap_or_default())
        .filter_map(|choice| choice["delta"][member].as_str().map(str::to_owned))
        .collect()
}

fn is_usage_only(data: &str) -> bool {
    serde_json::from_str(data)
        .is_ok_and(|chunk: Value| chunk["usage"].is_object() && chunk["choices"] == json!([]))
}

#[test]
fn streams_reach_the_client_unchanged_and_understood() {
    for (case, input) in chat("stream") {
        let (name, expect) = (case["id"].as_str().unwrap(), &case["expect"]);
        let (out, state) = relay(&[&input], &StreamOptions::default());
        if expect["truncated"] == true || expect["done"] == false {
            assert!(input.starts_with(&out), "{name}");
        } else {
            assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&input), "{name}");
        }
        let usage = wire::chat::token_counts(&expect["usage"]);
        assert_eq!(state.usage, usage, "{name}");
        assert_eq!(
            state.error.as_ref().map(|error| error.message.as_str()),
            expect["error"].as_str(),
            "{name}"
        );
        if state.error.is_none() {
            assert_eq!(state.done, expect["done"] == true, "{name}");
            assert_eq!(
                state.finished,
                !expect["finish_reason"].is_null() || !expect["choices"].is_null(),
                "{name}"
            );
        }
        assert!(state.content, "{name}");
        if let Some(text) = expect["text"].as_str().filter(|text| !text.is_empty()) {
            assert_eq!(text_of(&out, "content"), text, "{name}");
            if expect["tool_calls"] == json!([]) && expect["reasoning"].is_null() {
                assert_eq!(state.output_bytes, text.len() as u64, "{name}");
            }
        }
        if let Some(length) = expect["text_len"].as_u64() {
            assert_eq!(state.output_bytes, length, "{name}");
        }
    }
}

#[test]
fn streams_are_read_the_same_at_any_split() {
    for (case, input) in chat("stream") {
        for drop_usage_only in [false, true] {
            let options = StreamOptions { drop_usage_only, secrets: Vec::new() };
            let whole = relay(&[&input], &options);
            for pieces in cuttings(&input) {
                let cut = relay(&pieces, &options);
                assert_eq!(cut.1, whole.1, "{} cut at {}", case["id"], pieces[0].len());
                assert!(cut.0 == whole.0, "{} cut at {}", case["id"], pieces[0].len());
            }
        }
    }
}

#[test]
fn usage_only_chunk_is_dropped_when_the_client_did_not_ask() {
    let mut dropped = 0;
    for (case, input) in chat("stream") {
        let options = StreamOptions { drop_usage_only: true, secrets: Vec::new() };
        let (out, state) = relay(&[&input], &options);
        let sent = decode(&[&input]);
        let wanted: Vec<_> = sent.iter().filter(|event| !is_usage_only(&event.data)).cloned().collect();
        dropped += sent.len() - wanted.len();
        assert_eq!(decode(&[&out]), wanted, "{}", case["id"]);
        assert_eq!(state.usage, wire::chat::token_counts(&case["expect"]["usage"]), "{}", case["id"]);
    }
    assert!(dropped > 0);
}

fn head(pieces: &[&[u8]]) -> Head {
    let mut scan = HeadScan::new(Dialect::Chat);
    for piece in pieces {
        scan.push(piece).unwrap();
    }
    scan.finish().unwrap()
}

fn build(pieces: &[&[u8]], model: &str) -> Vec<u8> {
    let head = head(pieces);
    let segments: Vec<Bytes> = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
    wire::request::build(&segments, &head, Naming::Model(model), true, None).concat()
}

#[test]
fn requests_reach_the_upstream_unchanged_except_model_and_usage() {
    for (case, input) in chat("request") {
        let mut want: Value = serde_json::from_slice(&input).unwrap();
        want["model"] = json!("target/\"model\"");
        if want["stream"] == true {
            want["stream_options"]["include_usage"] = json!(true);
        }
        for pieces in cuttings(&input) {
            let got = build(&pieces, "target/\"model\"");
            let got: Value = serde_json::from_slice(&got).unwrap();
            assert_eq!(got, want, "{} cut at {}", case["id"], pieces[0].len());
        }
    }
}

#[test]
fn request_heads_are_read_at_any_split() {
    for (case, input) in chat("request") {
        let body: Value = serde_json::from_slice(&input).unwrap();
        let text = String::from_utf8_lossy(&input);
        for pieces in cuttings(&input) {
            let head = head(&pieces);
            assert_eq!(head.model, body["model"].as_str().unwrap());
            assert_eq!(head.stream, body["stream"] == true, "{}", case["id"]);
            assert_eq!(head.has_tools, body["tools"].is_array(), "{}", case["id"]);
            assert_eq!(head.has_image, text.contains("\"image_url\""), "{}", case["id"]);
            let max = body["max_completion_tokens"].as_u64().or_else(|| body["max_tokens"].as_u64());
            assert_eq!(head.max_output_tokens, max, "{}", case["id"]);
        }
    }
}

fn whole(pieces: &[&[u8]]) -> WholeAnswer {
    let mut scan = WholeScan::new(Dialect::Chat);
    for piece in pieces {
        scan.push(piece);
    }
    scan.finish()
}

#[test]
fn whole_responses_are_read_at_any_split() {
    for (case, input) in chat("response") {
        let body: Value = serde_json::from_slice(&input).unwrap();
        // DeepSeek sends empty lines while a request waits.
        let input = [b"\n\n \n".as_slice(), &input].concat();
        let want = whole(&[&input]);
        assert!(want.is_json && want.error.is_none(), "{}", case["id"]);
        assert_eq!(want.usage, wire::chat::token_counts(&body["usage"]), "{}", case["id"]);
        assert!(want.usage.is_some());
        for pieces in cuttings(&input) {
            assert_eq!(whole(&pieces), want, "{} cut at {}", case["id"], pieces[0].len());
        }
    }
}

#[test]
fn a_whole_response_becomes_an_equivalent_stream() {
    for (case, input) in chat("response") {
        let body: Value = serde_json::from_slice(&input).unwrap();
        let message = &body["choices"][0]["message"];
        for include_usage in [false, true] {
            let stream = wire::chat::synthesize_stream(&input, include_usage).unwrap();
            let (out, state) = relay(&[&stream], &StreamOptions::default());
            assert_eq!(out, stream);
            assert!(state.done && state.finished && state.error.is_none(), "{}", case["id"]);
            let usage = include_usage.then(|| wire::chat::token_counts(&body["usage"])).flatten();
            assert_eq!(state.usage, usage, "{}", case["id"]);
            for member in ["content", "refusal", "reasoning_content"] {
                assert_eq!(
                    text_of(&stream, member),
                    message[member].as_str().unwrap_or(""),
                    "{}",
                    case["id"]
                );
            }
            let calls = text_of_calls(&stream);
            let want: Vec<Value> = message["tool_calls"].as_array().cloned().unwrap_or_default();
            assert_eq!(calls, want, "{}", case["id"]);
        }
    }
}

fn text_of_calls(stream: &[u8]) -> Vec<Value> {
    let chunks = decode(&[stream]).into_iter().filter_map(|event| serde_json::from_str(&event.data).ok());
    let calls = chunks.flat_map(|chunk: Value| {
        chunk["choices"][0]["delta"]["tool_calls"].as_array().cloned().unwrap_or_default()
    });
    calls
        .enumerate()
        .map(|(position, mut call)| {
            assert_eq!(call["index"], position);
            call.as_object_mut().unwrap().remove("index");
            call
        })
        .collect()
}

#[test]
fn upstream_errors_keep_their_message_and_type() {
    for (case, input) in chat("error") {
        let body: Value = serde_json::from_slice(&input).unwrap();
        let answer = wire::envelope::UpstreamAnswer {
            status: case["status"].as_u64().unwrap().try_into().unwrap(),
            content_type: Some("application/json"),
            body: &input,
            secrets: &[],
        };
        let ours = wire::envelope::upstream_error(wire::envelope::EnvelopeFamily::OpenAi, answer, "req_1");
        let ours: Value = serde_json::from_slice(&ours).unwrap();
        for member in ["message", "type", "param"] {
            assert_eq!(ours["error"][member], body["error"][member], "{} {member}", case["id"]);
        }
        if body["error"]["code"].is_string() {
            assert_eq!(ours["error"]["code"], body["error"]["code"], "{}", case["id"]);
        }
        assert_eq!(ours["error"]["request_id"], "req_1");
    }
}

fn event(value: &Value) -> SseEvent {
    let text = |member: &str| value[member].as_str().unwrap().to_owned();
    SseEvent { event: text("event"), data: text("data"), id: text("id") }
}

#[test]
fn sse_grammar_is_decoded_at_any_split() {
    let cases = cases("sse");
    assert!(cases.len() >= 18);
    for case in cases {
        let bytes = |value: &Value| base64::prelude::BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap();
        let events = |value: &Value| value.as_array().unwrap().iter().map(event).collect::<Vec<_>>();
        let input = bytes(&case["input_b64"]);
        let want = events(&case["events"]);
        for pieces in cuttings(&input) {
            assert_eq!(decode(&pieces), want, "{} cut at {}", case["id"], pieces[0].len());
        }
        if let Some(chunks) = case["chunks_b64"].as_array() {
            let chunks: Vec<Vec<u8>> = chunks.iter().map(bytes).collect();
            let pieces: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            assert_eq!(decode(&pieces), events(&case["chunk_events"]), "{}", case["id"]);
        }
        let mut decoder = SseDecoder::default();
        decoder.push(&input).unwrap();
        assert_eq!(decoder.retry_ms(), case["retry"].as_u64(), "{}", case["id"]);
    }
}

/// Decodes a stream of binary frames; `None` if a checksum does not match.
fn frames(pieces: &[&[u8]]) -> Option<Vec<Value>> {
    let (mut decoder, mut events) = (wire::eventstream::EventStreamDecoder::default(), Vec::new());
    for piece in pieces {
        let mut see = |message: wire::eventstream::EventStreamMessage<'_>| {
            let kind = message.header(":event-type").or_else(|| message.header(":exception-type"));
            assert_eq!(message.header(":content-type"), Some("application/json"));
            let payload: Value = serde_json::from_slice(message.payload()).unwrap();
            events.push(json!([kind.unwrap(), payload]));
            true
        };
        decoder.push(piece, &mut see).ok()?;
    }
    assert!(decoder.is_between());
    Some(events)
}

#[test]
fn binary_frames_are_decoded_at_any_split() {
    let cases = cases("bedrock");
    assert!(cases.len() >= 3);
    for case in cases {
        let input = std::fs::read(fixtures().join(case["file"].as_str().unwrap())).unwrap();
        let want = case["events"].as_array().cloned();
        for pieces in cuttings(&input) {
            assert_eq!(frames(&pieces), want, "{} cut at {}", case["id"], pieces[0].len());
        }
    }
}
