//! The facts that are collected from the tokens of a request.

mod blob;
mod bound;
mod content_counts;
mod edit;
mod field;
mod spelling;
mod tokens;
mod value;

pub(super) use edit::{BodyChange, BodyEdit, EDITS_MAX, System};
pub(super) use field::{Fields, NAME_BYTES_MAX, RequestMember};
pub(super) use spelling::Misspelling;
pub(super) use value::{Kinds, MemberValue};
