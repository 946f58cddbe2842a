//! Translates tools and the choice among them.

use simd_json::prelude::{ValueAsScalar as _, ValueIntoString as _};

use super::request::{ChatRequestBuilder, elements, member, refused, required, text_member};
use super::tool_changes::{self, OfferedTool};
use crate::adapt::path::MemberPath;
use crate::adapt::{Rejection, read, schema};
use crate::chat::request::{
    ChatFunction, ChatTool, NamedTool, ObjectSchema, OptionValue, RequestToolChoice, ToolKind,
};
use crate::json::Tree;

/// Adds the tools and the choice among them, if there are any tools.
pub(super) fn tools<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    body: Tree<'t, 'i>,
) -> Result<(), Rejection> {
    let tools = tool_changes::offered(body)?;
    let mut offered = Vec::with_capacity(tools.len());
    for OfferedTool { tool, place } in tools.into_iter().filter(|offered| !is_search(offered.tool)) {
        let function = place.at(|path| {
            builder.trail.tool(path);
            one(builder, tool, path)
        })?;
        offered.push(ChatTool::Function(function));
    }
    if offered.is_empty() {
        return Ok(());
    }
    builder.request.tools.tools = Some(offered);
    match member(body, "tool_choice") {
        Some(choice) => tool_choice(builder, choice),
        None => Ok(()),
    }
}

/// Returns true for Anthropic's search for deferred tools. It is dropped, because all tools are offered from the start.
pub(super) fn is_search(tool: Tree<'_, '_>) -> bool {
    text_member(tool, "type").is_some_and(|kind| kind.starts_with(SEARCH))
}

/// The common prefix of the types and names of Anthropic's search tools.
pub(super) const SEARCH: &str = "tool_search_tool";

fn one<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    tool: Tree<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<ChatFunction<'t, 'i>, Rejection> {
    if !matches!(text_member(tool, "type"), None | Some("custom")) {
        return Err(refused(
            &path.member("type"),
            "a tool that Anthropic runs, or that only its models support",
        ));
    }
    let callers = member(tool, "allowed_callers").and_then(elements).unwrap_or_default();
    if callers.iter().any(|caller| caller.into_string() != Some("direct")) {
        return Err(refused(&path.member("allowed_callers"), "only the model itself can call tools"));
    }
    let name = builder.names.fit(required(tool, "name", path)?);
    let is_text = |text: &Tree<'_, '_>| read::as_text(*text).is_some_and(|text| !text.is_empty());
    let input = member(tool, "input_schema");
    if input.is_some_and(|input| input.as_object().is_none()) {
        return Err(path.member("input_schema").reject("must be a JSON schema"));
    }
    let strict = member(tool, "strict").and_then(|strict| strict.as_bool()) == Some(true);
    Ok(ChatFunction {
        name,
        description: member(tool, "description").filter(is_text),
        parameters: Some(ObjectSchema(input)),
        merged: None,
        free_text: None,
        strict: strict && builder.target.strict_tools && input.is_some_and(schema::is_strict),
        cache: builder.cache_mark(tool),
    })
}

fn tool_choice<'i>(builder: &mut ChatRequestBuilder<'_, 'i>, choice: Tree<'_, 'i>) -> Result<(), Rejection> {
    let path = MemberPath::top("tool_choice");
    let chosen = match required(choice, "type", &path)? {
        "auto" => RequestToolChoice::Word("auto"),
        "any" => RequestToolChoice::Word("required"),
        "none" => RequestToolChoice::Word("none"),
        "tool" => {
            let name = builder.names.fit(required(choice, "name", &path)?);
            RequestToolChoice::Named(NamedTool { kind: ToolKind::Function, name })
        }
        _ => return Err(path.member("type").reject("must be 'auto', 'any', 'tool' or 'none'")),
    };
    builder.request.tools.choice = Some(chosen);
    let disabled = member(choice, "disable_parallel_tool_use").and_then(|disabled| disabled.as_bool());
    if disabled == Some(true) {
        builder.request.options.push(("parallel_tool_calls", OptionValue::Bool(false)));
    }
    Ok(())
}
