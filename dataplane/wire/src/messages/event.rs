//! Reads the facts of one event of a Messages stream from its JSON tokens in one pass.

use std::ops::Range;

use shared::usage::Finish;

use super::usage::MessagesUsage;
use crate::finish_word::finish;
use crate::json::{JsonPlace, TextLength};
use crate::passthrough::{Capture, DocumentFacts};

/// The facts of an event. Members are identified by name and depth; those of the event itself are at depth 1.
#[derive(Debug, Default)]
pub(super) struct MessagesEventFacts {
    pub(super) kind: MessagesEventKind,
    /// Bytes of the output in its delta, with escapes decoded.
    pub(super) delta_bytes: usize,
    /// The range of its text, if the delta contains nothing else.
    pub(super) text: Option<Range<usize>>,
    /// True if it starts a block that is output in itself, such as a tool call.
    pub(super) starts_output: bool,
    /// Bytes of the text that its block starts with, with escapes decoded.
    pub(super) block_bytes: usize,
    /// True if it contains the stop reason of the answer.
    pub(super) stopped: bool,
    /// The stop reason.
    pub(super) finish: Option<Finish>,
    pub(super) usage: MessagesUsage,
    /// True if there are members of non-standard errors: `message`, `detail`.
    pub(super) odd: bool,
    pub(super) error: Capture,
    top: MessagesEventMember,
    inner: MessagesInnerMember,
    texts: u32,
    /// The depth of the members of the open `usage` object; 0 if none is open.
    usage_depth: u32,
}

/// The `type` of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MessagesEventKind {
    /// The event has no type.
    #[default]
    None,
    MessageStart,
    BlockStart,
    BlockDelta,
    MessageDelta,
    MessageStop,
    Error,
    /// A type that concerns only the client.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MessagesEventMember {
    #[default]
    Other,
    Type,
    Delta,
    Block,
    Message,
    Usage,
    Error,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MessagesInnerMember {
    #[default]
    Other,
    Type,
    Text,
    StopReason,
    StopSequence,
    Usage,
}

impl MessagesEventKind {
    pub(super) fn named(name: &[u8]) -> Self {
        match name {
            b"" => Self::None,
            b"message_start" => Self::MessageStart,
            b"content_block_start" => Self::BlockStart,
            b"content_block_delta" => Self::BlockDelta,
            b"message_delta" => Self::MessageDelta,
            b"message_stop" => Self::MessageStop,
            b"error" => Self::Error,
            _ => Self::Other,
        }
    }
}

impl MessagesEventFacts {
    fn delta_text(&mut self, at: JsonPlace, length: TextLength, glance: &[u8]) {
        match self.inner {
            MessagesInnerMember::Type | MessagesInnerMember::StopSequence if at.depth == 2 => return,
            MessagesInnerMember::StopReason if at.depth == 2 => {
                self.stopped |= length.raw > 0;
                self.finish = finish(glance);
            }
            MessagesInnerMember::Text if at.depth == 2 => {
                let from = at.offset.saturating_add(1);
                self.text = (length.raw > 0).then(|| from..from.saturating_add(length.raw));
            }
            MessagesInnerMember::Other
            | MessagesInnerMember::Type
            | MessagesInnerMember::Text
            | MessagesInnerMember::StopReason
            | MessagesInnerMember::StopSequence
            | MessagesInnerMember::Usage => {}
        }
        self.texts = self.texts.saturating_add(1);
        if self.texts > 1 {
            self.text = None;
        }
        self.delta_bytes = self.delta_bytes.saturating_add(length.meant);
    }

    fn block_text(&mut self, at: JsonPlace, length: TextLength, glance: &[u8]) {
        if at.depth == 2 && self.inner == MessagesInnerMember::Type {
            self.starts_output = !matches!(glance, b"text" | b"thinking");
        } else if self.inner == MessagesInnerMember::Text {
            self.block_bytes = self.block_bytes.saturating_add(length.meant);
        }
    }
}

impl DocumentFacts for MessagesEventFacts {
    fn capture(&mut self) -> &mut Capture {
        &mut self.error
    }

    #[inline]
    fn begins(&mut self, at: JsonPlace) {
        if at.depth == 1 && self.top == MessagesEventMember::Error {
            self.error.start(at.offset);
        }
    }

    #[inline]
    fn ends(&mut self, at: JsonPlace) {
        if at.depth == 1 && self.top == MessagesEventMember::Error {
            self.error.end(at.offset);
        }
    }

    fn open(&mut self, at: JsonPlace, object: bool) {
        let is_usage = match at.depth {
            1 => self.top == MessagesEventMember::Usage,
            2 => self.top == MessagesEventMember::Message && self.inner == MessagesInnerMember::Usage,
            _ => false,
        };
        if object && is_usage {
            self.usage_depth = at.depth.wrapping_add(1);
        }
    }

    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        if self.usage_depth > 0 {
            let inside = at.depth >= self.usage_depth;
            return inside && !(at.depth == self.usage_depth && object && self.usage.has_details());
        }
        match (at.depth, self.top) {
            (0, _)
            | (_, MessagesEventMember::Delta | MessagesEventMember::Block)
            | (1, MessagesEventMember::Message) => false,
            (
                _,
                MessagesEventMember::Other
                | MessagesEventMember::Type
                | MessagesEventMember::Message
                | MessagesEventMember::Usage
                | MessagesEventMember::Error,
            ) => true,
        }
    }

    fn close(&mut self, at: JsonPlace) {
        if at.depth.wrapping_add(1) == self.usage_depth {
            self.usage_depth = 0;
        }
    }

    #[inline]
    fn name(&mut self, depth: u32, name: &[u8]) {
        if self.usage_depth > 0 {
            return if depth == self.usage_depth {
                self.usage.name(name)
            } else {
                self.usage.inner_name(name)
            };
        }
        if depth == 1 {
            self.top = MessagesEventMember::named(name);
            self.odd |= matches!(name, b"message" | b"detail");
        } else {
            self.inner = MessagesInnerMember::named(name);
        }
    }

    #[inline]
    fn text(&mut self, at: JsonPlace, length: TextLength, glance: &[u8]) {
        if self.usage_depth > 0 {
            return self.usage.text(glance);
        }
        match (at.depth, self.top) {
            (1, MessagesEventMember::Type) => self.kind = MessagesEventKind::named(glance),
            (2.., MessagesEventMember::Delta) => self.delta_text(at, length, glance),
            (2.., MessagesEventMember::Block) => self.block_text(at, length, glance),
            _ => {}
        }
    }

    #[inline]
    fn scalar(&mut self, _at: JsonPlace, raw: &[u8]) {
        if self.usage_depth > 0 {
            self.usage.scalar(raw);
        }
    }
}

impl MessagesEventMember {
    fn named(name: &[u8]) -> Self {
        match name {
            b"type" => Self::Type,
            b"delta" => Self::Delta,
            b"content_block" => Self::Block,
            b"message" => Self::Message,
            b"usage" => Self::Usage,
            b"error" => Self::Error,
            _ => Self::Other,
        }
    }
}

impl MessagesInnerMember {
    fn named(name: &[u8]) -> Self {
        match name {
            b"type" => Self::Type,
            b"text" | b"partial_json" | b"thinking" => Self::Text,
            b"stop_reason" => Self::StopReason,
            b"stop_sequence" => Self::StopSequence,
            b"usage" => Self::Usage,
            _ => Self::Other,
        }
    }
}
