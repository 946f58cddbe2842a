//! Reads the usage objects of all vendors into disjoint token classes (CHAT-3), units other than tokens, and the
//! vendor's cost.
//!
//! The counts are read from the JSON tokens of a `usage` object in one pass; only numbers are kept.

use serde_json::Value;
use shared::usage::{TokenCounts, Units};

use crate::extras::Extras;
use crate::json::whole_number;

/// Returns the counts in a `usage` object of any vendor. `None` if it counts neither input nor output.
///
/// Cached input is part of `prompt_tokens` and reasoning is part of `completion_tokens`; reasoning is added on top only
/// if the total shows so (xAI), or if it exceeds the completion.
pub fn token_counts(usage: &Value) -> Option<TokenCounts> {
    UsageReader::of(usage).counts()
}

/// Reads one `usage` object: pass it every name, followed by the name's value.
#[derive(Debug, Default)]
pub(crate) struct UsageReader {
    counts: [u64; COUNTS],
    /// The rank of the name under which each count was found, plus one; 0 if the count was not found. The lowest rank
    /// wins.
    ranks: [u8; COUNTS],
    /// The count that the last name denotes, and the name's rank among the names of that count.
    counted: Option<(ChatCount, u8)>,
    /// The kind of object under the last name of each level.
    details: [UsageObject; LEVELS],
    /// True for an operation that makes images, whose image tokens are billed separately.
    of_images: bool,
}

const COUNTS: usize = 20;
/// The levels of objects that contain counts: the `usage` object, and two inside it.
const LEVELS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum ChatCount {
    Prompt,
    Completion,
    Total,
    CacheRead,
    CacheWrite,
    CacheWrite5m,
    CacheWrite1h,
    Reasoning,
    AudioInput,
    AudioOutput,
    ImageInput,
    ImageOutput,
    Searches,
    /// Calls of the vendor's tools. This count and the next are sums over several names.
    SearchCalls,
    ToolCalls,
    AudioMs,
    /// In nano-dollars.
    Cost,
    /// The cost in xAI's ticks.
    CostTicks,
    /// OpenRouter: 1 if the vendor also bills an account of the user's own, on top of `Cost`.
    IsByok,
    /// The amount billed to that account, in nano-dollars.
    UpstreamCost,
}

/// The kind of object under a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum UsageObject {
    #[default]
    None,
    Usage,
    Prompt,
    /// The details of the input, under their name in Responses.
    Input,
    Completion,
    /// The details of the output, under their name in Responses.
    Output,
    CacheCreation,
    Cost,
    Upstream,
    Tools,
}

impl UsageReader {
    /// Reads a complete `usage` object.
    pub(crate) fn of(usage: &Value) -> Self {
        let mut reader = Self::default();
        reader.walk(usage, 0);
        reader
    }

    /// Reads a complete `usage` object of an operation that makes images.
    pub(crate) fn of_images(usage: &Value) -> Self {
        Self { of_images: true, ..Self::of(usage) }
    }

    fn walk(&mut self, object: &Value, level: u32) {
        for (name, value) in object.as_object().into_iter().flatten() {
            self.name(level, name.as_bytes());
            match value {
                Value::Number(number) => self.scalar(number.to_string().as_bytes()),
                Value::Bool(flag) => self.scalar(if *flag { b"true" } else { b"false" }),
                Value::Object(_) if self.enters(level) => self.walk(value, level.saturating_add(1)),
                Value::Object(_) | Value::Null | Value::String(_) | Value::Array(_) => {}
            }
        }
    }

    /// Processes the name of a member of the object at `level`; level 0 is the `usage` object itself.
    #[inline]
    pub(crate) fn name(&mut self, level: u32, name: &[u8]) {
        let level = usize::try_from(level).unwrap_or(LEVELS);
        let inside = match level.checked_sub(1) {
            None => UsageObject::Usage,
            Some(outer) => self.details.get(outer).copied().unwrap_or_default(),
        };
        self.counted = inside.count(name);
        if let Some(details) = self.details.get_mut(level) {
            *details = inside.details(name);
        }
    }

    /// Returns true if the object under the last name of `level` may contain counts.
    pub(crate) fn enters(&self, level: u32) -> bool {
        let details = usize::try_from(level).ok().and_then(|level| self.details.get(level));
        details.is_some_and(|details| *details != UsageObject::None)
    }

    /// Processes the value of the last name: a number or another scalar.
    #[inline]
    pub(crate) fn scalar(&mut self, raw: &[u8]) {
        if let Some((count, rank)) = self.counted.take()
            && let Some(before) = self.ranks.get_mut(count as usize)
            && let Some(slot) = self.counts.get_mut(count as usize)
            && (*before == 0 || rank < *before)
            && let Some(number) = count.read(raw)
        {
            *before = rank.saturating_add(1);
            let is_sum = matches!(count, ChatCount::SearchCalls | ChatCount::ToolCalls);
            *slot = if is_sum { slot.saturating_add(number) } else { number };
        }
    }

    fn get(&self, count: ChatCount) -> Option<u64> {
        let is_known = self.ranks.get(count as usize).is_some_and(|rank| *rank > 0);
        self.counts.get(count as usize).copied().filter(|_| is_known)
    }

    /// Returns the counts after the end of the object. `None` if it counts neither input nor output.
    pub(crate) fn counts(&self) -> Option<TokenCounts> {
        let of = |count| self.get(count).unwrap_or(0);
        let (prompt, completion) = (self.get(ChatCount::Prompt), self.get(ChatCount::Completion));
        prompt.or(completion)?;
        let (mut input, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
        let sum = input.saturating_add(completion).saturating_add(of(ChatCount::Reasoning));
        let cache_read = take(&mut input, of(ChatCount::CacheRead));
        let written = of(ChatCount::CacheWrite5m).saturating_add(of(ChatCount::CacheWrite1h));
        let written = take(&mut input, self.get(ChatCount::CacheWrite).unwrap_or(written));
        let cache_write_1h = of(ChatCount::CacheWrite1h).min(written);
        let audio_input = take(&mut input, of(ChatCount::AudioInput));
        let image_input = take(&mut input, if self.of_images { of(ChatCount::ImageInput) } else { 0 });
        let reasoning = of(ChatCount::Reasoning);
        let on_top = reasoning > completion || self.get(ChatCount::Total) == Some(sum);
        let mut output = if on_top { completion } else { completion.saturating_sub(reasoning) };
        let audio_output = take(&mut output, of(ChatCount::AudioOutput));
        let all = if self.of_images { output } else { 0 };
        let image_output = self.get(ChatCount::ImageOutput).unwrap_or(all);
        let image_output = take(&mut output, image_output);
        Some(TokenCounts {
            input,
            cache_read,
            cache_write: written.saturating_sub(cache_write_1h),
            cache_write_1h,
            output,
            reasoning,
            audio_input,
            audio_output,
            image_input,
            image_output,
        })
    }

    /// Returns the reported quantities other than tokens.
    pub(crate) fn extras(&self) -> Extras {
        let calls = self.get(ChatCount::SearchCalls).or_else(|| self.get(ChatCount::Searches));
        let units = Units {
            searches: calls.unwrap_or(0),
            tool_calls: self.get(ChatCount::ToolCalls).unwrap_or(0),
            audio_ms: self.get(ChatCount::AudioMs).unwrap_or(0),
            ..Units::ZERO
        };
        Extras { units, vendor_cost_nano_usd: self.cost(), ..Extras::default() }
    }

    /// Returns the vendor's cost in nano-dollars.
    fn cost(&self) -> Option<u64> {
        let ticks = self.get(ChatCount::CostTicks);
        let of_ticks = ticks.map(|ticks| ticks.saturating_add(TICKS_IN_NANO / 2) / TICKS_IN_NANO);
        let is_byok = self.get(ChatCount::IsByok) == Some(1);
        let upstream = self.get(ChatCount::UpstreamCost).filter(|_| is_byok).unwrap_or(0);
        self.get(ChatCount::Cost).or(of_ticks).map(|cost| cost.saturating_add(upstream))
    }
}

impl UsageObject {
    /// Returns the count that `name` denotes in an object of this kind, and the rank of the name.
    #[inline]
    fn count(self, name: &[u8]) -> Option<(ChatCount, u8)> {
        Some(match (self, name) {
            (Self::Usage, b"prompt_tokens") => (ChatCount::Prompt, 0),
            (Self::Usage, b"input_tokens") => (ChatCount::Prompt, 1),
            (Self::Usage, b"completion_tokens") => (ChatCount::Completion, 0),
            (Self::Usage, b"output_tokens") => (ChatCount::Completion, 1),
            (Self::Usage, b"total_tokens") => (ChatCount::Total, 0),
            (Self::Usage, b"prompt_cache_hit_tokens") => (ChatCount::CacheRead, 2),
            (Self::Usage, b"cached_tokens") => (ChatCount::CacheRead, 3),
            (Self::Usage, b"cache_read_input_tokens") => (ChatCount::CacheRead, 4),
            (Self::Usage, b"cache_creation_input_tokens") => (ChatCount::CacheWrite, 2),
            (Self::Usage, b"reasoning_tokens") => (ChatCount::Reasoning, 2),
            (Self::Usage, b"num_search_queries") => (ChatCount::Searches, 0),
            (Self::Usage, b"num_sources_used") => (ChatCount::Searches, 1),
            (Self::Usage, b"seconds") => (ChatCount::AudioMs, 0),
            (Self::Usage, b"prompt_audio_seconds") => (ChatCount::AudioMs, 1),
            (Self::Usage, b"cost") => (ChatCount::Cost, 0),
            (Self::Usage, b"cost_in_usd_ticks") => (ChatCount::CostTicks, 0),
            (Self::Usage, b"estimated_cost") => (ChatCount::Cost, 1),
            (Self::Usage, b"is_byok") => (ChatCount::IsByok, 0),
            (Self::Upstream, b"upstream_inference_cost") => (ChatCount::UpstreamCost, 0),
            (Self::Cost, b"total_cost") => (ChatCount::Cost, 0),
            // Perplexity: the fee for a search that is not counted elsewhere.
            (Self::Cost, b"request_cost") => (ChatCount::Searches, 2),
            (Self::Prompt, b"cached_tokens") => (ChatCount::CacheRead, 0),
            (Self::Input, b"cached_tokens") => (ChatCount::CacheRead, 1),
            (Self::Prompt | Self::Input, b"cache_write_tokens") => (ChatCount::CacheWrite, 0),
            (Self::Prompt | Self::Input, b"cache_creation_tokens" | b"cache_creation_input_tokens") => {
                (ChatCount::CacheWrite, 1)
            }
            (Self::Prompt | Self::Input, b"audio_tokens") => (ChatCount::AudioInput, 0),
            (Self::Prompt | Self::Input, b"image_tokens") => (ChatCount::ImageInput, 0),
            (Self::Completion, b"reasoning_tokens") => (ChatCount::Reasoning, 0),
            (Self::Output, b"reasoning_tokens") => (ChatCount::Reasoning, 1),
            (Self::Completion | Self::Output, b"audio_tokens") => (ChatCount::AudioOutput, 0),
            (Self::Completion | Self::Output, b"image_tokens") => (ChatCount::ImageOutput, 0),
            (Self::CacheCreation, b"ephemeral_5m_input_tokens") => (ChatCount::CacheWrite5m, 0),
            (Self::CacheCreation, b"ephemeral_1h_input_tokens") => (ChatCount::CacheWrite1h, 0),
            (Self::Tools, b"web_search_requests" | b"web_search_calls" | b"x_search_calls") => {
                (ChatCount::SearchCalls, 0)
            }
            (
                Self::Tools,
                b"code_execution_requests"
                | b"code_interpreter_calls"
                | b"file_search_calls"
                | b"document_search_calls",
            ) => (ChatCount::ToolCalls, 0),
            _ => return None,
        })
    }

    /// Returns the kind of object under `name` in an object of this kind.
    #[inline]
    fn details(self, name: &[u8]) -> Self {
        match (self, name) {
            (Self::Usage, b"prompt_tokens_details") => Self::Prompt,
            (Self::Usage, b"input_tokens_details" | b"input_token_details") => Self::Input,
            (Self::Usage, b"completion_tokens_details") => Self::Completion,
            (Self::Usage, b"output_tokens_details" | b"output_token_details") => Self::Output,
            (Self::Usage | Self::Prompt | Self::Input, b"cache_creation")
            | (Self::Prompt | Self::Input, b"cache_creation_token_details") => Self::CacheCreation,
            (Self::Usage, b"cost") => Self::Cost,
            (Self::Usage, b"cost_details") => Self::Upstream,
            (Self::Usage, b"server_tool_use" | b"server_side_tool_usage_details") => Self::Tools,
            _ => Self::None,
        }
    }
}

impl ChatCount {
    fn read(self, raw: &[u8]) -> Option<u64> {
        match self {
            Self::Cost | Self::UpstreamCost => scaled(raw, NANO),
            Self::AudioMs => scaled(raw, MILLI),
            Self::IsByok => Some(u64::from(raw == b"true")),
            Self::Searches => {
                whole_number(raw).or_else(|| scaled(raw, MILLI).map(|milli| milli.div_ceil(1_000)))
            }
            Self::Prompt
            | Self::Completion
            | Self::Total
            | Self::CacheRead
            | Self::CacheWrite
            | Self::CacheWrite5m
            | Self::CacheWrite1h
            | Self::Reasoning
            | Self::AudioInput
            | Self::AudioOutput
            | Self::ImageInput
            | Self::ImageOutput
            | Self::SearchCalls
            | Self::ToolCalls
            | Self::CostTicks => count(raw),
        }
    }
}

/// Nano-dollars per dollar, and milliseconds per second.
const NANO: f64 = 1e9;
const MILLI: f64 = 1e3;
/// xAI's ticks per nano-dollar.
const TICKS_IN_NANO: u64 = 10;

/// Takes up to `wanted` from `rest` and returns the amount taken.
fn take(rest: &mut u64, wanted: u64) -> u64 {
    let taken = wanted.min(*rest);
    *rest = rest.saturating_sub(taken);
    taken
}

/// Parses a count; `12.0` is accepted, and a negative number is 0.
#[inline]
fn count(raw: &[u8]) -> Option<u64> {
    whole_number(raw).or_else(|| scaled(raw, 1.0))
}

/// Parses a number and returns it times `scale`, rounded; a negative number is 0.
#[cold]
pub(crate) fn scaled(raw: &[u8], scale: f64) -> Option<u64> {
    let number: f64 = std::str::from_utf8(raw).ok()?.parse().ok()?;
    format!("{:.0}", (number * scale).clamp(0.0, 1e15)).parse().ok()
}

mod names;

pub(crate) use names::named;

#[cfg(test)]
mod tests;
