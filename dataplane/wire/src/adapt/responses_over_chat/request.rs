//! Translates a Responses request into a chat request.

use simd_json::prelude::ValueAsScalar as _;

use super::agents::{AgentForm, AgentTools};
use super::answer::ResponsesForm;
use super::echo::EchoedRequest;
use super::losses::{check, refuse};
use super::messages::{self, Messages};
use super::tools;
use crate::adapt::read::{self, Object, member, members};
use crate::adapt::through_chat::AskedInChat;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::{Asking, Rejection, Traits};
use crate::chat::request::{AnswerSchema, ChatRequest, ChatResponseFormat, OptionValue};
use crate::json::{self, Tree};

/// Translates the request `body` and prepares the translation of its answers.
pub(super) fn ask<'t, 'i>(body: Tree<'t, 'i>, asking: &Asking<'i>) -> Result<AskedInChat<'t, 'i>, Rejection> {
    let object = read::object(body, || "body".to_owned())?;
    let mut agents = asking.target.agents.map(|_| AgentTools::read(&object)).transpose()?;
    for (name, value) in members(&object).filter(|(name, _)| agents.is_none() || *name != "include") {
        check(name, value)?;
    }
    let mut form =
        asking.target.agents.map(|seal| AgentForm::of(&object, seal)).transpose()?.unwrap_or_default();
    let rule = if asking.target.word_tool_names { Rule::Word(WORD_MAX) } else { Rule::Any };
    let mut names = ToolNames::new(rule);
    let mut request = translate(&object, asking.target, &mut names, agents.as_mut())?;
    request.keeps_thoughts = form.seal.is_some();
    form.calls = agents.as_ref().map(AgentTools::calls).unwrap_or_default();
    let dropped = agents.map(|tools| tools.dropped).unwrap_or_default();
    let client = Box::new(ResponsesForm::new(EchoedRequest::new(&object, asking), names, form));
    Ok(AskedInChat { request, client, dropped })
}

fn translate<'t, 'i>(
    request: &Object<'t, 'i>,
    target: &Traits<'i>,
    names: &mut ToolNames,
    mut agents: Option<&mut AgentTools<'t, 'i>>,
) -> Result<ChatRequest<'t, 'i>, Rejection> {
    let mut chat = ChatRequest::default();
    let mut messages = Messages::new(target, names, agents.as_deref_mut());
    messages::translate(request, &mut messages)?;
    chat.messages = messages.messages;
    let mut option = |name: &'i str, value: Option<Tree<'t, 'i>>| {
        chat.options.extend(value.map(|value| (name, OptionValue::Tree(value))));
    };
    option(target.output_limit_field, member(request, "max_output_tokens"));
    for name in ["temperature", "top_p"] {
        option(name, member(request, name));
    }
    if let Some(tools) = tools::translate(request, target, names, agents.as_deref())? {
        option("parallel_tool_calls", member(request, "parallel_tool_calls"));
        chat.tools = tools;
    }
    chat.format = format(request, target)?;
    chat.options
        .extend(reasoning(request, target)?.map(|effort| ("reasoning_effort", OptionValue::Tree(effort))));
    for name in ["prewarm", "comparison_response_id"] {
        inner("prompt_cache_options", name, request)?;
    }
    if member(request, "stream").and_then(|stream| stream.as_bool()) == Some(true) {
        chat.options.push(("stream", OptionValue::Bool(true)));
        chat.include_usage = target.stream_options;
    }
    Ok(chat)
}

/// Returns `text.format`; chat nests the schema one level deeper.
fn format<'t, 'i>(
    request: &Object<'t, 'i>,
    target: &Traits<'_>,
) -> Result<Option<ChatResponseFormat<'t, 'i>>, Rejection> {
    let Some(text) = member(request, "text") else { return Ok(None) };
    let text = read::object(text, || "text".to_owned())?;
    let Some(format) = member(&text, "format") else { return Ok(None) };
    let format = read::object(format, || "text.format".to_owned())?;
    match read::needed_text(&format, "type", || "text.format".to_owned())? {
        "text" => Ok(None),
        "json_object" => Ok(Some(ChatResponseFormat { kind: "json_object", schema: None })),
        "json_schema" if target.json_schema => {
            let given = |name| member(&format, name).map(OptionValue::Tree);
            let schema = AnswerSchema {
                name: given("name"),
                description: given("description"),
                schema: member(&format, "schema"),
                strict: given("strict"),
            };
            Ok(Some(ChatResponseFormat { kind: "json_schema", schema: Some(schema) }))
        }
        _ => Err(refuse("text.format.type", "text.format.type")),
    }
}

/// Returns the effort, if the target reasons.
fn reasoning<'t, 'i>(
    request: &Object<'t, 'i>,
    target: &Traits<'_>,
) -> Result<Option<Tree<'t, 'i>>, Rejection> {
    if target.agents.is_none() {
        inner("reasoning", "context", request)?;
    }
    inner("reasoning", "mode", request)?;
    let effort = member(request, "reasoning").and_then(|reasoning| member(&reasoning.as_object()?, "effort"));
    Ok(effort.filter(|_| target.reasoning))
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
        "tools" if asking.target.agents.is_some() && !rest.is_empty() => {
            let mut bytes = asking.body.to_vec();
            let tape = json::parse(&mut bytes).ok()?;
            let tools = AgentTools::read(&tape.as_value().as_object()?).ok()?;
            let (index, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let tool = tools.declared.get(index.parse::<usize>().ok()?)?;
            let rest = rest.trim_start_matches("function").trim_start_matches("custom");
            Some(format!("{}{rest}", tool.path))
        }
        "response_format" => beside("text.format"),
        "reasoning_effort" => beside("reasoning.effort"),
        "tools" => beside(&path.replacen(".function", "", 1).replacen(".custom", "", 1)),
        "stream_options" => beside("stream"),
        _ if first == asking.target.output_limit_field => beside("max_output_tokens"),
        _ => beside(first),
    }
}
