//! Measures decoded JSON strings. `\u4f60` counts as one character and three bytes of UTF-8, like the character itself.

use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::Finder;

use super::sink::JsonText;
use super::text_end::ends_escaping;

/// Counts by how many bytes a string, read in pieces, is longer than the UTF-8 text that its `\u` escapes encode. Each
/// other escape counts as its two raw bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Escapes {
    at: At,
    surplus: usize,
}

/// The scan position at the end of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Text,
    /// After a backslash that starts an escape.
    Backslash,
    /// Within the digits of a `\u` escape.
    Digits { left: u8, code: u32 },
}

/// The length of a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextLength {
    /// The raw length in bytes, with escapes.
    pub(crate) raw: usize,
    /// The raw length minus the bytes that `\u` escapes add.
    pub(crate) meant: usize,
}

impl TextLength {
    /// Returns the length of a string without `\u` escapes.
    #[inline]
    pub(crate) fn plain(length: usize) -> Self {
        Self { raw: length, meant: length }
    }

    /// Returns the length of a complete string.
    #[inline]
    pub(crate) fn of(text: &JsonText<'_>) -> Self {
        let raw = text.raw.len();
        Self { raw, meant: if text.plain { raw } else { meant_bytes(text.raw) } }
    }
}

/// Returns the length of a raw string in bytes after its `\u` escapes are decoded.
#[inline]
pub(crate) fn meant_bytes(raw: &[u8]) -> usize {
    // Searching for one byte takes half the time of searching for an escape.
    if raw.len() < ESCAPE_BYTES || memchr(b'\\', raw).is_none() {
        return raw.len();
    }
    let mut escapes = Escapes::default();
    escapes.push(raw);
    raw.len().saturating_sub(escapes.surplus)
}

impl Escapes {
    /// Returns the length of the string, given its raw length in bytes.
    pub(crate) fn length(&self, raw: usize) -> TextLength {
        TextLength { raw, meant: raw.saturating_sub(self.surplus) }
    }

    /// Reads the next piece of the string.
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

    /// Reads the rest of an unfinished escape and returns the bytes after it.
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

/// Returns the number of UTF-8 bytes of a code unit. Each half of a surrogate pair counts as two.
fn utf8(code: u32) -> usize {
    match code {
        0..=0x7f => 1,
        0x80..=0x7ff | 0xd800..=0xdfff => 2,
        _ => 3,
    }
}

/// Counts the characters of a string that is read in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Characters {
    at: At,
    count: u64,
}

impl Characters {
    /// Returns the number of characters read so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Reads the next piece of the string.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        for &byte in piece {
            let is_one = match self.at {
                At::Text if byte == b'\\' => {
                    self.at = At::Backslash;
                    false
                }
                // The continuation bytes of a UTF-8 character start with the bits 10.
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

    /// Reads one digit of an escape. Returns true after the last digit, except for a low surrogate, which belongs to
    /// the character before it.
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

/// The length of `\u` with its four digits.
const ESCAPE_BYTES: usize = 6;
static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(r"\u"));

#[cfg(test)]
mod tests {
    use super::*;

    /// (raw text, decoded text)
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
