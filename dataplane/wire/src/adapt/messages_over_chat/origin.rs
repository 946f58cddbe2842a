//! Maps members of the chat request back to the client's request, when the second step of a chain rejects one: the
//! request is translated again, this time recording the origin of every part.

use crate::adapt::Asking;
use crate::adapt::path::MemberPath;
use crate::json;

/// Records the origin of each part of the chat request. Records nothing by default.
#[derive(Debug, Default)]
pub(super) struct OriginTrail {
    notes: Option<Vec<(String, String)>>,
    messages: usize,
    parts: usize,
    calls: usize,
    tools: usize,
}

impl OriginTrail {
    fn noting() -> Self {
        Self { notes: Some(Vec::new()), ..Self::default() }
    }

    /// Records that the next message is made from the value at `path`.
    pub(super) fn message(&mut self, path: &MemberPath<'_>) {
        self.messages = self.messages.saturating_add(1);
        (self.parts, self.calls) = (0, 0);
        let place = self.place();
        self.note(place, path);
    }

    /// Records that the next part of its content is made from the value at `path`.
    pub(super) fn part(&mut self, path: &MemberPath<'_>) {
        let place = format_if(self.notes.is_some(), || format!("{}.content.{}", self.place(), self.parts));
        self.parts = self.parts.saturating_add(1);
        self.note(place, path);
    }

    /// Records that its next call is made from the value at `path`.
    pub(super) fn call(&mut self, path: &MemberPath<'_>) {
        let place = format_if(self.notes.is_some(), || format!("{}.tool_calls.{}", self.place(), self.calls));
        self.calls = self.calls.saturating_add(1);
        self.note(place, path);
    }

    /// Records that the next tool is made from the value at `path`.
    pub(super) fn tool(&mut self, path: &MemberPath<'_>) {
        let place = format_if(self.notes.is_some(), || format!("tools.{}", self.tools));
        self.tools = self.tools.saturating_add(1);
        self.note(place, path);
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

/// Returns the member of the client's request from which `param` of the chat request was made.
pub(super) fn origin(asking: &Asking<'_>, param: &str) -> Option<String> {
    let is_tool = param.starts_with("tools.");
    if is_tool || param.starts_with("messages.") {
        let mut document = asking.body.to_vec();
        let tape = json::parse(&mut document).ok()?;
        let translated = super::request::translate(tape.as_value(), asking, OriginTrail::noting()).ok()?;
        let notes = translated.trail.notes?;
        let (rest, origin) = notes
            .iter()
            .filter_map(|(place, origin)| Some((below(param, place)?, origin)))
            .min_by_key(|(rest, _)| rest.len())?;
        let member = match &**origin {
            "system" => "",
            _ if is_tool => renamed(rest, TOOL_MEMBERS),
            _ => renamed(rest, MESSAGE_MEMBERS),
        };
        return Some(joined(origin, member));
    }
    if param == asking.target.output_limit_field {
        return Some("max_tokens".to_owned());
    }
    let name = param.split('.').next()?;
    let name = TOP_MEMBERS.iter().find(|(chat, _)| *chat == name).map(|(_, name)| *name)?;
    let effort = "output_config.effort";
    Some(if name == effort && !has_effort(asking) { "thinking" } else { name }.to_owned())
}

fn has_effort(asking: &Asking<'_>) -> bool {
    serde_json::from_slice::<serde_json::Value>(asking.body)
        .is_ok_and(|body| body.pointer("/output_config/effort").is_some_and(serde_json::Value::is_string))
}

/// Returns the rest of `param` after `place`, if `place` contains it.
fn below<'p>(param: &'p str, place: &str) -> Option<&'p str> {
    let rest = param.strip_prefix(place)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

/// Returns the client's name of a member; an empty string if it has none.
fn renamed<'t>(member: &str, names: &[(&str, &'t str)]) -> &'t str {
    names.iter().find(|(chat, _)| below(member, chat).is_some()).map_or("", |(_, name)| *name)
}

fn joined(place: &str, member: &str) -> String {
    if member.is_empty() { place.to_owned() } else { format!("{place}.{member}") }
}

const TOP_MEMBERS: &[(&str, &str)] = &[
    ("model", "model"),
    ("messages", "messages"),
    ("tools", "tools"),
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("top_k", "top_k"),
    ("stop", "stop_sequences"),
    ("stream", "stream"),
    ("stream_options", "stream"),
    ("response_format", "output_config.format"),
    ("reasoning_effort", "output_config.effort"),
    ("tool_choice", "tool_choice"),
    ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),
];

const TOOL_MEMBERS: &[(&str, &str)] = &[
    ("type", "type"),
    ("function.name", "name"),
    ("function.description", "description"),
    ("function.parameters", "input_schema"),
    ("function.strict", "strict"),
];

const MESSAGE_MEMBERS: &[(&str, &str)] = &[
    ("role", "role"),
    ("content", "content"),
    ("tool_call_id", "tool_use_id"),
    ("text", "text"),
    ("image_url", "source"),
    ("file", "source"),
    ("id", "id"),
    ("function.name", "name"),
    ("function.arguments", "input"),
];
