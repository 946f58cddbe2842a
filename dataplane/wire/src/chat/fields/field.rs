//! Watches the tokens of a chat request go by and writes down the few that matter to the gateway.

use std::ops::Range;

use crate::json::{KEY_BYTES_MAX, Place, unescape, whole_number};

/// Bytes of a `model` or `affinity_key` that are looked at; a longer model is refused.
pub(in crate::chat) const NAME_BYTES_MAX: usize = 8 * 1024;
/// Places in one body that may have to be edited: repeated members make more than the usual three.
pub(in crate::chat) const EDITS_MAX: usize = 256;
/// Bytes of any string inside `messages` that are looked at.
pub(super) const GLANCE_BYTES: usize = 96;
/// How deep the members of a content part stand: root, messages, message, content, part.
const PART_DEPTH: u32 = 5;

/// What was found. Offsets count from the first byte of the body.
#[derive(Debug, Default)]
pub(in crate::chat) struct Fields {
    pub(in crate::chat) model: Value,
    pub(in crate::chat) stream: Value,
    pub(in crate::chat) messages: Value,
    pub(in crate::chat) timeout: Value,
    pub(in crate::chat) affinity: Value,
    pub(in crate::chat) max_tokens: Value,
    pub(in crate::chat) max_completion_tokens: Value,
    pub(in crate::chat) choices: Value,
    pub(in crate::chat) has_tools: bool,
    pub(in crate::chat) has_functions: bool,
    pub(in crate::chat) include_usage: bool,
    pub(in crate::chat) has_image: bool,
    pub(in crate::chat) text_bytes: u64,
    /// Every `model` value.
    pub(in crate::chat) models: Vec<Range<usize>>,
    /// Members that are the gateway's own, each with the comma that goes with it.
    pub(in crate::chat) removed: Vec<Range<usize>>,
    /// What makes `stream_options` ask for usage, where the member exists.
    pub(in crate::chat) usage_edits: Vec<(Range<usize>, &'static str)>,
    pub(in crate::chat) has_options: bool,

    pub(super) field: Field,
    value_start: usize,
    pub(super) value_is_object: bool,
    pub(super) inner_key: InnerKey,
    pub(super) inner_start: usize,
    inner_includes: usize,
    pub(super) value_is_empty: bool,
    pub(super) taken: Vec<u8>,
    pub(super) take_max: usize,
    pub(super) text_length: usize,
    key_start: usize,
    pub(super) last_comma: Option<usize>,
    kept_one: bool,
    /// The removed member before this comma has nothing kept before it: it takes the next comma along.
    pub(super) wants_comma: bool,
}

/// The last value of a top-level member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::chat) enum Value {
    #[default]
    Absent,
    /// Its raw bytes, where they matter.
    Text(Vec<u8>),
    Scalar(Scalar),
    Object,
    Array,
}

/// A number or literal, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::chat) enum Scalar {
    Null,
    True,
    False,
    /// A number, if it is a whole one.
    Number(Option<u64>),
}

impl Scalar {
    fn of(raw: &[u8]) -> Self {
        match raw {
            b"null" => Self::Null,
            b"true" => Self::True,
            b"false" => Self::False,
            number => Self::Number(whole_number(number)),
        }
    }
}

/// Top-level members that the gateway knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Field {
    #[default]
    Other,
    Model,
    Stream,
    StreamOptions,
    Messages,
    Tools,
    Functions,
    Timeout,
    Affinity,
    MaxTokens,
    MaxCompletionTokens,
    Choices,
}

/// Members inside `messages` or `stream_options` that the gateway knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InnerKey {
    #[default]
    Other,
    Type,
    Binary,
    IncludeUsage,
}

impl Fields {
    /// Whether so many members repeat that the gateway refuses to edit them all.
    pub(in crate::chat) fn too_many_edits(&self) -> bool {
        self.models.len().saturating_add(self.removed.len()).saturating_add(self.usage_edits.len())
            > EDITS_MAX
    }

    fn slot(&mut self) -> Option<&mut Value> {
        match self.field {
            Field::Model => Some(&mut self.model),
            Field::Stream => Some(&mut self.stream),
            Field::Messages => Some(&mut self.messages),
            Field::Timeout => Some(&mut self.timeout),
            Field::Affinity => Some(&mut self.affinity),
            Field::MaxTokens => Some(&mut self.max_tokens),
            Field::MaxCompletionTokens => Some(&mut self.max_completion_tokens),
            Field::Choices => Some(&mut self.choices),
            Field::Other | Field::StreamOptions | Field::Tools | Field::Functions => None,
        }
    }

    pub(super) fn take(&mut self, max: usize) {
        self.taken.clear();
        self.take_max = max;
    }

    /// A top-level value begins.
    pub(super) fn value_begins(&mut self, at: Place) {
        self.value_start = at.offset;
        self.value_is_empty = true;
        match self.field {
            Field::Messages => {
                self.text_bytes = 0;
                self.has_image = false;
            }
            Field::StreamOptions => {
                self.has_options = true;
                self.include_usage = false;
                self.inner_includes = 0;
            }
            Field::Other
            | Field::Model
            | Field::Stream
            | Field::Tools
            | Field::Functions
            | Field::Timeout
            | Field::Affinity
            | Field::MaxTokens
            | Field::MaxCompletionTokens
            | Field::Choices => {}
        }
    }

    /// A top-level value has ended.
    pub(super) fn value_ends(&mut self, end: usize, value: Value) {
        let span = self.value_start..end;
        match self.field {
            Field::Model => self.edit_model(span),
            Field::Timeout | Field::Affinity => self.remove(end),
            Field::StreamOptions => self.edit_options(span, &value),
            Field::Tools => self.has_tools = value == Value::Array && !self.value_is_empty,
            Field::Functions => self.has_functions = value == Value::Array && !self.value_is_empty,
            Field::Other
            | Field::Stream
            | Field::Messages
            | Field::MaxTokens
            | Field::MaxCompletionTokens
            | Field::Choices => {}
        }
        if !matches!(self.field, Field::Timeout | Field::Affinity) {
            self.kept_one = true;
        }
        if let Some(slot) = self.slot() {
            *slot = value;
        }
        self.field = Field::Other;
    }

    fn edit_model(&mut self, span: Range<usize>) {
        if self.models.len() <= EDITS_MAX {
            self.models.push(span);
        }
    }

    /// The member that ends at `end` does not go upstream. With a kept member before it, the comma between
    /// them goes too; otherwise the comma after it.
    fn remove(&mut self, end: usize) {
        if self.removed.len() > EDITS_MAX {
            return;
        }
        match self.last_comma {
            Some(comma) if self.kept_one => self.removed.push(comma..end),
            Some(_) | None => {
                self.removed.push(self.key_start..end);
                self.wants_comma = true;
            }
        }
    }

    fn edit_options(&mut self, span: Range<usize>, value: &Value) {
        let edit = match value {
            Value::Scalar(Scalar::Null) => (span, r#"{"include_usage":true}"#),
            Value::Object if self.inner_includes == 0 => {
                let inside = span.start.saturating_add(1);
                let text =
                    if self.value_is_empty { r#""include_usage":true"# } else { r#""include_usage":true,"# };
                (inside..inside, text)
            }
            Value::Object | Value::Absent | Value::Text(_) | Value::Scalar(_) | Value::Array => return,
        };
        self.push_usage_edit(edit.0, edit.1);
    }

    fn push_usage_edit(&mut self, span: Range<usize>, text: &'static str) {
        if self.usage_edits.len() <= EDITS_MAX {
            self.usage_edits.push((span, text));
        }
    }

    /// A value inside `stream_options` has ended.
    pub(super) fn option_ends(&mut self, end: usize, is_true: bool) {
        if self.inner_key == InnerKey::IncludeUsage {
            self.inner_includes = self.inner_includes.saturating_add(1);
            self.include_usage = is_true;
            if !is_true {
                self.push_usage_edit(self.inner_start..end, "true");
            }
        }
        self.inner_key = InnerKey::Other;
    }

    /// The name of a member below the root has ended.
    #[inline]
    fn inner_key_ends(&mut self, depth: u32, name: &[u8]) {
        let options = self.field == Field::StreamOptions && depth == 2;
        let part = self.field == Field::Messages && depth >= PART_DEPTH;
        self.inner_key = match name {
            b"include_usage" if options => InnerKey::IncludeUsage,
            b"type" if part => InnerKey::Type,
            b"data" if part => InnerKey::Binary,
            _ => InnerKey::Other,
        };
    }

    /// A string of `length` raw bytes inside `messages` has ended; `glance` is how it begins.
    #[inline]
    fn message_text_ends(&mut self, length: usize, glance: &[u8]) {
        if self.inner_key == InnerKey::Type
            && matches!(unescaped(glance).as_ref(), b"image_url" | b"input_image" | b"image")
        {
            self.has_image = true;
        }
        let is_binary = self.inner_key == InnerKey::Binary
            || (glance.starts_with(b"data:") && memchr::memmem::find(glance, b";base64,").is_some());
        if !is_binary {
            self.text_bytes = self.text_bytes.saturating_add(length.try_into().unwrap_or(u64::MAX));
        }
        self.inner_key = InnerKey::Other;
    }

    /// Bytes of a string at this place that are wanted.
    #[inline]
    pub(super) fn wanted(&self, depth: u32, key: bool) -> usize {
        match (depth, key) {
            (1, true) => KEY_BYTES_MAX,
            (1, false) if matches!(self.field, Field::Model | Field::Affinity) => {
                NAME_BYTES_MAX.saturating_add(1)
            }
            (1, false) => 0,
            _ if matches!(self.field, Field::Messages | Field::StreamOptions) => GLANCE_BYTES,
            _ => 0,
        }
    }

    #[inline]
    pub(super) fn text_begins(&mut self, at: Place, key: bool) {
        match (at.depth, key) {
            (1, true) => self.key_start = at.offset,
            (1, false) => self.value_begins(at),
            _ => {
                self.value_is_empty = false;
                if at.depth == 2 && !key {
                    self.inner_start = at.offset;
                }
            }
        }
    }

    /// A member's name has ended.
    #[inline]
    pub(super) fn key_ends(&mut self, depth: u32, name: &[u8]) {
        match (depth, self.field) {
            (1, _) => self.field = Field::named(name),
            (_, Field::Messages) | (2, Field::StreamOptions) => self.inner_key_ends(depth, name),
            _ => {}
        }
    }

    /// Another string of `length` raw bytes has ended; `taken` is what was wanted of it.
    #[inline]
    pub(super) fn text_value_ends(&mut self, at: Place, length: usize, taken: &[u8]) {
        match (at.depth, self.field) {
            (1, _) => self.value_ends(at.offset, Value::Text(taken.to_vec())),
            (_, Field::Messages) => self.message_text_ends(length, taken),
            (2, Field::StreamOptions) => self.option_ends(at.offset, false),
            _ => {}
        }
    }

    #[inline]
    pub(super) fn scalar_begins(&mut self, at: Place) {
        match at.depth {
            1 => self.value_begins(at),
            2 => {
                self.value_is_empty = false;
                self.inner_start = at.offset;
            }
            _ => {}
        }
    }

    #[inline]
    pub(super) fn scalar_value_ends(&mut self, at: Place, raw: &[u8]) {
        match at.depth {
            1 => self.value_ends(at.offset, Value::Scalar(Scalar::of(raw))),
            2 if self.field == Field::StreamOptions => self.option_ends(at.offset, raw == b"true"),
            _ => {}
        }
    }
}

impl Field {
    fn named(key: &[u8]) -> Self {
        match key {
            b"model" => Self::Model,
            b"stream" => Self::Stream,
            b"stream_options" => Self::StreamOptions,
            b"messages" => Self::Messages,
            b"tools" => Self::Tools,
            b"functions" => Self::Functions,
            b"fallback_timeout_ms" => Self::Timeout,
            b"affinity_key" => Self::Affinity,
            b"max_tokens" => Self::MaxTokens,
            b"max_completion_tokens" => Self::MaxCompletionTokens,
            b"n" => Self::Choices,
            _ => Self::Other,
        }
    }
}

/// A member's name, or a glance at a value, as it is meant. Almost always that is how it is written.
pub(super) fn unescaped(raw: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if memchr::memchr(b'\\', raw).is_none() {
        return raw.into();
    }
    unescape(raw).map_or_else(|| raw.into(), |text| text.into_bytes().into())
}
