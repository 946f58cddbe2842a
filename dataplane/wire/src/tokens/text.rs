//! Estimates the tokens of text in thousandths, with weights fitted to a vocabulary of 200,000 tokens (o200k).
//!
//! Text is split into runs of letters, digits, blanks, line ends and other ASCII, and single letters of other scripts.

#![expect(
    clippy::indexing_slicing,
    reason = "positions are within the text; a wrong one must fail in the fuzzer"
)]

const HUMP: u64 = 1_020;
const HUMP_LETTER: u64 = 120;
/// A hump of up to this length is usually one token.
const HUMP_LETTERS: usize = 6;
const DIGITS: u64 = 1_270;
const BLANKS: u64 = 820;
const LINE_ENDS: u64 = 340;
const SIGNS: u64 = 720;
const SIGN: u64 = 140;

/// Returns the estimated tokens of `text` in thousandths.
pub fn milli_tokens(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let (mut sum, mut at) = (0_u64, 0_usize);
    while let Some(&first) = bytes.get(at) {
        let kind = CharacterKind::of(first);
        let rest = &bytes[at..];
        let length = match kind {
            CharacterKind::Other => 1,
            CharacterKind::Letter
            | CharacterKind::Digit
            | CharacterKind::Blank
            | CharacterKind::LineEnd
            | CharacterKind::Sign => rest.iter().take_while(|byte| CharacterKind::of(**byte) == kind).count(),
        };
        let run = &rest[..length];
        let more = match kind {
            CharacterKind::Letter => humps(run),
            CharacterKind::Digit => DIGITS * number(length.div_ceil(3)),
            CharacterKind::Blank if length == 1 => 0,
            CharacterKind::Blank => BLANKS,
            CharacterKind::LineEnd => LINE_ENDS,
            CharacterKind::Sign => SIGNS + SIGN * number(length - 1),
            CharacterKind::Other => {
                text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, other_script)
            }
        };
        sum += more;
        at += length;
    }
    sum
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharacterKind {
    Letter,
    Digit,
    Blank,
    LineEnd,
    Sign,
    Other,
}

impl CharacterKind {
    fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Self::Letter,
            b'0'..=b'9' => Self::Digit,
            b' ' | b'\t' => Self::Blank,
            b'\r' | b'\n' => Self::LineEnd,
            0..=0x7f => Self::Sign,
            0x80.. => Self::Other,
        }
    }
}

/// Returns the weight of a run of letters, split at case changes. `getHTTPResponseCode` has four humps: consecutive
/// capitals are one, without the first letter of the word after them.
fn humps(run: &[u8]) -> u64 {
    let (mut sum, mut rest) = (0_u64, run);
    while !rest.is_empty() {
        let capitals = rest.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
        let is_last = capitals == rest.len();
        let length = match capitals {
            2.. if is_last => capitals,
            2.. => capitals - 1,
            capitals => {
                capitals + rest[capitals..].iter().take_while(|byte| byte.is_ascii_lowercase()).count()
            }
        };
        let long = HUMP_LETTER * number(length.saturating_sub(HUMP_LETTERS));
        sum += HUMP + long;
        rest = &rest[length..];
    }
    sum
}

fn other_script(letter: char) -> u64 {
    match u32::from(letter) {
        0x4e00..=0x9fff | 0x3400..=0x4dbf | 0x3000..=0x303f | 0xff00..=0xffef => 740,
        0x3040..=0x30ff => 880,
        0xac00..=0xd7af => 720,
        0x370..=0x52f | 0..=0x24f => 300,
        0x590..=0x6ff => 350,
        0x900..=0xdff => 450,
        _ => 1_500,
    }
}

fn number(length: usize) -> u64 {
    length.try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camel_case_humps_count_as_words() {
        let rows = [
            ("word", 1),
            ("Word", 1),
            ("camelCase", 2),
            ("HTTP", 1),
            ("HTTPServer", 2),
            ("getHTTPResponseCode", 4),
            ("A", 1),
            ("aB", 2),
            ("ABc", 2),
        ];
        for (text, count) in rows {
            let letters: u64 = if text.contains("Response") { 2 * HUMP_LETTER } else { 0 };
            assert_eq!(milli_tokens(text), count * HUMP + letters, "{text}");
        }
    }

    #[test]
    fn escapes_do_not_change_the_count_and_lengths_do_not_overflow() {
        assert_eq!(milli_tokens("é"), milli_tokens("\u{e9}"));
        assert_eq!(milli_tokens(&"a".repeat(10_000)), HUMP + HUMP_LETTER * 9_994);
        assert_eq!(milli_tokens("a\u{b}\u{c}\u{0}b"), 2 * HUMP + SIGNS + 2 * SIGN);
    }
}
