//! Rewrites tool call ids made by another vendor: the only part of a native chat request that a target of the same
//! dialect may reject. Every other byte is unchanged.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::provider::quirks::ToolIds;

use super::call_id::fitting;
use super::splice::spliced;
use crate::json::quote;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageWithCalls<'a> {
    #[serde(borrow)]
    tool_calls: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    tool_call_id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CallWithId<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// Returns `body`, a chat request, with ids of this form in calls and results. `None` if all ids already have it, or if
/// `body` has no shape in which they can be found.
pub fn with_tool_ids(form: ToolIds, body: &[u8]) -> Option<Vec<u8>> {
    let request: Request<'_> = serde_json::from_slice(body).ok()?;
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for message in request.messages {
        let Ok(message) = serde_json::from_str::<MessageWithCalls<'_>>(message.get()) else { continue };
        let calls = message.tool_calls.iter().flatten();
        let ids = calls.filter_map(|call| serde_json::from_str::<CallWithId<'_>>(call.get()).ok()?.id);
        edits.extend(ids.chain(message.tool_call_id).filter_map(|id| edit(form, body, id)));
    }
    edits.sort_by_key(|(span, _)| span.start);
    if edits.is_empty() { None } else { spliced(body, &edits) }
}

/// Returns the position of `id` in `body` and its replacement, if it needs one.
fn edit(form: ToolIds, body: &[u8], id: &RawValue) -> Option<(Range<usize>, String)> {
    let text: Cow<'_, str> = serde_json::from_str(id.get()).ok()?;
    let fitted = fitting(form, &text, "call_");
    let start = id.get().as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    let span = start..start.checked_add(id.get().len())?;
    (fitted != text).then(|| (span, quote(&fitted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_another_vendor_are_replaced_and_no_other_byte() {
        let body = |first: &str, second: &str| {
            format!(
                "{{ \"messages\":[ {{\"role\":\"assistant\",\"x\":\"{first}\",\"tool_calls\":[{{\"id\" : {first:?} ,\"type\":\"function\"}},{{\"id\":\"a1B2c3D4e\"}}]}},\n{{\"tool_call_id\":{second:?},\"role\":\"tool\",\"content\":\"\\u00fc\"}},{{\"tool_call_id\":\"a1B2c3D4e\"}}, {{\"content\":\"call_1\"}}],\"n\":1.0 }}"
            )
        };
        let id = fitting(ToolIds::Nine, "call_1", "").into_owned();
        let got = with_tool_ids(ToolIds::Nine, body("call_1", "call_1").as_bytes()).unwrap();
        let want = body("call_1", &id).replacen("\"id\" : \"call_1\"", &format!("\"id\" : {id:?}"), 1);
        assert_eq!(String::from_utf8(got.clone()).unwrap(), want);
        assert_eq!(with_tool_ids(ToolIds::Nine, &got), None, "what fits stays");
        assert_eq!(with_tool_ids(ToolIds::Word, body("call_1", "call_1").as_bytes()), None);
    }

    #[test]
    fn a_body_of_another_shape_stays_as_it_is() {
        for body in [
            "{}",
            "[]",
            "{\"messages\":{}}",
            "{\"messages\":[1,{\"tool_calls\":7},{\"tool_call_id\":7}]}",
            "x",
        ] {
            assert_eq!(with_tool_ids(ToolIds::Nine, body.as_bytes()), None, "{body}");
        }
    }
}
