//! Writes `response.failed`, the event that ends an interrupted Responses stream. Codex ignores a bare `error` event,
//! and the SDKs require every member of the response.

use bytes::Bytes;
use serde_json::{Value, json};

use super::envelope::ResponseNames;
use crate::envelope::named_event;

/// Returns the event with sequence number `number`, for the response in `names`; if that never began, its id is made
/// from `fallback_id`.
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
