//! Maps members of the chat request back to the client's request, when the second step of a chain rejects one: the
//! request is translated again, this time recording the origin of every part.

use super::path::MemberPath;

/// Records the origin of each part of the chat request. Records nothing by default.
#[derive(Debug, Default)]
pub(in crate::adapt) struct OriginTrail {
    notes: Option<Vec<(String, String)>>,
    messages: usize,
    parts: usize,
    calls: usize,
    tools: usize,
}

impl OriginTrail {
    /// Returns a trail that records.
    pub(in crate::adapt) fn noting() -> Self {
        Self { notes: Some(Vec::new()), ..Self::default() }
    }

    /// Records that the next message is made from the value at `path`.
    pub(in crate::adapt) fn message(&mut self, path: &MemberPath<'_>) {
        self.messages = self.messages.saturating_add(1);
        (self.parts, self.calls) = (0, 0);
        let place = self.place();
        self.note(place, path);
    }

    /// Records that the next part of its content is made from the value at `path`.
    pub(in crate::adapt) fn part(&mut self, path: &MemberPath<'_>) {
        let place = format_if(self.notes.is_some(), || format!("{}.content.{}", self.place(), self.parts));
        self.parts = self.parts.saturating_add(1);
        self.note(place, path);
    }

    /// Records that its next call is made from the value at `path`.
    pub(in crate::adapt) fn call(&mut self, path: &MemberPath<'_>) {
        let place = format_if(self.notes.is_some(), || format!("{}.tool_calls.{}", self.place(), self.calls));
        self.calls = self.calls.saturating_add(1);
        self.note(place, path);
    }

    /// Records that the next tool is made from the value at `path`.
    pub(in crate::adapt) fn tool(&mut self, path: &MemberPath<'_>) {
        let place = format_if(self.notes.is_some(), || format!("tools.{}", self.tools));
        self.tools = self.tools.saturating_add(1);
        self.note(place, path);
    }

    /// Forgets the last message, which was not added.
    pub(in crate::adapt) fn unsay(&mut self) {
        let place = self.place();
        if let Some(notes) = &mut self.notes {
            notes.retain(|(noted, _)| below(noted, &place).is_none());
        }
        self.messages = self.messages.saturating_sub(1);
    }

    /// Returns the origin of the innermost part that contains `param`, and the rest of `param` below that part.
    pub(in crate::adapt) fn find(self, param: &str) -> Option<(&str, String)> {
        let notes = self.notes?.into_iter();
        let found = notes.filter_map(|(place, origin)| Some((below(param, &place)?, origin)));
        found.min_by_key(|(rest, _)| rest.len())
    }

    fn place(&self) -> String {
        format_if(self.notes.is_some(), || format!("messages.{}", self.messages.saturating_sub(1)))
    }

    fn note(&mut self, place: String, path: &MemberPath<'_>) {
        if let Some(notes) = &mut self.notes {
            notes.push((place, path.to_string()));
        }
    }
}

fn format_if(wanted: bool, format: impl FnOnce() -> String) -> String {
    if wanted { format() } else { String::new() }
}

/// Returns the rest of `param` after `place`, if `place` contains it.
pub(in crate::adapt) fn below<'p>(param: &'p str, place: &str) -> Option<&'p str> {
    let rest = param.strip_prefix(place)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}
