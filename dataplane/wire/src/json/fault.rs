//! Errors of the JSON scanner.

use std::fmt;

use super::sink::DEPTH_MAX;

/// An error in a JSON document and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonFault {
    /// The number of bytes before the error.
    pub offset: usize,
    /// The kind of the error.
    pub what: What,
}

/// The kinds of errors in a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The root is valid JSON but not an object.
    NotObject,
    /// The document nests deeper than [`DEPTH_MAX`] levels.
    TooDeep,
    /// The byte is not allowed at this position.
    Unexpected(u8),
    /// A string contains this control character without an escape.
    RawControl(u8),
    /// The text from this offset on is not valid UTF-8.
    NotUtf8,
    /// The document ended before the root object did.
    Truncated,
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset;
        match self.what {
            What::NotObject => write!(f, "expected a JSON object at byte {offset}"),
            What::TooDeep => write!(f, "more than {DEPTH_MAX} levels of nesting at byte {offset}"),
            What::Unexpected(byte) => {
                write!(f, "unexpected '{}' at byte {offset}", std::ascii::escape_default(byte))
            }
            What::RawControl(byte) => {
                write!(f, "the control character \\u{byte:04x} is not escaped at byte {offset}")
            }
            What::NotUtf8 => write!(f, "invalid UTF-8 at byte {offset}"),
            What::Truncated => write!(f, "the document ends too early, at byte {offset}"),
        }
    }
}

impl std::error::Error for JsonFault {}
