//! Runs the recorded Messages and Responses exchanges in `fixtures/`, whole and cut at every byte.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may")]

use std::path::PathBuf;

use bytes::Bytes;
use serde_json::{Value, json};
use shared::operation::Dialect;
use wire::native::{self, WholeScan};
use wire::request::{Head, HeadScan, Naming, build};
use wire::sse::SseDecoder;
use wire::stream::{StreamOptions, StreamState};

const DIALECTS: [(Dialect, &str); 2] = [(Dialect::Messages, "messages"), (Dialect::Responses, "responses")];

/// Returns the cases of one kind in both dialects, except token counts, which are not answers.
fn cases(kind: &str) -> Vec<(Dialect, Value, Vec<u8>)> {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut cases = Vec::new();
    for (dialect, folder) in DIALECTS {
        let index = std::fs::read(fixtures.join(folder).join("index.json")).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        for case in index["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == kind) {
            let file = case["file"].as_str().unwrap();
            if !file.contains("count_re") && !file.contains("input_tokens") {
                cases.push((dialect, case.clone(), std::fs::read(fixtures.join(file)).unwrap()));
            }
        }
    }
    assert!(cases.len() >= 7, "{kind}");
    cases
}

/// Returns the ways to cut the input: in two pieces at every byte, and in pieces of one and of seven bytes.
fn cuttings(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut cuttings: Vec<Vec<&[u8]>> =
        (0..=input.len()).map(|at| vec![&input[..at], &input[at..]]).collect();
    cuttings.push(input.chunks(1).collect());
    cuttings.push(input.chunks(7).collect());
    cuttings
}

fn relay(dialect: Dialect, pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let (mut stream, mut out) = (native::stream(dialect, StreamOptions::default()), Vec::new());
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}

fn data_of(stream: &[u8]) -> Vec<Value> {
    let mut decoder = SseDecoder::default();
    decoder.push(stream).unwrap();
    let events = std::iter::from_fn(|| decoder.next_event());
    events.filter_map(|event| serde_json::from_str(&event.data).ok()).collect()
}

fn usage(dialect: Dialect, usage: &Value) -> Option<shared::usage::TokenCounts> {
    if dialect == Dialect::Messages {
        wire::messages::token_counts(usage)
    } else {
        wire::chat::token_counts(usage)
    }
}

#[test]
fn streams_reach_the_client_unchanged_and_understood() {
    for (dialect, case, input) in cases("stream") {
        let (name, expect) = (&case["id"], &case["expect"]);
        let (out, state) = relay(dialect, &[&input]);
        assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&input), "{name}");
        let fails = !expect["error"].is_null() || expect["status"] == "failed";
        assert_eq!(state.error.is_some(), fails, "{name}");
        if let Some(error) = expect["error"].as_str() {
            let found = state.error.as_ref().unwrap();
            assert!([&found.kind, &found.code].contains(&&Some(error.to_owned())), "{name}: {found:?}");
        }
        assert_eq!(state.done, !fails && expect["truncated"] != true, "{name}");
        assert_eq!(state.finished, state.done, "{name}");
        assert_eq!(state.content, name != "stream_error_event", "{name}");
        let wanted =
            if expect["sdk_yields_nothing"] == true { state.usage } else { usage(dialect, &expect["usage"]) };
        // The vectors do not separate reasoning tokens from the other output tokens; compare the sum.
        let whole = |counts: shared::usage::TokenCounts| {
            (counts.input, counts.cache_read, counts.cache_write, counts.output + counts.reasoning)
        };
        assert_eq!(state.usage.map(whole), wanted.map(whole), "{name}");
        assert!(!state.done || state.usage.is_some(), "{name}");
    }
}

#[test]
fn streams_are_read_the_same_at_any_split() {
    for (dialect, case, input) in cases("stream") {
        let whole = relay(dialect, &[&input]);
        for pieces in cuttings(&input) {
            let cut = relay(dialect, &pieces);
            assert_eq!(cut.1, whole.1, "{} cut at {}", case["id"], pieces[0].len());
            assert!(cut.0 == whole.0, "{} cut at {}", case["id"], pieces[0].len());
        }
    }
}

fn head(dialect: Dialect, pieces: &[&[u8]]) -> Head {
    let mut scan = HeadScan::new(dialect);
    for piece in pieces {
        scan.push(piece).unwrap();
    }
    scan.finish().unwrap()
}

#[test]
fn requests_reach_the_upstream_unchanged_except_model_and_preamble() {
    for (dialect, case, input) in cases("request") {
        let mut want: Value = serde_json::from_slice(&input).unwrap();
        want["model"] = json!("target/\"model\"");
        let plain = want.clone();
        let system = if dialect == Dialect::Messages { "system" } else { "instructions" };
        match &mut want[system] {
            Value::Array(blocks) => blocks.insert(0, json!({"type": "text", "text": "First."})),
            Value::String(text) => text.insert_str(0, "First.\n\n"),
            absent => *absent = json!("First."),
        }
        for (preamble, want) in [(None, &plain), (Some("First."), &want)] {
            let upstream = |pieces: &[&[u8]]| {
                let segments: Vec<Bytes> = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
                build(&segments, &head(dialect, pieces), Naming::Model("target/\"model\""), true, preamble)
                    .concat()
            };
            let whole = upstream(&[&input]);
            let got: Value = serde_json::from_slice(&whole).unwrap();
            assert_eq!(got, *want, "{}", case["id"]);
            for pieces in cuttings(&input) {
                assert!(upstream(&pieces) == whole, "{} cut at {}", case["id"], pieces[0].len());
            }
        }
    }
}

#[test]
fn request_heads_are_read_at_any_split() {
    for (dialect, case, input) in cases("request") {
        let body: Value = serde_json::from_slice(&input).unwrap();
        let text = String::from_utf8_lossy(&input);
        for pieces in cuttings(&input) {
            let (head, name) = (head(dialect, &pieces), &case["id"]);
            assert_eq!(head.model, body["model"].as_str().unwrap());
            assert_eq!(head.stream, body["stream"] == true, "{name}");
            assert_eq!(head.has_tools, body["tools"].is_array(), "{name}");
            let image = text.contains("\"image\"") || text.contains("\"input_image\"");
            assert_eq!(head.has_image, image, "{name}");
            let max =
                if dialect == Dialect::Messages { &body["max_tokens"] } else { &body["max_output_tokens"] };
            assert_eq!(head.max_output_tokens, max.as_u64(), "{name}");
            let include = body["include"].as_array().is_some_and(|names| !names.is_empty());
            assert_eq!(head.state.include, include, "{name}");
            assert_eq!(head.state.store, body["store"].as_bool(), "{name}");
            let encrypted = |item: &Value| item["encrypted_content"].is_string();
            let encrypted = body["input"].as_array().is_some_and(|items| items.iter().any(encrypted));
            assert_eq!(head.state.encrypted_content, encrypted, "{name}");
        }
    }
}

#[test]
fn whole_responses_are_read_at_any_split() {
    for (dialect, case, input) in cases("response") {
        let body: Value = serde_json::from_slice(&input).unwrap();
        let read = |pieces: &[&[u8]]| {
            let mut scan = WholeScan::new(dialect);
            pieces.iter().for_each(|piece| scan.push(piece));
            scan.finish()
        };
        let want = read(&[&input]);
        assert!(want.is_json, "{}", case["id"]);
        assert_eq!(want.error.is_some(), body["status"] == "failed", "{}", case["id"]);
        assert_eq!(want.usage, usage(dialect, &body["usage"]), "{}", case["id"]);
        let at_once = native::whole_answer(dialect, &input);
        assert_eq!((at_once.usage, at_once.error), (want.usage, want.error.clone()), "{}", case["id"]);
        for pieces in cuttings(&input) {
            assert_eq!(read(&pieces), want, "{} cut at {}", case["id"], pieces[0].len());
        }
    }
}

/// Assembles the message of a stream of events, as the SDKs do.
fn message_of(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    let mut json_text = String::new();
    for event in events {
        let block = message["content"].as_array().unwrap().len().wrapping_sub(1);
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                json_text.clear();
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let (delta, block) = (&event["delta"], &mut message["content"][block]);
                for name in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[name].as_str() {
                        block[name] = json!(block[name].as_str().unwrap().to_owned() + more);
                    }
                }
                json_text += delta["partial_json"].as_str().unwrap_or_default();
                if delta["type"] == "citations_delta" {
                    let mut citations = block["citations"].as_array().cloned().unwrap_or_default();
                    citations.push(delta["citation"].clone());
                    block["citations"] = citations.into();
                }
            }
            "content_block_stop" if !json_text.is_empty() => {
                message["content"][block]["input"] = serde_json::from_str(&json_text).unwrap();
            }
            "message_delta" => {
                for (name, value) in event["delta"].as_object().unwrap() {
                    message[name] = value.clone();
                }
                message["usage"] = event["usage"].clone();
            }
            _ => {}
        }
    }
    message
}

#[test]
fn a_whole_response_becomes_an_equivalent_stream() {
    for (dialect, case, input) in cases("response") {
        let body: Value = serde_json::from_slice(&input).unwrap();
        let stream = native::synthesize_stream(dialect, &input, true);
        if body["status"] == "failed" {
            assert_eq!(stream, None);
            continue;
        }
        let stream = stream.unwrap();
        let (out, state) = relay(dialect, &[&stream]);
        assert_eq!(out, stream);
        assert!(state.done && state.finished && state.error.is_none(), "{}", case["id"]);
        let is_empty = body["content"] == json!([]);
        assert_eq!(state.content, !is_empty, "{}", case["id"]);
        assert_eq!(state.usage, usage(dialect, &body["usage"]), "{}", case["id"]);
        let events = data_of(&stream);
        if dialect == Dialect::Messages {
            assert_eq!(message_of(&events), body, "{}", case["id"]);
        } else {
            same_response(&events, &body);
        }
    }
}

/// Asserts that the deltas, the items and the last snapshot each contain the whole response.
fn same_response(events: &[Value], body: &Value) {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    assert_eq!(events.last().unwrap()["response"], *body);
    let items: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    assert_eq!(json!(items), body["output"]);
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    let mut texts = String::new();
    for item in body["output"].as_array().unwrap() {
        let parts = [&item["summary"], &item["content"]].into_iter().filter_map(Value::as_array).flatten();
        texts.extend(parts.flat_map(|part| [&part["text"], &part["refusal"]]).filter_map(Value::as_str));
        texts.extend([&item["arguments"], &item["input"]].into_iter().filter_map(Value::as_str));
    }
    assert_eq!(deltas, texts);
}

#[test]
fn upstream_errors_keep_their_message_and_type() {
    let mut kinds = 0;
    for (dialect, case, input) in cases("error") {
        let body: Value = serde_json::from_slice(&input).unwrap();
        let answer = wire::envelope::UpstreamAnswer {
            status: case["status"].as_u64().unwrap().try_into().unwrap(),
            content_type: Some("application/json"),
            body: &input,
            secrets: &[],
        };
        let ours =
            wire::envelope::upstream_error(wire::envelope::EnvelopeFamily::of(dialect), answer, "req_1");
        let ours: Value = serde_json::from_slice(&ours).unwrap();
        assert_eq!(ours["error"]["message"], body["error"]["message"], "{}", case["id"]);
        assert_eq!(ours["error"]["type"], body["error"]["type"], "{}", case["id"]);
        assert_eq!((&ours["type"], &ours["request_id"]), (&json!("error"), &json!("req_1")));
        kinds += 1;
    }
    assert_eq!(kinds, 10);
}
