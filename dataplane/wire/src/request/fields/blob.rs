//! Detects the kind of base64 data from its first bytes.

use std::borrow::Cow;

use crate::tokens::{StatedSize, decoded, is_picture, size_of, wave_ms};

/// The number of bytes of the string that are examined: enough to find the size of most pictures.
pub(super) const HEAD_BYTES: usize = 4 * 1024;
/// The maximum length of a `data:` URL before its comma, in bytes.
const URL_HEAD_BYTES_MAX: usize = 256;

/// The kinds of data that models count differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlobKind {
    /// A picture, with its size if the header contains it.
    Picture(Option<StatedSize>),
    /// Audio whose header contains the bytes per second.
    Wave { ms: u64 },
    /// Other audio.
    Audio { bytes: u64 },
    /// A document, or anything else.
    File { bytes: u64 },
}

/// Returns the kind of a string of `length` bytes that starts with `head`. `None` if it is not a base64 `data:` URL.
pub(super) fn of_url(head: &[u8], length: usize) -> Option<BlobKind> {
    let head = plain(head);
    let rest = head.strip_prefix(b"data:")?;
    let comma = memchr::memchr(b',', rest.get(..URL_HEAD_BYTES_MAX).unwrap_or(rest))?;
    let (media_type, data) = rest.split_at_checked(comma)?;
    if !media_type.ends_with(b";base64") {
        return None;
    }
    let before = length.saturating_sub(head.len()).saturating_add(data.len()).saturating_sub(1);
    Some(of(media_type, data.get(1..)?, before))
}

/// Returns the kind of base64 data whose declared type is `media_type`. The data may also be in a `data:` URL.
pub(super) fn of_base64(media_type: &[u8], head: &[u8], length: usize) -> BlobKind {
    of_url(head, length).unwrap_or_else(|| of(media_type, head, length))
}

fn of(media_type: &[u8], head: &[u8], length: usize) -> BlobKind {
    let start = start(head);
    let bytes = u64::try_from(length / 4 * 3).unwrap_or(u64::MAX);
    let size = size_of(&start);
    match *start {
        _ if size.is_some() => BlobKind::Picture(size),
        _ if is_picture(&start) => BlobKind::Picture(None),
        [b'R', b'I', b'F', b'F', ..] if start.get(8..12) == Some(b"WAVE") => {
            wave_ms(&start, bytes).map_or(BlobKind::Audio { bytes }, |ms| BlobKind::Wave { ms })
        }
        [b'I', b'D', b'3', ..] | [0xff, 0xe0..=0xff, ..] => BlobKind::Audio { bytes },
        _ if start.starts_with(b"OggS") || start.starts_with(b"fLaC") => BlobKind::Audio { bytes },
        _ if media_type.starts_with(b"image/") => BlobKind::Picture(None),
        _ if media_type.starts_with(b"audio/") => BlobKind::Audio { bytes },
        _ => BlobKind::File { bytes },
    }
}

/// Removes the backslash that some JSON writers put before each slash.
fn plain(head: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', head).is_none() {
        return head.into();
    }
    head.iter().copied().filter(|byte| *byte != b'\\').collect::<Vec<_>>().into()
}

/// Decodes the start of the data from `head`.
fn start(head: &[u8]) -> Vec<u8> {
    let mut head = plain(head);
    let whole = head.len() / 4 * 4;
    // Google's Python SDK uses the URL-safe alphabet.
    if memchr::memchr2(b'-', b'_', &head).is_some() {
        head.to_mut().iter_mut().for_each(|byte| match byte {
            b'-' => *byte = b'+',
            b'_' => *byte = b'/',
            _ => {}
        });
    }
    decoded(head.get(..whole).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::tokens::ImageSize;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\0\0\0\x01\0\x08\0\0\0\0....\0\0\0\0IDAT....";

    fn wave(rate: u32) -> Vec<u8> {
        let head = [&b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0"[..], &8_000_u32.to_le_bytes()].concat();
        [&head[..], &rate.to_le_bytes(), &[2, 0, 16, 0], b"data", &[0; 4], &[0; 3_956]].concat()
    }

    #[test]
    fn the_kind_of_a_blob_follows_from_its_first_bytes() {
        let size = Some(StatedSize { size: ImageSize { width: 512, height: 256 }, is_final: true });
        let rows: [(&str, &str, &[u8], BlobKind); 9] = [
            ("a picture", "", PNG, BlobKind::Picture(size)),
            ("a picture by another name", "application/pdf", PNG, BlobKind::Picture(size)),
            ("a picture whose head is elsewhere", "", b"\xff\xd8\xff\xe1....", BlobKind::Picture(None)),
            ("a picture by its type alone", "image/avif", b"....", BlobKind::Picture(None)),
            ("sound with a rate", "", &wave(16_000), BlobKind::Wave { ms: 250 }),
            ("sound that boasts", "", &wave(u32::MAX), BlobKind::Wave { ms: 250 }),
            ("sound without a rate", "", b"ID3.....", BlobKind::Audio { bytes: 9 }),
            ("a document", "application/pdf", b"%PDF-1.7", BlobKind::File { bytes: 9 }),
            ("anything", "", b"....", BlobKind::File { bytes: 6 }),
        ];
        for (name, media_type, bytes, want) in rows {
            let base64 = STANDARD.encode(bytes);
            assert_eq!(of(media_type.as_bytes(), base64.as_bytes(), base64.len()), want, "{name}");
            let url = format!("data:{media_type};base64,{base64}");
            assert_eq!(of_base64(b"", url.as_bytes(), url.len()), want, "{name} in a URL");
            let escaped = url.replace('/', "\\/");
            let of_escaped = of_base64(b"", escaped.as_bytes(), escaped.len());
            assert_eq!(std::mem::discriminant(&of_escaped), std::mem::discriminant(&want), "{name} escaped");
        }
        assert_eq!(of_url(b"https://example.com/a.png", 25), None);
        assert_eq!(of_url(b"data:text/plain,hello", 21), None);
    }
}
