//! What vendors call usage, as disjoint token classes (CHAT-3).

use serde_json::Value;
use shared::usage::TokenCounts;

/// The counts in a `usage` object of any vendor. `None` if it counts neither input nor output.
///
/// Cached input is part of `prompt_tokens`, reasoning part of `completion_tokens`; only where the total says
/// so (xAI) does reasoning come on top.
pub fn token_counts(usage: &Value) -> Option<TokenCounts> {
    let prompt = first(usage, &["/prompt_tokens", "/input_tokens"]);
    let completion = first(usage, &["/completion_tokens", "/output_tokens"]);
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
    let cache_read = first(usage, CACHE_READ).unwrap_or(0).min(prompt);
    let cache_write = first(usage, CACHE_WRITE).unwrap_or(0).min(prompt.saturating_sub(cache_read));
    let reasoning = first(usage, REASONING).unwrap_or(0);
    let input = prompt.saturating_sub(cache_read).saturating_sub(cache_write);
    let on_top = reasoning > completion
        || first(usage, &["/total_tokens"])
            .is_some_and(|total| total == prompt.saturating_add(completion).saturating_add(reasoning));
    let output = if on_top { completion } else { completion.saturating_sub(reasoning) };
    Some(TokenCounts { input, cache_read, cache_write, output, reasoning })
}

const CACHE_READ: &[&str] = &[
    "/prompt_tokens_details/cached_tokens",
    "/input_tokens_details/cached_tokens",
    "/prompt_cache_hit_tokens",
    "/cached_tokens",
];
const CACHE_WRITE: &[&str] =
    &["/prompt_tokens_details/cache_write_tokens", "/input_tokens_details/cache_write_tokens"];
const REASONING: &[&str] = &[
    "/completion_tokens_details/reasoning_tokens",
    "/output_tokens_details/reasoning_tokens",
    "/reasoning_tokens",
];

fn first(usage: &Value, paths: &[&str]) -> Option<u64> {
    paths.iter().find_map(|path| usage.pointer(path).and_then(count))
}

/// A count, also where a vendor writes `12.0`; a negative one counts nothing.
fn count(value: &Value) -> Option<u64> {
    if let Some(count) = value.as_u64() {
        return Some(count);
    }
    let number = value.as_f64()?;
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
        }
    }

    #[test]
    fn usage_that_counts_nothing_is_none() {
        for usage in [json!({}), json!(null), json!("12"), json!({"total_tokens": 3}), json!([1])] {
            assert_eq!(token_counts(&usage), None, "{usage}");
        }
    }
}
