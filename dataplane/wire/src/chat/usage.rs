//! What vendors call usage, as disjoint token classes (CHAT-3).
//!
//! The counts are read off the tokens of a `usage` object as they go by; nothing of it is kept but its numbers.

use serde_json::Value;
use shared::usage::TokenCounts;

use crate::json::whole_number;

/// The counts in a `usage` object of any vendor. `None` if it counts neither input nor output.
///
/// Cached input is part of `prompt_tokens`, reasoning part of `completion_tokens`; only where the total says
/// so (xAI) does reasoning come on top.
pub fn token_counts(usage: &Value) -> Option<TokenCounts> {
    let mut reader = UsageReader::default();
    for (name, value) in usage.as_object()? {
        reader.name(name.as_bytes());
        match value {
            Value::Number(number) => reader.scalar(number.to_string().as_bytes()),
            Value::Object(inner) => {
                for (name, value) in inner {
                    reader.inner_name(name.as_bytes());
                    if let Value::Number(number) = value {
                        reader.scalar(number.to_string().as_bytes());
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => {}
        }
    }
    reader.counts()
}

/// Reads one `usage` object: give it every name and what stands right after it.
#[derive(Debug, Default)]
pub(crate) struct UsageReader {
    slots: [Slot; CLASSES],
    /// What the last name counts, and its rank among the names of the same count.
    counted: Option<(Count, u8)>,
    details: Details,
}

/// A count, and the rank of the name it came under: the lower one wins.
type Slot = Option<(u8, u64)>;

const CLASSES: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Count {
    Prompt,
    Completion,
    Total,
    CacheRead,
    CacheWrite,
    Reasoning,
}

/// What the object under the last name tells more of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Details {
    #[default]
    None,
    Prompt,
    Completion,
}

impl UsageReader {
    /// A member of the `usage` object begins.
    #[inline]
    pub(crate) fn name(&mut self, name: &[u8]) {
        self.details = Details::None;
        self.counted = None;
        match name {
            b"prompt_tokens" => self.counted = Some((Count::Prompt, 0)),
            b"completion_tokens" => self.counted = Some((Count::Completion, 0)),
            b"total_tokens" => self.counted = Some((Count::Total, 0)),
            b"prompt_tokens_details" | b"input_tokens_details" => self.details = Details::Prompt,
            b"completion_tokens_details" | b"output_tokens_details" => self.details = Details::Completion,
            b"input_tokens" => self.counted = Some((Count::Prompt, 1)),
            b"output_tokens" => self.counted = Some((Count::Completion, 1)),
            b"prompt_cache_hit_tokens" => self.counted = Some((Count::CacheRead, 1)),
            b"cached_tokens" => self.counted = Some((Count::CacheRead, 2)),
            b"reasoning_tokens" => self.counted = Some((Count::Reasoning, 1)),
            _ => {}
        }
    }

    /// A member of an object inside it begins.
    #[inline]
    pub(crate) fn inner_name(&mut self, name: &[u8]) {
        self.counted = match (self.details, name) {
            (Details::Prompt, b"cached_tokens") => Some((Count::CacheRead, 0)),
            (Details::Prompt, b"cache_write_tokens") => Some((Count::CacheWrite, 0)),
            (Details::Completion, b"reasoning_tokens") => Some((Count::Reasoning, 0)),
            _ => None,
        };
    }

    /// Whether an object under the last name holds anything to be counted.
    pub(crate) fn has_details(&self) -> bool {
        self.details != Details::None
    }

    /// The value under the last name is this number, or no number at all.
    #[inline]
    pub(crate) fn scalar(&mut self, raw: &[u8]) {
        if let Some((class, rank)) = self.counted.take()
            && let Some(slot) = self.slots.get_mut(class as usize)
            && slot.is_none_or(|(before, _)| rank <= before)
            && let Some(count) = count(raw)
        {
            *slot = Some((rank, count));
        }
    }

    /// The object has ended. `None` if it counts neither input nor output.
    pub(crate) fn counts(&self) -> Option<TokenCounts> {
        let [prompt, completion, total, cache_read, cache_write, reasoning] = self.slots;
        if prompt.is_none() && completion.is_none() {
            return None;
        }
        let of = |slot: Slot| slot.map_or(0, |(_, count)| count);
        let (prompt, completion) = (of(prompt), of(completion));
        let cache_read = of(cache_read).min(prompt);
        let cache_write = of(cache_write).min(prompt.saturating_sub(cache_read));
        let reasoning = of(reasoning);
        let input = prompt.saturating_sub(cache_read).saturating_sub(cache_write);
        let sum = prompt.saturating_add(completion).saturating_add(reasoning);
        let on_top = reasoning > completion || total.is_some_and(|(_, total)| total == sum);
        let output = if on_top { completion } else { completion.saturating_sub(reasoning) };
        Some(TokenCounts { input, cache_read, cache_write, output, reasoning, ..TokenCounts::ZERO })
    }
}

/// A count, also where a vendor writes `12.0`; a negative one counts nothing.
#[inline]
fn count(raw: &[u8]) -> Option<u64> {
    whole_number(raw).or_else(|| odd_count(raw))
}

#[cold]
fn odd_count(raw: &[u8]) -> Option<u64> {
    let number: f64 = std::str::from_utf8(raw).ok()?.parse().ok()?;
    format!("{:.0}", number.clamp(0.0, 1e15)).parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What the same object gives without a tree, as part of an answer.
    fn token_counts_raw(usage: &[u8]) -> Option<TokenCounts> {
        let answer = [br#"{"usage":"#, usage, b"}"].concat();
        crate::chat::answer::Answer::of(&answer).unwrap().token_counts()
    }

    fn counts(input: u64, cache_read: u64, cache_write: u64, output: u64, reasoning: u64) -> TokenCounts {
        TokenCounts { input, cache_read, cache_write, output, reasoning, ..TokenCounts::ZERO }
    }

    #[test]
    fn every_vendors_usage_becomes_disjoint_classes() {
        let rows = [
            (
                "OpenAI: cached within prompt, reasoning within completion",
                json!({"prompt_tokens":120,"completion_tokens":30,"total_tokens":150,
                    "prompt_tokens_details":{"cached_tokens":100,"audio_tokens":0},
                    "completion_tokens_details":{"reasoning_tokens":12}}),
                counts(20, 100, 0, 18, 12),
            ),
            (
                "cache writes are within prompt too",
                json!({"prompt_tokens":120,"completion_tokens":30,
                    "prompt_tokens_details":{"cached_tokens":50,"cache_write_tokens":40}}),
                counts(30, 50, 40, 30, 0),
            ),
            (
                "DeepSeek hit and miss",
                json!({"prompt_tokens":30,"completion_tokens":5,"total_tokens":35,
                    "prompt_cache_hit_tokens":20,"prompt_cache_miss_tokens":10}),
                counts(10, 20, 0, 5, 0),
            ),
            (
                "Moonshot: cached_tokens at the top of usage",
                json!({"prompt_tokens":30,"completion_tokens":5,"cached_tokens":8}),
                counts(22, 8, 0, 5, 0),
            ),
            (
                "xAI: reasoning on top of completion",
                json!({"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,
                    "completion_tokens_details":{"reasoning_tokens":100}}),
                counts(10, 0, 0, 5, 100),
            ),
            (
                "xAI: also where completion is larger",
                json!({"prompt_tokens":10,"completion_tokens":50,"total_tokens":65,
                    "completion_tokens_details":{"reasoning_tokens":5}}),
                counts(10, 0, 0, 50, 5),
            ),
            (
                "null details",
                json!({"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":null}),
                counts(7, 0, 0, 2, 0),
            ),
            ("whole floats", json!({"prompt_tokens":7.0,"completion_tokens":2.0}), counts(7, 0, 0, 2, 0)),
            ("negative", json!({"prompt_tokens":-7,"completion_tokens":2}), counts(0, 0, 0, 2, 0)),
            (
                "more cached than prompt",
                json!({"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}),
                counts(0, 5, 0, 1, 0),
            ),
        ];
        for (name, usage, want) in rows {
            assert_eq!(token_counts(&usage), Some(want), "{name}");
            assert_eq!(token_counts_raw(usage.to_string().as_bytes()), Some(want), "{name}, raw");
        }
    }

    #[test]
    fn usage_that_counts_nothing_is_none() {
        for usage in [json!({}), json!(null), json!("12"), json!({"total_tokens": 3}), json!([1])] {
            assert_eq!(token_counts(&usage), None, "{usage}");
            assert_eq!(token_counts_raw(usage.to_string().as_bytes()), None, "{usage}, raw");
        }
    }
}
