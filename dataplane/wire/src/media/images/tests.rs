//! Tests images: requests, whole answers, and streams with any cuts.

use bytes::Bytes;
use serde_json::{Value, json};
use shared::operation::Dialect;
use shared::usage::TokenCounts;

use super::{ImageStream, synthesize_stream, whole};
use crate::adapt::BadAnswer;
use crate::request::{HeadScan, Naming, build};
use crate::sse::SseDecoder;
use crate::stream::{AnswerStream as _, StreamOptions, StreamState};

const REQUEST: &str = include_str!("../../../fixtures/images/request.json");
const RESPONSE: &str = include_str!("../../../fixtures/images/response.json");
const STREAM: &str = include_str!("../../../fixtures/images/stream.sse");

fn used() -> TokenCounts {
    TokenCounts { input: 5, image_output: 272, ..TokenCounts::default() }
}

fn upstream(body: &str, asks: bool) -> Value {
    let mut scan = HeadScan::new(Dialect::Images);
    scan.push(body.as_bytes()).unwrap();
    let segments = [Bytes::copy_from_slice(body.as_bytes())];
    let built = build(&segments, &scan.finish().unwrap(), Naming::Model("T"), asks, None).concat();
    serde_json::from_slice(&built).unwrap()
}

#[test]
fn b64_json_is_requested_from_targets_that_need_it() {
    for format in ["", r#","response_format":"b64_json""#, r#","response_format":null"#] {
        for body in [
            format!(r#"{{"model":"img","prompt":"a cat"{format},"n":2}}"#),
            format!(r#"{{"prompt":"a cat","n":2{format},"model":"img"}}"#),
            format!(r#"{{"prompt":"a cat","n":2,"model":"img"{format}}}"#),
        ] {
            let plain = json!({"model": "T", "prompt": "a cat", "n": 2});
            let with_format = json!({"model": "T", "prompt": "a cat", "n": 2, "response_format": "b64_json"});
            assert_eq!(upstream(&body, false), plain, "{body}");
            assert_eq!(upstream(&body, true), with_format, "{body}");
        }
    }
    let mut want: Value = serde_json::from_str(REQUEST).unwrap();
    want["model"] = "T".into();
    assert_eq!(upstream(REQUEST, false), want);
}

#[test]
fn other_response_formats_than_b64_json_are_rejected() {
    for format in [r#""url""#, r#""base64""#, "1", "{}", "[]", "true", r#""""#] {
        let body = format!(r#"{{"model":"m","prompt":"x","response_format":{format}}}"#);
        let mut scan = HeadScan::new(Dialect::Images);
        scan.push(body.as_bytes()).unwrap();
        let error = scan.finish().unwrap_err();
        assert_eq!(error.param.as_deref(), Some("response_format"), "{format}");
    }
}

#[test]
fn an_answer_passes_with_its_usage() {
    let read = whole(RESPONSE.into()).unwrap();
    assert_eq!((read.body, read.usage, read.output_bytes), (RESPONSE.into(), Some(used()), 0));
    assert_eq!((read.extras.units.images, read.extras.picture.as_deref()), (1, Some("low/1024x1024")));
}

#[test]
fn a_response_without_inline_images_is_rejected() {
    let rows = [
        (r#"{"data":[{"url":"https://x/y.png"}]}"#, "URL of an image"),
        (r#"{"data":[{"b64_json":"AAAA"},{"url":"https://x","b64_json":null}]}"#, "URL of an image"),
        (r#"{"data":[{"b64_json":""}]}"#, "without b64_json"),
        (r#"{"data":[{"b64_json":{"a":"b"}}]}"#, "without b64_json"),
        (r#"{"data":[]}"#, "no images"),
        (r#"{"created":1}"#, "no images"),
        ("AAAA", "not a response with images"),
        (r#"{"data":[{"b64_json":"AAAA"}"#, "not a response with images"),
    ];
    for (body, why) in rows {
        let Err(BadAnswer::Invalid(message)) = whole(body.into()) else { panic!("{body}") };
        assert!(message.contains(why), "{body}: {message}");
    }
    let bad = whole(r#"{"error":{"message":"no","code":"moderation_blocked"}}"#.into());
    assert!(
        matches!(bad, Err(BadAnswer::Error(error)) if error.code.as_deref() == Some("moderation_blocked"))
    );
    assert!(whole(r#"{"error":null,"data":[{"b64_json":"AAAA"}]}"#.into()).is_ok());
}

/// Returns the input in two pieces, cut at every byte, and in pieces of one and seven bytes.
fn cuts(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut cuts: Vec<Vec<&[u8]>> = (0..=input.len()).map(|at| vec![&input[..at], &input[at..]]).collect();
    cuts.extend([input.chunks(1).collect(), input.chunks(7).collect()]);
    cuts
}

fn relay(pieces: &[&[u8]]) -> (String, StreamState) {
    let mut stream =
        ImageStream::new(StreamOptions { secrets: vec!["s3cr3t".into()], ..StreamOptions::default() });
    let mut out = Vec::new();
    for piece in pieces {
        stream.push(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(&mut out);
    (String::from_utf8(out.concat()).unwrap(), stream.state().clone())
}

#[test]
fn an_image_stream_passes_unchanged_at_any_split() {
    let crlf = STREAM.replace('\n', "\r\n");
    for input in [STREAM, &crlf] {
        for pieces in cuts(input.as_bytes()) {
            let (out, state) = relay(&pieces);
            assert_eq!(out, input);
            assert!(state.content && state.finished && state.error.is_none());
            assert_eq!((state.usage, state.content_events), (Some(used()), 2));
            assert_eq!(
                (state.extras.units.images, state.extras.picture.as_deref()),
                (1, Some("low/1024x1024"))
            );
        }
    }
}

#[test]
fn an_incomplete_image_event_is_no_content() {
    let first = STREAM.find("\n\n").unwrap() + 1;
    let (out, state) = relay(&[&STREAM.as_bytes()[..first]]);
    assert_eq!((out.as_str(), state), ("", StreamState::default()));
}

#[test]
fn an_event_without_an_inline_image_ends_the_stream() {
    let rows = [
        (r#"{"type":"image_generation.completed","url":"https://x/s3cr3t"}"#, "URL of an image"),
        (r#"{"type":"image_generation.partial_image","partial_image_index":0}"#, "without b64_json"),
        (r#"{"type":"error","error":{"message":"bad s3cr3t"}}"#, "bad"),
        (r#"{"error":{"message":"bad s3cr3t"}}"#, "bad"),
        (r#"{"error""#, "not JSON"),
    ];
    for (data, why) in rows {
        let input = format!("data: {data}\n\n{STREAM}");
        for pieces in cuts(input.as_bytes()) {
            let (out, state) = relay(&pieces);
            let message = state.error.unwrap().message;
            assert!(message.contains(why) && !out.contains("s3cr3t"), "{data}: {message} {out}");
            assert!(
                !state.content && out.starts_with(r#"data: {"error":"#) && out.ends_with("}\n\n"),
                "{out}"
            );
            assert_eq!(out.matches("data:").count(), 1);
        }
    }
}

#[test]
fn unknown_events_pass_unchanged() {
    let input = ": hello\n\nid: 1\ndata: {\"type\":\"new\",\"error\":null}\n\ndata: [DONE]\n\n";
    let (out, state) = relay(&[input.as_bytes()]);
    assert_eq!((out.as_str(), state.ids_seen, state.content, state.error), (input, true, false, None));
}

#[test]
fn an_endless_event_is_not_held() {
    let mut stream = ImageStream::new(StreamOptions::default());
    let (part, mut out) = (Bytes::from(vec![b'a'; 1 << 20]), Vec::new());
    stream.push(Bytes::from_static(b"data: \""), &mut out);
    for _ in 0..33 {
        stream.push(part.clone(), &mut out);
    }
    assert!(stream.state().error.is_some() && out.len() == 1);
    stream.push(part, &mut out);
    assert_eq!(out.len(), 1);
}

#[test]
fn a_whole_answer_becomes_a_stream() {
    let stream = synthesize_stream(RESPONSE.as_bytes()).unwrap();
    let (out, state) = relay(&[&stream]);
    assert_eq!(out.as_bytes(), stream);
    assert_eq!((state.usage, state.finished), (Some(used()), true));
    let mut decoder = SseDecoder::default();
    decoder.push(&stream).unwrap();
    let event = decoder.next_event().unwrap();
    let data: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!((data["created_at"].as_u64(), data["quality"].as_str()), (Some(1_795_000_000), Some("low")));
    assert_eq!(synthesize_stream(b"[]"), None);
}
