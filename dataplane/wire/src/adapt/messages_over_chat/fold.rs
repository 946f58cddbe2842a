//! Folds system text in the middle of a conversation into the adjacent user message, for targets whose templates accept
//! system text only at the beginning.

use std::borrow::Cow;

use super::content::{SystemPlace, joined};
use super::request::{member, text_member};
use crate::adapt::Rejection;
use crate::adapt::path::MemberPath;
use crate::json::Tree;

/// The destinations of a conversation's system texts. By default all stay where they are.
#[derive(Debug, Default)]
pub(super) struct Folded {
    /// System texts that precede all messages.
    leading: Vec<String>,
    /// The text added to each message, `None` for one that moved elsewhere; empty if nothing is folded.
    messages: Vec<Option<Beside>>,
}

/// System text to add before and after the content of a message.
#[derive(Debug, Default)]
pub(super) struct Beside {
    pub(super) before: Vec<String>,
    pub(super) after: Vec<String>,
    /// True if the message is system text without an adjacent user message: it becomes a user message.
    pub(super) stands_alone: bool,
}

impl Folded {
    /// Computes the folding of `messages`, which are at `path`.
    pub(super) fn of(messages: &[Tree<'_, '_>], path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let role = |position: usize| messages.get(position).and_then(|message| text_member(*message, "role"));
        let is_system = |position: usize| role(position) == Some("system");
        let mut folded = Self { leading: Vec::new(), messages: Vec::with_capacity(messages.len()) };
        folded.messages.resize_with(messages.len(), || Some(Beside::default()));
        for (position, message) in messages.iter().enumerate().filter(|(position, _)| is_system(*position)) {
            let Some(content) = member(*message, "content") else { continue };
            let content_path = path.at(position);
            let text = joined(content, &content_path.member("content"), SystemPlace::Message)?.into_owned();
            if text.is_empty() {
                folded.put(position, None);
                continue;
            }
            let before = (0..position).rev().find(|position| !is_system(*position));
            let after = (position..messages.len()).find(|position| !is_system(*position));
            let Some(before) = before else {
                folded.leading.push(text);
                folded.put(position, None);
                continue;
            };
            if let Some(beside) =
                after.filter(|after| role(*after) == Some("user")).and_then(|at| folded.at(at))
            {
                beside.before.push(text);
            } else if role(before) == Some("user")
                && let Some(beside) = folded.at(before)
            {
                beside.after.push(text);
            } else {
                folded.put(position, Some(Beside { stands_alone: true, ..Beside::default() }));
                continue;
            }
            folded.put(position, None);
        }
        Ok(folded)
    }

    fn at(&mut self, position: usize) -> Option<&mut Beside> {
        self.messages.get_mut(position)?.as_mut()
    }

    fn put(&mut self, position: usize, beside: Option<Beside>) {
        if let Some(place) = self.messages.get_mut(position) {
            *place = beside;
        }
    }

    /// Returns the system texts that precede all messages.
    pub(super) fn leading(&self) -> impl Iterator<Item = &str> {
        self.leading.iter().map(String::as_str)
    }

    /// Returns the text to add to the message at `position`; `None` if that message itself moved elsewhere.
    pub(super) fn beside(&self, position: usize) -> Option<&Beside> {
        const NOTHING: &Beside = &Beside { before: Vec::new(), after: Vec::new(), stands_alone: false };
        self.messages.get(position).map_or(Some(NOTHING), Option::as_ref)
    }
}

impl Beside {
    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// Returns `text` with the added text around it.
    pub(super) fn around<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.is_empty() {
            return text.into();
        }
        let before = self.before.iter().map(String::as_str);
        let after = self.after.iter().map(String::as_str);
        before.chain([text]).chain(after).collect::<Vec<_>>().join("\n\n").into()
    }
}
