//! Translates the request: checks its fields and writes the target's members in order.

use super::answer::GeminiTarget;
use super::config::write_config;
use super::contents::GeminiContents;
use super::losses::LOSSES;
use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_client::{CallIdentity, ChatToolChoice, dropped, form, refuse_listed, tools};
use crate::adapt::through_chat::AskedOfTarget;
use crate::adapt::tool_names::{Rule, ToolNames};
use crate::adapt::{Asking, Rejection, Traits};
use crate::chat::request::{ChatRequest, messages_path};
use crate::json::JsonWriter;

/// Translates a chat request into a generateContent request.
pub(super) fn ask(request: &ChatRequest<'_, '_>, asking: &Asking<'_>) -> Result<AskedOfTarget, Rejection> {
    refuse_listed(request.trees(), LOSSES)?;
    let mut names = ToolNames::new(Rule::Google);
    let mut adjusted = Adjusted::default();
    let body = write_request(request, asking.target, &mut names, &mut adjusted)?;
    Ok(AskedOfTarget {
        body,
        target: Box::new(GeminiTarget { calls: CallIdentity::new(asking, names) }),
        form: form(asking, request),
        dropped: dropped(request, LOSSES),
        adjusted,
    })
}

fn write_request(
    request: &ChatRequest<'_, '_>,
    target: &Traits<'_>,
    names: &mut ToolNames,
    adjusted: &mut Adjusted,
) -> Result<Vec<u8>, Rejection> {
    let mut contents = GeminiContents::new(target, names);
    let path = messages_path();
    for (position, message) in request.messages.iter().enumerate() {
        contents.message(message, &path.at(position))?;
    }
    let mut json = JsonWriter::default();
    json.object();
    contents.write(&mut json)?;
    write_config(request, target, adjusted, &mut json)?;
    write_tools(request, names, &mut json)?;
    json.end_object();
    Ok(json.finish())
}

/// Writes `tools` and `toolConfig`, if there are tools.
fn write_tools(
    request: &ChatRequest<'_, '_>,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let tools = tools(&request.tools, LOSSES)?;
    if tools.functions.is_empty() {
        return Ok(());
    }
    json.name("tools").list().object().name("functionDeclarations").list();
    for function in &tools.functions {
        json.object().name("name").text(&names.fit(&function.name));
        function.write_description(json);
        if function.parameters.is_some() {
            function.write_parameters(json.name("parametersJsonSchema"));
        }
        json.end_object();
    }
    json.end_list().end_object().end_list();
    let (mode, name) = match tools.mode {
        ChatToolChoice::Unset => return Ok(()),
        ChatToolChoice::Auto => ("AUTO", None),
        ChatToolChoice::None => ("NONE", None),
        ChatToolChoice::Required => ("ANY", None),
        ChatToolChoice::Named(name) => ("ANY", Some(name)),
    };
    json.name("toolConfig").object().name("functionCallingConfig").object().name("mode").text(mode);
    if let Some(name) = name {
        json.name("allowedFunctionNames").list().text(&names.fit(name)).end_list();
    }
    json.end_object().end_object();
    Ok(())
}
