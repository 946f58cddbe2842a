//! Collects the events of a stream into a Responses answer: the response of its last event.

use serde_json::Value;

use crate::envelope::StreamError;
use crate::translation::{BadAnswer, INCOMPLETE};

/// Returns the response that `events` stand for. Some servers leave the output of the last event empty; then it is that
/// of the items that have ended.
pub(crate) fn collect(events: &[Value]) -> Result<Value, BadAnswer> {
    let kind = |event: &Value, kind: &str| event["type"].as_str() == Some(kind);
    if let Some(failed) = events.iter().find(|event| kind(event, "response.failed")) {
        let error = failed.pointer("/response/error").unwrap_or(&Value::Null);
        return Err(BadAnswer::Error(StreamError::of_member(error)));
    }
    let is_end = |event: &&Value| kind(event, "response.completed") || kind(event, "response.incomplete");
    let end = events.iter().rfind(is_end).ok_or(INCOMPLETE)?;
    let mut response = end["response"].clone();
    let members = response.as_object_mut().ok_or(INCOMPLETE)?;
    if members.get("output").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let items = events.iter().filter(|event| kind(event, "response.output_item.done"));
        let items: Vec<Value> = items.map(|event| event["item"].clone()).collect();
        members.insert("output".to_owned(), items.into());
    }
    Ok(response)
}
