//! Functions, the tool choice and calls, for targets that know nothing but functions.

use std::borrow::Cow;

use crate::adapt::path::MemberPath;
use crate::adapt::{Loss, Rejection, loss};
use crate::chat::request::{
    ChatFunction, ChatTool, NamedTool, RequestCall, RequestToolChoice, RequestTools, ToolKind,
};

/// The functions offered, and the tool choice.
pub(in crate::adapt) struct ChatTools<'a, 't, 'i> {
    /// Without the functions that `tool_choice` does not allow.
    pub(in crate::adapt) functions: Vec<&'a ChatFunction<'t, 'i>>,
    pub(in crate::adapt) mode: ChatToolChoice<'a>,
}

/// The tool choice of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::adapt) enum ChatToolChoice<'a> {
    /// The request has no tool choice.
    Unset,
    Auto,
    None,
    Required,
    Named(&'a str),
}

/// Returns the functions and the choice, from the legacy members too. `losses` contains the reason for rejecting custom
/// (free-text) tools.
pub(in crate::adapt) fn tools<'a, 't, 'i>(
    tools: &'a RequestTools<'t, 'i>,
    losses: &'static [Loss],
) -> Result<ChatTools<'a, 't, 'i>, Rejection> {
    let (mode, allowed) = choice(tools, losses)?;
    let path = MemberPath::top("tools");
    let mut functions = Vec::new();
    for (position, tool) in tools.tools.iter().flatten().enumerate() {
        match tool {
            ChatTool::Function(function) => functions.push(function),
            ChatTool::Custom(_) => return Err(refuse(ToolKind::Custom, &path.at(position), losses)),
            ChatTool::Unknown => return Err(refuse(ToolKind::Unknown, &path.at(position), losses)),
        }
    }
    functions.extend(tools.functions.iter().flatten());
    if let Some(allowed) = allowed {
        functions.retain(|function| allowed.contains(&&*function.name));
    }
    Ok(ChatTools { functions, mode })
}

/// Rejects the tool at `path`, which is not a function.
fn refuse(kind: ToolKind, path: &MemberPath<'_>, losses: &'static [Loss]) -> Rejection {
    if kind == ToolKind::Custom {
        return loss::refuse(losses, CUSTOM_TOOL, path.to_string());
    }
    path.refuse("is a tool of another provider, which the target does not have.")
}

type Chosen<'a> = (ChatToolChoice<'a>, Option<Vec<&'a str>>);

fn choice<'a>(tools: &'a RequestTools<'_, '_>, losses: &'static [Loss]) -> Result<Chosen<'a>, Rejection> {
    let path = MemberPath::top("tool_choice");
    match (&tools.choice, &tools.function_call) {
        (Some(RequestToolChoice::Word(word)), _) => Ok((mode(word, &path)?, None)),
        (Some(RequestToolChoice::Named(tool)), _) => Ok((named(tool, &path, losses)?, None)),
        (Some(RequestToolChoice::Allowed { mode: word, tools }), _) => {
            let path = path.member("allowed_tools");
            let word = word.ok_or_else(|| path.member("mode").reject("is missing."))?;
            let mode = mode(word, &path.member("mode"))?;
            Ok((mode, Some(allowed(tools, &path.member("tools"), losses)?)))
        }
        (None, Some(RequestToolChoice::Word(word))) => {
            Ok((mode(word, &MemberPath::top("function_call"))?, None))
        }
        (None, Some(RequestToolChoice::Named(tool))) => Ok((ChatToolChoice::Named(&tool.name), None)),
        (None, Some(RequestToolChoice::Allowed { .. }) | None) => Ok((ChatToolChoice::Unset, None)),
    }
}

fn named<'a>(
    tool: &'a NamedTool<'_>,
    path: &MemberPath<'_>,
    losses: &'static [Loss],
) -> Result<ChatToolChoice<'a>, Rejection> {
    match tool.kind {
        ToolKind::Function => Ok(ChatToolChoice::Named(&tool.name)),
        ToolKind::Custom => Err(loss::refuse(losses, CUSTOM_CHOICE, path.to_string())),
        ToolKind::Unknown => Err(path.member("type").reject("is not known.")),
    }
}

fn allowed<'a>(
    tools: &'a [NamedTool<'_>],
    path: &MemberPath<'_>,
    losses: &'static [Loss],
) -> Result<Vec<&'a str>, Rejection> {
    let name = |(position, tool): (usize, &'a NamedTool<'_>)| match tool.kind {
        ToolKind::Function => Ok(&*tool.name),
        kind @ (ToolKind::Custom | ToolKind::Unknown) => Err(refuse(kind, &path.at(position), losses)),
    };
    tools.iter().enumerate().map(name).collect()
}

fn mode<'a>(word: &str, path: &MemberPath<'_>) -> Result<ChatToolChoice<'a>, Rejection> {
    match word {
        "auto" => Ok(ChatToolChoice::Auto),
        "none" => Ok(ChatToolChoice::None),
        "required" => Ok(ChatToolChoice::Required),
        _ => {
            Err(path.refuse("is not known; use \"auto\", \"none\", \"required\" or the name of a function."))
        }
    }
}

/// Returns the arguments of a function call, which must be a JSON object.
pub(in crate::adapt) fn arguments<'i>(
    call: &RequestCall<'_, 'i>,
    path: &MemberPath<'_>,
    losses: &'static [Loss],
) -> Result<Cow<'i, str>, Rejection> {
    match call.kind {
        ToolKind::Unknown if call.name.is_empty() => {
            return Err(path.member("function").reject("is missing."));
        }
        ToolKind::Function | ToolKind::Unknown => {}
        ToolKind::Custom => return Err(loss::refuse(losses, CUSTOM_CALL, path.to_string())),
    }
    call.input.object().ok_or_else(|| {
        let why = "must be a string with a JSON object: the target accepts nothing else.";
        match &call.id {
            Some(_) => path.member("function").member("arguments").refuse(why),
            None => path.member("arguments").refuse(why),
        }
    })
}

/// The rows for custom (free-text) tools, in the loss table of every chat adaptation.
const CUSTOM_TOOL: &str = "tools.*[custom]";
const CUSTOM_CHOICE: &str = "tool_choice[custom]";
const CUSTOM_CALL: &str = "messages.*.tool_calls.*[custom]";
