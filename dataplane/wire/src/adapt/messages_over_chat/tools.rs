//! Translates tools and the choice among them.

use simd_json::prelude::{ValueAsScalar as _, ValueIntoString as _};

use super::request::{ChatRequestWriter, elements, member, refused, required, text_member};
use crate::adapt::path::MemberPath;
use crate::adapt::{Rejection, schema};
use crate::json::Tree;

/// Writes `,"tools":[..],"tool_choice":..`, if there are any tools.
pub(super) fn tools(writer: &mut ChatRequestWriter<'_>, body: Tree<'_, '_>) -> Result<(), Rejection> {
    let path = MemberPath::top("tools");
    let Some(tools) = member(body, "tools") else { return Ok(()) };
    let tools = elements(tools).ok_or_else(|| path.reject("must be an array"))?;
    let mut offered = tools.iter().enumerate().filter(|(_, tool)| !is_search(**tool)).peekable();
    if offered.peek().is_none() {
        return Ok(());
    }
    writer.raw(",\"tools\":[");
    for (count, (position, tool)) in offered.enumerate() {
        writer.raw(if count == 0 { "" } else { "," });
        one(writer, *tool, &path.at(position))?;
    }
    writer.raw("]");
    match member(body, "tool_choice") {
        Some(choice) => tool_choice(writer, choice),
        None => Ok(()),
    }
}

/// Returns true for Anthropic's search for deferred tools. It is dropped, because all tools are offered from the start.
fn is_search(tool: Tree<'_, '_>) -> bool {
    text_member(tool, "type").is_some_and(|kind| kind.starts_with(SEARCH))
}

/// The common prefix of the types and names of Anthropic's search tools.
pub(super) const SEARCH: &str = "tool_search_tool";

fn one(
    writer: &mut ChatRequestWriter<'_>,
    tool: Tree<'_, '_>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
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
    writer.raw("{\"type\":\"function\",\"function\":{\"name\":");
    writer.tool_name(required(tool, "name", path)?);
    if let Some(description) = text_member(tool, "description").filter(|text| !text.is_empty()) {
        writer.raw(",\"description\":");
        writer.text(description);
    }
    writer.raw(",\"parameters\":");
    let input = member(tool, "input_schema");
    if input.is_some_and(|input| input.as_object().is_none()) {
        return Err(path.member("input_schema").reject("must be a JSON schema"));
    }
    schema::write_object(input, &mut writer.out);
    let strict = member(tool, "strict").and_then(|strict| strict.as_bool()) == Some(true);
    if strict && writer.target.strict_tools && input.is_some_and(schema::is_strict) {
        writer.raw(",\"strict\":true");
    }
    writer.raw("}");
    writer.cache_mark(tool);
    writer.raw("}");
    Ok(())
}

fn tool_choice(writer: &mut ChatRequestWriter<'_>, choice: Tree<'_, '_>) -> Result<(), Rejection> {
    let path = MemberPath::top("tool_choice");
    writer.raw(",\"tool_choice\":");
    match required(choice, "type", &path)? {
        "auto" => writer.raw("\"auto\""),
        "any" => writer.raw("\"required\""),
        "none" => writer.raw("\"none\""),
        "tool" => {
            writer.raw("{\"type\":\"function\",\"function\":{\"name\":");
            writer.tool_name(required(choice, "name", &path)?);
            writer.raw("}}");
        }
        _ => return Err(path.member("type").reject("must be 'auto', 'any', 'tool' or 'none'")),
    }
    let disabled = member(choice, "disable_parallel_tool_use").and_then(|disabled| disabled.as_bool());
    if disabled == Some(true) {
        writer.raw(",\"parallel_tool_calls\":false");
    }
    Ok(())
}
