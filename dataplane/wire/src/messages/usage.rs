//! Reads Anthropic's usage into disjoint token classes and units. Its input excludes tokens read from and written to
//! caches; its output includes thinking.

use serde_json::Value;
use serde_json::value::RawValue;
use shared::usage::{TokenCounts, Units};

use crate::chat::ClientUsage;
use crate::extras::{Extras, joined, term};
use crate::json::whole_number;

/// Returns the counts in a `usage` object of the Messages dialect. `None` if it counts neither input nor output.
pub fn token_counts(usage: &Value) -> Option<TokenCounts> {
    MessagesUsage::of(usage).counts()
}

/// Reads `usage` objects: pass it every name, followed by the name's value.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessagesUsage {
    numbers: [Option<u64>; NUMBERS],
    words: [TierWord; WORDS],
    key: Option<UsageKey>,
    /// The kind of object under the last name of the `usage` object.
    details: UsageDetails,
}

/// The value of a textual member: not seen yet, the vendor's standard, or a term of the tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum TierWord {
    #[default]
    Unseen,
    Standard,
    Term(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsageKey {
    Number(UsageNumber),
    Word(TierPart),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsageNumber {
    Input,
    CacheRead,
    CacheWrite,
    CacheWrite5m,
    CacheWrite1h,
    Output,
    /// The thinking tokens, which are part of the output.
    Thinking,
    Searches,
    ToolCalls,
}

/// The members that make up the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TierPart {
    ServiceTier,
    Speed,
    /// The region of inference, if the client requested one; it is billed with a surcharge.
    Geo,
}

const NUMBERS: usize = 9;
const WORDS: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum UsageDetails {
    #[default]
    None,
    Output,
    CacheCreation,
    Tools,
}

impl MessagesUsage {
    /// Reads a complete object.
    pub(crate) fn of(usage: &Value) -> Self {
        let mut read = Self::default();
        for (name, value) in usage.as_object().into_iter().flatten() {
            read.name(name.as_bytes());
            match value {
                Value::Number(number) => read.scalar(number.to_string().as_bytes()),
                Value::String(text) => read.text(text.as_bytes()),
                Value::Object(inner) if read.has_details() => {
                    for (name, value) in inner {
                        read.inner_name(name.as_bytes());
                        if let Value::Number(number) = value {
                            read.scalar(number.to_string().as_bytes());
                        }
                    }
                }
                Value::Object(_) | Value::Null | Value::Bool(_) | Value::Array(_) => {}
            }
        }
        read
    }

    /// Processes the name of a member of the object.
    pub(super) fn name(&mut self, name: &[u8]) {
        self.details = match name {
            b"output_tokens_details" => UsageDetails::Output,
            b"cache_creation" => UsageDetails::CacheCreation,
            b"server_tool_use" => UsageDetails::Tools,
            _ => UsageDetails::None,
        };
        self.key = Some(match name {
            b"input_tokens" => UsageKey::Number(UsageNumber::Input),
            b"cache_read_input_tokens" => UsageKey::Number(UsageNumber::CacheRead),
            b"cache_creation_input_tokens" => UsageKey::Number(UsageNumber::CacheWrite),
            b"output_tokens" => UsageKey::Number(UsageNumber::Output),
            b"service_tier" => UsageKey::Word(TierPart::ServiceTier),
            b"speed" => UsageKey::Word(TierPart::Speed),
            b"inference_geo" => UsageKey::Word(TierPart::Geo),
            _ => return self.key = None,
        });
    }

    /// Returns true if the object under the last name may contain counts.
    pub(super) fn has_details(&self) -> bool {
        self.details != UsageDetails::None
    }

    /// Processes the name of a member of that object.
    pub(super) fn inner_name(&mut self, name: &[u8]) {
        self.key = Some(UsageKey::Number(match (self.details, name) {
            (UsageDetails::Output, b"thinking_tokens") => UsageNumber::Thinking,
            (UsageDetails::CacheCreation, b"ephemeral_5m_input_tokens") => UsageNumber::CacheWrite5m,
            (UsageDetails::CacheCreation, b"ephemeral_1h_input_tokens") => UsageNumber::CacheWrite1h,
            (UsageDetails::Tools, b"web_search_requests") => UsageNumber::Searches,
            (UsageDetails::Tools, b"code_execution_requests") => UsageNumber::ToolCalls,
            _ => return self.key = None,
        }));
    }

    /// Processes the value of the last name: a number or another scalar.
    pub(super) fn scalar(&mut self, raw: &[u8]) {
        if let Some(UsageKey::Number(number)) = self.key.take()
            && let Some(slot) = self.numbers.get_mut(number as usize)
        {
            *slot = count(raw).or(*slot);
        }
    }

    /// Processes the value of the last name: a string.
    pub(super) fn text(&mut self, raw: &[u8]) {
        if let Some(UsageKey::Word(named)) = self.key.take()
            && let Some(slot) = self.words.get_mut(named as usize)
        {
            let term = term(raw).map(|term| match named {
                TierPart::Geo => format!("geo:{term}").into_boxed_str(),
                TierPart::ServiceTier | TierPart::Speed => term,
            });
            *slot = term.map_or(TierWord::Standard, TierWord::Term);
        }
    }

    /// Replaces the values that a later `usage` object contains.
    pub(crate) fn update(&mut self, reported: &RawValue) {
        let reported: Value = serde_json::from_str(reported.get()).unwrap_or_default();
        self.replace_by(&Self::of(&reported));
    }

    /// Replaces the values that a later object contains; the others stay.
    pub(super) fn replace_by(&mut self, later: &Self) {
        for (slot, later) in self.numbers.iter_mut().zip(later.numbers) {
            *slot = later.or(*slot);
        }
        for (slot, later) in self.words.iter_mut().zip(&later.words) {
            if *later != TierWord::Unseen {
                later.clone_into(slot);
            }
        }
        self.key = None;
    }

    fn get(&self, number: UsageNumber) -> Option<u64> {
        self.numbers.get(number as usize).copied().flatten()
    }

    /// Returns the usage that a chat client is to see. Unknown counts are 0.
    pub(crate) fn for_chat(&self) -> ClientUsage {
        ClientUsage {
            counts: self.counts().unwrap_or_default(),
            has_cache_writes: true,
            has_reasoning: self.get(UsageNumber::Thinking).is_some(),
        }
    }

    /// Returns the counts, with each token in one class. `None` if neither input nor output was counted.
    pub(crate) fn counts(&self) -> Option<TokenCounts> {
        self.get(UsageNumber::Input).or_else(|| self.get(UsageNumber::Output))?;
        let of = |number| self.get(number).unwrap_or(0);
        let output = of(UsageNumber::Output);
        let reasoning = of(UsageNumber::Thinking).min(output);
        let by_lifetime = of(UsageNumber::CacheWrite5m).saturating_add(of(UsageNumber::CacheWrite1h));
        let written = self.get(UsageNumber::CacheWrite).unwrap_or(by_lifetime);
        let cache_write_1h = of(UsageNumber::CacheWrite1h).min(written);
        Some(TokenCounts {
            input: of(UsageNumber::Input),
            cache_read: of(UsageNumber::CacheRead),
            cache_write: written.saturating_sub(cache_write_1h),
            cache_write_1h,
            output: output.saturating_sub(reasoning),
            reasoning,
            ..TokenCounts::ZERO
        })
    }

    /// Returns the reported quantities other than tokens.
    pub(crate) fn extras(&self) -> Extras {
        let units = Units {
            searches: self.get(UsageNumber::Searches).unwrap_or(0),
            tool_calls: self.get(UsageNumber::ToolCalls).unwrap_or(0),
            ..Units::ZERO
        };
        let terms = self.words.iter().filter_map(|word| match word {
            TierWord::Term(term) => Some(term.clone()),
            TierWord::Unseen | TierWord::Standard => None,
        });
        Extras { units, tier: joined(terms), ..Extras::default() }
    }
}

/// Parses a count; some vendors write it as `12.0`.
fn count(raw: &[u8]) -> Option<u64> {
    whole_number(raw).or_else(|| crate::chat::scaled(raw, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(reported: &[&str]) -> MessagesUsage {
        let mut usage = MessagesUsage::default();
        for reported in reported {
            usage.update(serde_json::from_str(reported).unwrap());
        }
        usage
    }

    #[test]
    fn usage_is_split_into_disjoint_token_classes() {
        type Row = (&'static str, &'static [&'static str], Option<[u64; 5]>);
        let rows: [Row; 8] = [
            ("nothing", &["{}"], None),
            ("no object", &["7"], None),
            (
                "all classes",
                &[r#"{"input_tokens":20,"cache_creation_input_tokens":30,"cache_read_input_tokens":70,
                    "output_tokens":30,"output_tokens_details":{"thinking_tokens":12}}"#],
                Some([20, 70, 30, 18, 12]),
            ),
            (
                "the later total stands, the sum does not",
                &[r#"{"input_tokens":20,"output_tokens":1}"#, r#"{"output_tokens":30}"#],
                Some([20, 0, 0, 30, 0]),
            ),
            (
                "null takes nothing back",
                &[r#"{"input_tokens":20,"output_tokens":9}"#, r#"{"input_tokens":null,"output_tokens":30}"#],
                Some([20, 0, 0, 30, 0]),
            ),
            ("whole floats", &[r#"{"input_tokens":2.0,"output_tokens":1e1}"#], Some([2, 0, 0, 10, 0])),
            ("negative", &[r#"{"input_tokens":-2,"output_tokens":1}"#], Some([0, 0, 0, 1, 0])),
            (
                "more thoughts than output",
                &[r#"{"output_tokens":5,"output_tokens_details":{"thinking_tokens":9}}"#],
                Some([0, 0, 0, 0, 5]),
            ),
        ];
        for (name, reported, want) in rows {
            let want = want.map(|[input, cache_read, cache_write, output, reasoning]| TokenCounts {
                input,
                cache_read,
                cache_write,
                output,
                reasoning,
                ..TokenCounts::ZERO
            });
            assert_eq!(running(reported).counts(), want, "{name}");
        }
    }
}
