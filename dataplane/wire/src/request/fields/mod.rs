//! The facts that are collected from the tokens of a request.

mod blob;
mod bound;
mod edit;
mod field;
mod inside;
mod listen;
mod spelling;
mod value;

pub(super) use edit::{BodyChange, BodyEdit, EDITS_MAX, System};
pub(super) use field::{Fields, NAME_BYTES_MAX, RequestMember};
pub(super) use spelling::Misspelling;
pub(super) use value::{Kinds, MemberValue};
