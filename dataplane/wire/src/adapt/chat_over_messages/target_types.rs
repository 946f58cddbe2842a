//! The target's response types, for complete answers and events. Strings stay escaped, so that text is relayed in the
//! bytes of its JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Any stream event, or a complete answer: both have a `type` and may be an error.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MessagesEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stop_details: Option<&'a RawValue>,
}

/// A content block, or a delta of one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MessagesBlock<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) signature: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) partial_json: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stop_details: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StopDetails<'a> {
    #[serde(borrow)]
    explanation: Option<&'a RawValue>,
}

/// Parses an object. Serde alone would also accept a list.
pub(super) fn object<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    read(raw.filter(|raw| raw.get().starts_with('{')))
}

/// Parses any other value. Returns `None` if it does not have the expected form.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// Returns the content of a non-empty string, between its quotes and still escaped.
pub(super) fn inner(raw: Option<&RawValue>) -> Option<&str> {
    raw?.get().strip_prefix('"')?.strip_suffix('"').filter(|text| !text.is_empty())
}

/// Returns an unescaped string, for comparison with known words. Empty if it is not a string.
pub(super) fn word(raw: Option<&RawValue>) -> Cow<'_, str> {
    match inner(raw) {
        Some(text) if text.contains('\\') => read(raw).map(Cow::Owned).unwrap_or_default(),
        Some(text) => Cow::Borrowed(text),
        None => Cow::Borrowed(""),
    }
}

/// Returns the target's explanation of a refusal, if it sent one.
pub(super) fn refusal<'a>(stop_details: Option<&'a RawValue>) -> Option<&'a str> {
    inner(object::<StopDetails<'a>>(stop_details)?.explanation)
}

/// Translates the stop reason into chat's `finish_reason`.
pub(super) fn finish_reason(stop_reason: &str, has_calls: bool) -> &'static str {
    match stop_reason {
        "max_tokens" | "model_context_window_exceeded" => "length",
        "refusal" => "content_filter",
        "tool_use" => "tool_calls",
        // `end_turn`, `stop_sequence`, `pause_turn`, and unknown reasons. Some vendors send `end_turn` after a call.
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stop_reason_has_a_finish_reason() {
        let rows = [
            ("end_turn", false, "stop"),
            ("end_turn", true, "tool_calls"),
            ("stop_sequence", false, "stop"),
            ("pause_turn", false, "stop"),
            ("max_tokens", true, "length"),
            ("model_context_window_exceeded", false, "length"),
            ("tool_use", true, "tool_calls"),
            ("refusal", false, "content_filter"),
            ("something_new", false, "stop"),
            ("", false, "stop"),
        ];
        for (stop, has_calls, want) in rows {
            assert_eq!(finish_reason(stop, has_calls), want, "{stop}");
        }
    }

    #[test]
    fn words_are_read_with_their_escapes() {
        let raw = |json| serde_json::from_str::<&RawValue>(json).unwrap();
        assert_eq!(word(Some(raw(r#""ping""#))), "ping");
        assert_eq!(word(Some(raw(r#""p\u0069ng""#))), "ping");
        assert_eq!(word(Some(raw("7"))), "");
        assert_eq!(word(None), "");
    }
}
