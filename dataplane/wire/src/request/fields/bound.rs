//! The bounds that a client sets on its answer, read for the most that any upstream could make of them: upstreams
//! differ in which of two names they heed, and in which of two equal ones.

use super::field::Field;
use super::value::Value;

/// The largest bounds so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) struct Bounds {
    /// Tokens of one answer.
    pub(in crate::request) output: Option<u64>,
    /// Some member asks for an answer without a bound.
    pub(in crate::request) output_is_open: bool,
    /// Answers, pictures or videos.
    pub(in crate::request) count: Option<u64>,
    /// The first member that is no bound.
    pub(in crate::request) unfit: Option<&'static str>,
}

impl Bounds {
    /// Reads one more member, if it is a bound.
    #[inline]
    pub(super) fn take(&mut self, field: Field, value: Value) {
        let named = |names: &[(Field, &'static str)]| {
            names.iter().find(|(bound, _)| *bound == field).map(|(_, name)| *name)
        };
        if let Some(name) = named(&OUTPUT) {
            self.take_output(name, value);
        } else if let Some(name) = named(&COUNTS) {
            self.take_count(name, value);
        }
    }

    /// 0 and -1 mean no bound to Ollama and llama.cpp.
    fn take_output(&mut self, name: &'static str, value: Value) {
        match value {
            Value::Absent | Value::Null => {}
            Value::MinusOne | Value::Whole(0) | Value::WholeOddly(0) => self.output_is_open = true,
            Value::Whole(bound) | Value::WholeOddly(bound) => self.output = self.output.max(Some(bound)),
            Value::Text(_) | Value::Bool(_) | Value::Number | Value::Object | Value::Array { .. } => {
                self.unfit = self.unfit.or(Some(name));
            }
        }
    }

    fn take_count(&mut self, name: &'static str, value: Value) {
        match value {
            Value::Absent | Value::Null => {}
            Value::Whole(count) | Value::WholeOddly(count) => self.count = self.count.max(Some(count)),
            Value::Text(_)
            | Value::Bool(_)
            | Value::MinusOne
            | Value::Number
            | Value::Object
            | Value::Array { .. } => self.unfit = self.unfit.or(Some(name)),
        }
    }
}

const OUTPUT: [(Field, &str); 3] = [
    (Field::MaxTokens, "max_tokens"),
    (Field::MaxCompletionTokens, "max_completion_tokens"),
    (Field::MaxOutputTokens, "max_output_tokens"),
];
const COUNTS: [(Field, &str); 4] = [
    (Field::Count, "n"),
    (Field::BestOf, "best_of"),
    (Field::NumCompletions, "num_completions"),
    (Field::NumGenerations, "num_generations"),
];
