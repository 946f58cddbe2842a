//! A part of a message's content.

use std::borrow::Cow;

use simd_json::tape::Object;

use crate::adapt::{Loss, Rejection, loss, read};
use crate::json::Tree;

/// A content part of a chat message: text, an image, a file and so on.
pub(in crate::adapt) struct ChatPart<'t, 'i> {
    /// The path of the part in the request, for rejections.
    pub(in crate::adapt) path: String,
    /// Its `type`.
    pub(in crate::adapt) kind: &'i str,
    /// The text, if the part is text or a refusal.
    pub(in crate::adapt) text: Option<&'i str>,
    /// The whole part; `None` if the content is a string.
    whole: Option<Tree<'t, 'i>>,
}

/// Media whose bytes are inline in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::adapt) struct Media<'i> {
    pub(in crate::adapt) media_type: Cow<'i, str>,
    pub(in crate::adapt) base64: &'i str,
}

/// A cache mark (`cache_control`), as clients of other gateways send it: the prompt is to be cached up to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::adapt) struct CacheMark<'i> {
    /// The lifetime of the cache entry.
    pub(in crate::adapt) ttl: Option<&'i str>,
}

impl<'i> CacheMark<'i> {
    /// Reads the `cache_control` of an object.
    pub(super) fn of(object: &Object<'_, 'i>) -> Option<Self> {
        let mark = read::member(object, "cache_control")?.as_object()?;
        Some(Self { ttl: read::member_text(&mark, "ttl") })
    }
}

impl<'t, 'i> ChatPart<'t, 'i> {
    /// Reads the parts of a message's content; `path` is the path of the content. A string is one text part.
    pub(super) fn all(message: &Object<'t, 'i>, path: String) -> Result<Vec<Self>, Rejection> {
        let Some(content) = read::member(message, "content") else { return Ok(Vec::new()) };
        if let Some(text) = read::as_text(content) {
            return Ok(vec![ChatPart { path, kind: "text", text: Some(text), whole: None }]);
        }
        let Some(list) = content.as_array() else {
            return Err(Rejection::malformed(path, "must be a string or an array of parts."));
        };
        let mut parts = Vec::with_capacity(list.len());
        for (position, part) in list.iter().enumerate() {
            let path = format!("{path}.{position}");
            let members = read::object(part, || path.clone())?;
            let kind = read::needed_text(&members, "type", || path.clone())?;
            let text = match kind {
                "text" | "refusal" => Some(read::needed_text(&members, kind, || path.clone())?),
                _ => None,
            };
            parts.push(ChatPart { path, kind, text, whole: Some(part) });
        }
        Ok(parts)
    }

    /// Returns the string at `outer.inner`.
    pub(in crate::adapt) fn inner_text(&self, outer: &str, inner: &str) -> Option<&'i str> {
        let outer = read::member(&self.whole?.as_object()?, outer)?.as_object()?;
        read::member_text(&outer, inner)
    }

    /// Returns the part's cache mark, if present.
    pub(in crate::adapt) fn cache_mark(&self) -> Option<CacheMark<'i>> {
        CacheMark::of(&self.whole?.as_object()?)
    }

    /// Returns the bytes of an image, a video, a file or audio. `losses` contains the reason for rejecting a file that
    /// is referenced by id.
    pub(in crate::adapt) fn media(&self, losses: &'static [Loss]) -> Result<Media<'i>, Rejection> {
        let (outer, inner) = match self.kind {
            "image_url" | "video_url" => (self.kind, "url"),
            "file" if self.inner_text("file", "file_data").is_some() => ("file", "file_data"),
            "file" => {
                return Err(loss::refuse(losses, FILE_ID, format!("{}.file", self.path)));
            }
            "input_audio" => return self.audio(),
            _ => return Err(Rejection::new(&*self.path, "has a type that the target does not support.")),
        };
        self.inner_text(outer, inner).and_then(data_uri).ok_or_else(|| {
            let why = "must be a data URI in base64: the target takes bytes, and llmgw does not fetch URLs.";
            Rejection::new(format!("{}.{outer}", self.path), why)
        })
    }

    fn audio(&self) -> Result<Media<'i>, Rejection> {
        let format = self.inner_text("input_audio", "format");
        let base64 = self.inner_text("input_audio", "data");
        let (Some(format), Some(base64)) = (format, base64) else {
            let why = "must have a 'format' and 'data' in base64.";
            return Err(Rejection::new(format!("{}.input_audio", self.path), why));
        };
        Ok(Media { media_type: format!("audio/{format}").into(), base64 })
    }
}

/// The row for a file that is referenced by id, in the loss table of every chat adaptation.
pub(in crate::adapt) const FILE_ID: &str = "messages.*.content.*[file].file.file_id";

/// Parses `data:image/png;base64,..`. Returns `None` if `url` is not a data URI or not base64.
fn data_uri(url: &str) -> Option<Media<'_>> {
    let (scheme, rest) = url.split_once(':')?;
    let (head, base64) = rest.split_once(',').filter(|_| scheme.eq_ignore_ascii_case("data"))?;
    let (head, encoding) = head.rsplit_once(';')?;
    let media_type = head.split(';').next().unwrap_or_default().trim();
    let known = encoding.trim().eq_ignore_ascii_case("base64") && media_type.contains('/');
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let whole = known && !base64.is_empty() && base64.bytes().all(is_base64);
    whole.then_some(Media { media_type: media_type.into(), base64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_uris_are_read() {
        let rows = [
            ("data:image/png;base64,iVBO", Some(("image/png", "iVBO"))),
            ("DATA:application/pdf;name=a.pdf;BASE64,JVBE", Some(("application/pdf", "JVBE"))),
            ("data:text/plain,hello", None),
            ("data:;base64,aGk=", None),
            ("data:image/png;base64,", None),
            ("data:image/png;base64,a\"b", None),
            ("https://example.com/a.png", None),
        ];
        for (url, want) in rows {
            let got = data_uri(url);
            assert_eq!(got.as_ref().map(|media| (&*media.media_type, media.base64)), want, "{url}");
        }
    }
}
