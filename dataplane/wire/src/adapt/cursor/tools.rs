//! Tools, and the choice among them, in the form of the Responses API.

use super::{copy, same};
use crate::adapt::read::{self, as_text, member};
use crate::json::{JsonWriter, Tree};
/// Writes a list of tools.
pub(super) fn write(tools: Tree<'_, '_>, json: &mut JsonWriter) {
    let Some(list) = tools.as_array() else { return same(tools, json) };
    json.list();
    for tool in list.iter() {
        write_tool(tool, json);
    }
    json.end_list();
}

fn write_tool(tool: Tree<'_, '_>, json: &mut JsonWriter) {
    let Some(object) = tool.as_object() else { return same(tool, json) };
    let function = member(&object, "function").and_then(|function| function.as_object());
    match (function, member(&object, "input_schema")) {
        (Some(function), _) => {
            json.object().name("type").text("function");
            copy(&function, &FUNCTION, json);
            json.end_object();
        }
        (None, Some(schema)) => {
            json.object().name("type").text("function");
            copy(&object, &NAMED, json);
            json.name("parameters").tree(schema).end_object();
        }
        (None, None) => same(tool, json),
    }
}

/// Writes the choice among tools.
pub(super) fn write_choice(choice: Tree<'_, '_>, json: &mut JsonWriter) {
    let Some(object) = choice.as_object() else { return same(choice, json) };
    let function = member(&object, "function").and_then(|function| function.as_object());
    let named = function.as_ref().or(Some(&object)).and_then(|object| read::member_text(object, "name"));
    let kind = member(&object, "type").and_then(as_text).unwrap_or_default();
    match (kind, named) {
        ("auto" | "none", None) => drop(json.text(kind)),
        ("any", None) => drop(json.text("required")),
        ("tool", Some(name)) => named_choice(name, json),
        ("function", Some(name)) if function.is_some() => named_choice(name, json),
        _ => same(choice, json),
    }
}

fn named_choice(name: &str, json: &mut JsonWriter) {
    json.object().name("type").text("function").name("name").text(name).end_object();
}

const NAMED: [(&str, &str); 2] = [("name", "name"), ("description", "description")];
const FUNCTION: [(&str, &str); 4] =
    [("name", "name"), ("description", "description"), ("parameters", "parameters"), ("strict", "strict")];
