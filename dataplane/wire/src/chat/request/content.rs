//! The content of a message: its parts, their media and their cache marks.

use std::borrow::Cow;

use crate::json::Tree;
use crate::translation::Rejection;
use crate::translation::path::MemberPath;
use crate::translation::read::{self, Object};

/// The content of a message.
#[derive(Clone, Debug)]
pub(crate) struct ChatContent<'t, 'i> {
    pub(crate) parts: Vec<ChatPart<'t, 'i>>,
    /// True if the content is a string instead of a list; `parts` then has this one text.
    pub(crate) is_text: bool,
}

/// A part of a message's content.
#[derive(Clone, Debug)]
pub(crate) struct ChatPart<'t, 'i> {
    pub(crate) body: PartBody<'i>,
    pub(crate) cache: Option<CacheMark<'t, 'i>>,
}

/// A part without its cache mark. Members that are missing or of the wrong type are `None`.
#[derive(Clone, Debug)]
pub(crate) enum PartBody<'i> {
    Text(Cow<'i, str>),
    Refusal(Cow<'i, str>),
    Image {
        url: Option<MediaUrl<'i>>,
        detail: Option<&'i str>,
    },
    Video(Option<MediaUrl<'i>>),
    Audio {
        format: Option<&'i str>,
        base64: Option<&'i str>,
    },
    File(Option<ChatFile<'i>>),
    /// One of the message's signed thoughts.
    Thought,
    Unknown,
}

/// A file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChatFile<'i> {
    /// The id of a file that a provider stores.
    pub(crate) id: Option<&'i str>,
    pub(crate) name: Option<&'i str>,
    pub(crate) data: Option<MediaUrl<'i>>,
}

/// The source of an image, a video or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaUrl<'i> {
    /// A URL as the client wrote it, possibly a data URI.
    Url(&'i str),
    /// The parts of a data URI in base64.
    Inline { media_type: &'i str, base64: &'i str },
}

/// A cache mark (`cache_control`), as clients of other gateways send it: the prompt is to be cached up to here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheMark<'t, 'i> {
    /// The mark, an object.
    pub(crate) tree: Tree<'t, 'i>,
}

impl<'t, 'i> ChatContent<'t, 'i> {
    /// Returns content of one text.
    pub(crate) fn text(text: impl Into<Cow<'i, str>>) -> Self {
        Self { parts: vec![PartBody::Text(text.into()).into()], is_text: true }
    }

    /// Reads the content at `path`.
    pub(super) fn read(content: Tree<'t, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        if let Some(text) = read::as_text(content) {
            return Ok(Self::text(text));
        }
        let list = content.as_array().ok_or_else(|| path.reject("must be a string or an array of parts."))?;
        let mut parts = Vec::with_capacity(list.len());
        for (position, part) in list.iter().enumerate() {
            parts.push(ChatPart::read(part, &path.at(position))?);
        }
        Ok(Self { parts, is_text: false })
    }

    /// True if it is an empty string or list.
    pub(crate) fn is_empty(&self) -> bool {
        match self.parts.as_slice() {
            [] => true,
            [part] => self.is_text && part.text() == Some(""),
            _ => false,
        }
    }
}

impl<'i> From<PartBody<'i>> for ChatPart<'_, 'i> {
    fn from(body: PartBody<'i>) -> Self {
        Self { body, cache: None }
    }
}

impl<'t, 'i> ChatPart<'t, 'i> {
    fn read(part: Tree<'t, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let part = read::object(part, || path.to_string())?;
        let body = PartBody::read(&part, path)?;
        Ok(Self { body, cache: CacheMark::of(&part) })
    }

    /// Returns the text of a text or a refusal.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.body {
            PartBody::Text(text) | PartBody::Refusal(text) => Some(text),
            PartBody::Image { .. }
            | PartBody::Video(_)
            | PartBody::Audio { .. }
            | PartBody::File(_)
            | PartBody::Thought
            | PartBody::Unknown => None,
        }
    }
}

impl<'i> PartBody<'i> {
    fn read(part: &Object<'_, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let text = |name| read::needed_text(part, name, || path.to_string());
        let inner = |outer, name| {
            let outer = read::member(part, outer)?.as_object()?;
            read::member_text(&outer, name)
        };
        let url = |name| {
            let url = inner(name, "url").or_else(|| read::member_text(part, name));
            url.map(MediaUrl::Url)
        };
        Ok(match text("type")? {
            "text" => Self::Text(text("text")?.into()),
            "refusal" => Self::Refusal(text("refusal")?.into()),
            "image_url" => Self::Image { url: url("image_url"), detail: inner("image_url", "detail") },
            "video_url" => Self::Video(url("video_url")),
            "input_audio" => {
                Self::Audio { format: inner("input_audio", "format"), base64: inner("input_audio", "data") }
            }
            "file" => {
                let file = read::member(part, "file").and_then(|file| file.as_object());
                Self::File(file.map(|file| ChatFile::read(&file, &path.member("file"))).transpose()?)
            }
            "thinking" | "redacted_thinking" => Self::Thought,
            _ => Self::Unknown,
        })
    }
}

impl<'i> ChatFile<'i> {
    fn read(file: &Object<'_, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let text = |name| {
            let text = read::member(file, name);
            text.map(|text| read::text(text, || path.member(name).to_string())).transpose()
        };
        let data = text("file_data")?.map(MediaUrl::Url);
        Ok(Self { id: text("file_id")?, name: read::member_text(file, "filename"), data })
    }
}

impl<'i> MediaUrl<'i> {
    /// Returns the media type and the base64 text of inline media, `None` for any other URL.
    pub(crate) fn inline(self) -> Option<(&'i str, &'i str)> {
        let (head, base64) = match self {
            Self::Inline { media_type, base64 } => (media_type, base64),
            Self::Url(url) => {
                let (scheme, rest) = url.split_once(':')?;
                let (head, base64) = rest.split_once(',').filter(|_| scheme.eq_ignore_ascii_case("data"))?;
                let (head, encoding) = head.rsplit_once(';')?;
                (encoding.trim().eq_ignore_ascii_case("base64").then_some(head)?, base64)
            }
        };
        Some((head.split(';').next().unwrap_or_default().trim(), base64))
    }

    /// Returns the URL, if it is one of the web.
    pub(crate) fn web(self) -> Option<&'i str> {
        let Self::Url(url) = self else { return None };
        let (scheme, _) = url.split_once(':')?;
        ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web)).then_some(url)
    }

    /// Returns the URL as a string.
    pub(crate) fn text(self) -> Cow<'i, str> {
        match self {
            Self::Url(url) => url.into(),
            Self::Inline { media_type, base64 } => ["data:", media_type, ";base64,", base64].concat().into(),
        }
    }
}

impl<'t, 'i> CacheMark<'t, 'i> {
    /// Returns the `cache_control` of an object, if it is a mark.
    pub(crate) fn of(object: &Object<'t, 'i>) -> Option<Self> {
        read::member(object, "cache_control").filter(Tree::is_object).map(|tree| Self { tree })
    }

    /// Returns the lifetime of the cache entry.
    pub(crate) fn ttl(self) -> Option<&'i str> {
        read::member_text(&self.tree.as_object()?, "ttl")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_media_are_distinguished_from_urls() {
        let rows = [
            ("data:image/png;base64,iVBO", Some(("image/png", "iVBO"))),
            ("DATA:application/pdf;name=a.pdf; BASE64,JVBE", Some(("application/pdf", "JVBE"))),
            ("data:;base64,aGk=", Some(("", "aGk="))),
            ("data:text/plain,hello", None),
            ("data:base64,hello", None),
            ("https://example.com/a.png", None),
        ];
        for (url, want) in rows {
            assert_eq!(MediaUrl::Url(url).inline(), want, "{url}");
        }
        let inline = MediaUrl::Inline { media_type: "image/png", base64: "iVBO" };
        assert_eq!(inline.text(), "data:image/png;base64,iVBO");
        assert_eq!(MediaUrl::Url(&inline.text()).inline(), inline.inline());
    }
}
