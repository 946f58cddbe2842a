//! Finds the end of a string. Most strings are so short that calling a search function would cost more than the search
//! itself, so their first bytes are searched inline.

#![expect(
    clippy::indexing_slicing,
    reason = "positions are within the text; a wrong one must fail in the fuzzer"
)]

use super::block::{LANE_BYTES, lane_marks, search};

/// The number of bytes that are searched inline.
const SHORT_BYTES: usize = 3 * LANE_BYTES;

/// Returns the length of the string whose contents start at `rest`. `None` if the closing quote is not in `rest`.
#[inline(always)]
pub(crate) fn text_length(rest: &[u8]) -> Option<usize> {
    match short_text::<false>(rest) {
        Some(length) => Some(length),
        None => search(rest, false).end,
    }
}

/// Returns the length of the string whose contents start at `rest`. `None` if it is long or contains an escape. If
/// `STRICT`, also `None` if it contains a control character or a byte beyond ASCII.
#[inline(always)]
pub(super) fn short_text<const STRICT: bool>(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < SHORT_BYTES {
        let marks = lane_marks::<STRICT>(rest[at..].first_chunk()?);
        if marks != 0 {
            at += marks.trailing_zeros() as usize;
            return (rest[at] == b'"').then_some(at);
        }
        at += LANE_BYTES;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::block::BLOCK_BYTES;

    #[test]
    fn the_end_of_a_string_is_found_at_any_length_and_after_any_escape() {
        for length in (0..70).chain(2 * BLOCK_BYTES - 5..2 * BLOCK_BYTES + 5) {
            let plain = "x".repeat(length);
            let rest = format!("{plain}\",\"more\"");
            assert_eq!(text_length(rest.as_bytes()), Some(length));
            assert_eq!(text_length(plain.as_bytes()), None, "no quote");
            for at in 0..length {
                for escape in [r#"\""#, r"\\", r#"\\\""#, r#"\"\""#] {
                    let text = format!("{}{escape}{}", &plain[..at], &plain[at..]);
                    let rest = format!("{text}\"\\\"");
                    assert_eq!(text_length(rest.as_bytes()), Some(text.len()), "{rest}");
                    assert_eq!(text_length(text.as_bytes()), None, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_short_string_has_no_escape_and_a_strict_one_only_printable_ascii() {
        let rows: [(&[u8], Option<usize>, Option<usize>); 7] = [
            (br#"model":"gpt\n"}    "#, Some(5), Some(5)),
            (br#"":"gpt\n"}         "#, Some(0), Some(0)),
            (br#"m\u006f":"gpt\n"}  "#, None, None),
            (b"mod\nel\":\"gpt\"}      ", Some(6), None),
            ("mod\u{e9}l\":\"gpt\"}      ".as_bytes(), Some(6), None),
            (br#"model":1}"#, None, None),
            (&[b'x'; 100], None, None),
        ];
        for (text, lenient, strict) in rows {
            assert_eq!(short_text::<false>(text), lenient, "{text:x?}");
            assert_eq!(short_text::<true>(text), strict, "{text:x?}");
        }
    }
}
