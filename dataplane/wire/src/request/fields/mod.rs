//! The facts that are collected from the tokens of a request.

mod blob;
mod content_counts;
mod field;
mod member;
mod tokens;

pub(super) use field::{Fields, NAME_BYTES_MAX, RequestMember};
pub(super) use member::{BodyChange, BodyEdit, EDITS_MAX, Kinds, MemberValue, Misspelling, System};
