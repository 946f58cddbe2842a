//! Translates tools and the choice among them, which are flat in Responses and nested in chat.

use std::borrow::Cow;

use simd_json::prelude::ValueAsScalar as _;

use super::agents::AgentTools;
use super::losses::refuse;
use crate::adapt::read::{self, Object, as_text, member, member_text};
use crate::adapt::tool_names::ToolNames;
use crate::adapt::{Rejection, Traits};
use crate::chat::request::{
    ChatFunction, ChatTool, CustomTool, FreeTextFormat, NamedTool, ObjectSchema, RequestToolChoice,
    RequestTools, ToolKind,
};
use crate::json::Tree;

/// Returns the tools and the choice among them, `None` if there are no tools.
pub(super) fn translate<'t, 'i>(
    request: &Object<'t, 'i>,
    target: &Traits<'_>,
    names: &mut ToolNames,
    agents: Option<&AgentTools<'t, 'i>>,
) -> Result<Option<RequestTools<'t, 'i>>, Rejection> {
    if let Some(agents) = agents {
        return of_agents(request, target, names, agents);
    }
    let Some(list) = member(request, "tools") else { return Ok(None) };
    let list = read::array(list, || "tools".to_owned())?;
    if list.is_empty() {
        return Ok(None);
    }
    let customs = target.custom_tools;
    let choice = member(request, "tool_choice")
        .map(|choice| ResponsesToolChoice::read(choice, customs))
        .transpose()?;
    let mut tools = Vec::with_capacity(list.len());
    for (position, tool) in list.iter().enumerate() {
        let tool = read::object(tool, || format!("tools.{position}"))?;
        if choice.as_ref().is_none_or(|choice| choice.allows(&tool)) {
            tools.push(translate_tool(
                &tool,
                target,
                |name| names.fit(name),
                || format!("tools.{position}"),
            )?);
        }
    }
    let choice = choice.map(|choice| choice.translated(customs, |_, name| names.fit(name)));
    Ok(Some(RequestTools { tools: Some(tools), choice, ..RequestTools::default() }))
}

/// Returns the tools for agents under their flat names, and the choice among them.
fn of_agents<'t, 'i>(
    request: &Object<'t, 'i>,
    target: &Traits<'_>,
    names: &mut ToolNames,
    agents: &AgentTools<'t, 'i>,
) -> Result<Option<RequestTools<'t, 'i>>, Rejection> {
    let choice =
        member(request, "tool_choice").map(|choice| ResponsesToolChoice::read(choice, true)).transpose()?;
    let mut tools = Vec::with_capacity(agents.declared.len());
    for declared in &agents.declared {
        if choice.as_ref().is_none_or(|choice| choice.allows(&declared.tool)) {
            let name = |_| names.fit(&declared.flat).into_owned().into();
            tools.push(translate_tool(&declared.tool, target, name, || declared.path.clone())?);
        }
    }
    let choice = choice.map(|choice| {
        choice.translated(target.custom_tools, |namespace, name| {
            names.fit(&agents.flat(namespace, name)).into_owned().into()
        })
    });
    let tools = RequestTools { tools: Some(tools), choice, ..RequestTools::default() };
    Ok(Some(tools).filter(RequestTools::offers_any))
}

/// Translates the tool at `path`. `fit` returns its name at the target.
fn translate_tool<'t, 'i>(
    tool: &Object<'t, 'i>,
    target: &Traits<'_>,
    fit: impl FnOnce(&'i str) -> Cow<'i, str>,
    path: impl Fn() -> String,
) -> Result<ChatTool<'t, 'i>, Rejection> {
    match read::needed_text(tool, "type", &path)? {
        "function" => function(tool, target, fit, path).map(ChatTool::Function),
        "custom" if target.custom_tools => custom(tool, fit, path).map(ChatTool::Custom),
        "custom" if target.agents.is_some() => {
            custom(tool, fit, path).map(|tool| ChatTool::Function(ChatFunction::of_custom(tool)))
        }
        _ => Err(refuse("tools.*.type", path() + ".type")),
    }
}

fn function<'t, 'i>(
    tool: &Object<'t, 'i>,
    target: &Traits<'_>,
    fit: impl FnOnce(&'i str) -> Cow<'i, str>,
    path: impl Fn() -> String,
) -> Result<ChatFunction<'t, 'i>, Rejection> {
    for (name, field) in
        [("allowed_callers", "tools.*[function].allowed_callers"), ("async", "tools.*[function].async")]
    {
        if member(tool, name).is_some_and(|value| !read::is_empty(value) && !is_direct(value)) {
            return Err(refuse(field, format!("{}.{name}", path())));
        }
    }
    let name = read::needed_text(tool, "name", path)?;
    let strict = member(tool, "strict").and_then(|strict| strict.as_bool()) == Some(true);
    Ok(ChatFunction {
        name: fit(name),
        description: member(tool, "description"),
        parameters: Some(ObjectSchema(member(tool, "parameters"))),
        merged: None,
        strict: strict && target.strict_tools,
        free_text: None,
        cache: None,
    })
}

/// Returns true for `["direct"]`: only the model itself may call the tool.
fn is_direct(callers: Tree<'_, '_>) -> bool {
    let callers = callers.as_array();
    callers.is_some_and(|callers| callers.iter().all(|caller| caller.as_str() == Some("direct")))
}

fn custom<'t, 'i>(
    tool: &Object<'t, 'i>,
    fit: impl FnOnce(&'i str) -> Cow<'i, str>,
    path: impl Fn() -> String,
) -> Result<CustomTool<'t, 'i>, Rejection> {
    let name = read::needed_text(tool, "name", path)?;
    let format = member(tool, "format").and_then(|format| format.as_object());
    let format = format.map(|format| {
        let kind = if member_text(&format, "type") == Some("grammar") { "grammar" } else { "text" };
        let of_grammar = |name| member(&format, name).filter(|_| kind == "grammar");
        FreeTextFormat { kind, syntax: of_grammar("syntax"), definition: of_grammar("definition") }
    });
    Ok(CustomTool { name: fit(name), description: member(tool, "description"), format })
}

/// A parsed `tool_choice`.
#[derive(Debug)]
enum ResponsesToolChoice<'i> {
    /// `auto`, `none`, `required`.
    Mode(&'i str),
    /// The one tool that must be called.
    Named { kind: &'i str, namespace: Option<&'i str>, name: &'i str },
    /// The tools, by kind and name, to which the choice is restricted.
    Allowed { mode: &'i str, tools: Vec<(&'i str, &'i str)> },
}

impl<'i> ResponsesToolChoice<'i> {
    /// Reads a choice; `customs` is true if it may name custom tools.
    fn read(choice: Tree<'_, 'i>, customs: bool) -> Result<Self, Rejection> {
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
                    Self::tool(&read::object(tool, path)?, customs, path)
                });
                Ok(Self::Allowed { mode, tools: named.collect::<Result<_, _>>()? })
            }
            _ => {
                let (kind, name) = Self::tool(&choice, customs, path)?;
                Ok(Self::Named { kind, namespace: member_text(&choice, "namespace"), name })
            }
        }
    }

    fn tool(
        tool: &Object<'_, 'i>,
        customs: bool,
        path: impl Fn() -> String,
    ) -> Result<(&'i str, &'i str), Rejection> {
        let kind = read::needed_text(tool, "type", &path)?;
        if kind == "function" || kind == "custom" && customs {
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

    /// Returns the choice in chat. `fit` returns the target's name of a tool, from its namespace and name; `customs` is
    /// true if the target supports custom tools.
    fn translated(
        &self,
        customs: bool,
        fit: impl FnOnce(Option<&'i str>, &'i str) -> Cow<'i, str>,
    ) -> RequestToolChoice<'i> {
        match self {
            Self::Mode(mode) | Self::Allowed { mode, .. } => RequestToolChoice::Word(mode),
            Self::Named { kind, namespace, name } => RequestToolChoice::Named(NamedTool {
                kind: if *kind == "custom" && customs { ToolKind::Custom } else { ToolKind::Function },
                name: fit(*namespace, name),
            }),
        }
    }
}
