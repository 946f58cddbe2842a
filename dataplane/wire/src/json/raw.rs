//! Parts of a document that serde leaves as they are: raw values, and strings that are borrowed if possible.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A string, borrowed if it contains no escapes.
#[derive(Debug, Deserialize)]
pub(crate) struct BorrowedText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// Parses a value. `None` if it is missing or does not have the expected form.
pub(crate) fn parse_raw<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// Returns a string without its quotes, still escaped. `None` for other values.
#[inline]
pub(crate) fn inside_quotes(raw: &RawValue) -> Option<&str> {
    raw.get().strip_prefix('"')?.strip_suffix('"')
}
