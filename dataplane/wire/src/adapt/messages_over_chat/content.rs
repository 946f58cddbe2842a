//! Translates system text and messages.

use std::borrow::Cow;

use simd_json::prelude::ValueIntoString as _;

use super::fold::{Beside, Folded};
use super::losses::LOSSES;
use super::request::{ChatRequestBuilder, elements, member, refused, required, text_member};
use super::user::{text_part, user};
use super::{tool_changes, tools};
use crate::adapt::call_id::fitting;
use crate::adapt::path::MemberPath;
use crate::adapt::{Fate, Rejection, signature_in_call_id};
use crate::chat::request::{
    self, CallInput, ChatContent, ChatMessage, ChatRole, RequestCall, ToolKind, append, signed_thoughts,
};
use crate::json::Tree;

/// The prefix of Claude Code's build attribution. It differs between builds and would defeat prompt caches.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// Adds the system text and the messages.
pub(super) fn messages<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    body: Tree<'t, 'i>,
) -> Result<(), Rejection> {
    let path = MemberPath::top("messages");
    let messages = member(body, "messages").and_then(elements);
    let messages = messages.ok_or_else(|| path.reject("must be an array of messages"))?;
    let folded =
        if builder.target.leading_system { Folded::of(&messages, &path)? } else { Folded::default() };
    builder.request.messages.reserve(messages.len().saturating_add(1));
    system(builder, member(body, "system"), &folded)?;
    for (position, message) in messages.iter().enumerate() {
        one(builder, *message, folded.beside(position), &path.at(position))?;
    }
    if let Some(last) = messages.last()
        && text_member(*last, "role") == Some("assistant")
    {
        let path = path.at(messages.len().saturating_sub(1));
        return Err(refused(&path, "a prefill of the answer, which only some Anthropic models continue"));
    }
    Ok(())
}

/// Adds the system text: as blocks if one of them has a cache mark, otherwise as one text.
fn system<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    value: Option<Tree<'t, 'i>>,
    folded: &Folded,
) -> Result<(), Rejection> {
    let path = MemberPath::top("system");
    let text = value.map(|value| joined(value, &path, SystemPlace::Top)).transpose()?.unwrap_or_default();
    let blocks = value.and_then(elements).unwrap_or_default();
    if blocks.iter().any(|block| builder.cache_mark(*block).is_some()) {
        let mut message = builder.message(ChatRole::System, &path);
        let mut parts = Vec::with_capacity(blocks.len());
        for (position, block) in blocks.iter().enumerate() {
            let text = required(*block, "text", &path.at(position))?;
            if !text.starts_with(BILLING_HEADER) {
                parts.push(text_part(builder, text, Some(*block)));
            }
        }
        message.content = Some(ChatContent { parts, is_text: false });
        builder.request.messages.push(message);
        return Ok(());
    }
    let folded = folded.leading().map(|text| Cow::Owned(text.to_owned()));
    let leading: Vec<_> = std::iter::once(text).chain(folded).filter(|text| !text.is_empty()).collect();
    if !leading.is_empty() {
        builder.plain(ChatRole::System, request::joined(leading, "\n\n"), &path);
    }
    Ok(())
}

/// Adds one message. `beside` is system text folded into it; `None` if the message itself was folded into another.
fn one<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    message: Tree<'t, 'i>,
    beside: Option<&Beside>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let role = required(message, "role", path)?;
    let content = path.member("content");
    let value = member(message, "content").ok_or_else(|| content.reject("is required"))?;
    if !matches!(role, "user" | "assistant" | "system") {
        return Err(path.member("role").reject("must be 'user', 'assistant' or 'system'"));
    }
    let Some(beside) = beside else { return Ok(()) };
    let text = match value.into_string() {
        Some(text) if role == "user" => beside.around(text),
        Some(text) => text.into(),
        None if role == "system" => joined(value, &content, SystemPlace::Message)?,
        None => {
            let blocks =
                elements(value).ok_or_else(|| content.reject("must be a string or an array of blocks"))?;
            return if role == "user" {
                user(builder, &blocks, beside, path)
            } else {
                assistant(builder, &blocks, path)
            };
        }
    };
    if role == "system" && text.is_empty() {
        // It only changed the tools.
        return Ok(());
    }
    let role = match role {
        "assistant" => ChatRole::Assistant,
        "system" if !beside.stands_alone => ChatRole::System,
        _ => ChatRole::User,
    };
    builder.plain(role, text, path);
    Ok(())
}

/// The place of system text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemPlace {
    /// The member `system`, which may contain Claude Code's attribution.
    Top,
    /// A message, which may also change the tools.
    Message,
}

/// Returns a string, or the texts of system blocks joined by an empty line.
pub(super) fn joined<'i>(
    value: Tree<'_, 'i>,
    path: &MemberPath<'_>,
    place: SystemPlace,
) -> Result<Cow<'i, str>, Rejection> {
    if let Some(text) = value.into_string() {
        return Ok(text.into());
    }
    let blocks = elements(value).ok_or_else(|| path.reject("must be a string or an array of text blocks"))?;
    let mut texts = Vec::with_capacity(blocks.len());
    for (position, block) in blocks.iter().enumerate() {
        let at = path.at(position);
        match required(*block, "type", &at)? {
            "text" => texts.push(Cow::Borrowed(required(*block, "text", &at)?)),
            kind if place == SystemPlace::Message && tool_changes::is_change(kind) => {}
            kind => return Err(refused(&at, &unknown_tag(kind))),
        }
    }
    if place == SystemPlace::Top {
        texts.retain(|text| !text.starts_with(BILLING_HEADER));
    }
    Ok(request::joined(texts, "\n\n"))
}

fn assistant<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    blocks: &[Tree<'t, 'i>],
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let content = path.member("content");
    let (mut text, mut thoughts) = (Cow::Borrowed(""), Cow::Borrowed(""));
    let (mut calls, mut signed) = (Vec::new(), Vec::new());
    for (position, block) in blocks.iter().enumerate() {
        let at = content.at(position);
        match required(*block, "type", &at)? {
            "text" => append(&mut text, required(*block, "text", &at)?),
            "tool_use" => calls.push((position, *block)),
            "thinking" => {
                append(&mut thoughts, text_member(*block, "thinking").unwrap_or_default());
                signed.push(*block);
            }
            "redacted_thinking" => signed.push(*block),
            // Parts of a tool search. It is dropped, because all tools are offered from the start.
            "server_tool_use" if is_of_search(*block) => {}
            "tool_search_tool_result" => {}
            kind => return Err(refused_block(kind, &at)),
        }
    }
    if text.is_empty() && calls.is_empty() {
        return Ok(());
    }
    let mut message = builder.message(ChatRole::Assistant, path);
    message.content = (!text.is_empty()).then(|| ChatContent::text(text));
    message.reasoning = Some(thoughts).filter(|thoughts| !thoughts.is_empty());
    if builder.target.extended_chat {
        message.thoughts = signed_thoughts(signed.into_iter());
    }
    message.cache = blocks.iter().rev().find_map(|block| builder.cache_mark(*block));
    for (position, block) in calls {
        message.calls.push(tool_use(builder, block, &content.at(position))?);
    }
    builder.request.messages.push(message);
    Ok(())
}

fn tool_use<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    block: Tree<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<RequestCall<'t, 'i>, Rejection> {
    builder.trail.call(path);
    let (id, signature) = signature_in_call_id::split(required(block, "id", path)?);
    let id = Some(fitting(builder.target.tool_ids, id, "call_"));
    let name = builder.names.fit(required(block, "name", path)?);
    let input = match member(block, "input") {
        Some(input) if input.as_object().is_some() => CallInput::Object(input),
        Some(_) => return Err(path.member("input").reject("must be an object")),
        None => CallInput::Absent,
    };
    let signature = signature.filter(|_| builder.target.takes_signatures()).map(Cow::Owned);
    Ok(RequestCall { id, kind: ToolKind::Function, name, input, signature, reasoning: None, cache: None })
}

/// Returns the rejection of an unsupported block, with the reason from the table if it has a row for it.
pub(super) fn refused_block(kind: &str, path: &MemberPath<'_>) -> Rejection {
    let is_of_kind = |field: &str| {
        let named = field.strip_prefix("messages.*.content.*[").and_then(|rest| rest.strip_suffix(']'));
        named == Some(kind)
    };
    let row = LOSSES.iter().find(|row| row.fate == Fate::Rejected && is_of_kind(row.field));
    match row {
        Some(row) => refused(path, row.note),
        None => refused(path, &unknown_tag(kind)),
    }
}

/// Returns the reason for the refusal of an unknown block, in the words of Anthropic's API: clients recognise them and
/// go on without such blocks.
fn unknown_tag(kind: &str) -> String {
    let shown: String = kind.chars().filter(|c| !c.is_control()).take(TAG_CHARS_MAX).collect();
    format!("Input tag '{shown}' found using 'type' does not match any of the expected tags")
}

/// The maximum number of characters of a type in an error.
const TAG_CHARS_MAX: usize = 64;

/// Returns true for a call of Anthropic's tool search.
fn is_of_search(call: Tree<'_, '_>) -> bool {
    text_member(call, "name").is_some_and(|name| name.starts_with(tools::SEARCH))
}

impl<'i> ChatRequestBuilder<'_, 'i> {
    /// Adds a message of only text.
    fn plain(&mut self, role: ChatRole<'i>, text: Cow<'i, str>, path: &MemberPath<'_>) {
        let message = self.message(role, path);
        let content = Some(ChatContent::text(text));
        self.request.messages.push(ChatMessage { content, ..message });
    }
}
