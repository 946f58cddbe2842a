//! What can be wrong with a JSON document.

use std::fmt;

use super::limit::DEPTH_MAX;

/// What is wrong with a document, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
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
    /// The document ended before the root object did.
    Truncated,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset;
        match self.what {
            What::NotObject => write!(f, "expected a JSON object at byte {offset}"),
            What::TooDeep => write!(f, "more than {DEPTH_MAX} levels of nesting at byte {offset}"),
            What::Unexpected(byte) => {
                write!(f, "unexpected '{}' at byte {offset}", std::ascii::escape_default(byte))
            }
            What::Truncated => write!(f, "the document ends too early, at byte {offset}"),
        }
    }
}

impl std::error::Error for Fault {}
