//! System text and messages, block by block.
//!
//! Results of tools stand first in a Messages turn and are messages of their own in chat; what else stands beside
//! them follows as one user message.

use simd_json::prelude::{ValueAsScalar as _, ValueIntoString as _};

use super::losses::LOSSES;
use super::request::{Writer, elements, member, refused, required, text_member};
use crate::adapt::call_id::fitting;
use crate::adapt::path::Path;
use crate::adapt::{Fate, Rejection};
use crate::json::Tree;

/// Claude Code's attribution of a build: it changes from one to the next, and would defeat every cache of prefixes.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// `,"messages":[..]`
pub(super) fn messages(writer: &mut Writer<'_>, body: Tree<'_, '_>) -> Result<(), Rejection> {
    let path = Path::top("messages");
    let messages = member(body, "messages").and_then(elements);
    let messages = messages.ok_or_else(|| path.reject("must be an array of messages"))?;
    writer.raw(",\"messages\":[");
    if let Some(system) = member(body, "system") {
        let path = Path::top("system");
        let text = joined(system, &path, |text| text.starts_with(BILLING_HEADER))?;
        if !text.is_empty() {
            writer.begin_message("system", &path);
            writer.raw(",\"content\":");
            writer.text(&text);
            writer.raw("}");
        }
    }
    for (position, message) in messages.iter().enumerate() {
        one(writer, *message, &path.at(position))?;
    }
    if let Some(last) = messages.last()
        && text_member(*last, "role") == Some("assistant")
    {
        let path = path.at(messages.len().saturating_sub(1));
        return Err(refused(&path, "a beginning of the answer, which only some Anthropic models go on with"));
    }
    writer.raw("]");
    Ok(())
}

fn one(writer: &mut Writer<'_>, message: Tree<'_, '_>, path: &Path<'_>) -> Result<(), Rejection> {
    let role = required(message, "role", path)?;
    let content = path.member("content");
    let said = member(message, "content").ok_or_else(|| content.reject("is required"))?;
    if !matches!(role, "user" | "assistant" | "system") {
        return Err(path.member("role").reject("must be 'user', 'assistant' or 'system'"));
    }
    let text = match said.into_string() {
        Some(text) => text.to_owned(),
        None if role == "system" => joined(said, &content, |_| false)?,
        None => {
            let blocks =
                elements(said).ok_or_else(|| content.reject("must be a string or an array of blocks"))?;
            return if role == "user" {
                user(writer, &blocks, path)
            } else {
                assistant(writer, &blocks, path)
            };
        }
    };
    writer.begin_message(role, path);
    writer.raw(",\"content\":");
    writer.text(&text);
    writer.raw("}");
    Ok(())
}

/// A string, or the texts of blocks with an empty line between.
fn joined(value: Tree<'_, '_>, path: &Path<'_>, leaves_out: fn(&str) -> bool) -> Result<String, Rejection> {
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

fn user(writer: &mut Writer<'_>, blocks: &[Tree<'_, '_>], path: &Path<'_>) -> Result<(), Rejection> {
    let content = path.member("content");
    let mut rest = Vec::new();
    for (position, block) in blocks.iter().enumerate() {
        if text_member(*block, "type") == Some("tool_result") {
            tool_result(writer, *block, &content.at(position))?;
        } else {
            rest.push((position, *block));
        }
    }
    if rest.is_empty() {
        return Ok(());
    }
    writer.begin_message("user", path);
    writer.raw(",\"content\":");
    if let [(position, block)] = rest.as_slice()
        && text_member(*block, "type") == Some("text")
    {
        writer.text(required(*block, "text", &content.at(*position))?);
    } else {
        writer.raw("[");
        for (count, (position, block)) in rest.iter().enumerate() {
            writer.raw(if count == 0 { "" } else { "," });
            let at = content.at(*position);
            writer.trail.part(&at);
            part(writer, *block, &at)?;
        }
        writer.raw("]");
    }
    writer.raw("}");
    Ok(())
}

fn tool_result(writer: &mut Writer<'_>, block: Tree<'_, '_>, path: &Path<'_>) -> Result<(), Rejection> {
    let id = required(block, "tool_use_id", path)?;
    writer.begin_message("tool", path);
    writer.raw(",\"tool_call_id\":");
    writer.text(&fitting(writer.target.tool_ids, id, "call_"));
    writer.raw(",\"content\":");
    let content = path.member("content");
    match member(block, "content") {
        None => writer.raw("\"\""),
        Some(text) if text.as_str().is_some() => writer.value(text),
        Some(said) => {
            let parts =
                elements(said).ok_or_else(|| content.reject("must be a string or an array of blocks"))?;
            let mut texts = Vec::with_capacity(parts.len());
            for (position, part) in parts.iter().enumerate() {
                let at = content.at(position);
                if text_member(*part, "type") != Some("text") {
                    return Err(refused(&at, "the result of a tool can only be text"));
                }
                texts.push(required(*part, "text", &at)?);
            }
            writer.text(&texts.join("\n"));
        }
    }
    writer.raw("}");
    Ok(())
}

/// A block of a user's message that is no result.
fn part(writer: &mut Writer<'_>, block: Tree<'_, '_>, path: &Path<'_>) -> Result<(), Rejection> {
    match required(block, "type", path)? {
        "text" => text_part(writer, required(block, "text", path)?),
        "image" => image(writer, block, path)?,
        "document" => document(writer, block, path)?,
        kind => return Err(refused_block(kind, path)),
    }
    Ok(())
}

fn text_part(writer: &mut Writer<'_>, text: &str) {
    writer.raw("{\"type\":\"text\",\"text\":");
    writer.text(text);
    writer.raw("}");
}

fn image(writer: &mut Writer<'_>, block: Tree<'_, '_>, path: &Path<'_>) -> Result<(), Rejection> {
    let at = path.member("source");
    let source = member(block, "source").ok_or_else(|| at.reject("is required"))?;
    writer.raw("{\"type\":\"image_url\",\"image_url\":{\"url\":");
    match required(source, "type", &at)? {
        "base64" => writer.data_url(source, &at)?,
        "url" => writer.text(required(source, "url", &at)?),
        _ => return Err(refused(&at, "a file that only its own provider holds")),
    }
    writer.raw("}}");
    Ok(())
}

fn document(writer: &mut Writer<'_>, block: Tree<'_, '_>, path: &Path<'_>) -> Result<(), Rejection> {
    let cites = member(block, "citations").and_then(|citations| member(citations, "enabled"));
    if cites.and_then(|enabled| enabled.as_bool()) == Some(true) {
        return Err(refused(&path.member("citations"), "chat answers have no citations of documents"));
    }
    let at = path.member("source");
    let source = member(block, "source").ok_or_else(|| at.reject("is required"))?;
    match required(source, "type", &at)? {
        "text" => text_part(writer, required(source, "data", &at)?),
        "base64" if writer.target.files => {
            writer.raw("{\"type\":\"file\",\"file\":{\"filename\":");
            let title = text_member(block, "title").filter(|title| !title.is_empty());
            writer.text(title.unwrap_or("document.pdf"));
            writer.raw(",\"file_data\":");
            writer.data_url(source, &at)?;
            writer.raw("}}");
        }
        "base64" => return Err(refused(&at, "it does not read files")),
        _ => return Err(refused(&at, "a document that is neither text nor holds its bytes")),
    }
    Ok(())
}

fn assistant(writer: &mut Writer<'_>, blocks: &[Tree<'_, '_>], path: &Path<'_>) -> Result<(), Rejection> {
    let content = path.member("content");
    let (mut text, mut calls) = (String::new(), Vec::new());
    for (position, block) in blocks.iter().enumerate() {
        let at = content.at(position);
        match required(*block, "type", &at)? {
            "text" => text.push_str(required(*block, "text", &at)?),
            "tool_use" => calls.push((position, *block)),
            "thinking" | "redacted_thinking" => {}
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
    for (count, (position, block)) in calls.iter().enumerate() {
        writer.raw(if count == 0 { ",\"tool_calls\":[" } else { "," });
        tool_use(writer, *block, &content.at(*position))?;
    }
    writer.raw(if calls.is_empty() { "}" } else { "]}" });
    Ok(())
}

fn tool_use(writer: &mut Writer<'_>, block: Tree<'_, '_>, path: &Path<'_>) -> Result<(), Rejection> {
    writer.trail.call(path);
    writer.raw("{\"id\":");
    writer.text(&fitting(writer.target.tool_ids, required(block, "id", path)?, "call_"));
    writer.raw(",\"type\":\"function\",\"function\":{\"name\":");
    writer.text(required(block, "name", path)?);
    writer.raw(",\"arguments\":");
    match member(block, "input") {
        Some(input) if input.as_object().is_some() => writer.value_as_text(input),
        Some(_) => return Err(path.member("input").reject("must be an object")),
        None => writer.raw("\"{}\""),
    }
    writer.raw("}}");
    Ok(())
}

/// A block that is not known here, with what the table says of it if it does.
fn refused_block(kind: &str, path: &Path<'_>) -> Rejection {
    let is_of_kind = |field: &str| {
        let named = field.strip_prefix("messages.*.content.*[").and_then(|rest| rest.strip_suffix(']'));
        named == Some(kind)
    };
    let row = LOSSES.iter().find(|row| row.fate == Fate::Rejected && is_of_kind(row.field));
    refused(path, row.map_or("a block of a kind that chat does not have", |row| row.note))
}

impl Writer<'_> {
    /// `{"role":..` of the next message, which is made of what stands at `path`.
    fn begin_message(&mut self, role: &str, path: &Path<'_>) {
        self.raw(if self.out.last() == Some(&b'[') { "{\"role\":" } else { ",{\"role\":" });
        self.text(role);
        self.trail.message(path);
    }

    /// The bytes of a source as a URL.
    fn data_url(&mut self, source: Tree<'_, '_>, at: &Path<'_>) -> Result<(), Rejection> {
        let kind = required(source, "media_type", at)?;
        let data = required(source, "data", at)?;
        self.text(&format!("data:{kind};base64,{data}"));
        Ok(())
    }
}
