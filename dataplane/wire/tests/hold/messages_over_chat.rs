//! Invariants of a Messages client over a chat target, for any request and any answer.

use serde_json::Value;
use shared::operation::Dialect;
use wire::adapt::{Answers, Asking, Traits, find};
use wire::stream::StreamState;

use super::{answered, decode, pieces};

const SECRET: &str = "canary-secret";

/// Asserts that requests are translated or rejected, that answers do not depend on the cuts, and that a client can read
/// them.
pub(crate) fn holds(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    request(&whole);
    let plain = br#"{"max_tokens":9,"messages":[],"thinking":{"type":"adaptive"},"stop_sequences":["a"]}"#;
    let answers = request(plain).unwrap();
    if let Ok(answer) = answers.whole(&whole) {
        let message: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(message["content"].is_array() && message["stop_reason"].is_string(), "{message}");
    }
    let (out, state) = answered(&*answers, &[&whole]);
    assert_eq!(answered(&*answers, &pieces), (out.clone(), state.clone()));
    messages_stream(&out, &state);
}

/// Translates a request. Asserts that the result is JSON, or that the rejection has a message.
fn request(body: &[u8]) -> Option<Box<dyn Answers>> {
    let pair = find(Dialect::Messages, Dialect::Chat).unwrap();
    let target = Traits { top_k: true, files: true, reasoning: true, ..Traits::of("m") };
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

/// Asserts that events are complete, named and in order, that blocks do not overlap, and that an error contains no
/// secret.
fn messages_stream(out: &[u8], state: &StreamState) {
    let events = decode(&[out]);
    let (mut blocks, mut open, mut outputs) = (0, false, 0);
    for (position, event) in events.iter().enumerate() {
        let value: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(value["type"], *event.event);
        match event.event.as_str() {
            "message_start" => assert_eq!(position, 0),
            "content_block_start" => {
                assert!(!open && value["index"] == blocks);
                outputs += usize::from(value["content_block"]["type"] == "tool_use");
                (open, blocks) = (true, blocks + 1);
            }
            "content_block_delta" => {
                assert!(open && value["index"] == blocks - 1);
                outputs += 1;
            }
            "content_block_stop" => {
                assert!(open);
                open = false;
            }
            "message_delta" => assert!(!open && value["delta"]["stop_reason"].is_string()),
            "message_stop" => assert!(state.done && position + 1 == events.len()),
            "error" => {
                assert!(state.error.is_some() && position + 1 == events.len());
                assert!(!event.data.contains(SECRET));
            }
            other => assert_eq!(other, "ping", "there is no such event"),
        }
    }
    assert_eq!(state.content, outputs > 0);
    assert!(!(state.done && state.error.is_some()));
}
