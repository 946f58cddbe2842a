//! Reads the facts of one event of a Responses stream from its JSON tokens in one pass.

use std::ops::Range;

use super::envelope::{Envelope, is_output};
use super::tool_use::ResponseToolUse;
use crate::json::{JsonPlace, TextLength, whole_number};
use crate::passthrough::{Capture, DocumentFacts};

/// The facts of an event. Its own members are at depth 1.
#[derive(Debug, Default)]
pub(super) struct ResponsesEventFacts {
    pub(super) kind: ResponsesEventKind,
    pub(super) number: Option<u64>,
    /// Bytes of the strings in its delta, with escapes decoded.
    pub(super) delta_bytes: usize,
    /// The range of its text, if the delta is a string.
    pub(super) text: Option<Range<usize>>,
    /// Bytes of other output in it, with escapes decoded: a completed text, or the content of an item or part.
    pub(super) other_bytes: usize,
    /// True if its item or part is output in itself, such as a tool call.
    pub(super) is_call: bool,
    /// True if there is reasoning that only the provider that made it can read.
    pub(super) encrypted: bool,
    /// Its `response`.
    pub(super) response: Envelope<2>,
    /// True if there are members of non-standard errors: `message`, `detail`.
    pub(super) odd: bool,
    /// True if there is a top-level `error`. It is captured in the same place as a response's error, because an event
    /// has only one of the two.
    pub(super) has_error: bool,
    /// The billed kind of its item.
    pub(super) item: ResponseToolUse,
    top: ResponsesEventMember,
    inner: ResponsesInnerMember,
}

/// The `type` of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ResponsesEventKind {
    /// The event has no type.
    #[default]
    None,
    /// The response before its output: created, queued, in progress.
    Snapshot,
    /// A piece of output.
    Delta,
    /// An item is complete.
    ItemDone,
    /// The response is completed, incomplete or cancelled.
    End,
    Failed,
    Error,
    /// Any other type.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ResponsesEventMember {
    #[default]
    Other,
    Type,
    Number,
    Delta,
    /// A string that is output.
    Output,
    /// An item or part.
    Item,
    Response,
    Error,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ResponsesInnerMember {
    #[default]
    Other,
    Type,
    Output,
    Encrypted,
}

impl ResponsesEventKind {
    pub(super) fn named(name: &[u8]) -> Self {
        match name {
            b"" => Self::None,
            b"response.created" | b"response.queued" | b"response.in_progress" => Self::Snapshot,
            b"response.output_item.done" => Self::ItemDone,
            b"response.completed" | b"response.incomplete" | b"response.cancelled" => Self::End,
            b"response.failed" => Self::Failed,
            b"error" => Self::Error,
            _ if name.ends_with(b".delta") => Self::Delta,
            _ => Self::Other,
        }
    }
}

impl DocumentFacts for ResponsesEventFacts {
    fn capture(&mut self) -> &mut Capture {
        &mut self.response.error
    }

    #[inline]
    fn begins(&mut self, at: JsonPlace) {
        match (at.depth, self.top) {
            (1, ResponsesEventMember::Error) => {
                self.has_error = true;
                self.response.error.start(at.offset);
            }
            (_, ResponsesEventMember::Response) => self.response.begins(at),
            _ => {}
        }
    }

    #[inline]
    fn ends(&mut self, at: JsonPlace) {
        match (at.depth, self.top) {
            (1, ResponsesEventMember::Error) => self.response.error.end(at.offset),
            (_, ResponsesEventMember::Response) => self.response.ends(at),
            _ => {}
        }
    }

    fn open(&mut self, at: JsonPlace, object: bool) {
        if self.top == ResponsesEventMember::Response {
            self.response.open(at, object);
        }
    }

    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        match (at.depth, self.top) {
            (0, _) | (_, ResponsesEventMember::Delta | ResponsesEventMember::Item) => false,
            (_, ResponsesEventMember::Response) => self.response.skips(at, object),
            (
                _,
                ResponsesEventMember::Other
                | ResponsesEventMember::Type
                | ResponsesEventMember::Number
                | ResponsesEventMember::Output
                | ResponsesEventMember::Error,
            ) => true,
        }
    }

    fn close(&mut self, at: JsonPlace) {
        if self.top == ResponsesEventMember::Response {
            self.response.close(at);
        }
    }

    #[inline]
    fn name(&mut self, depth: u32, name: &[u8]) {
        match (depth, self.top) {
            (1, _) => {
                self.top = ResponsesEventMember::named(name);
                self.odd |= matches!(name, b"message" | b"detail");
            }
            (_, ResponsesEventMember::Response) => self.response.name(depth, name),
            (_, ResponsesEventMember::Item) => {
                self.inner = ResponsesInnerMember::named(name);
                self.item.name(depth.wrapping_sub(2), name);
            }
            _ => {}
        }
    }

    #[inline]
    fn text(&mut self, at: JsonPlace, length: TextLength, glance: &[u8]) {
        match (at.depth, self.top) {
            (1, ResponsesEventMember::Type) => self.kind = ResponsesEventKind::named(glance),
            (1, ResponsesEventMember::Delta) => {
                let from = at.offset.saturating_add(1);
                self.text = (length.raw > 0).then(|| from..from.saturating_add(length.raw));
                self.delta_bytes = length.meant;
            }
            (2.., ResponsesEventMember::Delta) => {
                self.delta_bytes = self.delta_bytes.saturating_add(length.meant)
            }
            (1, ResponsesEventMember::Output) => {
                self.other_bytes = self.other_bytes.saturating_add(length.meant)
            }
            (2.., ResponsesEventMember::Item) => self.item_text(at.depth, length, glance),
            (2.., ResponsesEventMember::Response) => self.response.text(at, length, glance),
            _ => {}
        }
    }

    #[inline]
    fn scalar(&mut self, at: JsonPlace, raw: &[u8]) {
        match (at.depth, self.top) {
            (1, ResponsesEventMember::Number) => self.number = whole_number(raw),
            (_, ResponsesEventMember::Response) => self.response.scalar(at, raw),
            _ => {}
        }
    }
}

impl ResponsesEventFacts {
    fn item_text(&mut self, depth: u32, length: TextLength, glance: &[u8]) {
        self.item.text(glance);
        match self.inner {
            ResponsesInnerMember::Type if depth == 2 => self.is_call = !is_plain(glance),
            ResponsesInnerMember::Output => self.other_bytes = self.other_bytes.saturating_add(length.meant),
            ResponsesInnerMember::Encrypted => self.encrypted |= length.raw > 0,
            ResponsesInnerMember::Other | ResponsesInnerMember::Type => {}
        }
    }
}

/// Returns true for items and parts that are not output while they are empty.
fn is_plain(kind: &[u8]) -> bool {
    matches!(
        kind,
        b"message" | b"reasoning" | b"output_text" | b"refusal" | b"reasoning_text" | b"summary_text"
    )
}

impl ResponsesEventMember {
    fn named(name: &[u8]) -> Self {
        match name {
            b"type" => Self::Type,
            b"sequence_number" => Self::Number,
            b"delta" => Self::Delta,
            b"item" | b"part" => Self::Item,
            b"response" => Self::Response,
            b"error" => Self::Error,
            _ if is_output(name) => Self::Output,
            _ => Self::Other,
        }
    }
}

impl ResponsesInnerMember {
    fn named(name: &[u8]) -> Self {
        match name {
            b"type" => Self::Type,
            b"encrypted_content" => Self::Encrypted,
            _ if is_output(name) => Self::Output,
            _ => Self::Other,
        }
    }
}
