//! Translates the request: checks its fields and writes the target's members in order.

use simd_json::tape::Object;

use super::answer::GeminiTarget;
use super::config::write_config;
use super::contents::GeminiContents;
use super::losses::LOSSES;
use crate::adapt::chat_client::{CallIdentity, ChatToolChoice, form, messages, refuse_listed, tools};
use crate::adapt::loss::unknown;
use crate::adapt::through_chat::AskedOfTarget;
use crate::adapt::tool_names::{Rule, ToolNames};
use crate::adapt::{Asking, Rejection, Traits, read, schema};
use crate::json::{self, JsonWriter};

/// Translates a chat request into a generateContent request.
pub(super) fn ask(asking: &Asking<'_>) -> Result<AskedOfTarget, Rejection> {
    let mut body = asking.body.to_vec();
    let tape = json::parse(&mut body).map_err(read::refuse_fault)?;
    let request = read::object(tape.as_value(), String::new)?;
    refuse_listed(&request, LOSSES)?;
    let mut names = ToolNames::new(Rule::Google);
    let body = write_request(&request, asking.target, &mut names)?;
    Ok(AskedOfTarget {
        body,
        target: Box::new(GeminiTarget { calls: CallIdentity::new(asking, names) }),
        form: form(asking, &request),
        dropped: unknown(&request, LOSSES),
    })
}

fn write_request(
    request: &Object<'_, '_>,
    target: &Traits<'_>,
    names: &mut ToolNames,
) -> Result<Vec<u8>, Rejection> {
    let mut contents = GeminiContents::new(target, names);
    for message in messages(request)? {
        contents.message(&message)?;
    }
    let mut json = JsonWriter::default();
    json.object();
    contents.write(&mut json)?;
    write_config(request, target, &mut json)?;
    write_tools(request, names, &mut json)?;
    json.end_object();
    Ok(json.finish())
}

/// Writes `tools` and `toolConfig`, if there are tools.
fn write_tools(
    request: &Object<'_, '_>,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let tools = tools(request, LOSSES)?;
    if tools.functions.is_empty() {
        return Ok(());
    }
    json.name("tools").list().object().name("functionDeclarations").list();
    for function in &tools.functions {
        json.object().name("name").text(&names.fit(function.name));
        if let Some(description) = read::member(&function.members, "description") {
            json.name("description").tree(description);
        }
        if let Some(parameters) = read::member(&function.members, "parameters") {
            let mut input = Vec::new();
            schema::write_object(Some(parameters), &mut input);
            json.name("parametersJsonSchema").raw(&input);
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
