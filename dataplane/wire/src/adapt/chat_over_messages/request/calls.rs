//! Writes the tool calls of assistant messages.

use std::borrow::Cow;

use super::content::{MessagesContent, end_block};
use crate::adapt::Rejection;
use crate::adapt::call_id;
use crate::adapt::chat_over_messages::losses::{CUSTOM_CALL, refuse};
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::path::MemberPath;
use crate::adapt::tool_names::ToolNames;
use crate::chat::request::{ChatMessage, RequestCall, ToolKind};

/// Returns `id`, or a replacement that the target accepts.
pub(super) fn portable(id: &str) -> Cow<'_, str> {
    call_id::call_id(id, "toolu_")
}

/// Writes the calls of the message at `path`.
pub(super) fn write<'a>(
    message: &'a ChatMessage<'_, '_>,
    path: &MemberPath<'_>,
    (functions, names): (&mut FunctionCalls<'a>, &mut ToolNames),
    content: &mut MessagesContent<'_>,
) -> Result<(), Rejection> {
    message.each_call(path, |call, path| match &call.id {
        None => tool_use(call, &functions.call(&call.name), names, path, content),
        Some(_) if call.kind != ToolKind::Function => Err(refuse(CUSTOM_CALL, path.to_string())),
        Some(id) => tool_use(call, &portable(id), names, &path.member("function"), content),
    })
}

fn tool_use(
    call: &RequestCall<'_, '_>,
    id: &str,
    names: &mut ToolNames,
    path: &MemberPath<'_>,
    content: &mut MessagesContent<'_>,
) -> Result<(), Rejection> {
    let object = "must be a string with a JSON object.";
    let arguments = call.input.object().ok_or_else(|| path.member("arguments").refuse(object))?;
    let name = names.fit(&call.name);
    let json = content.block().object().name("type").text("tool_use").name("id").text(id);
    json.name("name").text(&name).name("input").raw(arguments.as_bytes());
    end_block(json, call.cache);
    Ok(())
}
