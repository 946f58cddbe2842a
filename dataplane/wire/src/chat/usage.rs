//! What vendors call usage, as disjoint token classes (CHAT-3).

use serde_json::Value;
use shared::usage::TokenCounts;

use crate::json::{KEY_BYTES_MAX, Place, Scanner, Sink};

/// The counts in a `usage` object of any vendor. `None` if it counts neither input nor output.
///
/// Cached input is part of `prompt_tokens`, reasoning part of `completion_tokens`; only where the total says
/// so (xAI) does reasoning come on top.
pub fn token_counts(usage: &Value) -> Option<TokenCounts> {
    let mut counts = Counts::default();
    for (name, value) in usage.as_object()? {
        match value {
            Value::Number(number) => counts.note(name.as_bytes(), b"", count(&number.to_string())),
            Value::Object(inner) => {
                for (inner_name, value) in inner {
                    if let Value::Number(number) = value {
                        counts.note(name.as_bytes(), inner_name.as_bytes(), count(&number.to_string()));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => {}
        }
    }
    counts.classes()
}

/// The same of the raw bytes of a `usage` object, without a tree.
pub(super) fn token_counts_raw(usage: &[u8]) -> Option<TokenCounts> {
    let (mut scanner, mut reader) = (Scanner::new(), Reader::default());
    scanner.push(usage, &mut reader).and_then(|()| scanner.finish()).ok()?;
    reader.counts.classes()
}

/// What one `usage` object counts, under whatever names.
#[derive(Debug, Default)]
struct Counts {
    prompt: Slot,
    completion: Slot,
    total: Slot,
    cache_read: Slot,
    cache_write: Slot,
    reasoning: Slot,
}

/// A count, and the rank of the name it came under: the lower one wins.
type Slot = Option<(u8, u64)>;

impl Counts {
    fn note(&mut self, name: &[u8], inner: &[u8], count: Option<u64>) {
        let (slot, rank) = match (name, inner) {
            (b"prompt_tokens", b"") => (&mut self.prompt, 0),
            (b"input_tokens", b"") => (&mut self.prompt, 1),
            (b"completion_tokens", b"") => (&mut self.completion, 0),
            (b"output_tokens", b"") => (&mut self.completion, 1),
            (b"total_tokens", b"") => (&mut self.total, 0),
            (b"prompt_tokens_details" | b"input_tokens_details", b"cached_tokens") => {
                (&mut self.cache_read, 0)
            }
            (b"prompt_cache_hit_tokens", b"") => (&mut self.cache_read, 1),
            (b"cached_tokens", b"") => (&mut self.cache_read, 2),
            (b"prompt_tokens_details" | b"input_tokens_details", b"cache_write_tokens") => {
                (&mut self.cache_write, 0)
            }
            (b"completion_tokens_details" | b"output_tokens_details", b"reasoning_tokens") => {
                (&mut self.reasoning, 0)
            }
            (b"reasoning_tokens", b"") => (&mut self.reasoning, 1),
            _ => return,
        };
        if let Some(count) = count
            && slot.is_none_or(|(before, _)| rank <= before)
        {
            *slot = Some((rank, count));
        }
    }

    fn classes(&self) -> Option<TokenCounts> {
        if self.prompt.is_none() && self.completion.is_none() {
            return None;
        }
        let of = |slot: Slot| slot.map_or(0, |(_, count)| count);
        let (prompt, completion) = (of(self.prompt), of(self.completion));
        let cache_read = of(self.cache_read).min(prompt);
        let cache_write = of(self.cache_write).min(prompt.saturating_sub(cache_read));
        let reasoning = of(self.reasoning);
        let input = prompt.saturating_sub(cache_read).saturating_sub(cache_write);
        let sum = prompt.saturating_add(completion).saturating_add(reasoning);
        let on_top = reasoning > completion || self.total.is_some_and(|(_, total)| total == sum);
        let output = if on_top { completion } else { completion.saturating_sub(reasoning) };
        Some(TokenCounts { input, cache_read, cache_write, output, reasoning })
    }
}

/// Reads counts off the tokens of a `usage` object.
#[derive(Debug, Default)]
struct Reader {
    counts: Counts,
    name: Vec<u8>,
    inner: Vec<u8>,
    number: Vec<u8>,
    taking: Taking,
}

#[derive(Clone, Copy, Debug, Default)]
enum Taking {
    #[default]
    Nothing,
    Name,
    Inner,
    Number,
}

impl Sink for Reader {
    fn text_start(&mut self, at: Place, key: bool) {
        self.taking = match (key, at.depth) {
            (true, 1) => Taking::Name,
            (true, 2) => Taking::Inner,
            _ => Taking::Nothing,
        };
        match self.taking {
            Taking::Name => {
                self.name.clear();
                self.inner.clear();
            }
            Taking::Inner => self.inner.clear(),
            Taking::Nothing | Taking::Number => {}
        }
    }

    fn scalar_start(&mut self, at: Place) {
        self.number.clear();
        self.taking = if at.depth <= 2 { Taking::Number } else { Taking::Nothing };
    }

    fn piece(&mut self, bytes: &[u8]) {
        let taken = match self.taking {
            Taking::Nothing => return,
            Taking::Name => &mut self.name,
            Taking::Inner => &mut self.inner,
            Taking::Number => &mut self.number,
        };
        if taken.len().saturating_add(bytes.len()) <= KEY_BYTES_MAX {
            taken.extend_from_slice(bytes);
        }
    }

    fn scalar_end(&mut self, at: Place) {
        if at.depth <= 2 {
            let count = std::str::from_utf8(&self.number).ok().and_then(count);
            let inner = if at.depth == 1 { &[] } else { self.inner.as_slice() };
            self.counts.note(&self.name, inner, count);
        }
    }
}

/// A count, also where a vendor writes `12.0`; a negative one counts nothing.
fn count(number: &str) -> Option<u64> {
    if let Ok(count) = number.parse() {
        return Some(count);
    }
    let number: f64 = number.parse().ok()?;
    format!("{:.0}", number.clamp(0.0, 1e15)).parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts(input: u64, cache_read: u64, cache_write: u64, output: u64, reasoning: u64) -> TokenCounts {
        TokenCounts { input, cache_read, cache_write, output, reasoning }
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
