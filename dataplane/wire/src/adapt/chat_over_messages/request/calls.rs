//! Writes the tool calls of assistant messages.

use std::borrow::Cow;

use serde_json::value::RawValue;
use simd_json::tape::Object;

use super::content::{MessagesContent, cache_control, cache_of};
use super::messages::ClientMessage;
use crate::adapt::chat_over_messages::losses::{CUSTOM_CALL, refuse};
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::ObjectWriter;
use crate::adapt::{Rejection, call_id, read};
use crate::json::Tree;

/// Returns `id`, or a replacement that the target accepts.
pub(super) fn portable(id: &str) -> Cow<'_, str> {
    call_id::call_id(id, "toolu_")
}

/// Writes the calls of a message.
pub(super) fn write<'i>(
    message: &ClientMessage<'_, 'i>,
    functions: &mut FunctionCalls<'i>,
    names: &mut ToolNames,
    content: &mut MessagesContent<'_>,
) -> Result<(), Rejection> {
    if let Some(call) = message.member("function_call") {
        let path = || message.path("function_call");
        let call = read::object(call, path)?;
        let id = functions.call(read::needed_text(&call, "name", path)?);
        tool_use(&call, (&id, names), path, (content, None))?;
    }
    let Some(calls) = message.member("tool_calls") else { return Ok(()) };
    for (position, call) in read::array(calls, || message.path("tool_calls"))?.iter().enumerate() {
        let path = || format!("messages.{}.tool_calls.{position}", message.position);
        let call = read::object(call, path)?;
        let kind = read::member(&call, "type");
        if kind.is_some_and(|kind| read::as_text(kind) != Some("function")) {
            return Err(refuse(CUSTOM_CALL, path()));
        }
        let id = portable(read::needed_text(&call, "id", path)?);
        let inner = || format!("{}.function", path());
        let function = read::member(&call, "function");
        let function = function.ok_or_else(|| Rejection::malformed(inner(), "is missing."))?;
        tool_use(&read::object(function, inner)?, (&id, names), inner, (content, cache_of(&call)))?;
    }
    Ok(())
}

fn tool_use(
    function: &Object<'_, '_>,
    (id, names): (&str, &mut ToolNames),
    path: impl Fn() -> String,
    (content, cache): (&mut MessagesContent<'_>, Option<Tree<'_, '_>>),
) -> Result<(), Rejection> {
    let name = read::needed_text(function, "name", &path)?;
    let arguments = CallArguments::of(read::member(function, "arguments"));
    let arguments = arguments.ok_or_else(|| Rejection::new(format!("{}.arguments", path()), OBJECT))?;
    let mut block = ObjectWriter::open(content.block());
    block.text("type", "tool_use");
    block.text("id", id);
    block.text("name", &names.fit(name));
    match arguments {
        CallArguments::Written(json) => block.raw("input", json),
        CallArguments::Read(value) => block.tree("input", value),
    }
    cache_control(&mut block, cache);
    block.close();
    Ok(())
}

/// The JSON object of a call's arguments.
#[derive(Clone, Copy)]
enum CallArguments<'t, 'i> {
    Written(&'i str),
    Read(Tree<'t, 'i>),
}

impl<'t, 'i> CallArguments<'t, 'i> {
    /// Reads arguments. Chat defines them as a string, which may be empty; some clients send the object itself.
    fn of(value: Option<Tree<'t, 'i>>) -> Option<Self> {
        let Some(value) = value else { return Some(Self::Written("{}")) };
        let Some(text) = read::as_text(value) else { return value.is_object().then_some(Self::Read(value)) };
        let text = text.trim();
        if text.is_empty() {
            return Some(Self::Written("{}"));
        }
        let is_object = text.starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok();
        is_object.then_some(Self::Written(text))
    }
}

const OBJECT: &str = "must be a string with a JSON object.";
