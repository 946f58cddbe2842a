//! Chat's legacy calls, `function_call`. They have no ids, so adaptations number them; a message of the role `function`
//! names the function whose result it contains.

use std::collections::{HashMap, VecDeque};

use super::Rejection;
use super::path::MemberPath;

/// The legacy calls of a conversation so far.
#[derive(Debug, Default)]
pub(super) struct FunctionCalls<'i> {
    count: u64,
    by_name: HashMap<&'i str, NamedCalls>,
}

/// The calls of one function.
#[derive(Debug, Default)]
struct NamedCalls {
    /// The numbers of the calls without a result, oldest first.
    unanswered: VecDeque<u64>,
    last: u64,
}

impl<'i> FunctionCalls<'i> {
    /// Adds a call and returns its id.
    pub(super) fn call(&mut self, name: &'i str) -> String {
        self.count = self.count.saturating_add(1);
        let calls = self.by_name.entry(name).or_default();
        calls.unanswered.push_back(self.count);
        calls.last = self.count;
        function_id(self.count)
    }

    /// Returns the id of the call that the `function` message at `path` answers: the oldest call of the function
    /// without a result, or else its last call. A message without a name answers the last call of all.
    pub(super) fn answered(
        &mut self,
        name: Option<&str>,
        path: &MemberPath<'_>,
    ) -> Result<String, Rejection> {
        if self.count == 0 {
            let why = "is `function`, but no function call precedes it.";
            return Err(path.member("role").reject(why));
        }
        let Some(name) = name else { return Ok(function_id(self.count)) };
        let Some(calls) = self.by_name.get_mut(name) else {
            let why = "is the name of no function that has been called before.";
            return Err(path.member("name").reject(why));
        };
        Ok(function_id(calls.unanswered.pop_front().unwrap_or(calls.last)))
    }
}

fn function_id(number: u64) -> String {
    format!("call_fn_{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_belongs_to_the_oldest_unanswered_call_of_its_function() {
        let (mut calls, path) = (FunctionCalls::default(), MemberPath::top("messages"));
        for (number, name) in (1..).zip(["f", "g", "f"]) {
            assert_eq!(calls.call(name), function_id(number));
        }
        for (name, want) in [(Some("f"), 1), (Some("g"), 2), (Some("f"), 3), (Some("g"), 2), (None, 3)] {
            assert_eq!(calls.answered(name, &path.at(4)).unwrap(), function_id(want), "{name:?}");
        }
    }

    #[test]
    fn a_result_without_a_call_is_rejected() {
        let (mut calls, path) = (FunctionCalls::default(), MemberPath::top("messages"));
        let refused =
            |calls: &mut FunctionCalls<'_>, name| calls.answered(name, &path.at(1)).unwrap_err().param;
        assert_eq!(refused(&mut calls, Some("f")), "messages.1.role");
        assert_eq!(refused(&mut calls, None), "messages.1.role");
        calls.call("f");
        assert_eq!(refused(&mut calls, Some("g")), "messages.1.name");
    }
}
