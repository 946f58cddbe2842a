//! Writes images, documents, audio and videos as blocks with inline bytes.

use std::collections::HashSet;

use super::losses::LOSSES;
use crate::adapt::Rejection;
use crate::adapt::chat_client::ChatPart;
use crate::json::JsonWriter;

/// The document names used in a request. The target requires them to be unique.
#[derive(Debug, Default)]
pub(super) struct DocumentNames {
    taken: HashSet<String>,
}

/// Maximum length of a document's name, in characters.
const NAME_MAX: usize = 200;

/// Writes the block of a part that is not text, after `{`.
pub(super) fn write_media(
    part: &ChatPart<'_, '_>,
    names: &mut DocumentNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let media = part.media(LOSSES)?;
    let kind = media.media_type.to_ascii_lowercase();
    let (block, formats) = match part.kind {
        "image_url" => ("image", IMAGES),
        "video_url" => ("video", VIDEOS),
        "input_audio" => ("audio", AUDIO),
        _ => ("document", DOCUMENTS),
    };
    let Some((_, format)) = formats.iter().find(|(known, _)| *known == kind) else {
        let why = format!("has the type '{kind}', which the target does not support.");
        return Err(Rejection::new(&*part.path, &why));
    };
    json.name(block).object().name("format").text(format);
    if block == "document" {
        json.name("name").text(&names.of(part.inner_text("file", "filename").unwrap_or_default()));
    }
    json.name("source").object().name("bytes").text(media.base64).end_object().end_object();
    Ok(())
}

impl DocumentNames {
    /// Returns a unique name made of `filename` without its extension, using only letters, digits, single spaces,
    /// hyphens, parentheses and square brackets.
    fn of(&mut self, filename: &str) -> String {
        let stem = filename.rsplit_once('.').map_or(filename, |(stem, _)| stem);
        let allowed = |c: char| if c.is_ascii_alphanumeric() || "-()[]".contains(c) { c } else { ' ' };
        let plain: String = stem.chars().map(allowed).take(NAME_MAX - 8).collect();
        let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        let plain = if plain.is_empty() { "document".to_owned() } else { plain };
        let mut name = plain.clone();
        let mut number = 1_u32;
        while !self.taken.insert(name.clone()) {
            number = number.saturating_add(1);
            name = format!("{plain} {number}");
        }
        name
    }
}

type Formats = &'static [(&'static str, &'static str)];

const IMAGES: Formats = &[
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("image/jpg", "jpeg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
];

const VIDEOS: Formats = &[
    ("video/mp4", "mp4"),
    ("video/quicktime", "mov"),
    ("video/x-matroska", "mkv"),
    ("video/webm", "webm"),
    ("video/x-flv", "flv"),
    ("video/mpeg", "mpeg"),
    ("video/x-ms-wmv", "wmv"),
    ("video/3gpp", "three_gp"),
];

const AUDIO: Formats = &[
    ("audio/wav", "wav"),
    ("audio/mp3", "mp3"),
    ("audio/flac", "flac"),
    ("audio/opus", "opus"),
    ("audio/ogg", "ogg"),
    ("audio/aac", "aac"),
    ("audio/m4a", "m4a"),
    ("audio/webm", "webm"),
];

const DOCUMENTS: Formats = &[
    ("application/pdf", "pdf"),
    ("text/csv", "csv"),
    ("application/msword", "doc"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ("application/vnd.ms-excel", "xls"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    ("text/html", "html"),
    ("text/plain", "txt"),
    ("text/markdown", "md"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_target_takes_and_never_the_same_twice() {
        let mut names = DocumentNames::default();
        let rows = [
            ("report.pdf", "report"),
            ("report.pdf", "report 2"),
            ("report.csv", "report 3"),
            ("a__b  c:d.tar.gz", "a b c d tar"),
            ("", "document"),
            ("日本.pdf", "document 2"),
            ("(x) [y]-z", "(x) [y]-z"),
        ];
        for (filename, want) in rows {
            assert_eq!(names.of(filename), want, "{filename}");
        }
        assert!(names.of(&"x".repeat(500)).len() <= NAME_MAX);
    }
}
