//! Writes tools and the tool choice, which are nested in chat and flat in Responses.

use super::losses::refuse;
use crate::adapt::path::MemberPath;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::{Rejection, read};
use crate::chat::request::{
    ChatFunction, ChatTool, CustomTool, NamedTool, RequestToolChoice, RequestTools, ToolKind,
};
use crate::json::{JsonWriter, Tree};

/// Writes `tools` and `tool_choice`, from the legacy members if the request has no `tools`.
pub(super) fn write(
    request: &RequestTools<'_, '_>,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let Some(tools) = &request.tools else {
        write_functions(request, names, json);
        return Ok(());
    };
    if tools.is_empty() {
        return Ok(());
    }
    json.name("tools").list();
    let path = MemberPath::top("tools");
    for (position, tool) in tools.iter().enumerate() {
        match tool {
            ChatTool::Function(function) => write_function(function, names, json),
            ChatTool::Custom(tool) => write_custom(tool, names, json),
            ChatTool::Unknown => {
                return Err(refuse("tools.*.type", path.at(position).member("type").to_string()));
            }
        }
    }
    json.end_list();
    match &request.choice {
        Some(choice) => write_choice(choice, names, json.name("tool_choice")),
        None => Ok(()),
    }
}

/// Writes the legacy `functions` and `function_call`.
fn write_functions(request: &RequestTools<'_, '_>, names: &mut ToolNames, json: &mut JsonWriter) {
    let Some(functions) = request.functions.as_ref().filter(|functions| !functions.is_empty()) else {
        return;
    };
    json.name("tools").list();
    for function in functions {
        write_function(function, names, json);
    }
    json.end_list();
    match &request.function_call {
        Some(RequestToolChoice::Word(word)) => drop(json.name("tool_choice").text(word)),
        Some(RequestToolChoice::Named(tool)) => {
            write_named("function", &tool.name, names, json.name("tool_choice"));
        }
        Some(RequestToolChoice::Allowed { .. }) | None => {}
    }
}

fn write_function(function: &ChatFunction<'_, '_>, names: &mut ToolNames, json: &mut JsonWriter) {
    json.object().name("type").text("function").name("name").text(&names.fit(&function.name));
    if !function.description.is_some_and(read::is_empty) {
        function.write_description(json);
    }
    function.write_parameters(json.name("parameters"));
    // The target's default is true, which rejects schemas that are not closed.
    json.name("strict").raw(if function.strict { b"true" } else { b"false" }).end_object();
}

fn write_description(description: Option<Tree<'_, '_>>, json: &mut JsonWriter) {
    if let Some(description) = description.filter(|text| !read::is_empty(*text)) {
        json.name("description").tree(description);
    }
}

fn write_custom(tool: &CustomTool<'_, '_>, names: &mut ToolNames, json: &mut JsonWriter) {
    json.object().name("type").text("custom").name("name").text(&names.fit(&tool.name));
    write_description(tool.description, json);
    if let Some(format) = tool.format {
        json.name("format").object().name("type").text(format.kind);
        for (name, value) in [("syntax", format.syntax), ("definition", format.definition)] {
            if let Some(value) = value {
                json.name(name).tree(value);
            }
        }
        json.end_object();
    }
    json.end_object();
}

fn write_choice(
    choice: &RequestToolChoice<'_>,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let path = MemberPath::top("tool_choice");
    match choice {
        RequestToolChoice::Word(word) => drop(json.text(word)),
        RequestToolChoice::Named(tool) => write_chosen(tool, &path, names, json)?,
        RequestToolChoice::Allowed { mode, tools } => {
            json.object().name("type").text("allowed_tools");
            if let Some(mode) = mode {
                json.name("mode").text(mode);
            }
            json.name("tools").list();
            let path = path.member("allowed_tools");
            let path = path.member("tools");
            for (position, tool) in tools.iter().enumerate() {
                write_chosen(tool, &path.at(position), names, json)?;
            }
            json.end_list().end_object();
        }
    }
    Ok(())
}

fn write_chosen(
    tool: &NamedTool<'_>,
    path: &MemberPath<'_>,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    match tool.kind {
        ToolKind::Function => write_named("function", &tool.name, names, json),
        ToolKind::Custom => write_named("custom", &tool.name, names, json),
        ToolKind::Unknown => return Err(refuse("tool_choice.type", path.member("type").to_string())),
    }
    Ok(())
}

/// Writes `{type, name}` of a tool whose name chat nests one level deeper.
fn write_named(kind: &str, name: &str, names: &mut ToolNames, json: &mut JsonWriter) {
    json.object().name("type").text(kind).name("name").text(&names.fit(name)).end_object();
}
