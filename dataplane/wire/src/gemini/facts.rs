//! Reads the facts of an answer, or of one event of a stream, from its JSON tokens in one pass: both have the same
//! members. Those of the answer are at depth 1, those of a candidate at depth 3, those of a part at depth 6.

use std::ops::Range;

use shared::usage::{Finish, TokenCounts, Units};

use super::usage::GeminiUsage;
use crate::envelope::StreamError;
use crate::extras::Extras;
use crate::finish_word::finish;
use crate::json::{JsonPlace, TextLength};
use crate::passthrough::{AnswerFacts, Capture, DocumentFacts, EventFacts, Gather, WholeAnswer};

/// Reads an answer of any size in pieces and keeps only its usage and error.
pub(crate) type GeminiAnswerScan = Gather<GeminiFacts>;

/// The facts of an answer or an event.
#[derive(Debug, Default)]
pub(crate) struct GeminiFacts {
    /// True if a part is output: text, a call, inline bytes.
    pub(super) has_output: bool,
    /// Bytes of the text, with escapes decoded.
    pub(super) text_bytes: usize,
    /// The range of the text, if the event contains no other output.
    pub(super) text: Option<Range<usize>>,
    /// True if a candidate has ended, or the prompt was blocked.
    pub(super) finished: bool,
    pub(super) finish: Option<Finish>,
    /// True if the member `error` holds an error.
    pub(super) is_error: bool,
    searches: u64,
    /// The usage, or the error.
    capture: Capture,
    top: TopMember,
    candidate: CandidateMember,
    inner: InnerMember,
    part: PartMember,
    outputs: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TopMember {
    #[default]
    Other,
    Candidates,
    Feedback,
    Usage,
    Error,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CandidateMember {
    #[default]
    Other,
    Content,
    FinishReason,
    Grounding,
}

/// A member of a candidate's content, of its grounding, or of the prompt's feedback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InnerMember {
    #[default]
    Other,
    Parts,
    Queries,
    BlockReason,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PartMember {
    /// Information about another member.
    #[default]
    Other,
    Text,
    Call,
    /// Output that is neither text nor a call.
    Data,
}

impl GeminiFacts {
    /// Returns the usage.
    pub(super) fn usage(&self) -> Option<TokenCounts> {
        self.with_usage(|usage| usage.counts())
    }

    /// Returns the reported quantities other than tokens.
    pub(super) fn extras(&self) -> Extras {
        let tier = self.with_usage(|usage| usage.tier()).flatten();
        Extras { units: Units { searches: self.searches, ..Units::ZERO }, tier, ..Extras::default() }
    }

    fn with_usage<T>(&self, read: impl FnOnce(&GeminiUsage<'_>) -> T) -> Option<T> {
        let raw = self.capture.truthy().filter(|_| !self.is_error)?;
        serde_json::from_slice::<GeminiUsage<'_>>(raw).ok().as_ref().map(read)
    }

    /// Notes one more piece of output; only a single text is all that an event contains.
    fn output(&mut self, text: Option<Range<usize>>) {
        self.has_output = true;
        self.outputs = self.outputs.saturating_add(1);
        self.text = text.filter(|_| self.outputs == 1);
    }

    /// True inside the parts of a candidate.
    fn in_parts(&self) -> bool {
        self.top == TopMember::Candidates
            && self.candidate == CandidateMember::Content
            && self.inner == InnerMember::Parts
    }

    fn part_text(&mut self, at: JsonPlace, length: TextLength) {
        if length.raw == 0 {
            return;
        }
        match self.part {
            PartMember::Text if at.depth == PART_DEPTH => {
                let from = at.offset.saturating_add(1);
                self.output(Some(from..from.saturating_add(length.raw)));
                self.text_bytes = self.text_bytes.saturating_add(length.meant);
            }
            PartMember::Call => self.text_bytes = self.text_bytes.saturating_add(length.meant),
            PartMember::Text | PartMember::Data | PartMember::Other => {}
        }
    }

    fn ends_by(&mut self, word: &[u8]) {
        if !word.is_empty() && word != UNSPECIFIED {
            self.finished = true;
            self.finish = finish(word);
        }
    }
}

/// The depth of the members of a part.
const PART_DEPTH: u32 = 6;
/// The value of an enum that means nothing.
const UNSPECIFIED: &[u8] = b"FINISH_REASON_UNSPECIFIED";

impl DocumentFacts for GeminiFacts {
    fn capture(&mut self) -> &mut Capture {
        &mut self.capture
    }

    #[inline]
    fn begins(&mut self, at: JsonPlace) {
        if at.depth == 1 && (self.top == TopMember::Error || self.top == TopMember::Usage && !self.is_error) {
            self.capture.start(at.offset);
        }
    }

    #[inline]
    fn ends(&mut self, at: JsonPlace) {
        if at.depth == 1 && matches!(self.top, TopMember::Error | TopMember::Usage) {
            self.capture.end(at.offset);
        }
    }

    fn open(&mut self, at: JsonPlace, _object: bool) {
        if at.depth == PART_DEPTH
            && self.in_parts()
            && matches!(self.part, PartMember::Call | PartMember::Data)
        {
            self.output(None);
        }
    }

    fn skips(&self, at: JsonPlace, _object: bool) -> bool {
        let listens = match at.depth {
            0 => true,
            1 => matches!(self.top, TopMember::Candidates | TopMember::Feedback | TopMember::Error),
            2 => self.top == TopMember::Candidates,
            3 => matches!(self.candidate, CandidateMember::Content | CandidateMember::Grounding),
            4 => matches!(self.inner, InnerMember::Parts | InnerMember::Queries),
            5 => self.inner == InnerMember::Parts,
            _ => self.part == PartMember::Call,
        };
        !listens
    }

    #[inline]
    fn name(&mut self, depth: u32, name: &[u8]) {
        match depth {
            1 => self.top = TopMember::named(name),
            2 => {
                self.is_error |= self.top == TopMember::Error;
                self.inner = InnerMember::named(name);
            }
            3 => self.candidate = CandidateMember::named(name),
            4 => self.inner = InnerMember::named(name),
            PART_DEPTH => self.part = PartMember::named(name),
            _ => {}
        }
    }

    #[inline]
    fn text(&mut self, at: JsonPlace, length: TextLength, glance: &[u8]) {
        match (at.depth, self.top) {
            (1, TopMember::Error) => self.is_error |= length.raw > 0,
            (2, TopMember::Feedback) if self.inner == InnerMember::BlockReason => {
                self.finished |= length.raw > 0;
                self.finish = Some(Finish::ContentFilter);
            }
            (3, TopMember::Candidates) if self.candidate == CandidateMember::FinishReason => {
                self.ends_by(glance);
            }
            (5, TopMember::Candidates)
                if self.candidate == CandidateMember::Grounding && self.inner == InnerMember::Queries =>
            {
                self.searches = self.searches.saturating_add(1);
            }
            (PART_DEPTH.., TopMember::Candidates) if self.in_parts() => self.part_text(at, length),
            _ => {}
        }
    }

    fn scalar(&mut self, at: JsonPlace, raw: &[u8]) {
        self.is_error |= at.depth == 1 && self.top == TopMember::Error && raw == b"true";
    }
}

impl EventFacts for GeminiFacts {
    fn content(&self) -> bool {
        self.has_output
    }

    fn error_begun(&self) -> bool {
        self.is_error
    }
}

impl AnswerFacts for GeminiFacts {
    fn answer(self) -> WholeAnswer {
        let (usage, extras) = (self.usage(), self.extras());
        let raw = self.capture.truthy().filter(|_| self.is_error);
        let error = raw.map(|raw| {
            let value = serde_json::from_slice(raw).unwrap_or_else(|_| NO_WORD.into());
            StreamError::of_member(&value)
        });
        WholeAnswer {
            usage,
            extras,
            finish: self.finish,
            error,
            output_bytes: self.text_bytes.try_into().unwrap_or(u64::MAX),
            ..WholeAnswer::default()
        }
    }
}

const NO_WORD: &str = "The upstream answered with an error.";

impl TopMember {
    fn named(name: &[u8]) -> Self {
        match name {
            b"candidates" => Self::Candidates,
            b"promptFeedback" => Self::Feedback,
            b"usageMetadata" => Self::Usage,
            b"error" => Self::Error,
            _ => Self::Other,
        }
    }
}

impl CandidateMember {
    fn named(name: &[u8]) -> Self {
        match name {
            b"content" => Self::Content,
            b"finishReason" => Self::FinishReason,
            b"groundingMetadata" => Self::Grounding,
            _ => Self::Other,
        }
    }
}

impl InnerMember {
    fn named(name: &[u8]) -> Self {
        match name {
            b"parts" => Self::Parts,
            b"webSearchQueries" => Self::Queries,
            b"blockReason" => Self::BlockReason,
            _ => Self::Other,
        }
    }
}

impl PartMember {
    fn named(name: &[u8]) -> Self {
        match name {
            b"text" => Self::Text,
            b"functionCall" => Self::Call,
            b"inlineData"
            | b"fileData"
            | b"executableCode"
            | b"codeExecutionResult"
            | b"toolCall"
            | b"toolResponse"
            | b"functionResponse" => Self::Data,
            _ => Self::Other,
        }
    }
}
