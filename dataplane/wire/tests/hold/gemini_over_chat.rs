//! Invariants of Gemini clients, native and over a chat target, for any request and any answer.

use bytes::Bytes;
use serde_json::Value;
use shared::operation::Dialect;
use wire::adapt::{Answers, Asking, Traits, find};
use wire::native;
use wire::request::{GeminiCall, GeminiKind, Head, HeadScan, Naming, build};
use wire::stream::{StreamOptions, StreamState};

use super::{answered, decode, pieces};

const SECRET: &str = "canary-secret";

/// Asserts that requests are translated or rejected, that answers do not depend on the cuts, and that a client can read
/// them.
pub(crate) fn holds(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    scanned(&whole, &pieces);
    request(&whole);
    let plain = br#"{"contents":[{"parts":[{"text":"x"}]}],"generationConfig":{"thinkingConfig":{"includeThoughts":true}}}"#;
    let answers = request(plain).unwrap();
    if let Ok(answer) = answers.whole(&whole) {
        gemini_answer(&serde_json::from_slice(&answer.body).unwrap());
    }
    let (out, state) = answered(&*answers, &[&whole]);
    assert_eq!(answered(&*answers, &pieces), (out.clone(), state.clone()));
    gemini_stream(&out, &state);
    assert_eq!(relayed(&pieces), relayed(&[&whole]));
}

/// Asserts that the facts of a request do not depend on the cuts, and that the gateway's system text keeps it JSON.
fn scanned(whole: &[u8], pieces: &[&[u8]]) {
    let scan = |pieces: &[&[u8]]| {
        let call = GeminiCall { model: "m".to_owned(), stream: false, kind: GeminiKind::Generation };
        let mut scan = HeadScan::of_gemini(call);
        pieces.iter().try_for_each(|piece| scan.push(piece)).and_then(|()| scan.finish())
    };
    let (cut, head) = (scan(pieces), scan(&[whole]));
    let facts = |head: &Head| ((*head.input).clone(), head.max_output_tokens, head.has_image, head.has_tools);
    assert_eq!(cut.as_ref().map(facts), head.as_ref().map(facts));
    if let Ok(head) = head {
        let built =
            build(&[Bytes::copy_from_slice(whole)], &head, Naming::Model("m"), true, Some("P")).concat();
        assert!(
            serde_json::from_slice::<Value>(&built).is_ok()
                || serde_json::from_slice::<Value>(whole).is_err()
        );
    }
}

/// Translates a request. Asserts that the result is JSON, or that the rejection has a message.
fn request(body: &[u8]) -> Option<Box<dyn Answers>> {
    let pair = find(Dialect::Gemini, Dialect::Chat).unwrap();
    let target = Traits { top_k: true, files: true, reasoning: true, images: true, ..Traits::of("m") };
    let asking = Asking { body, target: &target, selector: "s\"", seed: "S", now_s: 1, input_tokens: 0 };
    match (pair.prepare)(&asking) {
        Ok(prepared) => {
            let sent: Value = serde_json::from_slice(&prepared.body).unwrap();
            assert_eq!(sent["model"], "m");
            for param in ["messages.0.content.0", "messages.1.tool_calls.0.id", "tools.0", "stop"] {
                let _ = pair.origin.unwrap()(&asking, param);
            }
            Some(prepared.answers)
        }
        Err(rejection) => {
            assert!(!rejection.message.is_empty());
            None
        }
    }
}

/// Asserts that each candidate has content with a role and parts, without which clients fail.
fn gemini_answer(answer: &Value) {
    assert!(answer["modelVersion"].is_string() && answer["responseId"].is_string(), "{answer}");
    for candidate in answer["candidates"].as_array().unwrap() {
        assert_eq!(candidate["content"]["role"], "model");
        assert!(!candidate["content"]["parts"].as_array().unwrap().is_empty(), "{answer}");
    }
}

/// Asserts that each event is one line of JSON as Google's SDKs expect it, and that an error is the last one and contains
/// no secret.
fn gemini_stream(out: &[u8], state: &StreamState) {
    let text = std::str::from_utf8(out).unwrap();
    assert!(!text.contains(['\u{2028}', '\u{2029}']));
    let frames: Vec<&str> = text.split_terminator("\r\n\r\n").collect();
    assert_eq!(frames.len(), decode(&[out]).len());
    for (position, frame) in frames.iter().enumerate() {
        let value: Value = serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap();
        if value.get("error").is_some() {
            assert!(state.error.is_some() && position + 1 == frames.len());
            assert!(!frame.contains(SECRET));
        } else {
            gemini_answer(&value);
        }
    }
    assert!(!(state.done && state.error.is_some()));
}

/// Relays a native stream.
fn relayed(pieces: &[&[u8]]) -> (Vec<u8>, StreamState) {
    let options = StreamOptions { secrets: vec![SECRET.to_owned()], ..StreamOptions::default() };
    let (mut stream, mut out) = (native::stream(Dialect::Gemini, options), Vec::new());
    pieces.iter().for_each(|piece| stream.push(Bytes::copy_from_slice(piece), &mut out));
    stream.end(&mut out);
    (out.concat(), stream.state().clone())
}
