//! Reads the functions that a chat request offers, and the tool choice.

use simd_json::tape::Object;

use super::part::CacheMark;
use crate::adapt::{Loss, Rejection, loss, read};
use crate::json::Tree;

/// The functions offered, and the tool choice.
pub(in crate::adapt) struct ChatTools<'t, 'i> {
    /// Without the functions that `tool_choice` does not allow.
    pub(in crate::adapt) functions: Vec<ChatFunction<'t, 'i>>,
    pub(in crate::adapt) mode: ChatToolChoice<'i>,
}

/// A function offered to the model.
pub(in crate::adapt) struct ChatFunction<'t, 'i> {
    pub(in crate::adapt) name: &'i str,
    /// The object with `name`, `description`, `parameters` and so on.
    pub(in crate::adapt) members: Object<'t, 'i>,
    /// The function's cache mark, if present.
    pub(in crate::adapt) cache_mark: Option<CacheMark<'i>>,
}

/// The tool choice of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::adapt) enum ChatToolChoice<'i> {
    /// The request has no tool choice.
    Unset,
    Auto,
    None,
    Required,
    Named(&'i str),
}

/// Reads `tools` and `tool_choice`, or the legacy `functions` and `function_call`. `losses` contains the reason for
/// rejecting custom (free-text) tools.
pub(in crate::adapt) fn tools<'t, 'i>(
    request: &Object<'t, 'i>,
    losses: &'static [Loss],
) -> Result<ChatTools<'t, 'i>, Rejection> {
    let (mode, allowed) = choice(request, losses)?;
    let mut functions = functions(request, losses)?;
    if let Some(allowed) = allowed {
        functions.retain(|function| allowed.contains(&function.name));
    }
    Ok(ChatTools { functions, mode })
}

fn functions<'t, 'i>(
    request: &Object<'t, 'i>,
    losses: &'static [Loss],
) -> Result<Vec<ChatFunction<'t, 'i>>, Rejection> {
    let mut functions = Vec::new();
    for (list, nested) in [("tools", true), ("functions", false)] {
        let Some(tools) = read::member(request, list) else { continue };
        for (position, tool) in read::array(tools, || list.to_owned())?.iter().enumerate() {
            let path = format!("{list}.{position}");
            let tool = read::object(tool, || path.clone())?;
            let function = nested.then(|| function_of(&tool, &path, losses)).transpose()?;
            let cache_mark = CacheMark::of(&tool).or_else(|| CacheMark::of(function.as_ref()?));
            let members = function.unwrap_or(tool);
            let name = read::needed_text(&members, "name", || path.clone())?;
            functions.push(ChatFunction { name, members, cache_mark });
        }
    }
    Ok(functions)
}

fn function_of<'t, 'i>(
    tool: &Object<'t, 'i>,
    path: &str,
    losses: &'static [Loss],
) -> Result<Object<'t, 'i>, Rejection> {
    match read::needed_text(tool, "type", || path.to_owned())? {
        "function" => {}
        "custom" => return Err(loss::refuse(losses, CUSTOM_TOOL, path)),
        _ => {
            return Err(Rejection::new(
                path,
                "is a tool of another provider, which the target does not have.",
            ));
        }
    }
    let at = format!("{path}.function");
    let function = read::member(tool, "function").ok_or_else(|| Rejection::malformed(&*at, "is missing."))?;
    read::object(function, || at)
}

type Chosen<'i> = (ChatToolChoice<'i>, Option<Vec<&'i str>>);

fn choice<'i>(request: &Object<'_, 'i>, losses: &'static [Loss]) -> Result<Chosen<'i>, Rejection> {
    if let Some(choice) = read::member(request, "tool_choice") {
        return match read::as_text(choice) {
            Some(word) => Ok((mode(word, "tool_choice")?, None)),
            None => chosen(choice, losses),
        };
    }
    // The legacy name; the function's name is a direct member of the object.
    let Some(choice) = read::member(request, "function_call") else {
        return Ok((ChatToolChoice::Unset, None));
    };
    let mode = match choice.as_object() {
        Some(choice) => {
            ChatToolChoice::Named(read::needed_text(&choice, "name", || "function_call".to_owned())?)
        }
        None => mode(read::text(choice, || "function_call".to_owned())?, "function_call")?,
    };
    Ok((mode, None))
}

fn chosen<'i>(choice: Tree<'_, 'i>, losses: &'static [Loss]) -> Result<Chosen<'i>, Rejection> {
    let path = || "tool_choice".to_owned();
    let choice = read::object(choice, path)?;
    let kind = read::needed_text(&choice, "type", path)?;
    if kind == "custom" {
        return Err(loss::refuse(losses, CUSTOM_CHOICE, path()));
    }
    let at = || format!("tool_choice.{kind}");
    let inner = read::member(&choice, kind).ok_or_else(|| Rejection::malformed(at(), "is missing."))?;
    let inner = read::object(inner, at)?;
    match kind {
        "function" => Ok((ChatToolChoice::Named(read::needed_text(&inner, "name", at)?), None)),
        "allowed_tools" => {
            let word = read::needed_text(&inner, "mode", at)?;
            Ok((mode(word, "tool_choice.allowed_tools.mode")?, Some(allowed(&inner, losses)?)))
        }
        _ => Err(Rejection::malformed("tool_choice.type", "is not known.")),
    }
}

fn allowed<'i>(choice: &Object<'_, 'i>, losses: &'static [Loss]) -> Result<Vec<&'i str>, Rejection> {
    let at = || "tool_choice.allowed_tools.tools".to_owned();
    let tools = read::member(choice, "tools").ok_or_else(|| Rejection::malformed(at(), "is missing."))?;
    let tools = read::array(tools, at)?;
    let named = |(position, tool): (usize, Tree<'_, 'i>)| {
        let path = format!("{}.{position}", at());
        let function = function_of(&read::object(tool, || path.clone())?, &path, losses)?;
        read::needed_text(&function, "name", || format!("{path}.function"))
    };
    tools.iter().enumerate().map(named).collect()
}

fn mode<'i>(word: &str, path: &str) -> Result<ChatToolChoice<'i>, Rejection> {
    match word {
        "auto" => Ok(ChatToolChoice::Auto),
        "none" => Ok(ChatToolChoice::None),
        "required" => Ok(ChatToolChoice::Required),
        _ => {
            let why = "is not known; use \"auto\", \"none\", \"required\" or the name of a function.";
            Err(Rejection::new(path, why))
        }
    }
}

/// The rows for custom (free-text) tools, in the loss table of every chat adaptation.
const CUSTOM_TOOL: &str = "tools.*[custom]";
const CUSTOM_CHOICE: &str = "tool_choice[custom]";
