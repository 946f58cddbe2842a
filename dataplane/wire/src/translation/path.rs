//! The path of a value in a document, as a linked list on the stack: it is formatted only for a rejection.

use std::fmt;

use super::Rejection;

/// The path of a value in a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberPath<'a> {
    above: Option<&'a MemberPath<'a>>,
    step: PathStep<'a>,
}

#[derive(Clone, Copy, Debug)]
enum PathStep<'a> {
    Member(&'a str),
    Element(usize),
}

impl<'a> MemberPath<'a> {
    /// The path of a top-level member.
    pub(crate) fn top(name: &'a str) -> Self {
        Self { above: None, step: PathStep::Member(name) }
    }

    /// The path of a member of this value.
    pub(crate) fn member(&'a self, name: &'a str) -> Self {
        Self { above: Some(self), step: PathStep::Member(name) }
    }

    /// The path of an element of this value.
    pub(crate) fn at(&'a self, position: usize) -> Self {
        Self { above: Some(self), step: PathStep::Element(position) }
    }

    /// Rejects this value, which the target cannot express; `why` completes the sentence that begins with its path.
    pub(crate) fn refuse(&self, why: &str) -> Rejection {
        Rejection::new(self.to_string(), why)
    }

    /// Rejects this value as malformed; `why` completes the sentence that begins with its path.
    pub(crate) fn reject(&self, why: &str) -> Rejection {
        Rejection::malformed(self.to_string(), why)
    }
}

impl fmt::Display for MemberPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            write!(f, "{above}.")?;
        }
        match self.step {
            PathStep::Member(name) => f.write_str(name),
            PathStep::Element(position) => write!(f, "{position}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_members_and_positions_joined_by_dots() {
        let messages = MemberPath::top("messages");
        let (message, content) = (messages.at(2), "content");
        assert_eq!(message.member(content).at(0).to_string(), "messages.2.content.0");
        let rejection = message.reject("is odd");
        assert_eq!(
            (rejection.param.as_str(), rejection.message.as_str()),
            ("messages.2", "'messages.2' is odd")
        );
    }
}
