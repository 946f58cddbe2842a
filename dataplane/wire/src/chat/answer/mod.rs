//! What is noted of a chat answer, whole or one chunk of a stream, while its tokens go by.

mod listen;
mod seen;

pub(super) use seen::{Answer, Seen, TEXT_KEYS, tree};
