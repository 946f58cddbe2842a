//! Translates user messages and tool results.
//!
//! Tool results come first in a Messages turn and are separate messages in chat. All other blocks follow as one user
//! message, which also contains the images and documents of the results if tool messages of the target cannot.

use simd_json::prelude::{ValueAsScalar as _, ValueIntoString as _};

use super::content::refused_block;
use super::fold::Beside;
use super::request::{ChatRequestBuilder, elements, member, refused, required, text_member};
use crate::adapt::call_id::fitting;
use crate::adapt::path::MemberPath;
use crate::adapt::tool_output::tool_output;
use crate::adapt::{Rejection, signature_in_call_id};
use crate::chat::request::{ChatContent, ChatFile, ChatMessage, ChatPart, ChatRole, MediaUrl, PartBody};
use crate::json::Tree;

/// Adds the messages that the blocks of a user message become.
pub(super) fn user<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    blocks: &[Tree<'t, 'i>],
    beside: &Beside,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let content = path.member("content");
    // Blocks with their index in the message; media of results also with their index in the result.
    let (mut lifted, mut rest) = (Vec::new(), Vec::new());
    for (position, block) in blocks.iter().enumerate() {
        if text_member(*block, "type") == Some("tool_result") {
            let media = tool_result(builder, *block, &content.at(position))?;
            lifted.extend(media.into_iter().map(|(inner, part)| (position, inner, part)));
        } else {
            rest.push((position, *block));
        }
    }
    if rest.is_empty() && lifted.is_empty() && beside.is_empty() {
        return Ok(());
    }
    let mut message = builder.message(ChatRole::User, path);
    if let ([], [(position, block)], true) = (&*lifted, &*rest, beside.is_empty())
        && text_member(*block, "type") == Some("text")
    {
        message.content = Some(ChatContent::text(required(*block, "text", &content.at(*position))?));
        message.cache = builder.cache_mark(*block);
        builder.request.messages.push(message);
        return Ok(());
    }
    let mut parts = Vec::with_capacity(rest.len());
    for (position, inner, part) in lifted {
        let (result, value) = (content.at(position), "content");
        builder.trail.part(&result.member(value).at(inner));
        parts.push(part);
    }
    for text in &beside.before {
        parts.push(builder.folded(text, path));
    }
    for (position, block) in rest {
        parts.push(builder.part(block, &content.at(position))?);
    }
    for text in &beside.after {
        parts.push(builder.folded(text, path));
    }
    message.content = Some(ChatContent { parts, is_text: false });
    builder.request.messages.push(message);
    Ok(())
}

/// The media of a tool result that follow in a user message, with their indices in the result.
type LiftedMedia<'t, 'i> = Vec<(usize, ChatPart<'t, 'i>)>;

/// Adds the message of a tool result. Returns its media for the user message that follows.
fn tool_result<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    block: Tree<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<LiftedMedia<'t, 'i>, Rejection> {
    let id = signature_in_call_id::split(required(block, "tool_use_id", path)?).0;
    let id = fitting(builder.target.tool_ids, id, "call_");
    let message = builder.message(ChatRole::Tool(id), path);
    let content = path.member("content");
    let (content, lifted) = match member(block, "content") {
        None => (ChatContent::text(""), Vec::new()),
        Some(value) => match value.into_string() {
            Some(text) => (ChatContent::text(text), Vec::new()),
            None => {
                let parts = elements(value)
                    .ok_or_else(|| content.reject("must be a string or an array of blocks"))?;
                result_content(builder, &parts, &content)?
            }
        },
    };
    let message = ChatMessage { content: Some(content), cache: builder.cache_mark(block), ..message };
    builder.request.messages.push(message);
    Ok(lifted)
}

/// Returns the content of a tool message for the blocks of a result, which are at `path`, and the media that follow it.
fn result_content<'t, 'i>(
    builder: &mut ChatRequestBuilder<'t, 'i>,
    blocks: &[Tree<'t, 'i>],
    path: &MemberPath<'_>,
) -> Result<(ChatContent<'t, 'i>, LiftedMedia<'t, 'i>), Rejection> {
    let (mut parts, mut positions) = (Vec::with_capacity(blocks.len()), Vec::new());
    for (position, block) in blocks.iter().enumerate() {
        let at = path.at(position);
        let part = match text_member(*block, "type") {
            Some("text") => PartBody::Text(required(*block, "text", &at)?.into()),
            Some("tool_reference") => PartBody::Text(builder.names.fit(required(*block, "tool_name", &at)?)),
            Some("image") if builder.target.images => image(builder, *block, &at)?.body,
            Some("document") => document(builder, *block, &at)?.body,
            _ => return Err(refused(&at, "the result of a tool can only be text, images and documents")),
        };
        if !matches!(part, PartBody::Text(_)) {
            positions.push(position);
        }
        parts.push(part);
    }
    let (content, media) = tool_output(parts, builder.target);
    if !content.is_text {
        blocks.iter().enumerate().for_each(|(position, _)| builder.trail.part(&path.at(position)));
    }
    Ok((content, positions.into_iter().zip(media.into_iter().map(ChatPart::from)).collect()))
}

/// Returns the part of a block of a user message that is not a tool result.
fn part<'t, 'i>(
    builder: &ChatRequestBuilder<'t, 'i>,
    block: Tree<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<ChatPart<'t, 'i>, Rejection> {
    match required(block, "type", path)? {
        "text" => Ok(text_part(builder, required(block, "text", path)?, Some(block))),
        "image" => image(builder, block, path),
        "document" => document(builder, block, path),
        kind => Err(refused_block(kind, path)),
    }
}

/// Returns a text part, with the cache mark of `block`.
pub(super) fn text_part<'t, 'i>(
    builder: &ChatRequestBuilder<'t, 'i>,
    text: &'i str,
    block: Option<Tree<'t, 'i>>,
) -> ChatPart<'t, 'i> {
    let cache = block.and_then(|block| builder.cache_mark(block));
    ChatPart { body: PartBody::Text(text.into()), cache }
}

fn image<'t, 'i>(
    builder: &ChatRequestBuilder<'t, 'i>,
    block: Tree<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<ChatPart<'t, 'i>, Rejection> {
    let at = path.member("source");
    let source = member(block, "source").ok_or_else(|| at.reject("is required"))?;
    let url = match required(source, "type", &at)? {
        "base64" => inline(source, &at)?,
        "url" => MediaUrl::Url(required(source, "url", &at)?),
        _ => return Err(refused(&at, "a file stored by another provider")),
    };
    let body = PartBody::Image { url: Some(url), detail: None };
    Ok(ChatPart { body, cache: builder.cache_mark(block) })
}

fn document<'t, 'i>(
    builder: &ChatRequestBuilder<'t, 'i>,
    block: Tree<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<ChatPart<'t, 'i>, Rejection> {
    let cites = member(block, "citations").and_then(|citations| member(citations, "enabled"));
    if cites.and_then(|enabled| enabled.as_bool()) == Some(true) {
        return Err(refused(&path.member("citations"), "chat answers do not support citations of documents"));
    }
    let at = path.member("source");
    let source = member(block, "source").ok_or_else(|| at.reject("is required"))?;
    match required(source, "type", &at)? {
        "text" => Ok(text_part(builder, required(source, "data", &at)?, Some(block))),
        "base64" if builder.target.files => {
            let title = text_member(block, "title").filter(|title| !title.is_empty());
            let data = Some(inline(source, &at)?);
            let file = ChatFile { id: None, name: Some(title.unwrap_or("document.pdf")), data };
            Ok(ChatPart { body: PartBody::File(Some(file)), cache: builder.cache_mark(block) })
        }
        "base64" => Err(refused(&at, "it does not read files")),
        _ => Err(refused(&at, "a document that is neither text nor inline bytes")),
    }
}

/// Returns the bytes of a source.
fn inline<'i>(source: Tree<'_, 'i>, at: &MemberPath<'_>) -> Result<MediaUrl<'i>, Rejection> {
    let media_type = required(source, "media_type", at)?;
    Ok(MediaUrl::Inline { media_type, base64: required(source, "data", at)? })
}

impl<'t, 'i> ChatRequestBuilder<'t, 'i> {
    /// Returns the next part of a user message.
    fn part(&mut self, block: Tree<'t, 'i>, at: &MemberPath<'_>) -> Result<ChatPart<'t, 'i>, Rejection> {
        self.trail.part(at);
        part(self, block, at)
    }

    /// Returns the next part of a user message, from folded system text.
    fn folded(&mut self, text: &str, at: &MemberPath<'_>) -> ChatPart<'t, 'i> {
        self.trail.part(at);
        PartBody::Text(text.to_owned().into()).into()
    }
}
