//! Edits that may be applied to a request on its way upstream.

use std::ops::Range;

/// The maximum number of edits in one body. More than three occur only with repeated members.
pub(in crate::request) const EDITS_MAX: usize = 256;

/// One edit; its span is in bytes from the start of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::request) struct BodyEdit {
    pub(in crate::request) span: Range<usize>,
    pub(in crate::request) change: BodyChange,
}

/// The replacement text of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum BodyChange {
    /// The target's model as a JSON string, or the replacement for the whole member.
    Model {
        /// The distance in bytes from the member's name to its value.
        key_bytes: usize,
    },
    /// The target's model as plain text.
    PlainModel,
    /// Nothing: the member is the gateway's own. The span includes the comma that belongs to it.
    Removed,
    /// This text, if the stream is to report usage.
    Usage(&'static str),
    /// The gateway's own system text, if there is any.
    System(System),
}

/// The position of the gateway's own system text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum System {
    /// As the first message.
    Message { only: bool },
    /// As the first block of system text.
    Block { only: bool },
    /// In one string, before the request's own text.
    Text { only: bool },
    /// In place of null.
    Null,
}
