//! `response.failed`, the event that ends a Responses stream which could not go on. A bare `error` event is passed
//! over by Codex, and the SDKs want every member of the response.

use bytes::Bytes;
use serde_json::{Value, json};

use super::envelope::ResponseNames;
use crate::envelope::named_event;

/// The event: number `number` of the stream of the response that `names` names, or that `fallback_id` shall name
/// if it never began.
pub(super) fn event(
    names: &ResponseNames,
    fallback_id: &str,
    number: u64,
    code: &str,
    message: &str,
) -> Bytes {
    let text = |raw: &[u8]| {
        let quoted = [b"\"", raw, b"\""].concat();
        serde_json::from_slice::<Value>(&quoted).ok().filter(|text| text.as_str() != Some(""))
    };
    let created_at = serde_json::from_slice::<Value>(&names.created_at).ok().filter(Value::is_number);
    let response = json!({
        "id": text(&names.id).unwrap_or_else(|| format!("resp_{fallback_id}").into()),
        "object": "response",
        "created_at": created_at.unwrap_or_else(|| 0.into()),
        "status": "failed",
        "error": {"code": code, "message": message},
        "incomplete_details": null,
        "instructions": null,
        "max_output_tokens": null,
        "model": text(&names.model).unwrap_or_else(|| "".into()),
        "output": [],
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "store": false,
        "temperature": null,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "truncation": "disabled",
        "usage": null,
        "user": null,
        "metadata": {},
    });
    let event = json!({"type": "response.failed", "response": response, "sequence_number": number});
    named_event("response.failed", &event.to_string())
}
