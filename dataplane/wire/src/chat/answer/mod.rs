//! What is noted of a chat answer, whole or one chunk of a stream, while its tokens go by.

mod listen;
mod seen;

pub(crate) use seen::Answer;
pub(super) use seen::{Seen, TEXT_KEYS, USAGE_BYTES_MAX, tree};
