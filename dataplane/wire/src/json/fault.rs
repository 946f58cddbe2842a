//! What can be wrong with a JSON document.

use std::fmt;

use super::limit::DEPTH_MAX;

/// What is wrong with a document, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonFault {
    /// Bytes before the fault.
    pub offset: usize,
    /// What it is.
    pub what: What,
}

/// The ways in which a document can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The root is JSON but not an object.
    NotObject,
    /// More than [`DEPTH_MAX`] levels.
    TooDeep,
    /// This byte cannot stand here.
    Unexpected(u8),
    /// This control character stands in a string without an escape.
    RawControl(u8),
    /// Not UTF-8 from here on.
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
