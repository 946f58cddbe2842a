//! Reads the facts of a response object, which is a whole answer or part of an event.

use shared::usage::{Finish, TokenCounts, Units};

use super::tool_use::ResponseToolUse;
use crate::chat::UsageReader;
use crate::extras::{Extras, term};
use crate::finish_word::finish;
use crate::json::{JsonPlace, TextLength};
use crate::passthrough::{Capture, DocumentFacts};

/// The maximum number of bytes of an id or model that are kept.
const NAME_BYTES_MAX: usize = 128;

/// The facts of a response object whose members are at depth `BASE`.
#[derive(Debug, Default)]
pub(crate) struct Envelope<const BASE: u32> {
    /// True if its status is `failed`.
    pub(super) failed: bool,
    /// True if its status is `completed`.
    is_completed: bool,
    /// The reason for an incomplete response.
    incomplete: Option<Finish>,
    pub(super) usage: Option<TokenCounts>,
    /// The reported quantities other than tokens.
    pub(super) extras: Extras,
    /// Bytes of the text in its output, with escapes decoded.
    pub(super) text_bytes: u64,
    pub(super) names: ResponseNames,
    pub(super) error: Capture,
    key: EnvelopeKey,
    /// True inside the output if strings under the last name are output.
    is_output: bool,
    reader: UsageReader,
    in_usage: bool,
    /// The item of the output that is being read.
    item: ResponseToolUse,
    /// The billed units of the items before it.
    tools: Units,
}

/// The members that identify a response, still escaped.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseNames {
    pub(super) id: Vec<u8>,
    pub(super) model: Vec<u8>,
    pub(super) created_at: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EnvelopeKey {
    #[default]
    Other,
    Id,
    Model,
    CreatedAt,
    Status,
    Incomplete,
    Error,
    Output,
    Usage,
    Tier,
}

impl<const BASE: u32> Envelope<BASE> {
    /// Returns the reason for which the model ended its output.
    pub(super) fn finish(&self) -> Option<Finish> {
        if self.is_completed { Some(Finish::Stop) } else { self.incomplete }
    }
}

impl<const BASE: u32> DocumentFacts for Envelope<BASE> {
    fn capture(&mut self) -> &mut Capture {
        &mut self.error
    }

    fn begins(&mut self, at: JsonPlace) {
        if at.depth == BASE && self.key == EnvelopeKey::Error {
            self.error.start(at.offset);
        }
    }

    fn ends(&mut self, at: JsonPlace) {
        if at.depth == BASE && self.key == EnvelopeKey::Error {
            self.error.end(at.offset);
        }
    }

    fn open(&mut self, at: JsonPlace, object: bool) {
        if at.depth == BASE && self.key == EnvelopeKey::Usage {
            self.usage = None;
            self.in_usage = object;
            self.reader = UsageReader::default();
        }
        if at.depth == BASE.wrapping_add(1) && self.key == EnvelopeKey::Output {
            self.item = ResponseToolUse::default();
        }
    }

    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        match (at.depth.checked_sub(BASE), self.key) {
            (None, _)
            | (_, EnvelopeKey::Output)
            | (Some(0), EnvelopeKey::Usage | EnvelopeKey::Incomplete) => false,
            (Some(level @ 1..), EnvelopeKey::Usage) => !(object && self.reader.enters(level.wrapping_sub(1))),
            (
                Some(_),
                EnvelopeKey::Other
                | EnvelopeKey::Id
                | EnvelopeKey::Model
                | EnvelopeKey::CreatedAt
                | EnvelopeKey::Status
                | EnvelopeKey::Incomplete
                | EnvelopeKey::Error
                | EnvelopeKey::Tier,
            ) => true,
        }
    }

    fn close(&mut self, at: JsonPlace) {
        if at.depth == BASE.wrapping_add(1) && self.key == EnvelopeKey::Output {
            self.item.add_to(&mut self.tools);
        }
        if at.depth != BASE {
            return;
        }
        if std::mem::take(&mut self.in_usage) {
            self.usage = self.reader.counts();
            self.extras.replace_by(self.reader.extras());
        }
        if self.key == EnvelopeKey::Output {
            self.extras.raise(&self.tools);
        }
    }

    fn name(&mut self, depth: u32, name: &[u8]) {
        match (depth.checked_sub(BASE), self.in_usage) {
            (Some(0), _) => self.key = EnvelopeKey::named(name),
            (Some(level), true) => self.reader.name(level.wrapping_sub(1), name),
            (Some(level), false) => {
                self.is_output = is_output(name);
                self.item.name(level.wrapping_sub(2), name);
            }
            (None, _) => {}
        }
    }

    fn text(&mut self, at: JsonPlace, length: TextLength, glance: &[u8]) {
        if at.depth > BASE {
            if self.key == EnvelopeKey::Output && self.is_output {
                self.text_bytes = self.text_bytes.saturating_add(length.meant.try_into().unwrap_or(u64::MAX));
            } else if self.key == EnvelopeKey::Output {
                self.item.text(glance);
            } else if self.key == EnvelopeKey::Incomplete {
                self.incomplete = finish(glance);
            }
            return;
        }
        let short = glance.get(..NAME_BYTES_MAX).unwrap_or(glance);
        match self.key {
            EnvelopeKey::Id => short.clone_into(&mut self.names.id),
            EnvelopeKey::Model => short.clone_into(&mut self.names.model),
            EnvelopeKey::Status => {
                self.failed = glance == b"failed";
                self.is_completed = glance == b"completed";
            }
            EnvelopeKey::Tier => self.extras.tier = term(glance),
            EnvelopeKey::Other
            | EnvelopeKey::CreatedAt
            | EnvelopeKey::Incomplete
            | EnvelopeKey::Error
            | EnvelopeKey::Output
            | EnvelopeKey::Usage => {}
        }
    }

    fn scalar(&mut self, at: JsonPlace, raw: &[u8]) {
        if self.in_usage {
            self.reader.scalar(raw);
        } else if at.depth == BASE && self.key == EnvelopeKey::CreatedAt {
            raw.clone_into(&mut self.names.created_at);
        }
    }
}

/// Returns true if a string of this name in an item, a part or an event is output.
pub(super) fn is_output(name: &[u8]) -> bool {
    matches!(
        name,
        b"text"
            | b"refusal"
            | b"arguments"
            | b"input"
            | b"code"
            | b"transcript"
            | b"result"
            | b"partial_image_b64"
    )
}

impl EnvelopeKey {
    fn named(name: &[u8]) -> Self {
        match name {
            b"id" => Self::Id,
            b"model" => Self::Model,
            b"created_at" => Self::CreatedAt,
            b"status" => Self::Status,
            b"incomplete_details" => Self::Incomplete,
            b"error" => Self::Error,
            b"output" => Self::Output,
            b"usage" => Self::Usage,
            b"service_tier" => Self::Tier,
            _ => Self::Other,
        }
    }
}
