//! Translates a Responses request into a chat request.

use simd_json::prelude::ValueAsScalar as _;

use super::answer::ResponsesForm;
use super::echo::EchoedRequest;
use super::losses::{check, refuse};
use super::messages::{self, Messages};
use super::tools;
use crate::adapt::read::{self, Object, member, members};
use crate::adapt::through_chat::AskedInChat;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::write::ObjectWriter;
use crate::adapt::{Asking, Rejection, Traits};
use crate::json;

/// Translates the request and prepares the translation of its answers.
pub(super) fn ask(asking: &Asking<'_>) -> Result<AskedInChat, Rejection> {
    let mut bytes = asking.body.to_vec();
    let tape = json::parse(&mut bytes).map_err(read::refuse_fault)?;
    let request = read::object(tape.as_value(), || "body".to_owned())?;
    for (name, value) in members(&request) {
        check(name, value)?;
    }
    let mut body = Vec::with_capacity(asking.body.len().saturating_add(256));
    let rule = if asking.target.word_tool_names { Rule::Word(WORD_MAX) } else { Rule::Any };
    let mut names = ToolNames::new(rule);
    write(&request, asking.target, &mut names, &mut body)?;
    let client = Box::new(ResponsesForm::new(EchoedRequest::new(&request, asking), names));
    Ok(AskedInChat { body, client, dropped: Vec::new() })
}

fn write(
    request: &Object<'_, '_>,
    target: &Traits<'_>,
    names: &mut ToolNames,
    body: &mut Vec<u8>,
) -> Result<(), Rejection> {
    let mut chat = ObjectWriter::open(body);
    chat.text("model", target.model);
    let mut messages = Messages::new(target, names, chat.key("messages"));
    messages::write(request, &mut messages)?;
    if let Some(limit) = member(request, "max_output_tokens") {
        chat.tree(target.output_limit_field, limit);
    }
    for name in ["temperature", "top_p"] {
        if let Some(value) = member(request, name) {
            chat.tree(name, value);
        }
    }
    tools::write(request, target, names, &mut chat)?;
    format(request, target, &mut chat)?;
    reasoning(request, target, &mut chat)?;
    for name in ["prewarm", "comparison_response_id"] {
        inner("prompt_cache_options", name, request)?;
    }
    if member(request, "stream").and_then(|stream| stream.as_bool()) == Some(true) {
        chat.raw("stream", "true");
        if target.stream_options {
            chat.raw("stream_options", r#"{"include_usage":true}"#);
        }
    }
    chat.close();
    Ok(())
}

/// Writes `text.format`; chat nests the schema one level deeper.
fn format(
    request: &Object<'_, '_>,
    target: &Traits<'_>,
    chat: &mut ObjectWriter<'_>,
) -> Result<(), Rejection> {
    let Some(text) = member(request, "text") else { return Ok(()) };
    let text = read::object(text, || "text".to_owned())?;
    let Some(format) = member(&text, "format") else { return Ok(()) };
    let format = read::object(format, || "text.format".to_owned())?;
    match read::needed_text(&format, "type", || "text.format".to_owned())? {
        "text" => {}
        "json_object" => chat.raw("response_format", r#"{"type":"json_object"}"#),
        "json_schema" if target.json_schema => {
            let mut outer = ObjectWriter::open(chat.key("response_format"));
            outer.raw("type", r#""json_schema""#);
            let mut schema = ObjectWriter::open(outer.key("json_schema"));
            for name in ["name", "description", "schema", "strict"] {
                if let Some(value) = member(&format, name) {
                    schema.tree(name, value);
                }
            }
            schema.close();
            outer.close();
        }
        _ => return Err(refuse("text.format.type", "text.format.type")),
    }
    Ok(())
}

fn reasoning(
    request: &Object<'_, '_>,
    target: &Traits<'_>,
    chat: &mut ObjectWriter<'_>,
) -> Result<(), Rejection> {
    inner("reasoning", "context", request)?;
    inner("reasoning", "mode", request)?;
    let effort = member(request, "reasoning")
        .and_then(|reasoning| member(&reasoning.as_object()?, "effort"))
        .filter(|_| target.reasoning);
    if let Some(effort) = effort {
        chat.tree("reasoning_effort", effort);
    }
    Ok(())
}

/// Rejects the member `name` of the member `outer` if its row requires that.
fn inner(outer: &str, name: &str, request: &Object<'_, '_>) -> Result<(), Rejection> {
    let value = member(request, outer).and_then(|outer| member(&outer.as_object()?, name));
    value.map_or(Ok(()), |value| check(&format!("{outer}.{name}"), value))
}

/// Returns the member of the client's request from which a member of the chat request was made.
pub(super) fn origin(asking: &Asking<'_>, path: &str) -> Option<String> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let beside = |name: &str| Some(name.to_owned());
    match first {
        "messages" if rest.is_empty() => beside("input"),
        "messages" => {
            let mut bytes = asking.body.to_vec();
            let tape = json::parse(&mut bytes).ok()?;
            messages::origin(&tape.as_value().as_object()?, asking.target, rest)
        }
        "response_format" => beside("text.format"),
        "reasoning_effort" => beside("reasoning.effort"),
        "tools" => beside(&path.replacen(".function", "", 1).replacen(".custom", "", 1)),
        "stream_options" => beside("stream"),
        _ if first == asking.target.output_limit_field => beside("max_output_tokens"),
        _ => beside(first),
    }
}
