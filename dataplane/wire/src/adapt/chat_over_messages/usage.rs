//! Usage as Messages reports it: uncached input, cache reads and cache writes are counted separately; output includes
//! thoughts.

use serde_json::Value;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use crate::chat::ClientUsage;
use crate::extras::Extras;
use crate::messages;

/// The usage reported so far. A later report overrides an earlier one.
#[derive(Clone, Debug, Default)]
pub(super) struct RunningUsage(messages::MessagesUsage);

impl RunningUsage {
    /// Merges a `usage` object.
    pub(super) fn update(&mut self, reported: &RawValue) {
        let reported: Value = serde_json::from_str(reported.get()).unwrap_or_default();
        self.0.replace_by(&messages::MessagesUsage::of(&reported));
    }

    /// Returns the counts, each token in one class. `None` if neither input nor output has been reported.
    pub(super) fn counts(&self) -> Option<TokenCounts> {
        self.0.counts()
    }

    /// Returns the reported usage other than tokens.
    pub(super) fn extras(&self) -> Extras {
        self.0.extras()
    }

    /// Returns the usage that a chat client is to see. Unknown counts are 0.
    pub(super) fn for_client(&self) -> ClientUsage {
        ClientUsage {
            counts: self.counts().unwrap_or_default(),
            has_cache_writes: true,
            has_reasoning: self.0.has_thinking(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(reported: &[&str]) -> RunningUsage {
        let mut usage = RunningUsage::default();
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
