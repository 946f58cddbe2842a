//! Writes the parts of a message: text, images, documents.

use super::content::{MessagesContent, end_block};
use crate::adapt::Rejection;
use crate::adapt::chat_over_messages::losses::{FILE_ID, INPUT_AUDIO, VIDEO, refuse};
use crate::adapt::path::MemberPath;
use crate::chat::request::{CacheMark, ChatFile, MediaUrl, PartBody};
use crate::json::JsonWriter;

type Cache<'t, 'i> = Option<CacheMark<'t, 'i>>;

/// Writes the part at `path` of a user message or a tool result.
pub(super) fn user<'a>(
    part: &'a PartBody<'_>,
    path: &MemberPath<'_>,
    cache: Cache<'_, '_>,
    content: &mut MessagesContent<'a>,
) -> Result<(), Rejection> {
    match part {
        PartBody::Text(text) => {
            content.text(text, cache);
            Ok(())
        }
        PartBody::Image { url, .. } => image(*url, &path.member("image_url"), cache, content),
        PartBody::File(file) => document(*file, &path.member("file"), cache, content),
        PartBody::Audio { .. } => Err(refuse(INPUT_AUDIO, path.to_string())),
        PartBody::Video(_) => Err(refuse(VIDEO, path.to_string())),
        PartBody::Refusal(_) | PartBody::Thought | PartBody::Unknown => Err(unknown(path)),
    }
}

/// Writes the part at `path` of an assistant message. `ends_here` is true if the target is to continue this message.
pub(super) fn assistant<'a>(
    part: &'a PartBody<'_>,
    path: &MemberPath<'_>,
    cache: Cache<'_, '_>,
    (content, ends_here): (&mut MessagesContent<'a>, bool),
) -> Result<(), Rejection> {
    match part {
        // The target rejects a message to continue that ends with white space.
        PartBody::Text(text) | PartBody::Refusal(text) if ends_here => content.text(text.trim_end(), cache),
        PartBody::Text(text) | PartBody::Refusal(text) => content.text(text, cache),
        // `thinking::write_signed` handles these.
        PartBody::Thought => {}
        PartBody::Image { .. }
        | PartBody::File(_)
        | PartBody::Audio { .. }
        | PartBody::Video(_)
        | PartBody::Unknown => return Err(unknown(path)),
    }
    Ok(())
}

/// Writes the part at `path`, which must be text.
pub(super) fn text_alone<'a>(
    part: &'a PartBody<'_>,
    path: &MemberPath<'_>,
    cache: Cache<'_, '_>,
    content: &mut MessagesContent<'a>,
) -> Result<(), Rejection> {
    let PartBody::Text(text) = part else { return Err(path.refuse("must be text.")) };
    content.text(text, cache);
    Ok(())
}

fn unknown(path: &MemberPath<'_>) -> Rejection {
    path.refuse("has a type that the target does not support.")
}

fn image(
    url: Option<MediaUrl<'_>>,
    path: &MemberPath<'_>,
    cache: Cache<'_, '_>,
    content: &mut MessagesContent<'_>,
) -> Result<(), Rejection> {
    let url = url.ok_or_else(|| path.reject("is missing."))?;
    let source = MediaSource::of(url).ok_or_else(|| path.refuse(IMAGES))?;
    let source = match source {
        MediaSource::Data { media_type, data } => {
            let known = ["image/jpeg", "image/png", "image/gif", "image/webp"];
            // A common but unregistered name.
            let media_type = if media_type == "image/jpg" { "image/jpeg".to_owned() } else { media_type };
            if !known.contains(&media_type.as_str()) {
                return Err(path.refuse(IMAGES));
            }
            MediaSource::Data { media_type, data }
        }
        MediaSource::Url(url) => MediaSource::Url(url),
    };
    let json = content.block().object().name("type").text("image");
    source.write(json);
    end_block(json, cache);
    Ok(())
}

fn document(
    file: Option<ChatFile<'_>>,
    path: &MemberPath<'_>,
    cache: Cache<'_, '_>,
    content: &mut MessagesContent<'_>,
) -> Result<(), Rejection> {
    let file = file.ok_or_else(|| path.reject("is missing."))?;
    if file.id.is_some() {
        return Err(refuse(FILE_ID, path.member("file_id").to_string()));
    }
    let path = path.member("file_data");
    let data = file.data.ok_or_else(|| path.reject("is missing."))?;
    let source = MediaSource::of(data).filter(|source| match source {
        MediaSource::Data { media_type, .. } => media_type == "application/pdf",
        MediaSource::Url(_) => true,
    });
    let source = source.ok_or_else(|| path.refuse(FILES))?;
    let json = content.block().object().name("type").text("document");
    source.write(json);
    if let Some(name) = file.name {
        json.name("title").text(name);
    }
    end_block(json, cache);
    Ok(())
}

/// The source of an image or a file.
enum MediaSource<'i> {
    Data { media_type: String, data: &'i str },
    Url(&'i str),
}

impl<'i> MediaSource<'i> {
    /// Returns the source at a base64 data URI or an http(s) URL.
    fn of(url: MediaUrl<'i>) -> Option<Self> {
        if let Some(url) = url.web() {
            return Some(Self::Url(url));
        }
        let (media_type, data) = url.inline()?;
        Some(Self::Data { media_type: media_type.to_ascii_lowercase(), data })
    }

    fn write(&self, json: &mut JsonWriter) {
        json.name("source").object().name("type");
        match self {
            Self::Data { media_type, data } => {
                json.text("base64").name("media_type").text(media_type).name("data").text(data)
            }
            Self::Url(url) => json.text("url").name("url").text(url),
        };
        json.end_object();
    }
}

const IMAGES: &str = "must be an http(s) URL, or a JPEG, PNG, GIF or WebP image as a data URI in base64: \
                      the target accepts nothing else.";
const FILES: &str =
    "must be a PDF as a data URI in base64, or an http(s) URL: the target accepts nothing else.";
