//! Translates system text and messages.

use simd_json::prelude::ValueIntoString as _;

use super::fold::{Beside, Folded};
use super::losses::LOSSES;
use super::request::{ChatRequestWriter, elements, member, refused, required, text_member};
use super::tools;
use super::user::{text_part, user};
use crate::adapt::call_id::fitting;
use crate::adapt::path::MemberPath;
use crate::adapt::{Fate, Rejection, signature_in_call_id};
use crate::json::Tree;

/// The prefix of Claude Code's build attribution. It differs between builds and would defeat prompt caches.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// Writes `,"messages":[..]`.
pub(super) fn messages(writer: &mut ChatRequestWriter<'_>, body: Tree<'_, '_>) -> Result<(), Rejection> {
    let path = MemberPath::top("messages");
    let messages = member(body, "messages").and_then(elements);
    let messages = messages.ok_or_else(|| path.reject("must be an array of messages"))?;
    let folded = if writer.target.leading_system { Folded::of(&messages, &path)? } else { Folded::default() };
    writer.raw(",\"messages\":[");
    let system = MemberPath::top("system");
    let text = match member(body, "system") {
        Some(value) => joined(value, &system, |text| text.starts_with(BILLING_HEADER))?,
        None => String::new(),
    };
    let marked = match member(body, "system") {
        Some(value) => marked_system(writer, value, &system)?,
        None => false,
    };
    let leading: Vec<&str> =
        std::iter::once(&*text).chain(folded.leading()).filter(|text| !text.is_empty()).collect();
    if !marked && !leading.is_empty() {
        writer.plain("system", &leading.join("\n\n"), &system);
    }
    let loop_begins = loop_begins(&messages);
    for (position, message) in messages.iter().enumerate() {
        let place = MessagePlace { in_loop: position > loop_begins, beside: folded.beside(position) };
        one(writer, *message, &place, &path.at(position))?;
    }
    if let Some(last) = messages.last()
        && text_member(*last, "role") == Some("assistant")
    {
        let path = path.at(messages.len().saturating_sub(1));
        return Err(refused(&path, "a prefill of the answer, which only some Anthropic models continue"));
    }
    writer.raw("]");
    Ok(())
}

/// The context of a message in its conversation.
struct MessagePlace<'a> {
    /// True if the message belongs to the tool loop that the request continues.
    in_loop: bool,
    /// System text folded into the message; `None` if the message itself was folded into another.
    beside: Option<&'a Beside>,
}

/// Returns the index of the user's last message that is more than tool results.
fn loop_begins(messages: &[Tree<'_, '_>]) -> usize {
    let is_result = |block: Tree<'_, '_>| text_member(block, "type") == Some("tool_result");
    let has_more_than_results = |message: &Tree<'_, '_>| {
        let blocks = member(*message, "content").and_then(elements);
        text_member(*message, "role") == Some("user")
            && !blocks.is_some_and(|blocks| blocks.into_iter().all(is_result))
    };
    messages.iter().rposition(has_more_than_results).unwrap_or_default()
}

fn one(
    writer: &mut ChatRequestWriter<'_>,
    message: Tree<'_, '_>,
    place: &MessagePlace<'_>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let role = required(message, "role", path)?;
    let content = path.member("content");
    let value = member(message, "content").ok_or_else(|| content.reject("is required"))?;
    if !matches!(role, "user" | "assistant" | "system") {
        return Err(path.member("role").reject("must be 'user', 'assistant' or 'system'"));
    }
    let Some(beside) = place.beside else { return Ok(()) };
    let text = match value.into_string() {
        Some(text) if role == "user" => beside.around(text),
        Some(text) => text.into(),
        None if role == "system" => joined(value, &content, |_| false)?.into(),
        None => {
            let blocks =
                elements(value).ok_or_else(|| content.reject("must be a string or an array of blocks"))?;
            return if role == "user" {
                user(writer, &blocks, beside, path)
            } else {
                assistant(writer, &blocks, place, path)
            };
        }
    };
    let role = if role == "system" && beside.stands_alone { "user" } else { role };
    writer.plain(role, &text, path);
    Ok(())
}

/// Returns a string, or the texts of blocks joined by an empty line, without those that `leaves_out` selects.
pub(super) fn joined(
    value: Tree<'_, '_>,
    path: &MemberPath<'_>,
    leaves_out: fn(&str) -> bool,
) -> Result<String, Rejection> {
    if let Some(text) = value.into_string() {
        return Ok(text.to_owned());
    }
    let blocks = elements(value).ok_or_else(|| path.reject("must be a string or an array of text blocks"))?;
    let mut texts = Vec::with_capacity(blocks.len());
    for (position, block) in blocks.iter().enumerate() {
        let at = path.at(position);
        if text_member(*block, "type") != Some("text") {
            return Err(at.reject("must be a text block"));
        }
        texts.push(required(*block, "text", &at)?);
    }
    texts.retain(|text| !leaves_out(text));
    Ok(texts.join("\n\n"))
}

fn assistant(
    writer: &mut ChatRequestWriter<'_>,
    blocks: &[Tree<'_, '_>],
    place: &MessagePlace<'_>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let content = path.member("content");
    let (mut text, mut thoughts) = (String::new(), String::new());
    let (mut calls, mut signed) = (Vec::new(), Vec::new());
    for (position, block) in blocks.iter().enumerate() {
        let at = content.at(position);
        match required(*block, "type", &at)? {
            "text" => text.push_str(required(*block, "text", &at)?),
            "tool_use" => calls.push((position, *block)),
            "thinking" => {
                thoughts.push_str(text_member(*block, "thinking").unwrap_or_default());
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
    writer.begin_message("assistant", path);
    writer.raw(",\"content\":");
    if text.is_empty() {
        writer.raw("null")
    } else {
        writer.text(&text)
    }
    if writer.target.reasoning_back && place.in_loop && !calls.is_empty() && !thoughts.is_empty() {
        writer.raw(",\"reasoning_content\":");
        writer.text(&thoughts);
    }
    writer.signed(&signed);
    if let Some(marked) = blocks.iter().rfind(|block| writer.marks(**block)) {
        writer.cache_mark(*marked);
    }
    for (count, (position, block)) in calls.iter().enumerate() {
        writer.raw(if count == 0 { ",\"tool_calls\":[" } else { "," });
        tool_use(writer, *block, &content.at(*position))?;
    }
    writer.raw(if calls.is_empty() { "}" } else { "]}" });
    Ok(())
}

fn tool_use(
    writer: &mut ChatRequestWriter<'_>,
    block: Tree<'_, '_>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    writer.trail.call(path);
    writer.raw("{\"id\":");
    let (id, signature) = signature_in_call_id::split(required(block, "id", path)?);
    writer.text(&fitting(writer.target.tool_ids, id, "call_"));
    writer.raw(",\"type\":\"function\",\"function\":{\"name\":");
    writer.tool_name(required(block, "name", path)?);
    writer.raw(",\"arguments\":");
    match member(block, "input") {
        Some(input) if input.as_object().is_some() => writer.value_as_text(input),
        Some(_) => return Err(path.member("input").reject("must be an object")),
        None => writer.raw("\"{}\""),
    }
    writer.raw("}");
    if let Some(signature) = signature.filter(|_| writer.target.takes_signatures()) {
        writer.raw(",\"extra_content\":");
        signature_in_call_id::write_extra(&signature, &mut writer.out);
    }
    writer.raw("}");
    Ok(())
}

/// Returns the rejection of an unsupported block, with the reason from the table if it has a row for it.
pub(super) fn refused_block(kind: &str, path: &MemberPath<'_>) -> Rejection {
    let is_of_kind = |field: &str| {
        let named = field.strip_prefix("messages.*.content.*[").and_then(|rest| rest.strip_suffix(']'));
        named == Some(kind)
    };
    let row = LOSSES.iter().find(|row| row.fate == Fate::Rejected && is_of_kind(row.field));
    refused(path, row.map_or("a kind of block that chat does not support", |row| row.note))
}

/// Returns true for a call of Anthropic's tool search.
fn is_of_search(call: Tree<'_, '_>) -> bool {
    text_member(call, "name").is_some_and(|name| name.starts_with(tools::SEARCH))
}

/// Writes the system text as blocks with their cache marks. Returns false, and writes nothing, if no block has a mark.
fn marked_system(
    writer: &mut ChatRequestWriter<'_>,
    value: Tree<'_, '_>,
    path: &MemberPath<'_>,
) -> Result<bool, Rejection> {
    let blocks = elements(value).unwrap_or_default();
    if !blocks.iter().any(|block| writer.marks(*block)) {
        return Ok(false);
    }
    writer.begin_message("system", path);
    writer.raw(",\"content\":[");
    for (position, block) in blocks.iter().enumerate() {
        let text = required(*block, "text", &path.at(position))?;
        if !text.starts_with(BILLING_HEADER) {
            writer.raw(if writer.out.last() == Some(&b'[') { "" } else { "," });
            text_part(writer, text, Some(*block));
        }
    }
    writer.raw("]}");
    Ok(true)
}

impl ChatRequestWriter<'_> {
    /// Writes `,"thinking_blocks":[..]` with Claude's signed thoughts, if another adaptation accepts them.
    fn signed(&mut self, blocks: &[Tree<'_, '_>]) {
        if blocks.is_empty() || !self.target.extended_chat {
            return;
        }
        self.raw(",\"thinking_blocks\":[");
        for (position, block) in blocks.iter().enumerate() {
            self.raw(if position == 0 { "" } else { "," });
            self.value(*block);
        }
        self.raw("]");
    }

    /// Writes a message of only text.
    fn plain(&mut self, role: &str, text: &str, path: &MemberPath<'_>) {
        self.begin_message(role, path);
        self.raw(",\"content\":");
        self.text(text);
        self.raw("}");
    }

    /// Writes `{"role":..`, the beginning of the next message, which is made from the value at `path`.
    pub(super) fn begin_message(&mut self, role: &str, path: &MemberPath<'_>) {
        self.raw(if self.out.last() == Some(&b'[') { "{\"role\":" } else { ",{\"role\":" });
        self.text(role);
        self.trail.message(path);
    }
}
