//! Collects the events of a stream into an answer. Each event has the members of a whole answer, and a piece of its parts.

use serde_json::{Map, Value, json};

use crate::translation::{BadAnswer, INCOMPLETE};

/// Returns the answer that `events` stand for.
pub(crate) fn collect(events: &[Value]) -> Result<Value, BadAnswer> {
    let mut whole = Map::new();
    let mut candidates: Vec<Value> = Vec::new();
    for event in events.iter().filter_map(Value::as_object) {
        for (name, value) in event.iter().filter(|(name, _)| !matches!(name.as_str(), "candidates" | "type"))
        {
            whole.insert(name.clone(), value.clone());
        }
        for piece in event.get("candidates").and_then(Value::as_array).into_iter().flatten() {
            take_candidate(&mut candidates, piece);
        }
    }
    let is_blocked = whole.get("promptFeedback").is_some_and(|feedback| feedback["blockReason"].is_string());
    if !is_blocked && candidates.iter().all(|candidate| candidate["finishReason"].is_null()) {
        return Err(INCOMPLETE);
    }
    whole.insert("candidates".to_owned(), candidates.into());
    Ok(whole.into())
}

fn take_candidate(candidates: &mut Vec<Value>, piece: &Value) {
    let index = piece["index"].as_u64().unwrap_or(0);
    let at = candidates.iter().position(|candidate| candidate["index"] == index).unwrap_or_else(|| {
        candidates.push(json!({"index": index, "content": {"role": "model", "parts": []}}));
        candidates.len() - 1
    });
    let Some(candidate) = candidates.get_mut(at) else { return };
    if let Some(parts) = candidate.pointer_mut("/content/parts").and_then(Value::as_array_mut) {
        let more = piece.pointer("/content/parts").and_then(Value::as_array);
        parts.extend(more.into_iter().flatten().cloned());
    }
    let members = piece.as_object().into_iter().flatten();
    for (name, value) in members.filter(|(name, _)| !matches!(name.as_str(), "content" | "index")) {
        if let Some(candidate) = candidate.as_object_mut() {
            candidate.insert(name.clone(), value.clone());
        }
    }
}
