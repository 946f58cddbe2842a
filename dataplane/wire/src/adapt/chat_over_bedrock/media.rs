//! Writes images, documents, audio and videos as blocks with inline bytes.

use std::collections::HashSet;

use super::losses::LOSSES;
use crate::adapt::Rejection;
use crate::adapt::chat_client::media;
use crate::adapt::path::MemberPath;
use crate::chat::request::PartBody;
use crate::json::JsonWriter;

/// The document names used in a request. The target requires them to be unique.
#[derive(Debug, Default)]
pub(super) struct DocumentNames {
    taken: HashSet<String>,
}

/// Maximum length of a document's name, in characters.
const NAME_MAX: usize = 200;

/// Writes the block of the part at `path`, which is not text, after `{`.
pub(super) fn write_media(
    part: &PartBody<'_>,
    path: &MemberPath<'_>,
    names: &mut DocumentNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let media = media(part, path, LOSSES)?;
    let kind = media.media_type.to_ascii_lowercase();
    let (block, formats, filename) = match part {
        PartBody::Image { .. } => ("image", IMAGES, None),
        PartBody::Video(_) => ("video", VIDEOS, None),
        PartBody::Audio { .. } => ("audio", AUDIO, None),
        PartBody::File(file) => {
            ("document", DOCUMENTS, Some(file.and_then(|file| file.name).unwrap_or_default()))
        }
        PartBody::Text(_) | PartBody::Refusal(_) | PartBody::Thought | PartBody::Unknown => {
            return Err(path.refuse("has a type that the target does not support."));
        }
    };
    let Some((_, format)) = formats.iter().find(|(known, _)| *known == kind) else {
        let why = format!("has the type '{kind}', which the target does not support.");
        return Err(path.refuse(&why));
    };
    json.name(block).object().name("format").text(format);
    if let Some(filename) = filename {
        json.name("name").text(&names.of(filename));
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
    fn document_names_are_valid_and_unique() {
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
