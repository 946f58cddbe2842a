//! Reads the findings of a chat answer, whole or one chunk of a stream, from its JSON tokens in one pass.

mod findings;
mod tokens;

pub(crate) use findings::ChatScan;
pub(super) use findings::{ChatFindings, TEXT_KEYS, USAGE_BYTES_MAX, tree};
