//! Translates the normal form of a Gemini request into a chat request.

use super::answer::GeminiForm;
use super::losses::{LOSSES, check};
use super::{contents, options, tools};
use crate::adapt::loss::unknown;
use crate::adapt::origin_trail::OriginTrail;
use crate::adapt::path::MemberPath;
use crate::adapt::read::{self, Object, member, member_text};
use crate::adapt::through_chat::AskedInChat;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::{Asking, Rejection, Traits};
use crate::chat::request::{ChatMessage, ChatRequest, ChatRole};
use crate::json::Tree;

/// Translates the request `body` and prepares the translation of its answers.
pub(super) fn ask<'t, 'i>(body: Tree<'t, 'i>, asking: &Asking<'i>) -> Result<AskedInChat<'t, 'i>, Rejection> {
    let request = read::object(body, || "body".to_owned())?;
    let builder = translate(&request, asking.target, OriginTrail::default())?;
    let client = Box::new(GeminiForm {
        model: crate::json::quote(asking.selector),
        id: asking.seed.to_owned(),
        wants_thoughts: options::wants_thoughts(&request),
        names: builder.names,
    });
    let dropped = unknown(read::members(&request).map(|(name, _)| name), LOSSES);
    let mut chat = builder.request;
    chat.keeps_thoughts = client.wants_thoughts;
    chat.carries_reasoning = true;
    Ok(AskedInChat { request: chat, client, dropped })
}

/// Translates the request and records in `trail` the origin of each part.
pub(super) fn translate<'t, 'i>(
    request: &Object<'t, 'i>,
    target: &'i Traits<'i>,
    trail: OriginTrail,
) -> Result<ChatBuilder<'t, 'i>, Rejection> {
    for (name, value) in read::members(request) {
        check(name, value)?;
    }
    let rule = if target.word_tool_names { Rule::Word(WORD_MAX) } else { Rule::Any };
    let names = ToolNames::new(rule);
    let mut builder = ChatBuilder { target, request: ChatRequest::default(), trail, names };
    contents::system(&mut builder, request)?;
    contents::contents(&mut builder, request)?;
    options::options(&mut builder, request)?;
    tools::tools(&mut builder, request)?;
    Ok(builder)
}

/// Builds the chat request.
#[derive(Debug)]
pub(super) struct ChatBuilder<'t, 'i> {
    pub(super) target: &'i Traits<'i>,
    pub(super) request: ChatRequest<'t, 'i>,
    pub(super) trail: OriginTrail,
    pub(super) names: ToolNames,
}

impl<'t, 'i> ChatBuilder<'t, 'i> {
    /// Returns the next message, which is made from the value at `path`.
    pub(super) fn message(&mut self, role: ChatRole<'i>, path: &MemberPath<'_>) -> ChatMessage<'t, 'i> {
        self.trail.message(path);
        ChatMessage { role, ..ChatMessage::default() }
    }
}

/// Returns the elements of the list `name`, which may be absent.
pub(super) fn list<'t, 'i>(
    object: &Object<'t, 'i>,
    name: &str,
    path: &MemberPath<'_>,
) -> Result<Vec<Tree<'t, 'i>>, Rejection> {
    let Some(value) = member(object, name) else { return Ok(Vec::new()) };
    Ok(read::array(value, || path.to_string())?.iter().collect())
}

/// Returns an enum's word in upper case, as Google writes it.
pub(super) fn word(object: &Object<'_, '_>, name: &str) -> String {
    member_text(object, name).unwrap_or_default().to_ascii_uppercase()
}
