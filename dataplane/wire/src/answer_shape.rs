//! The shape of an answer by its first bytes. Its content type is only a hint: servers and the proxies in front of them
//! label streams as JSON, JSON as streams, and pages and compressed bytes as either.

/// The shape of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerShape {
    /// Server-sent events.
    Events,
    /// Messages in Amazon's binary framing.
    BinaryEvents,
    /// A JSON object or array.
    Json,
    /// A web page, or another document in XML.
    Page,
    /// Compressed bytes.
    Compressed,
    /// The bytes do not decide; the content type has to.
    Unknown,
}

impl AnswerShape {
    /// Returns the shape of an answer that starts with `bytes`; `None` if more bytes are needed.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        if MARK.starts_with(bytes) {
            return None;
        }
        let start = bytes.strip_prefix(MARK).unwrap_or(bytes).trim_ascii_start();
        Some(match start.first()? {
            b'{' | b'[' => Self::Json,
            b':' => Self::Events,
            b'<' => Self::Page,
            // The length of the first message, which is less than 16 MiB.
            0 => Self::BinaryEvents,
            0x1f | 0x28 => return compressed(start),
            b'd' | b'e' | b'i' | b'r' => return field(start),
            _ => Self::Unknown,
        })
    }
}

/// Recognises the first bytes of gzip and zstd.
fn compressed(start: &[u8]) -> Option<AnswerShape> {
    starts_with_any(start, &[b"\x1f\x8b", b"\x28\xb5\x2f\xfd"]).map(|is| match is {
        true => AnswerShape::Compressed,
        false => AnswerShape::Unknown,
    })
}

/// Recognises the names of an event's fields.
fn field(start: &[u8]) -> Option<AnswerShape> {
    starts_with_any(start, &[b"data:", b"event:", b"id:", b"retry:"]).map(|is| match is {
        true => AnswerShape::Events,
        false => AnswerShape::Unknown,
    })
}

/// Returns true if `start` begins with one of `marks`, and `None` if it could once there are more bytes.
fn starts_with_any(start: &[u8], marks: &[&[u8]]) -> Option<bool> {
    if marks.iter().any(|mark| start.starts_with(mark)) {
        return Some(true);
    }
    (!marks.iter().any(|mark| mark.starts_with(start))).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_decide_wherever_they_are_cut() {
        let rows: [(&[u8], AnswerShape); 17] = [
            (b"{\"id\":1}", AnswerShape::Json),
            (b"\n\n  [{}]", AnswerShape::Json),
            (b"\xef\xbb\xbf{}", AnswerShape::Json),
            (b"data: {}\n\n", AnswerShape::Events),
            (b"data:{}\n\n", AnswerShape::Events),
            (b"\r\n\r\nevent: ping\n", AnswerShape::Events),
            (b"\xef\xbb\xbfdata: 1\n\n", AnswerShape::Events),
            (b": OPENROUTER PROCESSING\n\n", AnswerShape::Events),
            (b"id: 1\ndata: 1\n\n", AnswerShape::Events),
            (b"retry: 5\n", AnswerShape::Events),
            (b"<!DOCTYPE html><html>", AnswerShape::Page),
            (b"\x00\x00\x00\x9bxx", AnswerShape::BinaryEvents),
            (b"\x1f\x8b\x08\x00", AnswerShape::Compressed),
            (b"\x28\xb5\x2f\xfd\x04", AnswerShape::Compressed),
            (b"(busy)", AnswerShape::Unknown),
            (b"error: busy", AnswerShape::Unknown),
            (b"upstream connect error", AnswerShape::Unknown),
        ];
        for (bytes, want) in rows {
            for length in 0..=bytes.len() {
                let early = AnswerShape::of(&bytes[..length]);
                assert!(early.is_none_or(|early| early == want), "{length} of {bytes:?}: {early:?}");
            }
            assert_eq!(AnswerShape::of(bytes), Some(want), "{bytes:?}");
        }
    }
}
