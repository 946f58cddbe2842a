//! Translates user messages and tool results.
//!
//! Tool results come first in a Messages turn and are separate messages in chat. All other blocks follow as one user
//! message, which also contains the images of the results, because tool messages cannot.

use std::borrow::Cow;

use simd_json::prelude::ValueAsScalar as _;

use super::content::refused_block;
use super::fold::Beside;
use super::request::{ChatRequestWriter, elements, member, refused, required, text_member};
use crate::adapt::call_id::fitting;
use crate::adapt::path::MemberPath;
use crate::adapt::{Rejection, signature_in_call_id};
use crate::json::Tree;

/// The placeholder in a result for an image that follows it.
const IMAGE: &str = "[image]";

/// Writes the messages that the blocks of a user message become.
pub(super) fn user(
    writer: &mut ChatRequestWriter<'_>,
    blocks: &[Tree<'_, '_>],
    beside: &Beside,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let content = path.member("content");
    // Blocks with their index in the message; images of results also with their index in the result.
    let (mut lifted, mut rest) = (Vec::new(), Vec::new());
    for (position, block) in blocks.iter().enumerate() {
        if text_member(*block, "type") == Some("tool_result") {
            let images = tool_result(writer, *block, &content.at(position))?;
            lifted.extend(images.into_iter().map(|(inner, image)| (position, inner, image)));
        } else {
            rest.push((position, *block));
        }
    }
    if rest.is_empty() && lifted.is_empty() && beside.is_empty() {
        return Ok(());
    }
    writer.begin_message("user", path);
    writer.raw(",\"content\":");
    if let ([], [(position, block)], true) = (&*lifted, &*rest, beside.is_empty())
        && text_member(*block, "type") == Some("text")
    {
        writer.text(required(*block, "text", &content.at(*position))?);
        writer.cache_mark(*block);
        writer.raw("}");
        return Ok(());
    }
    writer.raw("[");
    for (position, inner, block) in lifted {
        let (result, value) = (content.at(position), "content");
        let inside = result.member(value);
        writer.part(block, &inside.at(inner))?;
    }
    for text in &beside.before {
        writer.text_part(text, path);
    }
    for (position, block) in rest {
        writer.part(block, &content.at(position))?;
    }
    for text in &beside.after {
        writer.text_part(text, path);
    }
    writer.raw("]}");
    Ok(())
}

/// Writes the message of a tool result. Returns its images, with their indices, for the user message that follows.
fn tool_result<'t, 'i>(
    writer: &mut ChatRequestWriter<'_>,
    block: Tree<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<Vec<(usize, Tree<'t, 'i>)>, Rejection> {
    let mut images = Vec::new();
    let id = required(block, "tool_use_id", path)?;
    writer.begin_message("tool", path);
    writer.raw(",\"tool_call_id\":");
    writer.text(&fitting(writer.target.tool_ids, signature_in_call_id::split(id).0, "call_"));
    writer.raw(",\"content\":");
    let content = path.member("content");
    match member(block, "content") {
        None => writer.raw("\"\""),
        Some(text) if text.as_str().is_some() => writer.value(text),
        Some(value) => {
            let parts =
                elements(value).ok_or_else(|| content.reject("must be a string or an array of blocks"))?;
            let mut texts: Vec<Cow<'_, str>> = Vec::with_capacity(parts.len());
            for (position, part) in parts.iter().enumerate() {
                let at = content.at(position);
                match text_member(*part, "type") {
                    Some("text") => texts.push(required(*part, "text", &at)?.into()),
                    Some("tool_reference") => {
                        texts.push(writer.names.fit(required(*part, "tool_name", &at)?));
                    }
                    Some("image") if writer.target.images => {
                        images.push((position, *part));
                        texts.push(IMAGE.into());
                    }
                    _ => return Err(refused(&at, "the result of a tool can only be text")),
                }
            }
            writer.text(&texts.join("\n"));
        }
    }
    writer.cache_mark(block);
    writer.raw("}");
    Ok(images)
}

/// Writes a block of a user message that is not a tool result.
fn part(
    writer: &mut ChatRequestWriter<'_>,
    block: Tree<'_, '_>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    match required(block, "type", path)? {
        "text" => text_part(writer, required(block, "text", path)?, Some(block)),
        "image" => image(writer, block, path)?,
        "document" => document(writer, block, path)?,
        kind => return Err(refused_block(kind, path)),
    }
    Ok(())
}

/// Writes a text part, with the cache mark of `block`.
pub(super) fn text_part(writer: &mut ChatRequestWriter<'_>, text: &str, block: Option<Tree<'_, '_>>) {
    writer.raw("{\"type\":\"text\",\"text\":");
    writer.text(text);
    if let Some(block) = block {
        writer.cache_mark(block);
    }
    writer.raw("}");
}

fn image(
    writer: &mut ChatRequestWriter<'_>,
    block: Tree<'_, '_>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let at = path.member("source");
    let source = member(block, "source").ok_or_else(|| at.reject("is required"))?;
    writer.raw("{\"type\":\"image_url\",\"image_url\":{\"url\":");
    match required(source, "type", &at)? {
        "base64" => writer.data_url(source, &at)?,
        "url" => writer.text(required(source, "url", &at)?),
        _ => return Err(refused(&at, "a file stored by another provider")),
    }
    writer.raw("}");
    writer.cache_mark(block);
    writer.raw("}");
    Ok(())
}

fn document(
    writer: &mut ChatRequestWriter<'_>,
    block: Tree<'_, '_>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let cites = member(block, "citations").and_then(|citations| member(citations, "enabled"));
    if cites.and_then(|enabled| enabled.as_bool()) == Some(true) {
        return Err(refused(&path.member("citations"), "chat answers do not support citations of documents"));
    }
    let at = path.member("source");
    let source = member(block, "source").ok_or_else(|| at.reject("is required"))?;
    match required(source, "type", &at)? {
        "text" => text_part(writer, required(source, "data", &at)?, Some(block)),
        "base64" if writer.target.files => {
            writer.raw("{\"type\":\"file\",\"file\":{\"filename\":");
            let title = text_member(block, "title").filter(|title| !title.is_empty());
            writer.text(title.unwrap_or("document.pdf"));
            writer.raw(",\"file_data\":");
            writer.data_url(source, &at)?;
            writer.raw("}");
            writer.cache_mark(block);
            writer.raw("}");
        }
        "base64" => return Err(refused(&at, "it does not read files")),
        _ => return Err(refused(&at, "a document that is neither text nor inline bytes")),
    }
    Ok(())
}

impl ChatRequestWriter<'_> {
    /// Writes the next part of a user message.
    fn part(&mut self, block: Tree<'_, '_>, at: &MemberPath<'_>) -> Result<(), Rejection> {
        self.begin_part(at);
        part(self, block, at)
    }

    /// Writes the next part of a user message, from folded system text.
    fn text_part(&mut self, text: &str, at: &MemberPath<'_>) {
        self.begin_part(at);
        text_part(self, text, None);
    }

    fn begin_part(&mut self, at: &MemberPath<'_>) {
        self.raw(if self.out.last() == Some(&b'[') { "" } else { "," });
        self.trail.part(at);
    }

    /// Writes the bytes of a source as a data URL.
    fn data_url(&mut self, source: Tree<'_, '_>, at: &MemberPath<'_>) -> Result<(), Rejection> {
        let kind = required(source, "media_type", at)?;
        let data = required(source, "data", at)?;
        self.text(&format!("data:{kind};base64,{data}"));
        Ok(())
    }
}
