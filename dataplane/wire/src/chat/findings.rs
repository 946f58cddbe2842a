//! The findings of a chat answer, whole or one chunk of a stream: whether it contains output, an error or a finish
//! reason, and the position of its usage. They are collected from JSON tokens in one pass.

use std::ops::Range;

use serde_json::Value;
use shared::usage::{Finish, TokenCounts};

use crate::chat::usage::{UsageReader, scaled};
use crate::extras::{Extras, term};
use crate::finish_word::finish;
use crate::json::{JsonPlace, TextLength};
use crate::passthrough::{Capture, DocumentFacts, Gather};

/// The maximum length in bytes of a `usage` object that is read; a longer one counts as unreadable.
pub(super) const USAGE_BYTES_MAX: usize = 64 * 1024;

/// The depth of the members of a top-level `usage`.
const TOP_USAGE_DEPTH: u32 = 2;

/// The names under which text arrives in a delta. Later chunks are searched for the one that contained the last text.
pub(super) const TEXT_KEYS: [&str; 5] = ["content", "reasoning_content", "reasoning", "arguments", "refusal"];

/// A scan of one answer, fed in pieces.
pub(crate) type ChatScan = Gather<ChatFindings>;

/// The facts that have been read from an answer.
#[derive(Debug, Default)]
pub(crate) struct ChatFindings {
    /// True if `choices` is an array.
    pub(super) has_choices: bool,
    /// True if `choices` has elements.
    pub(super) has_choice: bool,
    /// True if there is output of any kind: text, reasoning, refusal, tool data, audio, images.
    pub(super) content: bool,
    /// True if there is a finish reason other than null.
    pub(super) finished: bool,
    /// The finish reason that was read last.
    pub(super) finish: Option<Finish>,
    /// True if a choice may have ended as a failure: by its finish reason, or because it contains an error.
    pub(super) may_have_failed: bool,
    /// Bytes of text in output strings, with escapes decoded.
    pub(super) text_bytes: u64,
    /// The index in [`TEXT_KEYS`] of the member that contained text last.
    pub(super) text_key: Option<usize>,
    /// True if there are top-level members of non-standard errors: `message`, `detail`, `object: "error"`.
    pub(super) odd: bool,
    usage: ChatUsage,
    /// The range of the last top-level `usage`, if it lacks some of OpenAI's names.
    pub(super) unnamed: Option<Range<usize>>,
    /// The `usage` of Groq, or of a choice.
    inner_usage: ChatUsage,
    extras: Extras,
    duration_ms: u64,
    pub(super) error: Capture,

    /// Reads the open `usage` object.
    reader: UsageReader,
    /// The depth of the members of the open `usage` object; 0 if none is open.
    reading_depth: u32,
    reading_from: usize,
    top: ChatMember,
    choice_key: ChoiceKey,
    delta_key: DeltaKey,
    groq_usage_key: bool,
    nested_text: bool,
}

/// The result of one `usage` member.
#[derive(Clone, Copy, Debug, Default)]
struct ChatUsage {
    /// True if the member was an object.
    is_object: bool,
    counts: Option<TokenCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChatMember {
    #[default]
    Other,
    Choices,
    Usage,
    Groq,
    Error,
    Object,
    Tier,
    /// The length of transcribed audio, in seconds.
    Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChoiceKey {
    #[default]
    Other,
    Delta,
    Finish,
    /// OpenRouter's word of the vendor behind it.
    NativeFinish,
    /// The error of a choice.
    Error,
    Text,
    /// The `usage` of a choice, as Moonshot sends it.
    Usage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DeltaKey {
    #[default]
    Other,
    /// The index of one of [`TEXT_KEYS`].
    Text(usize),
    /// Other output.
    Output,
}

impl ChatFindings {
    /// Returns the counts of the last usage.
    pub(super) fn token_counts(&self) -> Option<TokenCounts> {
        self.usage.counts.or(self.inner_usage.counts)
    }

    /// Returns the reported quantities other than tokens.
    pub(super) fn extras(&self) -> Extras {
        let mut extras = self.extras.clone();
        if !self.has_choices {
            extras.units.audio_ms = extras.units.audio_ms.max(self.duration_ms);
        }
        extras
    }

    /// Returns true if there is a `usage` object at the top level.
    pub(super) fn has_usage(&self) -> bool {
        self.usage.is_object
    }

    /// Returns the raw `error` value, unless it is one that the official SDKs ignore: null, false, 0, "", [] or {}.
    pub(super) fn error(&self) -> Option<&[u8]> {
        self.error.truthy()
    }

    #[inline]
    fn usage_begins(&mut self, at: JsonPlace) {
        self.reader = UsageReader::default();
        self.reading_depth = at.depth.wrapping_add(1);
        self.reading_from = at.offset;
    }

    fn usage_ends(&mut self, at: JsonPlace) {
        let usage = if at.depth == 1 { &mut self.usage } else { &mut self.inner_usage };
        if at.offset.saturating_sub(self.reading_from) <= USAGE_BYTES_MAX {
            *usage = ChatUsage { is_object: true, counts: self.reader.counts() };
            self.extras.replace_by(self.reader.extras());
            if at.depth == 1 {
                self.unnamed = self.reader.lacks_names().then_some(self.reading_from..at.offset);
            }
        }
        self.reading_depth = 0;
    }

    /// Returns the position of the top-level `usage` that is open.
    pub(super) fn usage_open(&self) -> Option<usize> {
        (self.reading_depth == TOP_USAGE_DEPTH).then_some(self.reading_from)
    }

    /// Returns true below a member of a delta that is output.
    #[inline]
    fn in_output(&self) -> bool {
        self.top == ChatMember::Choices
            && self.choice_key == ChoiceKey::Delta
            && !matches!(self.delta_key, DeltaKey::Other)
    }

    fn top_text(&mut self, depth: u32, text: &[u8]) {
        match self.top {
            _ if depth != 1 => {}
            ChatMember::Object => self.odd |= text == b"error",
            ChatMember::Tier => self.extras.tier = term(text),
            ChatMember::Duration => self.duration_ms = scaled(text, 1e3).unwrap_or(0),
            ChatMember::Other
            | ChatMember::Choices
            | ChatMember::Usage
            | ChatMember::Groq
            | ChatMember::Error => {}
        }
    }

    fn output(&mut self, bytes: usize) {
        self.content = true;
        self.text_bytes = self.text_bytes.saturating_add(bytes.try_into().unwrap_or(u64::MAX));
    }
}

impl DocumentFacts for ChatFindings {
    fn capture(&mut self) -> &mut Capture {
        &mut self.error
    }

    #[inline]
    fn begins(&mut self, at: JsonPlace) {
        match at.depth {
            0 | 3 | 4 => {}
            1 => match self.top {
                ChatMember::Usage => self.usage = ChatUsage::default(),
                ChatMember::Error => self.error.start(at.offset),
                ChatMember::Other
                | ChatMember::Choices
                | ChatMember::Groq
                | ChatMember::Object
                | ChatMember::Tier
                | ChatMember::Duration => {}
            },
            2 => {
                self.has_choice |= self.top == ChatMember::Choices;
                if self.top == ChatMember::Groq && self.groq_usage_key {
                    self.inner_usage = ChatUsage::default();
                }
            }
            _ => self.content |= self.in_output(),
        }
    }

    #[inline]
    fn ends(&mut self, at: JsonPlace) {
        if at.depth == 1 {
            if self.top == ChatMember::Error {
                self.error.end(at.offset);
            }
            self.top = ChatMember::Other;
        }
    }

    #[inline]
    fn open(&mut self, at: JsonPlace, object: bool) {
        match (at.depth, self.top) {
            (1, ChatMember::Choices) => {
                self.has_choices = !object;
                self.has_choice = false;
            }
            (1, ChatMember::Usage) if object => self.usage_begins(at),
            (1, ChatMember::Groq) => self.groq_usage_key = false,
            (2, ChatMember::Groq) if object && self.groq_usage_key => self.usage_begins(at),
            (2, _) => self.choice_key = ChoiceKey::Other,
            (3, ChatMember::Choices) if object && self.choice_key == ChoiceKey::Usage => {
                self.usage_begins(at)
            }
            (3, ChatMember::Choices) if self.choice_key == ChoiceKey::Error => self.may_have_failed = true,
            (3, _) => self.delta_key = DeltaKey::Other,
            _ => {}
        }
    }

    #[inline]
    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        if self.reading_depth > 0 {
            let level = at.depth.wrapping_sub(self.reading_depth);
            return level < u32::MAX && !(object && self.reader.enters(level));
        }
        match at.depth {
            0 => false,
            1 => self.top != ChatMember::Choices && !(self.top == ChatMember::Groq && object),
            2 => self.top == ChatMember::Groq,
            3 => self.choice_key != ChoiceKey::Delta,
            4 => self.delta_key == DeltaKey::Other,
            _ => false,
        }
    }

    #[inline]
    fn close(&mut self, at: JsonPlace) {
        if at.depth.wrapping_add(1) == self.reading_depth {
            self.usage_ends(at);
        }
    }

    #[inline]
    fn name(&mut self, depth: u32, key: &[u8]) {
        if self.reading_depth > 0 {
            return self.reader.name(depth.wrapping_sub(self.reading_depth), key);
        }
        match (depth, self.top) {
            (1, _) => {
                self.top = ChatMember::named(key);
                self.odd |= matches!(key, b"message" | b"detail");
            }
            (2, ChatMember::Groq) => self.groq_usage_key = key == b"usage",
            (3, ChatMember::Choices) => self.choice_key = ChoiceKey::named(key),
            (4, ChatMember::Choices) => self.delta_key = DeltaKey::named(key),
            (5.., ChatMember::Choices) => {
                self.nested_text =
                    matches!(key, b"text" | b"arguments" | b"name" | b"input" | b"thinking" | b"transcript");
                if key == b"arguments" {
                    self.text_key = Some(ARGUMENTS);
                }
            }
            _ => {}
        }
    }

    #[inline]
    fn text(&mut self, at: JsonPlace, length: TextLength, taken: &[u8]) {
        if self.reading_depth > 0 {
            return;
        }
        let (depth, length) = (at.depth, length.meant);
        if self.top != ChatMember::Choices {
            return self.top_text(depth, taken);
        }
        if length == 0 {
            return;
        }
        match (depth, self.choice_key, self.delta_key) {
            (3, ChoiceKey::Finish, _) => {
                self.finished = true;
                self.finish = finish(taken);
                self.may_have_failed |= self.finish == Some(Finish::Error);
            }
            (3, ChoiceKey::NativeFinish, _) => {
                self.may_have_failed |= finish(taken) == Some(Finish::Error);
            }
            (3, ChoiceKey::Error, _) => self.may_have_failed = true,
            (3, ChoiceKey::Text, _) => self.output(length),
            (4, ChoiceKey::Delta, DeltaKey::Text(key)) => {
                self.text_key = Some(key);
                self.output(length);
            }
            (4, ChoiceKey::Delta, DeltaKey::Output) => self.output(length),
            (5.., ChoiceKey::Delta, DeltaKey::Text(_) | DeltaKey::Output) if self.nested_text => {
                self.output(length);
            }
            _ => {}
        }
    }

    #[inline]
    fn scalar(&mut self, at: JsonPlace, raw: &[u8]) {
        if self.reading_depth > 0 {
            self.reader.scalar(raw);
        } else if at.depth == 1 && self.top == ChatMember::Duration {
            self.duration_ms = scaled(raw, 1e3).unwrap_or(0);
        } else if at.depth == 3 && self.top == ChatMember::Choices && self.choice_key == ChoiceKey::Finish {
            self.finished |= raw != b"null";
        }
    }
}

/// The index of `arguments` in [`TEXT_KEYS`].
const ARGUMENTS: usize = 3;

impl ChatMember {
    fn named(key: &[u8]) -> Self {
        match key {
            b"choices" => Self::Choices,
            b"usage" => Self::Usage,
            b"x_groq" => Self::Groq,
            b"error" => Self::Error,
            b"object" => Self::Object,
            b"service_tier" => Self::Tier,
            b"duration" => Self::Duration,
            _ => Self::Other,
        }
    }
}

impl ChoiceKey {
    fn named(key: &[u8]) -> Self {
        match key {
            b"delta" | b"message" => Self::Delta,
            b"finish_reason" => Self::Finish,
            b"native_finish_reason" => Self::NativeFinish,
            b"error" => Self::Error,
            b"text" => Self::Text,
            b"usage" => Self::Usage,
            _ => Self::Other,
        }
    }
}

impl DeltaKey {
    fn named(key: &[u8]) -> Self {
        match key {
            b"content" => Self::Text(0),
            b"reasoning_content" => Self::Text(1),
            b"reasoning" => Self::Text(2),
            b"refusal" => Self::Text(4),
            b"tool_calls" | b"function_call" | b"audio" | b"reasoning_details" | b"thinking"
            | b"thinking_blocks" | b"images" => Self::Output,
            _ => Self::Other,
        }
    }
}

/// Parses a value into a tree; used only for errors, which end a stream.
pub(super) fn tree(document: &[u8]) -> Option<Value> {
    serde_json::from_slice(document).ok()
}
