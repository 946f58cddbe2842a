//! Maps members of the chat request back to the client's request.

use crate::adapt::Asking;
use crate::adapt::origin_trail::{OriginTrail, below};
use crate::json;

/// Returns the member of the client's request from which `param` of the chat request was made.
pub(super) fn origin(asking: &Asking<'_>, param: &str) -> Option<String> {
    let is_tool = param.starts_with("tools.");
    if is_tool || param.starts_with("messages.") {
        let mut document = asking.body.to_vec();
        let tape = json::parse(&mut document).ok()?;
        let translated = super::request::translate(tape.as_value(), asking, OriginTrail::noting()).ok()?;
        let (rest, origin) = translated.trail.find(param)?;
        let member = match &*origin {
            "system" => "",
            _ if is_tool => renamed(rest, TOOL_MEMBERS),
            _ => renamed(rest, MESSAGE_MEMBERS),
        };
        return Some(joined(&origin, member));
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
