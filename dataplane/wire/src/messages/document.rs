//! Complete answers and the events of a stream, for their translation. Strings stay escaped, so that text is relayed in the
//! bytes of its JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chat::{AnswerText, OutputMedia};
use crate::json::{inside_quotes, parse_raw};

/// Any stream event, or a complete answer: both have a `type` and may be an error.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct MessagesEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) stop_details: Option<&'a RawValue>,
}

/// A content block, or a delta of one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct MessagesBlock<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) signature: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) data: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) partial_json: Option<&'a RawValue>,
    #[serde(borrow)]
    source: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) stop_details: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StopDetails<'a> {
    #[serde(borrow)]
    explanation: Option<&'a RawValue>,
}

/// The source of an image.
#[derive(Default, Deserialize)]
#[serde(default)]
struct BlockSource<'a> {
    #[serde(borrow)]
    media_type: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    url: Option<&'a RawValue>,
}

impl<'a> MessagesBlock<'a> {
    /// Returns the media of a block with a source.
    pub(crate) fn media(&self) -> Option<OutputMedia<'a>> {
        let source: BlockSource<'a> = object(self.source)?;
        if let Some(url) = inner(source.url) {
            return Some(OutputMedia::of_url(AnswerText::Escaped(url).plain()));
        }
        let base64 = AnswerText::Escaped(inner(source.data)?).plain();
        Some(OutputMedia::Inline { media_type: word(source.media_type), base64 })
    }
}

/// Parses an object. Serde alone would also accept a list.
pub(crate) fn object<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    parse_raw(raw.filter(|raw| raw.get().starts_with('{')))
}

/// Returns the content of a non-empty string, between its quotes and still escaped.
pub(crate) fn inner(raw: Option<&RawValue>) -> Option<&str> {
    inside_quotes(raw?).filter(|text| !text.is_empty())
}

/// Returns an unescaped string, for comparison with known words. Empty if it is not a string.
pub(crate) fn word(raw: Option<&RawValue>) -> Cow<'_, str> {
    match inner(raw) {
        Some(text) if text.contains('\\') => parse_raw(raw).map(Cow::Owned).unwrap_or_default(),
        Some(text) => Cow::Borrowed(text),
        None => Cow::Borrowed(""),
    }
}

/// Returns the target's explanation of a refusal, if it sent one.
pub(crate) fn refusal<'a>(stop_details: Option<&'a RawValue>) -> Option<&'a str> {
    inner(object::<StopDetails<'a>>(stop_details)?.explanation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_with_their_escapes() {
        let raw = |json| serde_json::from_str::<&RawValue>(json).unwrap();
        assert_eq!(word(Some(raw(r#""ping""#))), "ping");
        assert_eq!(word(Some(raw(r#""p\u0069ng""#))), "ping");
        assert_eq!(word(Some(raw("7"))), "");
        assert_eq!(word(None), "");
    }
}
