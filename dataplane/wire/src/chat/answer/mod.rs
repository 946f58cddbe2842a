//! Reads the findings of a chat answer, whole or one chunk of a stream, from its JSON tokens in one pass.

mod listen;
mod seen;

pub(crate) use seen::ChatScan;
pub(super) use seen::{ChatFindings, TEXT_KEYS, USAGE_BYTES_MAX, tree};
