//! Reads the client's bounds on the answer as the largest value that any upstream could derive from them: upstreams
//! differ in which of two names, or of two equal ones, takes precedence.

use super::field::RequestMember;
use super::value::MemberValue;

/// The largest bounds read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) struct OutputBounds {
    /// The maximum tokens of one answer.
    pub(in crate::request) output: Option<u64>,
    /// True if a member requests an answer without a bound.
    pub(in crate::request) output_is_open: bool,
    /// The number of answers, pictures or videos.
    pub(in crate::request) count: Option<u64>,
    /// The first member whose value is not a valid bound.
    pub(in crate::request) unfit: Option<&'static str>,
}

impl OutputBounds {
    /// Reads one more member if it is a bound.
    #[inline]
    pub(super) fn take(&mut self, field: RequestMember, value: MemberValue) {
        let named = |names: &[(RequestMember, &'static str)]| {
            names.iter().find(|(bound, _)| *bound == field).map(|(_, name)| *name)
        };
        if let Some(name) = named(&OUTPUT) {
            self.take_output(name, value);
        } else if let Some(name) = named(&COUNTS) {
            self.take_count(name, value);
        }
    }

    /// Ollama and llama.cpp treat 0 and -1 as no bound.
    fn take_output(&mut self, name: &'static str, value: MemberValue) {
        match value {
            MemberValue::Absent | MemberValue::Null => {}
            MemberValue::MinusOne | MemberValue::Whole(0) | MemberValue::WholeOddly(0) => {
                self.output_is_open = true
            }
            MemberValue::Whole(bound) | MemberValue::WholeOddly(bound) => {
                self.output = self.output.max(Some(bound))
            }
            MemberValue::Text(_)
            | MemberValue::Bool(_)
            | MemberValue::Number
            | MemberValue::Object
            | MemberValue::Array { .. } => {
                self.unfit = self.unfit.or(Some(name));
            }
        }
    }

    fn take_count(&mut self, name: &'static str, value: MemberValue) {
        match value {
            MemberValue::Absent | MemberValue::Null => {}
            MemberValue::Whole(count) | MemberValue::WholeOddly(count) => {
                self.count = self.count.max(Some(count))
            }
            MemberValue::Text(_)
            | MemberValue::Bool(_)
            | MemberValue::MinusOne
            | MemberValue::Number
            | MemberValue::Object
            | MemberValue::Array { .. } => self.unfit = self.unfit.or(Some(name)),
        }
    }
}

const OUTPUT: [(RequestMember, &str); 3] = [
    (RequestMember::MaxTokens, "max_tokens"),
    (RequestMember::MaxCompletionTokens, "max_completion_tokens"),
    (RequestMember::MaxOutputTokens, "max_output_tokens"),
];
const COUNTS: [(RequestMember, &str); 4] = [
    (RequestMember::Count, "n"),
    (RequestMember::BestOf, "best_of"),
    (RequestMember::NumCompletions, "num_completions"),
    (RequestMember::NumGenerations, "num_generations"),
];
