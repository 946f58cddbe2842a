//! Images and other media of an answer. Chat has them as OpenRouter sends them: `images`, a list of `image_url` parts.

use std::borrow::Cow;

use super::request::MediaUrl;
use crate::json::JsonWriter;

/// An image, or other media, of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutputMedia<'a> {
    Inline { media_type: Cow<'a, str>, base64: Cow<'a, str> },
    Url(Cow<'a, str>),
}

impl<'a> OutputMedia<'a> {
    /// Returns the media at a URL, which may be a data URI.
    pub(crate) fn of_url(url: Cow<'a, str>) -> Self {
        let inline = match &url {
            Cow::Borrowed(url) => MediaUrl::Url(url).inline().map(|(media_type, base64)| Self::Inline {
                media_type: media_type.into(),
                base64: base64.into(),
            }),
            Cow::Owned(url) => MediaUrl::Url(url).inline().map(|(media_type, base64)| Self::Inline {
                media_type: media_type.to_owned().into(),
                base64: base64.to_owned().into(),
            }),
        };
        inline.unwrap_or(Self::Url(url))
    }

    /// Returns the kind of media, which is the first half of the media type. A web address is that of an image.
    pub(crate) fn kind(&self) -> &'static str {
        let media_type = match self {
            Self::Inline { media_type, .. } => media_type,
            Self::Url(_) => return "image",
        };
        let kind = media_type.split('/').next().unwrap_or_default();
        ["image", "audio", "video"].into_iter().find(|known| *known == kind).unwrap_or("file")
    }

    /// True if chat can express it.
    pub(crate) fn is_image(&self) -> bool {
        self.kind() == "image"
    }

    /// Returns the text that takes the place of media for clients whose protocol cannot express them.
    pub(crate) fn mark(&self) -> String {
        match self {
            Self::Inline { .. } => format!("[{}]", self.kind()),
            Self::Url(url) => format!("[{}] {url}", self.kind()),
        }
    }

    /// Writes the element of `images`, at `index` if the answer is a stream.
    pub(crate) fn write(&self, index: Option<u64>, json: &mut JsonWriter) {
        json.object();
        if let Some(index) = index {
            json.name("index").number(index);
        }
        json.name("type").text("image_url").name("image_url").object().name("url");
        match self {
            Self::Inline { media_type, base64 } => {
                json.text(&["data:", media_type, ";base64,", base64].concat())
            }
            Self::Url(url) => json.text(url),
        };
        json.end_object().end_object();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_named_by_their_type() {
        for (url, kind, mark) in [
            ("data:image/png;base64,QQ==", "image", "[image]"),
            ("https://x/y.png", "image", "[image] https://x/y.png"),
            ("data:audio/wav;base64,QQ==", "audio", "[audio]"),
            ("data:application/pdf;base64,QQ==", "file", "[file]"),
        ] {
            for media in [OutputMedia::of_url(url.into()), OutputMedia::of_url(url.to_owned().into())] {
                assert_eq!((media.kind(), media.mark().as_str()), (kind, mark));
                let mut json = JsonWriter::default();
                media.write(Some(1), &mut json);
                let want = format!(r#"{{"index":1,"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
                assert_eq!(String::from_utf8(json.finish()).unwrap(), want);
            }
        }
    }
}
