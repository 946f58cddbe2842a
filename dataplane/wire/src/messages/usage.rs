//! What Anthropic counts, as disjoint token classes. Its input leaves out what caches served and took; its output
//! holds the thinking.

use serde_json::Value;
use shared::usage::TokenCounts;

use crate::json::whole_number;

/// The counts in a `usage` object of the Messages dialect. `None` if it counts neither input nor output.
pub fn token_counts(usage: &Value) -> Option<TokenCounts> {
    let number = |name: &str| usage.get(name).and_then(Value::as_u64);
    let counted = Counted {
        input: number("input_tokens"),
        cache_read: number("cache_read_input_tokens"),
        cache_write: number("cache_creation_input_tokens"),
        output: number("output_tokens"),
        thinking: usage.pointer("/output_tokens_details/thinking_tokens").and_then(Value::as_u64),
    };
    counted.counts()
}

/// What `usage` objects have said so far, by Anthropic's own names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) input: Option<u64>,
    pub(crate) cache_read: Option<u64>,
    pub(crate) cache_write: Option<u64>,
    pub(crate) output: Option<u64>,
    /// A part of the output.
    pub(crate) thinking: Option<u64>,
}

/// Reads `usage` objects: give it every name and the number that stands right after it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    counted: Counted,
    key: Key,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Key {
    #[default]
    Other,
    Input,
    CacheRead,
    CacheWrite,
    Output,
    OutputDetails,
    Thinking,
}

impl Usage {
    /// A member of the object begins.
    pub(super) fn name(&mut self, name: &[u8]) {
        self.key = match name {
            b"input_tokens" => Key::Input,
            b"cache_read_input_tokens" => Key::CacheRead,
            b"cache_creation_input_tokens" => Key::CacheWrite,
            b"output_tokens" => Key::Output,
            b"output_tokens_details" => Key::OutputDetails,
            _ => Key::Other,
        };
    }

    /// Whether the object under the last name holds anything to be counted.
    pub(super) fn has_details(&self) -> bool {
        self.key == Key::OutputDetails
    }

    /// A member of that object begins.
    pub(super) fn inner_name(&mut self, name: &[u8]) {
        self.key = if name == b"thinking_tokens" { Key::Thinking } else { Key::Other };
    }

    /// The value under the last name is this number, or no number at all.
    pub(super) fn scalar(&mut self, raw: &[u8]) {
        let slot = match self.key {
            Key::Input => &mut self.counted.input,
            Key::CacheRead => &mut self.counted.cache_read,
            Key::CacheWrite => &mut self.counted.cache_write,
            Key::Output => &mut self.counted.output,
            Key::Thinking => &mut self.counted.thinking,
            Key::Other | Key::OutputDetails => return,
        };
        *slot = whole_number(raw).or(*slot);
    }

    /// What a later object counts takes the place of what this one did; the rest stays.
    pub(super) fn replace_by(&mut self, later: Self) {
        self.counted.replace_by(later.counted);
        self.key = Key::Other;
    }

    /// `None` if neither input nor output was counted.
    pub(super) fn counts(&self) -> Option<TokenCounts> {
        self.counted.counts()
    }
}

impl Counted {
    /// What is said later takes the place of what was said before; the rest stays.
    pub(crate) fn replace_by(&mut self, later: Self) {
        *self = Self {
            input: later.input.or(self.input),
            cache_read: later.cache_read.or(self.cache_read),
            cache_write: later.cache_write.or(self.cache_write),
            output: later.output.or(self.output),
            thinking: later.thinking.or(self.thinking),
        };
    }

    /// Each token in one class. `None` if neither input nor output was counted.
    pub(crate) fn counts(&self) -> Option<TokenCounts> {
        self.input.or(self.output)?;
        let output = self.output.unwrap_or(0);
        let reasoning = self.thinking.unwrap_or(0).min(output);
        Some(TokenCounts {
            input: self.input.unwrap_or(0),
            cache_read: self.cache_read.unwrap_or(0),
            cache_write: self.cache_write.unwrap_or(0),
            output: output.saturating_sub(reasoning),
            reasoning,
            ..TokenCounts::ZERO
        })
    }
}
