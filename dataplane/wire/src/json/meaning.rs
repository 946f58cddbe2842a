//! How long a JSON string is as it is meant: `\u4f60` is one character and three bytes, however it is written.

use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::Finder;

use super::sink::JsonText;
use super::text_end::ends_escaping;

/// Bytes by which a string, read in pieces, is longer than the UTF-8 that its `\u` escapes stand for. Other escapes add
/// one byte each, and are left as they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Escapes {
    at: At,
    surplus: usize,
}

/// Where in the text a piece ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Text,
    /// After a backslash that escapes.
    Backslash,
    /// In the digits of an escape.
    Digits { left: u8, code: u32 },
}

/// How long a string is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextLength {
    /// In bytes, as it is written.
    pub(crate) raw: usize,
    /// The same less what its `\u` escapes add.
    pub(crate) meant: usize,
}

impl TextLength {
    /// The length of a string without `\u` escapes.
    #[inline]
    pub(crate) fn plain(length: usize) -> Self {
        Self { raw: length, meant: length }
    }

    /// The length of a string that is there as a whole.
    #[inline]
    pub(crate) fn of(text: &JsonText<'_>) -> Self {
        let raw = text.raw.len();
        Self { raw, meant: if text.plain { raw } else { meant_bytes(text.raw) } }
    }
}

/// Bytes of what a string means.
#[inline]
pub(crate) fn meant_bytes(raw: &[u8]) -> usize {
    // The search for one byte takes half of the time of the search for an escape.
    if raw.len() < ESCAPE_BYTES || memchr(b'\\', raw).is_none() {
        return raw.len();
    }
    let mut escapes = Escapes::default();
    escapes.push(raw);
    raw.len().saturating_sub(escapes.surplus)
}

impl Escapes {
    /// The length of the string, which is written in so many bytes.
    pub(crate) fn length(&self, raw: usize) -> TextLength {
        TextLength { raw, meant: raw.saturating_sub(self.surplus) }
    }

    /// Reads on in the string.
    pub(crate) fn push(&mut self, mut piece: &[u8]) {
        piece = self.finish_escape(piece);
        while let Some(found) = ESCAPE.find(piece) {
            let is_escaped = ends_escaping(piece.get(..found).unwrap_or_default(), false);
            piece = piece.get(found.saturating_add(2)..).unwrap_or_default();
            if !is_escaped {
                self.at = At::Digits { left: 4, code: 0 };
                piece = self.finish_escape(piece);
            }
        }
        if self.at == At::Text && ends_escaping(piece, false) {
            self.at = At::Backslash;
        }
    }

    /// Reads to the end of an escape that has begun, and returns what follows it.
    fn finish_escape<'a>(&mut self, mut piece: &'a [u8]) -> &'a [u8] {
        while self.at != At::Text {
            let Some((&byte, rest)) = piece.split_first() else { return piece };
            piece = rest;
            self.at = match self.at {
                At::Backslash if byte == b'u' => At::Digits { left: 4, code: 0 },
                At::Text | At::Backslash => At::Text,
                At::Digits { left, code } => {
                    let code = code << 4 | char::from(byte).to_digit(16).unwrap_or_default();
                    match left {
                        0..=1 => {
                            self.surplus =
                                self.surplus.saturating_add(ESCAPE_BYTES.saturating_sub(utf8(code)));
                            At::Text
                        }
                        left => At::Digits { left: left.saturating_sub(1), code },
                    }
                }
            };
        }
        piece
    }
}

/// Bytes of a character, or of half of one that takes two escapes.
fn utf8(code: u32) -> usize {
    match code {
        0..=0x7f => 1,
        0x80..=0x7ff | 0xd800..=0xdfff => 2,
        _ => 3,
    }
}

/// Characters of a string that is read in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Characters {
    at: At,
    count: u64,
}

impl Characters {
    /// Characters so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Reads on in the string.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        for &byte in piece {
            let is_one = match self.at {
                At::Text if byte == b'\\' => {
                    self.at = At::Backslash;
                    false
                }
                // Later bytes of a character begin with the bits 10.
                At::Text => byte & 0xc0 != 0x80,
                At::Backslash if byte == b'u' => {
                    self.at = At::Digits { left: 4, code: 0 };
                    false
                }
                At::Backslash => {
                    self.at = At::Text;
                    true
                }
                At::Digits { left, code } => self.digit(byte, left, code),
            };
            self.count = self.count.saturating_add(u64::from(is_one));
        }
    }

    /// One more digit of an escape. Returns true after the last one of a character: its second half is no other one.
    fn digit(&mut self, byte: u8, left: u8, code: u32) -> bool {
        let code = code << 4 | char::from(byte).to_digit(16).unwrap_or_default();
        if left > 1 {
            self.at = At::Digits { left: left.saturating_sub(1), code };
            return false;
        }
        self.at = At::Text;
        !(0xdc00..=0xdfff).contains(&code)
    }
}

/// `\u` and four digits.
const ESCAPE_BYTES: usize = 6;
static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(r"\u"));

#[cfg(test)]
mod tests {
    use super::*;

    /// (as written, as meant)
    const ROWS: [(&str, &str); 9] = [
        ("plain", "plain"),
        (r"\u4f60\u597d", "你好"),
        (r"\u00e9t\u00E9", "été"),
        (r"\u003ca\u003e", "<a>"),
        (r"\ud83d\ude80!", "🚀!"),
        (r"你\u597d", "你好"),
        (r"\\\u4f60", "--你"),
        (r"C:\\users\\\\u4f60", r"C:--users----u4f60"),
        (r"\n\u000a\\", "--.--"),
    ];

    #[test]
    fn escapes_are_as_long_as_what_they_stand_for_however_they_are_cut() {
        for (raw, meant) in ROWS {
            let want = TextLength { raw: raw.len(), meant: meant.len() };
            assert_eq!(meant_bytes(raw.as_bytes()), want.meant, "{raw}");
            for at in 0..=raw.len() {
                let mut escapes = Escapes::default();
                escapes.push(&raw.as_bytes()[..at]);
                escapes.push(&raw.as_bytes()[at..]);
                assert_eq!(escapes.length(raw.len()), want, "{raw}, cut at {at}");
            }
            let mut escapes = Escapes::default();
            raw.as_bytes().chunks(1).for_each(|byte| escapes.push(byte));
            assert_eq!(escapes.length(raw.len()), want, "{raw}, in single bytes");
        }
    }

    #[test]
    fn characters_are_counted_as_they_are_meant() {
        for (raw, want) in [
            ("", 0),
            ("plain", 5),
            (r"\u4f60\u597d", 2),
            ("你好", 2),
            (r"\ud83d\ude80!", 2),
            ("🚀!", 2),
            (r#"\"\\\n\u000a"#, 4),
            (r"\\u4f60", 6),
        ] {
            let mut characters = Characters::default();
            raw.as_bytes().chunks(1).for_each(|byte| characters.push(byte));
            assert_eq!(characters.count(), want, "{raw}");
        }
    }
}
