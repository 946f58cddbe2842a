//! Measures decoded JSON strings. `\u4f60` counts as one character and three bytes of UTF-8, like the character itself.
//! A digit that is not hexadecimal counts as zero: the upstream rejects such a string.

#![expect(
    clippy::indexing_slicing,
    reason = "positions are within the text; a wrong one must fail in the fuzzer"
)]

use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::Finder;

use super::block::ends_escaping;
use super::sink::JsonText;

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
        Self { raw, meant: if text.codes { meant_bytes(text.raw) } else { raw } }
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
    escapes.push(raw, true);
    raw.len() - escapes.surplus
}

impl Escapes {
    /// Returns the length of the string, given its raw length in bytes.
    pub(crate) fn length(&self, raw: usize) -> TextLength {
        TextLength { raw, meant: raw - self.surplus }
    }

    /// Reads the next piece of the string. `codes` is true if the piece may contain a whole `\u`.
    pub(crate) fn push(&mut self, mut piece: &[u8], codes: bool) {
        piece = self.finish_escape(piece);
        if codes {
            piece = self.read_escapes(piece);
        }
        if self.at == At::Text && ends_escaping(piece, false) {
            self.at = At::Backslash;
        }
    }

    /// Reads all escapes and returns the bytes after the last one.
    fn read_escapes<'a>(&mut self, mut piece: &'a [u8]) -> &'a [u8] {
        loop {
            // Other scripts are often written as one escape after the other.
            let found = if piece.starts_with(ESCAPE) { Some(0) } else { ESCAPES.find(piece) };
            let Some(found) = found else { return piece };
            let is_escaped = ends_escaping(&piece[..found], false);
            piece = &piece[found + ESCAPE.len()..];
            if !is_escaped {
                piece = self.read_code(piece);
            }
        }
    }

    /// Reads the digits after `\u` and returns the bytes after them.
    fn read_code<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let Some((digits, rest)) = piece.split_first_chunk::<4>() else {
            self.at = At::Digits { left: 4, code: 0 };
            return self.finish_escape(piece);
        };
        self.add(digits.iter().fold(0, |code, digit| code << 4 | value(*digit)));
        rest
    }

    /// Reads the rest of an unfinished escape and returns the bytes after it.
    fn finish_escape<'a>(&mut self, mut piece: &'a [u8]) -> &'a [u8] {
        while self.at != At::Text {
            let Some((&byte, rest)) = piece.split_first() else { return piece };
            piece = rest;
            self.at = match self.at {
                At::Backslash if byte == b'u' => At::Digits { left: 4, code: 0 },
                At::Text | At::Backslash => At::Text,
                At::Digits { left: 0..=1, code } => {
                    self.add(code << 4 | value(byte));
                    At::Text
                }
                At::Digits { left, code } => At::Digits { left: left - 1, code: code << 4 | value(byte) },
            };
        }
        piece
    }

    /// Counts the escape of a code unit.
    fn add(&mut self, code: u32) {
        self.surplus += ESCAPE_BYTES - utf8(code);
    }
}

/// Returns the value of a hexadecimal digit.
#[inline]
fn value(digit: u8) -> u32 {
    char::from(digit).to_digit(16).unwrap_or_default()
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
            self.count += u64::from(is_one);
        }
    }

    /// Reads one digit of an escape. Returns true after the last digit, except for a low surrogate, which belongs to
    /// the character before it.
    fn digit(&mut self, byte: u8, left: u8, code: u32) -> bool {
        let code = code << 4 | value(byte);
        if left > 1 {
            self.at = At::Digits { left: left - 1, code };
            return false;
        }
        self.at = At::Text;
        !(0xdc00..=0xdfff).contains(&code)
    }
}

/// The length of `\u` with its four digits.
const ESCAPE_BYTES: usize = 6;
const ESCAPE: &[u8] = br"\u";
static ESCAPES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ESCAPE));

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
    fn the_decoded_length_of_escapes_is_the_same_at_any_split() {
        for (raw, meant) in ROWS {
            let want = TextLength { raw: raw.len(), meant: meant.len() };
            assert_eq!(meant_bytes(raw.as_bytes()), want.meant, "{raw}");
            for at in 0..=raw.len() {
                let mut escapes = Escapes::default();
                escapes.push(&raw.as_bytes()[..at], true);
                escapes.push(&raw.as_bytes()[at..], true);
                assert_eq!(escapes.length(raw.len()), want, "{raw}, cut at {at}");
            }
            let mut escapes = Escapes::default();
            raw.as_bytes().chunks(1).for_each(|byte| escapes.push(byte, false));
            assert_eq!(escapes.length(raw.len()), want, "{raw}, in single bytes");
        }
    }

    #[test]
    fn characters_are_counted_after_unescaping() {
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
