//! Collects the chunks of a stream into a completion, the reverse of `synthesize`.

use serde_json::{Map, Value, json};

use crate::translation::{BadAnswer, INCOMPLETE};

/// Returns the completion that `chunks` stand for; null stands for `[DONE]`.
pub(crate) fn collect(chunks: &[Value]) -> Result<Value, BadAnswer> {
    let mut whole = Map::new();
    let mut choices: Vec<Value> = Vec::new();
    for chunk in chunks.iter().filter_map(Value::as_object) {
        for (name, value) in chunk.iter().filter(|(name, value)| *name != "choices" && !value.is_null()) {
            whole.insert(name.clone(), value.clone());
        }
        for choice in chunk.get("choices").and_then(Value::as_array).into_iter().flatten() {
            take_choice(&mut choices, choice);
        }
    }
    let is_done = chunks.iter().any(Value::is_null);
    if choices.is_empty() || !is_done && choices.iter().any(|choice| choice["finish_reason"].is_null()) {
        return Err(if choices.is_empty() { BadAnswer::Invalid("it has no choices") } else { INCOMPLETE });
    }
    for choice in &mut choices {
        finish(choice);
    }
    whole.remove("type");
    whole.insert("object".to_owned(), "chat.completion".into());
    whole.insert("choices".to_owned(), choices.into());
    Ok(whole.into())
}

/// Adds a piece of a choice to the choice with its index.
fn take_choice(choices: &mut Vec<Value>, piece: &Value) {
    let index = piece["index"].as_u64().unwrap_or(0);
    let at = choices.iter().position(|choice| choice["index"] == index).unwrap_or_else(|| {
        choices.push(
            json!({"index": index, "message": {"role": "assistant", "content": null}, "finish_reason": null}),
        );
        choices.len() - 1
    });
    let Some(choice) = choices.get_mut(at).and_then(Value::as_object_mut) else { return };
    for (name, value) in piece.as_object().into_iter().flatten() {
        match name.as_str() {
            "index" => {}
            "delta" | "message" => join(choice.entry("message").or_insert_with(|| json!({})), value),
            _ => join_member(choice, name, value),
        }
    }
}

/// Adds a piece of a value to it: members are joined by name, and items of lists by their `index`.
fn join(whole: &mut Value, piece: &Value) {
    match (whole, piece) {
        (Value::Object(whole), Value::Object(piece)) => {
            piece.iter().for_each(|(name, value)| join_member(whole, name, value));
        }
        (Value::Array(whole), Value::Array(piece)) => piece.iter().for_each(|item| join_item(whole, item)),
        (_, Value::Null) => {}
        (whole, piece) => *whole = piece.clone(),
    }
}

fn join_member(whole: &mut Map<String, Value>, name: &str, piece: &Value) {
    match (whole.get_mut(name), piece) {
        (Some(Value::String(text)), Value::String(more)) if PIECEWISE.contains(&name) => text.push_str(more),
        (Some(Value::String(_)), Value::String(more)) if more.is_empty() => {}
        (Some(old @ (Value::Object(_) | Value::Array(_))), piece) => join(old, piece),
        (Some(_), Value::Null) => {}
        (Some(old), piece) => *old = piece.clone(),
        (None, piece) => {
            whole.insert(name.to_owned(), piece.clone());
        }
    }
}

fn join_item(whole: &mut Vec<Value>, item: &Value) {
    let index = &item["index"];
    match whole.iter_mut().find(|own| index.is_u64() && own["index"] == *index) {
        Some(own) => join(own, item),
        None => whole.push(item.clone()),
    }
}

/// Completes a choice: an answer has a finish reason, and its calls have no index.
fn finish(choice: &mut Value) {
    if let Some(reason) = choice.get_mut("finish_reason").filter(|reason| reason.is_null()) {
        *reason = "stop".into();
    }
    let calls = choice.pointer_mut("/message/tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        if let Some(call) = call.as_object_mut() {
            call.remove("index");
        }
    }
}

/// The texts that arrive in pieces.
const PIECEWISE: [&str; 12] = [
    "content",
    "reasoning_content",
    "reasoning",
    "refusal",
    "arguments",
    "input",
    "text",
    "thinking",
    "summary",
    "signature",
    "data",
    "transcript",
];
