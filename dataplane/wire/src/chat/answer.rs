//! Watches the tokens of a chat answer go by, whole or one chunk of a stream, and notes what the gateway needs:
//! whether it holds output, an error, a finish reason, and where its usage stands.

use std::ops::Range;

use serde_json::Value;
use shared::usage::TokenCounts;

use super::usage::token_counts_raw;
use crate::json::{Fault, KEY_BYTES_MAX, Place, Scanner, Sink, unescape};

/// Bytes of a `usage` or `error` value that are kept; a longer one counts as unreadable.
const CAPTURE_BYTES_MAX: usize = 64 * 1024;

/// The names under which text arrives in a delta. The first few are searched for in later chunks.
pub(super) const TEXT_KEYS: [&str; 5] = ["content", "reasoning_content", "reasoning", "arguments", "refusal"];

/// A scan of one answer, fed in pieces.
#[derive(Debug, Default)]
pub(super) struct Answer {
    scanner: Scanner,
    pub(super) seen: Seen,
    before: usize,
}

/// What an answer holds.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// `choices` is an array.
    pub(super) has_choices: bool,
    /// It has elements.
    pub(super) has_choice: bool,
    /// Output of any sort: text, reasoning, refusal, tool data, audio, images.
    pub(super) content: bool,
    /// A finish reason that is not null.
    pub(super) finished: bool,
    /// Raw bytes of output strings.
    pub(super) text_bytes: u64,
    /// Which of [`TEXT_KEYS`] held text last.
    pub(super) text_key: Option<usize>,
    /// Top-level members that errors of odd shapes have: `message`, `detail`, `object: "error"`.
    pub(super) odd: bool,
    usage: Capture,
    groq_usage: Capture,
    error: Capture,

    top: Top,
    choice_key: ChoiceKey,
    delta_key: DeltaKey,
    groq_usage_key: bool,
    nested_text: bool,
    taken: Vec<u8>,
    take_max: usize,
    length: u64,
}

/// Raw bytes of one value.
#[derive(Debug, Default)]
struct Capture {
    span: Option<Range<usize>>,
    open: bool,
    bytes: Vec<u8>,
    overflowed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Top {
    #[default]
    Other,
    Choices,
    Usage,
    Groq,
    Error,
    Object,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChoiceKey {
    #[default]
    Other,
    Delta,
    Finish,
    Text,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DeltaKey {
    #[default]
    Other,
    /// One of [`TEXT_KEYS`].
    Text(usize),
    /// Other output.
    Output,
}

impl Answer {
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), Fault> {
        let result = self.scanner.push(piece, &mut self.seen);
        for capture in [&mut self.seen.usage, &mut self.seen.groq_usage, &mut self.seen.error] {
            capture.copy(self.before, piece);
        }
        self.before = self.before.saturating_add(piece.len());
        result
    }

    /// What one whole document holds, or that it is not JSON.
    pub(super) fn of(document: &[u8]) -> Result<Seen, Fault> {
        let mut answer = Self::default();
        answer.push(document)?;
        answer.scanner.finish()?;
        Ok(answer.seen)
    }

    pub(super) fn finish(self) -> (Seen, Result<(), Fault>) {
        let result = self.scanner.finish();
        (self.seen, result)
    }
}

impl Seen {
    /// The last usage in it.
    pub(super) fn token_counts(&self) -> Option<TokenCounts> {
        [&self.usage, &self.groq_usage].into_iter().find_map(|capture| token_counts_raw(&capture.bytes))
    }

    /// Whether a `usage` object stands at the top.
    pub(super) fn has_usage(&self) -> bool {
        self.usage.bytes.first() == Some(&b'{')
    }

    /// The raw `error` value, unless it is one that the official SDKs pass over: null, false, 0, "", [] or {}.
    pub(super) fn error(&self) -> Option<&[u8]> {
        let raw = self.error.bytes.as_slice();
        let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default().trim_ascii();
        let is_falsy = match raw.first() {
            None => !self.error.overflowed,
            Some(b'"' | b'[' | b'{') => inner.is_empty() && raw.len() > 1,
            Some(_) => matches!(raw, b"null" | b"false" | b"0" | b"-0" | b"0.0"),
        };
        (!is_falsy).then_some(raw)
    }

    /// Whether an error has begun in a document that has not ended.
    pub(super) fn error_begun(&self) -> bool {
        let begun = matches!(self.error.bytes.first(), Some(b'{' | b'[' | b'"' | b't' | b'1'..=b'9'));
        if self.error.open { begun || self.error.overflowed } else { self.error().is_some() }
    }

    fn value_starts(&mut self, at: Place) {
        match self.top {
            Top::Usage if at.depth == 1 => self.usage.start(at.offset),
            Top::Error if at.depth == 1 => self.error.start(at.offset),
            Top::Groq if at.depth == 2 && self.groq_usage_key => self.groq_usage.start(at.offset),
            Top::Usage | Top::Error | Top::Groq | Top::Other | Top::Choices | Top::Object => {}
        }
        if at.depth == 2 && self.top == Top::Choices {
            self.has_choice = true;
        }
        if at.depth > 4 && self.in_output() {
            self.content = true;
        }
    }

    fn value_ends(&mut self, at: Place) {
        if at.depth <= 2 {
            self.usage.end(at.offset, at.depth == 1);
            self.error.end(at.offset, at.depth == 1);
            self.groq_usage.end(at.offset, true);
        }
        if at.depth == 1 {
            self.top = Top::Other;
        }
    }

    /// Below a member of a delta that is output.
    fn in_output(&self) -> bool {
        self.top == Top::Choices
            && self.choice_key == ChoiceKey::Delta
            && !matches!(self.delta_key, DeltaKey::Other)
    }

    fn key_ends(&mut self, depth: u32) {
        let unescaped =
            if memchr::memchr(b'\\', &self.taken).is_some() { unescape(&self.taken) } else { None };
        let key = unescaped.as_ref().map_or(self.taken.as_slice(), String::as_bytes);
        match (depth, self.top) {
            (1, _) => {
                self.top = Top::named(key);
                self.odd |= matches!(key, b"message" | b"detail");
            }
            (2, Top::Groq) => self.groq_usage_key = key == b"usage",
            (3, Top::Choices) => self.choice_key = ChoiceKey::named(key),
            (4, Top::Choices) => self.delta_key = DeltaKey::named(key),
            (_, Top::Choices) => {
                self.nested_text =
                    matches!(key, b"text" | b"arguments" | b"name" | b"input" | b"thinking" | b"transcript");
                if key == b"arguments" {
                    self.text_key = Some(ARGUMENTS);
                }
            }
            _ => {}
        }
    }

    fn text_value_ends(&mut self, at: Place) {
        if self.top == Top::Object && at.depth == 1 {
            self.odd |= self.taken == b"error";
        }
        if self.top != Top::Choices || self.length == 0 {
            return;
        }
        match (at.depth, self.choice_key, self.delta_key) {
            (3, ChoiceKey::Finish, _) => self.finished = true,
            (3, ChoiceKey::Text, _) => self.output(self.length),
            (4, ChoiceKey::Delta, DeltaKey::Text(key)) => {
                self.text_key = Some(key);
                self.output(self.length);
            }
            (4, ChoiceKey::Delta, DeltaKey::Output) => self.output(self.length),
            (5.., ChoiceKey::Delta, DeltaKey::Text(_) | DeltaKey::Output) if self.nested_text => {
                self.output(self.length);
            }
            _ => {}
        }
    }

    fn output(&mut self, bytes: u64) {
        self.content = true;
        self.text_bytes = self.text_bytes.saturating_add(bytes);
    }
}

/// `arguments` in [`TEXT_KEYS`].
const ARGUMENTS: usize = 3;

impl Sink for Seen {
    fn open(&mut self, at: Place, object: bool) {
        self.value_starts(at);
        if at.depth == 1 && self.top == Top::Choices {
            self.has_choices = !object;
            self.has_choice = false;
        }
        if at.depth == 2 {
            self.choice_key = ChoiceKey::Other;
        }
        if at.depth == 3 {
            self.delta_key = DeltaKey::Other;
        }
    }

    fn close(&mut self, at: Place) {
        self.value_ends(at);
    }

    #[inline]
    fn text_start(&mut self, at: Place, key: bool) {
        self.taken.clear();
        self.length = 0;
        self.take_max = if key || self.top == Top::Object { KEY_BYTES_MAX } else { 0 };
        if !key {
            self.value_starts(at);
        }
    }

    #[inline]
    fn text_end(&mut self, at: Place, key: bool) {
        if key {
            self.key_ends(at.depth);
        } else {
            self.text_value_ends(at);
            self.value_ends(at);
        }
    }

    #[inline]
    fn piece(&mut self, bytes: &[u8]) {
        let room = self.take_max.saturating_sub(self.taken.len());
        if room > 0 {
            self.taken.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        }
        self.length = self.length.saturating_add(bytes.len().try_into().unwrap_or(u64::MAX));
    }

    fn scalar_start(&mut self, at: Place) {
        self.taken.clear();
        self.length = 0;
        self.take_max = KEY_BYTES_MAX;
        self.value_starts(at);
    }

    fn scalar_end(&mut self, at: Place) {
        let finish = at.depth == 3 && self.top == Top::Choices && self.choice_key == ChoiceKey::Finish;
        self.finished |= finish && self.taken != b"null";
        self.value_ends(at);
    }
}

impl Capture {
    fn start(&mut self, at: usize) {
        *self = Self { span: Some(at..at), open: true, bytes: Vec::new(), overflowed: false };
    }

    fn end(&mut self, at: usize, here: bool) {
        if here && self.open {
            self.open = false;
            if let Some(span) = &mut self.span {
                span.end = at;
            }
        }
    }

    /// Takes what belongs to it from a piece that begins at `before`.
    fn copy(&mut self, before: usize, piece: &[u8]) {
        let Some(span) = self.span.as_ref().filter(|_| !self.overflowed) else { return };
        let after = before.saturating_add(piece.len());
        let from = span.start.saturating_add(self.bytes.len()).saturating_sub(before);
        let to = if self.open { after } else { span.end.min(after) }.saturating_sub(before);
        let Some(bytes) = piece.get(from..to) else { return };
        if self.bytes.len().saturating_add(bytes.len()) > CAPTURE_BYTES_MAX {
            self.overflowed = true;
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

impl Top {
    fn named(key: &[u8]) -> Self {
        match key {
            b"choices" => Self::Choices,
            b"usage" => Self::Usage,
            b"x_groq" => Self::Groq,
            b"error" => Self::Error,
            b"object" => Self::Object,
            _ => Self::Other,
        }
    }
}

impl ChoiceKey {
    fn named(key: &[u8]) -> Self {
        match key {
            b"delta" | b"message" => Self::Delta,
            b"finish_reason" => Self::Finish,
            b"text" => Self::Text,
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

/// A value as a tree; only for errors, which end a stream.
pub(super) fn tree(document: &[u8]) -> Option<Value> {
    serde_json::from_slice(document).ok()
}
