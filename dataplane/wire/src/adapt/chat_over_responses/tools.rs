//! Writes tools and the tool choice, which are nested in chat and flat in Responses.

use simd_json::prelude::ValueAsScalar as _;

use super::losses::refuse;
use super::request::kind;
use crate::adapt::read::{self, Object, as_text, member};
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::{ObjectWriter, comma};
use crate::adapt::{Rejection, schema};

/// Writes `tools` and `tool_choice`, from the legacy members if the request has no `tools`.
pub(super) fn write(
    request: &Object<'_, '_>,
    names: &mut ToolNames,
    responses: &mut ObjectWriter<'_>,
) -> Result<(), Rejection> {
    let Some(tools) = member(request, "tools") else { return write_functions(request, names, responses) };
    let tools = read::array(tools, || "tools".to_owned())?;
    if tools.is_empty() {
        return Ok(());
    }
    let out = responses.key("tools");
    out.push(b'[');
    for (position, tool) in tools.iter().enumerate() {
        comma(out);
        write_tool(&read::object(tool, || format!("tools.{position}"))?, position, names, out)?;
    }
    out.push(b']');
    write_choice(request, names, responses)
}

/// Writes the legacy `functions` and `function_call`.
fn write_functions(
    request: &Object<'_, '_>,
    names: &mut ToolNames,
    responses: &mut ObjectWriter<'_>,
) -> Result<(), Rejection> {
    let Some(functions) = member(request, "functions") else { return Ok(()) };
    let functions = read::array(functions, || "functions".to_owned())?;
    if functions.is_empty() {
        return Ok(());
    }
    let out = responses.key("tools");
    out.push(b'[');
    for (position, function) in functions.iter().enumerate() {
        comma(out);
        let path = || format!("functions.{position}");
        let function = read::object(function, path)?;
        let mut flat = ObjectWriter::open(out);
        flat.raw("type", r#""function""#);
        flat.text("name", &names.fit(read::needed_text(&function, "name", path)?));
        write_function(&function, &mut flat);
        flat.close();
    }
    out.push(b']');
    match member(request, "function_call") {
        Some(choice) if as_text(choice).is_some() => responses.tree("tool_choice", choice),
        Some(choice) => {
            let path = || "function_call".to_owned();
            let name = read::needed_text(&read::object(choice, path)?, "name", path)?;
            let mut flat = ObjectWriter::open(responses.key("tool_choice"));
            flat.raw("type", r#""function""#);
            flat.text("name", &names.fit(name));
            flat.close();
        }
        None => {}
    }
    Ok(())
}

/// Writes all members of a function except its type and name.
fn write_function(function: &Object<'_, '_>, flat: &mut ObjectWriter<'_>) {
    if let Some(description) = member(function, "description").filter(|text| !read::is_empty(*text)) {
        flat.tree("description", description);
    }
    schema::write_object(member(function, "parameters"), flat.key("parameters"));
    // The target's default is true, which rejects schemas that are not closed.
    let strict = member(function, "strict").and_then(|strict| strict.as_bool()) == Some(true);
    flat.raw("strict", if strict { "true" } else { "false" });
}

fn write_tool(
    tool: &Object<'_, '_>,
    position: usize,
    names: &mut ToolNames,
    out: &mut Vec<u8>,
) -> Result<(), Rejection> {
    let (kind, nested) = match kind(tool) {
        Some(kind @ ("function" | "custom")) => (kind, member(tool, kind)),
        Some(_) | None => return Err(refuse("tools.*.type", format!("tools.{position}.type"))),
    };
    let path = || format!("tools.{position}.{kind}");
    let nested = nested.ok_or_else(|| Rejection::malformed(path(), "is missing."))?;
    let nested = read::object(nested, path)?;
    let mut flat = ObjectWriter::open(out);
    flat.text("type", kind);
    flat.text("name", &names.fit(read::needed_text(&nested, "name", path)?));
    if kind == "function" {
        write_function(&nested, &mut flat);
        flat.close();
        return Ok(());
    }
    if let Some(description) = member(&nested, "description").filter(|text| !read::is_empty(*text)) {
        flat.tree("description", description);
    }
    if let Some(format) = member(&nested, "format").and_then(|format| format.as_object()) {
        write_format(&format, flat.key("format"));
    }
    flat.close();
    Ok(())
}

fn write_format(format: &Object<'_, '_>, out: &mut Vec<u8>) {
    let mut flat = ObjectWriter::open(out);
    flat.text("type", kind(format).unwrap_or("text"));
    if let Some(grammar) = member(format, "grammar").and_then(|grammar| grammar.as_object()) {
        for name in ["syntax", "definition"] {
            if let Some(value) = member(&grammar, name) {
                flat.tree(name, value);
            }
        }
    }
    flat.close();
}

fn write_choice(
    request: &Object<'_, '_>,
    names: &mut ToolNames,
    responses: &mut ObjectWriter<'_>,
) -> Result<(), Rejection> {
    let Some(choice) = member(request, "tool_choice") else { return Ok(()) };
    if as_text(choice).is_some() {
        responses.tree("tool_choice", choice);
        return Ok(());
    }
    let choice = read::object(choice, || "tool_choice".to_owned())?;
    if kind(&choice) != Some("allowed_tools") {
        return write_named(&choice, "tool_choice", names, responses.key("tool_choice"));
    }
    let missing = || Rejection::malformed("tool_choice.allowed_tools", "is missing.");
    let allowed = member(&choice, "allowed_tools").and_then(|allowed| allowed.as_object());
    let allowed = allowed.ok_or_else(missing)?;
    let mut flat = ObjectWriter::open(responses.key("tool_choice"));
    flat.raw("type", r#""allowed_tools""#);
    if let Some(mode) = member(&allowed, "mode") {
        flat.tree("mode", mode);
    }
    let path = "tool_choice.allowed_tools.tools";
    let tools = member(&allowed, "tools").ok_or_else(|| Rejection::malformed(path, "is missing."))?;
    let out = flat.key("tools");
    out.push(b'[');
    for (position, tool) in read::array(tools, || path.to_owned())?.iter().enumerate() {
        comma(out);
        let path = format!("{path}.{position}");
        write_named(&read::object(tool, || path.clone())?, &path, names, out)?;
    }
    out.push(b']');
    flat.close();
    Ok(())
}

/// Writes `{type, name}` of a tool whose name chat nests one level deeper.
fn write_named(
    tool: &Object<'_, '_>,
    path: &str,
    names: &mut ToolNames,
    out: &mut Vec<u8>,
) -> Result<(), Rejection> {
    let Some(kind @ ("function" | "custom")) = kind(tool) else {
        return Err(refuse("tool_choice.type", format!("{path}.type")));
    };
    let missing = || Rejection::malformed(format!("{path}.{kind}"), "is missing.");
    let nested = member(tool, kind).and_then(|nested| nested.as_object()).ok_or_else(missing)?;
    let mut flat = ObjectWriter::open(out);
    flat.text("type", kind);
    flat.text("name", &names.fit(read::needed_text(&nested, "name", || format!("{path}.{kind}"))?));
    flat.close();
    Ok(())
}
