//! The places of a request that may change on its way upstream.

use std::ops::Range;

/// Places in one body that may have to be edited: repeated members make more than the usual three.
pub(in crate::request) const EDITS_MAX: usize = 256;

/// One place, by its offsets from the first byte of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::request) struct BodyEdit {
    pub(in crate::request) span: Range<usize>,
    pub(in crate::request) change: BodyChange,
}

/// What goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum BodyChange {
    /// The target's model, as a JSON string, or what stands in place of the whole member.
    Model {
        /// From the first byte of the member's name to that of its value.
        key_bytes: usize,
    },
    /// The same as it is.
    PlainModel,
    /// Nothing: the member is the gateway's own. The comma that goes with it is in the span.
    Removed,
    /// This, if a stream is to say what was used.
    Usage(&'static str),
    /// The gateway's own system text, if there is any.
    System(System),
}

/// Where the gateway's own system text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum System {
    /// The first of the messages.
    Message { only: bool },
    /// The first of the blocks of system text.
    Block { only: bool },
    /// Before the request's own, in one string.
    Text { only: bool },
    /// In place of null.
    Null,
}
