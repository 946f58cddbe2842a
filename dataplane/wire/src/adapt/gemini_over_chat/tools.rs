//! Translates functions and the choice among them.

use std::borrow::Cow;

use super::losses::refuse;
use super::request::{ChatBuilder, list, word};
use crate::adapt::Rejection;
use crate::adapt::path::MemberPath;
use crate::adapt::read::{self, Object, as_text, member};
use crate::chat::request::{ChatFunction, ChatTool, NamedTool, ObjectSchema, RequestToolChoice, ToolKind};
use crate::json::Tree;

/// Adds the functions and the choice among them, if there are any.
pub(super) fn tools<'t, 'i>(
    builder: &mut ChatBuilder<'t, 'i>,
    request: &Object<'t, 'i>,
) -> Result<(), Rejection> {
    let path = MemberPath::top("tools");
    let mut offered = Vec::new();
    for (position, tool) in list(request, "tools", &path)?.into_iter().enumerate() {
        let at = path.at(position);
        let tool = read::object(tool, || at.to_string())?;
        if let Some((kind, _)) = read::members(&tool).find(|(name, _)| *name != FUNCTIONS) {
            return Err(refuse("tools.*", at.member(kind).to_string()));
        }
        let at = at.member(FUNCTIONS);
        for (position, function) in list(&tool, FUNCTIONS, &at)?.into_iter().enumerate() {
            let at = at.at(position);
            builder.trail.tool(&at);
            offered.push(ChatTool::Function(one(builder, function, &at)?));
        }
    }
    if !offered.is_empty() {
        builder.request.tools.tools = Some(offered);
        builder.request.tools.choice = choice(builder, request)?;
    }
    Ok(())
}

const FUNCTIONS: &str = "functionDeclarations";

fn one<'t, 'i>(
    builder: &mut ChatBuilder<'t, 'i>,
    function: Tree<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<ChatFunction<'t, 'i>, Rejection> {
    let function = read::object(function, || path.to_string())?;
    if !matches!(word(&function, "behavior").as_str(), "" | "UNSPECIFIED" | "BLOCKING") {
        let field = "tools.*.functionDeclarations.*.behavior";
        return Err(refuse(field, path.member("behavior").to_string()));
    }
    let is_text = |text: &Tree<'_, '_>| as_text(*text).is_some_and(|text| !text.is_empty());
    let schema = member(&function, "parametersJsonSchema").or_else(|| member(&function, "parameters"));
    Ok(ChatFunction {
        name: builder.names.fit(read::needed_text(&function, "name", || path.to_string())?),
        description: member(&function, "description").filter(is_text),
        parameters: Some(ObjectSchema(schema)),
        merged: None,
        strict: false,
        cache: None,
        free_text: None,
    })
}

fn choice<'i>(
    builder: &mut ChatBuilder<'_, 'i>,
    request: &Object<'_, 'i>,
) -> Result<Option<RequestToolChoice<'i>>, Rejection> {
    let path = MemberPath::top("toolConfig");
    let path = path.member("functionCallingConfig");
    let config = member(request, "toolConfig").and_then(|config| config.as_object());
    let config = config.and_then(|config| member(&config, "functionCallingConfig")?.as_object());
    let Some(config) = config else { return Ok(None) };
    let at = path.member("allowedFunctionNames");
    let mut allowed = Vec::new();
    for (position, name) in list(&config, "allowedFunctionNames", &at)?.into_iter().enumerate() {
        let name: Cow<'i, str> = builder.names.fit(read::text(name, || at.at(position).to_string())?);
        allowed.push(NamedTool { kind: ToolKind::Function, name });
    }
    let mode = match word(&config, "mode").as_str() {
        "NONE" => return Ok(Some(RequestToolChoice::Word("none"))),
        "ANY" => "required",
        "AUTO" | "VALIDATED" => "auto",
        "" | "MODE_UNSPECIFIED" => return Ok(None),
        _ => return Err(path.member("mode").reject("must be 'AUTO', 'ANY', 'VALIDATED' or 'NONE'.")),
    };
    Ok(Some(match (mode, allowed.len()) {
        (mode, 0) => RequestToolChoice::Word(mode),
        ("required", 1) => RequestToolChoice::Named(allowed.remove(0)),
        (mode, _) => RequestToolChoice::Allowed { mode: Some(mode), tools: allowed },
    }))
}
