//! Writes the parts of a message: text, images, documents.

use super::content::{MessagesContent, cache_control};
use super::messages::ClientPart;
use crate::adapt::chat_over_messages::losses::{FILE_ID, INPUT_AUDIO, VIDEO, refuse};
use crate::adapt::write::ObjectWriter;
use crate::adapt::{Rejection, read};
use crate::json::Tree;
use simd_json::tape::Object;

type PathOf<'p> = &'p dyn Fn() -> String;

/// Writes a part of a user message or a tool result.
pub(super) fn user<'t, 'i>(
    part: &ClientPart<'t, 'i>,
    path: PathOf<'_>,
    cache: Option<Tree<'t, 'i>>,
    content: &mut MessagesContent<'i>,
) -> Result<(), Rejection> {
    let part = match part {
        ClientPart::Text(text) => {
            content.text(text, cache);
            return Ok(());
        }
        ClientPart::Typed(part) => part,
    };
    match read::needed_text(part, "type", path)? {
        "text" => content.text(read::needed_text(part, "text", path)?, cache),
        "image_url" => image(part, path, cache, content)?,
        "file" => file(part, path, cache, content)?,
        "input_audio" => return Err(refuse(INPUT_AUDIO, path())),
        "video_url" => return Err(refuse(VIDEO, path())),
        _ => return Err(unknown(path)),
    }
    Ok(())
}

/// Writes a part of an assistant message. `ends_here` is true if the target is to continue this message.
pub(super) fn assistant<'t, 'i>(
    part: &ClientPart<'t, 'i>,
    path: PathOf<'_>,
    cache: Option<Tree<'t, 'i>>,
    (content, ends_here): (&mut MessagesContent<'i>, bool),
) -> Result<(), Rejection> {
    let text = match part {
        ClientPart::Text(text) => text,
        ClientPart::Typed(part) => match read::needed_text(part, "type", path)? {
            kind @ ("text" | "refusal") => read::needed_text(part, kind, path)?,
            // `thinking::write_signed` handles these.
            "thinking" | "redacted_thinking" => return Ok(()),
            _ => return Err(unknown(path)),
        },
    };
    // The target rejects a message to continue that ends with white space.
    content.text(if ends_here { text.trim_end() } else { text }, cache);
    Ok(())
}

/// Writes a part that must be text.
pub(super) fn text_alone<'t, 'i>(
    content: &mut MessagesContent<'i>,
    part: &ClientPart<'t, 'i>,
    path: PathOf<'_>,
    cache: Option<Tree<'t, 'i>>,
) -> Result<(), Rejection> {
    match part {
        ClientPart::Text(text) => content.text(text, cache),
        ClientPart::Typed(part) => match read::needed_text(part, "type", path)? {
            "text" => content.text(read::needed_text(part, "text", path)?, cache),
            _ => return Err(Rejection::new(path(), "must be text.")),
        },
    }
    Ok(())
}

fn unknown(path: PathOf<'_>) -> Rejection {
    Rejection::new(path(), "has a type that the target does not support.")
}

fn image(
    part: &Object<'_, '_>,
    path: PathOf<'_>,
    cache: Option<Tree<'_, '_>>,
    content: &mut MessagesContent<'_>,
) -> Result<(), Rejection> {
    let place = || format!("{}.image_url", path());
    let image =
        read::member(part, "image_url").ok_or_else(|| Rejection::malformed(place(), "is missing."))?;
    let url = match image.as_object() {
        Some(image) => read::needed_text(&image, "url", place)?,
        None => read::text(image, place)?,
    };
    let source = MediaSource::of(url).ok_or_else(|| Rejection::new(place(), IMAGES))?;
    let source = match source {
        MediaSource::Data { media_type, data } => {
            let known = ["image/jpeg", "image/png", "image/gif", "image/webp"];
            // A common but unregistered name.
            let media_type = if media_type == "image/jpg" { "image/jpeg".to_owned() } else { media_type };
            if !known.contains(&media_type.as_str()) {
                return Err(Rejection::new(place(), IMAGES));
            }
            MediaSource::Data { media_type, data }
        }
        MediaSource::Url(url) => MediaSource::Url(url),
    };
    let mut block = ObjectWriter::open(content.block());
    block.text("type", "image");
    source.write(&mut block);
    cache_control(&mut block, cache);
    block.close();
    Ok(())
}

fn file(
    part: &Object<'_, '_>,
    path: PathOf<'_>,
    cache: Option<Tree<'_, '_>>,
    content: &mut MessagesContent<'_>,
) -> Result<(), Rejection> {
    let place = || format!("{}.file", path());
    let file = read::member(part, "file").ok_or_else(|| Rejection::malformed(place(), "is missing."))?;
    let file = read::object(file, place)?;
    if read::member(&file, "file_id").is_some() {
        return Err(refuse(FILE_ID, format!("{}.file_id", place())));
    }
    let data = read::needed_text(&file, "file_data", place)?;
    let source = MediaSource::of(data).filter(|source| match source {
        MediaSource::Data { media_type, .. } => media_type == "application/pdf",
        MediaSource::Url(_) => true,
    });
    let source = source.ok_or_else(|| Rejection::new(format!("{}.file_data", place()), FILES))?;
    let mut block = ObjectWriter::open(content.block());
    block.text("type", "document");
    source.write(&mut block);
    if let Some(name) = read::member_text(&file, "filename") {
        block.text("title", name);
    }
    cache_control(&mut block, cache);
    block.close();
    Ok(())
}

/// The source of an image or a file.
enum MediaSource<'i> {
    Data { media_type: String, data: &'i str },
    Url(&'i str),
}

impl<'i> MediaSource<'i> {
    /// Parses a base64 data URI or an http(s) URL.
    fn of(url: &'i str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        if !scheme.eq_ignore_ascii_case("data") {
            let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
            return is_web.then_some(Self::Url(url));
        }
        let (head, data) = rest.split_once(',')?;
        let mut head = head.split(';');
        let media_type = head.next()?.trim().to_ascii_lowercase();
        let in_base64 = head.next_back().is_some_and(|last| last.trim().eq_ignore_ascii_case("base64"));
        in_base64.then_some(Self::Data { media_type, data })
    }

    fn write(&self, block: &mut ObjectWriter<'_>) {
        let mut source = ObjectWriter::open(block.key("source"));
        match self {
            Self::Data { media_type, data } => {
                source.text("type", "base64");
                source.text("media_type", media_type);
                source.text("data", data);
            }
            Self::Url(url) => {
                source.text("type", "url");
                source.text("url", url);
            }
        }
        source.close();
    }
}

const IMAGES: &str = "must be an http(s) URL, or a JPEG, PNG, GIF or WebP image as a data URI in base64: \
                      the target accepts nothing else.";
const FILES: &str =
    "must be a PDF as a data URI in base64, or an http(s) URL: the target accepts nothing else.";
