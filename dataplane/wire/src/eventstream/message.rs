//! A message with borrowed headers and payload.

/// A message whose checksums have been verified.
///
/// ```text
///   headers:  [name length u8][name][type u8][value] ...      payload: any bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventStreamMessage<'a> {
    headers: &'a [u8],
    payload: &'a [u8],
}

impl<'a> EventStreamMessage<'a> {
    /// Returns `None` if the headers are malformed.
    pub(super) fn new(headers: &'a [u8], payload: &'a [u8]) -> Option<Self> {
        let mut rest = headers;
        while !rest.is_empty() {
            let (header, after) = header(rest)?;
            if header.kind == TEXT && !header.value.is_ascii() {
                header.text()?;
            }
            rest = after;
        }
        Some(Self { headers, payload })
    }

    /// Returns the value of the header `name` if it exists and is text.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.headers;
        while let Some((header, after)) = header(rest) {
            if header.name == name.as_bytes() {
                return header.text();
            }
            rest = after;
        }
        None
    }

    /// Returns the payload.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

struct Header<'a> {
    name: &'a [u8],
    kind: u8,
    value: &'a [u8],
}

impl<'a> Header<'a> {
    fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.value).ok().filter(|_| self.kind == TEXT)
    }
}

/// Returns the header at the start of `rest` and the bytes after it.
fn header(rest: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let (&length, rest) = rest.split_first()?;
    let (name, rest) = rest.split_at_checked(length.into())?;
    let (&kind, rest) = rest.split_first()?;
    let (length, rest) = match kind {
        TRUE | FALSE => (0, rest),
        BYTE => (1, rest),
        INT16 => (2, rest),
        INT32 => (4, rest),
        INT64 | TIMESTAMP => (8, rest),
        UUID => (16, rest),
        BYTES | TEXT => {
            let (length, rest) = rest.split_first_chunk()?;
            (u16::from_be_bytes(*length).into(), rest)
        }
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((Header { name, kind, value }, rest))
}

const TRUE: u8 = 0;
const FALSE: u8 = 1;
const BYTE: u8 = 2;
const INT16: u8 = 3;
const INT32: u8 = 4;
const INT64: u8 = 5;
const BYTES: u8 = 6;
const TEXT: u8 = 7;
const TIMESTAMP: u8 = 8;
const UUID: u8 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_type_are_skipped_and_malformed_ones_rejected() {
        let mut headers = Vec::new();
        let values: [(u8, &[u8]); 10] = [
            (0, b""),
            (1, b""),
            (2, b"1"),
            (3, b"12"),
            (4, b"1234"),
            (5, b"12345678"),
            (6, b"\0\x02ab"),
            (7, b"\0\x03h\xc3\xa9"),
            (8, b"12345678"),
            (9, b"1234567890123456"),
        ];
        for (kind, value) in values {
            headers.extend([1, b'0' + kind, kind]);
            headers.extend(value);
        }
        headers.extend(b"\x04last\x07\0\x01x");
        let message = EventStreamMessage::new(&headers, b"{}").unwrap();
        assert_eq!(message.header("last"), Some("x"));
        assert_eq!(message.header("7"), Some("hé"));
        assert_eq!(message.header("6"), None, "bytes are no text");
        assert_eq!(message.header("x"), None);
        let wrong: [(&str, &[u8]); 5] = [
            ("cut in a name", b"\x04la"),
            ("without a type", b"\x01a"),
            ("unknown type", b"\x01a\x0a"),
            ("cut in a value", b"\x01a\x07\0\x02x"),
            ("invalid text", b"\x01a\x07\0\x01\xff"),
        ];
        for (name, headers) in wrong {
            assert_eq!(EventStreamMessage::new(headers, b""), None, "{name}");
        }
    }
}
