//! What is noted of a chat request while its tokens go by.

mod field;
mod listen;

pub(super) use field::{EDITS_MAX, Fields, NAME_BYTES_MAX, Scalar, Value};
