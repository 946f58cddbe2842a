//! Media for targets that accept only inline bytes.

use std::borrow::Cow;

use crate::adapt::path::MemberPath;
use crate::adapt::{Loss, Rejection, loss};
use crate::chat::request::{ChatFile, MediaUrl, PartBody};

/// Media whose bytes are inline in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::adapt) struct InlineMedia<'i> {
    pub(in crate::adapt) media_type: Cow<'i, str>,
    pub(in crate::adapt) base64: &'i str,
}

/// Returns the bytes of an image, a video, a file or audio; `path` is that of the part. `losses` contains the reason for
/// rejecting a file that is referenced by id.
pub(in crate::adapt) fn media<'i>(
    part: &PartBody<'i>,
    path: &MemberPath<'_>,
    losses: &'static [Loss],
) -> Result<InlineMedia<'i>, Rejection> {
    let (member, url) = match part {
        PartBody::Image { url, .. } => ("image_url", *url),
        PartBody::Video(url) => ("video_url", *url),
        PartBody::File(Some(ChatFile { data: Some(data), .. })) => ("file", Some(*data)),
        PartBody::File(_) => {
            return Err(loss::refuse(losses, FILE_ID, path.member("file").to_string()));
        }
        PartBody::Audio { format: Some(format), base64: Some(base64) } => {
            return Ok(InlineMedia { media_type: format!("audio/{format}").into(), base64 });
        }
        PartBody::Audio { .. } => {
            let why = "must have a 'format' and 'data' in base64.";
            return Err(path.member("input_audio").refuse(why));
        }
        PartBody::Text(_) | PartBody::Refusal(_) | PartBody::Thought | PartBody::Unknown => {
            return Err(path.refuse("has a type that the target does not support."));
        }
    };
    url.and_then(inline).ok_or_else(|| {
        let why = "must be a data URI in base64: the target takes bytes, and llmgw does not fetch URLs.";
        path.member(member).refuse(why)
    })
}

/// Returns inline media with a type and valid base64.
fn inline(url: MediaUrl<'_>) -> Option<InlineMedia<'_>> {
    let (media_type, base64) = url.inline()?;
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let is_whole = media_type.contains('/') && !base64.is_empty() && base64.bytes().all(is_base64);
    is_whole.then_some(InlineMedia { media_type: media_type.into(), base64 })
}

/// The row for a file that is referenced by id, in the loss table of every chat adaptation.
const FILE_ID: &str = "messages.*.content.*[file].file.file_id";

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
            let got = inline(MediaUrl::Url(url));
            assert_eq!(got.as_ref().map(|media| (&*media.media_type, media.base64)), want, "{url}");
        }
    }
}
