//! Invariants of Responses clients over chat targets, and of chat clients over Responses targets.

use serde_json::Value;
use serde_json::value::RawValue;
use shared::id::KeyId;
use shared::operation::Dialect;
use shared::operation_id::Owner;
use shared::reasoning_seal::ReasoningKey;
use shared::secret::Secret;
use wire::adapt::Traits;

use super::{answered, chat_client, decode, pieces, prepared, responses_reader};

/// Asserts that any chat stream becomes events that a strict client can read, however it is cut.
pub(crate) fn responses_over_chat(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    let target = Traits { custom_tools: true, files: true, ..Traits::of("target") };
    if let Ok(prepared) = prepared(Dialect::Responses, Dialect::Chat, &whole, &target) {
        let body: Value = serde_json::from_slice(&prepared.body).unwrap();
        assert!(body["messages"].is_array() && body["model"] == "target");
    }
    let own = br#"{"input":"x","stream":true}"#;
    responses_answer(own, &target, &pieces);
    let seal = ReasoningKey::new(&Secret::new([9; 32])).seal_of(&Owner::Key(KeyId::new("k"))).unwrap();
    let agents = Traits { custom_tools: false, agents: Some(&seal), ..target };
    if let Ok(prepared) = prepared(Dialect::Responses, Dialect::Chat, &whole, &agents) {
        let body: Value = serde_json::from_slice(&prepared.body).unwrap();
        assert!(body["messages"].is_array() && body["model"] == "target");
    }
    let own = br#"{"input":"x","stream":true,"include":["reasoning.encrypted_content"],"reasoning":{"summary":"auto"},
        "tools":[{"type":"custom","name":"f"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"g"}]}]}"#;
    responses_answer(own, &agents, &pieces);
}

/// Asserts that the answer in `pieces` to the request `own` is one that a strict client can read, however it is cut.
fn responses_answer(own: &[u8], target: &Traits<'_>, pieces: &[&[u8]]) {
    let whole = pieces.concat();
    let answers = prepared(Dialect::Responses, Dialect::Chat, own, target).unwrap().answers;
    let (out, state) = answered(&*answers, pieces);
    assert_eq!(answered(&*answers, &[&whole]), (out.clone(), state.clone()));
    assert_eq!(out.is_empty(), !state.content && !state.done && state.error.is_none());
    if readable(&out) {
        let read = responses_reader::read(&out);
        assert_eq!(state.done, matches!(read.end.as_str(), "completed" | "incomplete"));
        assert_eq!(state.error.is_some(), read.end == "failed");
        let error = read.response["error"]["message"].as_str().unwrap_or_default();
        assert!(!error.contains("canary-secret"));
    }
    if let Ok(answer) = answers.whole(&whole) {
        assert!(serde_json::from_slice::<&RawValue>(&answer.body).unwrap().get().starts_with('{'));
    }
}

/// Asserts that any Responses stream becomes chunks that a strict client can read, however it is cut.
pub(crate) fn chat_over_responses(input: &[u8]) {
    let pieces = pieces(input);
    let whole = pieces.concat();
    let target = Traits::of("target");
    if let Ok(prepared) = prepared(Dialect::Chat, Dialect::Responses, &whole, &target) {
        let body: Value = serde_json::from_slice(&prepared.body).unwrap();
        assert!(body["input"].is_array() && body["model"] == "target" && body["store"] == false);
    }
    let own = br#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
    let answers = prepared(Dialect::Chat, Dialect::Responses, own, &target).unwrap().answers;
    let (out, state) = answered(&*answers, &pieces);
    assert_eq!(answered(&*answers, &[&whole]), (out.clone(), state.clone()));
    if readable(&out) {
        let read = chat_client::read(&out);
        assert_eq!((read.done, read.usage.is_some()), (state.done, state.done));
        assert_eq!(read.error.is_some(), state.error.is_some());
        let error = read.error.unwrap_or_default().to_string();
        assert!(!error.contains("canary-secret"));
    }
    if let Ok(answer) = answers.whole(&whole) {
        assert!(serde_json::from_slice::<&RawValue>(&answer.body).unwrap().get().starts_with('{'));
    }
}

/// True if no string in an event has an unpaired surrogate. The gateway passes those unchanged, and only some clients
/// can read them. Asserts that every event is a JSON object.
fn readable(out: &[u8]) -> bool {
    let events = decode(&[out]);
    let mut data = events.iter().map(|event| event.data.as_str()).filter(|data| *data != "[DONE]");
    data.all(|data| {
        assert!(serde_json::from_str::<&RawValue>(data).unwrap().get().starts_with('{'));
        serde_json::from_str::<Value>(data).is_ok()
    })
}
