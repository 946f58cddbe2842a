//! What is noted of a chat answer, whole or one chunk of a stream, while its tokens go by.

mod listen;
mod seen;

pub(crate) use seen::ChatScan;
pub(super) use seen::{ChatFindings, TEXT_KEYS, USAGE_BYTES_MAX, tree};
