//! The output of a tool in chat. A tool message of a chat target holds text alone, so images and files of an output
//! follow in a user message, and a mark in the output names each of them. Other targets take them within the result.

use std::borrow::Cow;

use super::Traits;
use crate::chat::request::{ChatContent, ChatPart, PartBody, joined};

/// Returns the content of a tool message made of `parts`, and the media that have to follow in a user message.
pub(super) fn tool_output<'t, 'i>(
    parts: Vec<PartBody<'i>>,
    target: &Traits<'_>,
) -> (ChatContent<'t, 'i>, Vec<PartBody<'i>>) {
    let is_text = |part: &PartBody<'_>| matches!(part, PartBody::Text(_));
    if target.extended_chat && !parts.iter().all(is_text) {
        let parts = parts.into_iter().map(ChatPart::from).collect();
        return (ChatContent { parts, is_text: false }, Vec::new());
    }
    let (mut texts, mut media) = (Vec::with_capacity(parts.len()), Vec::new());
    for part in parts {
        match part {
            PartBody::Text(text) => texts.push(text),
            part @ (PartBody::Refusal(_)
            | PartBody::Image { .. }
            | PartBody::Video(_)
            | PartBody::Audio { .. }
            | PartBody::File(_)
            | PartBody::Thought
            | PartBody::Unknown) => {
                texts.push(mark(&part).into());
                media.push(part);
            }
        }
    }
    (ChatContent::text(joined(texts, "\n")), media)
}

/// Returns the text that stands in a result for media that follow it.
pub(super) fn mark(part: &PartBody<'_>) -> &'static str {
    match part {
        PartBody::Image { .. } => "[image]",
        PartBody::Video(_) => "[video]",
        PartBody::Audio { .. } => "[audio]",
        PartBody::File(_)
        | PartBody::Text(_)
        | PartBody::Refusal(_)
        | PartBody::Thought
        | PartBody::Unknown => "[file]",
    }
}

/// Returns the texts of a result, joined by line ends; marks of its media if it has no text.
pub(super) fn text_or_marks<'m>(content: Option<&'m ChatContent<'_, '_>>) -> Cow<'m, str> {
    let parts = content.map(|content| content.parts.as_slice()).unwrap_or_default();
    let texts: Vec<Cow<'m, str>> = parts.iter().filter_map(|part| part.text().map(Cow::Borrowed)).collect();
    if texts.iter().any(|text| !text.trim().is_empty()) {
        return joined(texts, "\n");
    }
    let media = parts.iter().filter(|part| part.text().is_none());
    joined(media.map(|part| mark(&part.body).into()).collect(), "\n")
}
