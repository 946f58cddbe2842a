//! What is noted of a request while its tokens go by.

mod blob;
mod bound;
mod edit;
mod field;
mod inside;
mod listen;
mod spelling;
mod value;

pub(super) use edit::{Change, EDITS_MAX, Edit, System};
pub(super) use field::{Field, Fields, NAME_BYTES_MAX};
pub(super) use spelling::Misspelling;
pub(super) use value::{Kinds, Value};
