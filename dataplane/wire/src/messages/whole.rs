//! Reads a unary Messages answer, in pieces while it is relayed, or at once if it is short.

use serde_json::Value;
use shared::usage::Finish;

use super::usage::MessagesUsage;
use crate::envelope::StreamError;
use crate::finish_word::{FailedEnd, failed_end, finish};
use crate::json::{JsonPlace, TextLength};
use crate::passthrough::{AnswerFacts, Capture, DocumentFacts, Gather, WholeAnswer};

/// Reads an answer of any size in pieces and keeps only its usage and error.
pub(crate) type MessagesAnswerScan = Gather<MessageFacts>;

/// The facts of an answer. Its members are at depth 1, those of its blocks at depth 3.
#[derive(Debug, Default)]
pub(crate) struct MessageFacts {
    usage: MessagesUsage,
    finish: Option<Finish>,
    /// The failure with which the output ended, and its word.
    failure: Option<(&'static FailedEnd, String)>,
    text_bytes: u64,
    is_error: bool,
    error: Capture,
    top: MessageMember,
    in_usage: bool,
    is_text: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MessageMember {
    #[default]
    Other,
    Type,
    Content,
    StopReason,
    Usage,
    Error,
}

impl AnswerFacts for MessageFacts {
    fn answer(self) -> WholeAnswer {
        let error = match self.error.truthy() {
            Some(raw) => {
                Some(StreamError::of_member(&serde_json::from_slice(raw).unwrap_or_else(|_| NO_WORD.into())))
            }
            None if self.is_error => Some(StreamError::of_member(&Value::from(NO_WORD))),
            None => self.failure.map(|(end, word)| StreamError::of_failed_end(end, &word, "")),
        };
        WholeAnswer {
            usage: self.usage.counts(),
            extras: self.usage.extras(),
            finish: self.finish,
            error,
            output_bytes: self.text_bytes,
            ..WholeAnswer::default()
        }
    }
}

impl DocumentFacts for MessageFacts {
    fn capture(&mut self) -> &mut Capture {
        &mut self.error
    }

    fn begins(&mut self, at: JsonPlace) {
        if at.depth == 1 && self.top == MessageMember::Error {
            self.error.start(at.offset);
        }
    }

    fn ends(&mut self, at: JsonPlace) {
        if at.depth == 1 && self.top == MessageMember::Error {
            self.error.end(at.offset);
        }
    }

    fn open(&mut self, at: JsonPlace, object: bool) {
        self.in_usage |= at.depth == 1 && self.top == MessageMember::Usage && object;
    }

    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        match (at.depth, self.top) {
            (0, _) | (1, MessageMember::Usage | MessageMember::Content) | (2.., MessageMember::Content) => {
                false
            }
            (2, MessageMember::Usage) => !(object && self.usage.has_details()),
            (
                _,
                MessageMember::Other
                | MessageMember::Type
                | MessageMember::StopReason
                | MessageMember::Usage
                | MessageMember::Error,
            ) => true,
        }
    }

    fn close(&mut self, at: JsonPlace) {
        self.in_usage &= at.depth != 1;
    }

    fn name(&mut self, depth: u32, name: &[u8]) {
        match (depth, self.in_usage) {
            (1, _) => self.top = MessageMember::named(name),
            (2, true) => self.usage.name(name),
            (_, true) => self.usage.inner_name(name),
            // The input of a tool call is an object, and every string in it is output.
            (3, false) => self.is_text = matches!(name, b"text" | b"thinking" | b"input" | b"data"),
            _ => {}
        }
    }

    fn text(&mut self, at: JsonPlace, length: TextLength, glance: &[u8]) {
        if self.in_usage {
            return self.usage.text(glance);
        }
        match (at.depth, self.top) {
            (1, MessageMember::Type) => self.is_error = glance == b"error",
            (1, MessageMember::StopReason) => {
                self.finish = finish(glance);
                self.failure =
                    failed_end(glance).map(|end| (end, String::from_utf8_lossy(glance).into_owned()));
            }
            (3.., MessageMember::Content) if self.is_text => {
                self.text_bytes = self.text_bytes.saturating_add(length.meant.try_into().unwrap_or(u64::MAX));
            }
            _ => {}
        }
    }

    fn scalar(&mut self, _at: JsonPlace, raw: &[u8]) {
        if self.in_usage {
            self.usage.scalar(raw);
        }
    }
}

impl MessageMember {
    fn named(name: &[u8]) -> Self {
        match name {
            b"type" => Self::Type,
            b"content" => Self::Content,
            b"stop_reason" => Self::StopReason,
            b"usage" => Self::Usage,
            b"error" => Self::Error,
            _ => Self::Other,
        }
    }
}

const NO_WORD: &str = "The upstream answered with an error.";
