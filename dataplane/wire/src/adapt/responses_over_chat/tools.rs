//! Translates tools and the choice among them, which are flat in Responses and nested in chat.

use simd_json::prelude::ValueAsScalar as _;

use super::losses::refuse;
use crate::adapt::read::{self, Object, as_text, member, member_text};
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::{ObjectWriter, comma};
use crate::adapt::{Rejection, Traits, schema};
use crate::json::Tree;

/// Writes `tools`, `tool_choice` and `parallel_tool_calls`; the latter two only if there are tools.
pub(super) fn write(
    request: &Object<'_, '_>,
    target: &Traits<'_>,
    names: &mut ToolNames,
    chat: &mut ObjectWriter<'_>,
) -> Result<(), Rejection> {
    let Some(tools) = member(request, "tools") else { return Ok(()) };
    let tools = read::array(tools, || "tools".to_owned())?;
    if tools.is_empty() {
        return Ok(());
    }
    let choice =
        member(request, "tool_choice").map(|choice| ResponsesToolChoice::read(choice, target)).transpose()?;
    let out = chat.key("tools");
    out.push(b'[');
    for (position, tool) in tools.iter().enumerate() {
        let tool = read::object(tool, || format!("tools.{position}"))?;
        if let Some(choice) = &choice
            && !choice.allows(&tool)
        {
            continue;
        }
        comma(out);
        write_tool((&tool, position), target, names, out)?;
    }
    out.push(b']');
    if let Some(choice) = choice {
        choice.write(names, chat);
    }
    if let Some(parallel) = member(request, "parallel_tool_calls") {
        chat.tree("parallel_tool_calls", parallel);
    }
    Ok(())
}

fn write_tool(
    (tool, position): (&Object<'_, '_>, usize),
    target: &Traits<'_>,
    names: &mut ToolNames,
    out: &mut Vec<u8>,
) -> Result<(), Rejection> {
    let path = || format!("tools.{position}");
    match read::needed_text(tool, "type", path)? {
        "function" => write_function((tool, position), target, names, out),
        "custom" if target.custom_tools => write_custom(tool, position, names, out),
        _ => Err(refuse("tools.*.type", format!("tools.{position}.type"))),
    }
}

fn write_function(
    (tool, position): (&Object<'_, '_>, usize),
    target: &Traits<'_>,
    names: &mut ToolNames,
    out: &mut Vec<u8>,
) -> Result<(), Rejection> {
    for (name, field) in
        [("allowed_callers", "tools.*[function].allowed_callers"), ("async", "tools.*[function].async")]
    {
        if member(tool, name).is_some_and(|value| !read::is_empty(value) && !is_direct(value)) {
            return Err(refuse(field, format!("tools.{position}.{name}")));
        }
    }
    let name = read::needed_text(tool, "name", || format!("tools.{position}"))?;
    let mut outer = ObjectWriter::open(out);
    outer.raw("type", r#""function""#);
    let mut function = ObjectWriter::open(outer.key("function"));
    function.text("name", &names.fit(name));
    if let Some(description) = member(tool, "description") {
        function.tree("description", description);
    }
    schema::write_object(member(tool, "parameters"), function.key("parameters"));
    let strict = member(tool, "strict").and_then(|strict| strict.as_bool()) == Some(true);
    if strict && target.strict_tools {
        function.raw("strict", "true");
    }
    function.close();
    outer.close();
    Ok(())
}

/// Returns true for `["direct"]`: only the model itself may call the tool.
fn is_direct(callers: Tree<'_, '_>) -> bool {
    let callers = callers.as_array();
    callers.is_some_and(|callers| callers.iter().all(|caller| caller.as_str() == Some("direct")))
}

fn write_custom(
    tool: &Object<'_, '_>,
    position: usize,
    names: &mut ToolNames,
    out: &mut Vec<u8>,
) -> Result<(), Rejection> {
    let name = read::needed_text(tool, "name", || format!("tools.{position}"))?;
    let mut outer = ObjectWriter::open(out);
    outer.raw("type", r#""custom""#);
    let mut custom = ObjectWriter::open(outer.key("custom"));
    custom.text("name", &names.fit(name));
    if let Some(description) = member(tool, "description") {
        custom.tree("description", description);
    }
    if let Some(format) = member(tool, "format").and_then(|format| format.as_object()) {
        write_format(&format, custom.key("format"));
    }
    custom.close();
    outer.close();
    Ok(())
}

fn write_format(format: &Object<'_, '_>, out: &mut Vec<u8>) {
    let mut outer = ObjectWriter::open(out);
    let grammar = member_text(format, "type") == Some("grammar");
    if grammar {
        outer.raw("type", r#""grammar""#);
        let mut inner = ObjectWriter::open(outer.key("grammar"));
        for name in ["definition", "syntax"] {
            if let Some(value) = member(format, name) {
                inner.tree(name, value);
            }
        }
        inner.close();
    } else {
        outer.raw("type", r#""text""#);
    }
    outer.close();
}

/// A parsed `tool_choice`.
#[derive(Debug)]
enum ResponsesToolChoice<'i> {
    /// `auto`, `none`, `required`.
    Mode(&'i str),
    /// The one tool that must be called.
    Named { kind: &'i str, name: &'i str },
    /// The tools, by kind and name, to which the choice is restricted.
    Allowed { mode: &'i str, tools: Vec<(&'i str, &'i str)> },
}

impl<'i> ResponsesToolChoice<'i> {
    fn read(choice: Tree<'_, 'i>, target: &Traits<'_>) -> Result<Self, Rejection> {
        if let Some(mode) = as_text(choice) {
            return Ok(Self::Mode(mode));
        }
        let path = || "tool_choice".to_owned();
        let choice = read::object(choice, path)?;
        match read::needed_text(&choice, "type", path)? {
            "allowed_tools" => {
                let mode = member_text(&choice, "mode").unwrap_or("auto");
                let tools = member(&choice, "tools");
                let tools = tools.ok_or_else(|| Rejection::malformed("tool_choice.tools", "is missing."))?;
                let tools = read::array(tools, || "tool_choice.tools".to_owned())?;
                let named = tools.iter().enumerate().map(|(position, tool)| {
                    let path = || format!("tool_choice.tools.{position}");
                    Self::tool(&read::object(tool, path)?, target, path)
                });
                Ok(Self::Allowed { mode, tools: named.collect::<Result<_, _>>()? })
            }
            _ => Self::tool(&choice, target, path).map(|(kind, name)| Self::Named { kind, name }),
        }
    }

    fn tool(
        tool: &Object<'_, 'i>,
        target: &Traits<'_>,
        path: impl Fn() -> String,
    ) -> Result<(&'i str, &'i str), Rejection> {
        let kind = read::needed_text(tool, "type", &path)?;
        if kind == "function" || kind == "custom" && target.custom_tools {
            return Ok((kind, read::needed_text(tool, "name", path)?));
        }
        Err(refuse("tool_choice.type", format!("{}.type", path())))
    }

    /// Returns true if the choice permits offering this tool.
    fn allows(&self, tool: &Object<'_, '_>) -> bool {
        let Self::Allowed { tools, .. } = self else { return true };
        let has = |member: &str, text: &str| member_text(tool, member) == Some(text);
        tools.iter().any(|(kind, name)| has("type", kind) && has("name", name))
    }

    fn write(&self, names: &mut ToolNames, chat: &mut ObjectWriter<'_>) {
        match self {
            Self::Mode(mode) | Self::Allowed { mode, .. } => chat.text("tool_choice", mode),
            Self::Named { kind, name } => {
                let mut choice = ObjectWriter::open(chat.key("tool_choice"));
                choice.text("type", kind);
                let mut inner = ObjectWriter::open(choice.key(kind));
                inner.text("name", &names.fit(name));
                inner.close();
                choice.close();
            }
        }
    }
}
