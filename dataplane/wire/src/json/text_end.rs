//! Finds the end of a string. Most strings are so short that calling a general search function would cost more than the
//! search itself, so their first bytes are searched inline.

#[cfg(target_arch = "aarch64")]
use memchr::arch::aarch64::neon::memchr::Two;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use memchr::arch::all::memchr::Two;
#[cfg(target_arch = "x86_64")]
use memchr::arch::x86_64::sse2::memchr::Two;
use memchr::memchr;

use super::block::{BLOCK_BYTES, JsonBlock, escaped_places};

/// The number of bytes of a short string that are searched at once. At this size the search for both marks compiles to
/// a few instructions without a loop.
const LANE_BYTES: usize = 16;

/// The number of bytes that are searched inline.
const SHORT_BYTES: usize = 3 * LANE_BYTES;

/// After this many blocks without a quote the next quote is probably far away, as in base64. A search for quotes alone
/// is then faster.
const PLAIN_BLOCKS: u32 = 8;

/// Returns the length of the string whose contents start at `rest`, and true if it is known to contain no backslash.
/// `None` if the closing quote is not in `rest`.
#[inline(always)]
pub(crate) fn text_length(rest: &[u8]) -> Option<(usize, bool)> {
    let mut at = 0_usize;
    let Some(marks) = marks() else { return long_text_length(rest, at) };
    while at < SHORT_BYTES {
        let Some(block) = rest.get(at..).and_then(<[u8]>::first_chunk::<LANE_BYTES>) else { break };
        if let Some(mark) = marks.find(block) {
            at = at.wrapping_add(mark);
            if rest.get(at) == Some(&b'"') {
                return Some((at, true));
            }
            break;
        }
        at = at.wrapping_add(LANE_BYTES);
    }
    long_text_length(rest, at)
}

#[inline(never)]
fn long_text_length(rest: &[u8], from: usize) -> Option<(usize, bool)> {
    text_length_from(rest, from, false).map(|length| (length, false))
}

/// Returns the same length, searching from index `from` on. `carried` is true if the first byte of `rest` is escaped.
pub(super) fn text_length_from(rest: &[u8], mut from: usize, carried: bool) -> Option<usize> {
    let mut plain_blocks = 0;
    while from < rest.len() {
        let block = JsonBlock::of(rest.get(from..)?);
        let quotes = block.places(b'"');
        if quotes == 0 {
            plain_blocks += 1;
        } else {
            let first = ends_escaping(rest.get(..from)?, carried);
            let ends = quotes & !escaped_places(block.places(b'\\'), first);
            if ends != 0 {
                return from.checked_add(ends.trailing_zeros() as usize);
            }
            plain_blocks = 0;
        }
        from = from.checked_add(BLOCK_BYTES)?;
        if plain_blocks == PLAIN_BLOCKS {
            from = from.checked_add(memchr(b'"', rest.get(from..)?)?)?;
        }
    }
    None
}

/// True if the byte after `text` is escaped, that is, an odd number of backslashes precedes it. `carried` is true if
/// the first byte of `text` is escaped.
pub(super) fn ends_escaping(text: &[u8], carried: bool) -> bool {
    let run = text.iter().rev().take_while(|&&byte| byte == b'\\').count();
    (run % 2 == 1) != (carried && run == text.len())
}

/// Returns the searcher for the first quote or backslash. Never `None`: both architectures include its instruction set.
#[inline]
fn marks() -> Option<Two> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    return Two::new(b'"', b'\\');
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Some(Two::new(b'"', b'\\'));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_end_at_any_length_behind_any_escape() {
        for length in (0..150).chain(8 * BLOCK_BYTES..10 * BLOCK_BYTES) {
            let plain = "x".repeat(length);
            let rest = format!("{plain}\",\"more\"");
            assert_eq!(text_length(rest.as_bytes()).map(|found| found.0), Some(length));
            assert_eq!(text_length(plain.as_bytes()), None, "no quote");
            for at in 0..length {
                for escape in [r#"\""#, r"\\", r#"\\\""#, r#"\"\""#] {
                    let text = format!("{}{escape}{}", &plain[..at], &plain[at..]);
                    let rest = format!("{text}\"\\\"");
                    assert_eq!(text_length(rest.as_bytes()), Some((text.len(), false)), "{rest}");
                    assert_eq!(text_length(text.as_bytes()), None, "{text}");
                }
            }
        }
    }

    #[test]
    fn only_a_string_without_a_backslash_is_plain() {
        assert_eq!(text_length(b"model\":\"gpt\\n\"}    "), Some((5, true)));
        assert_eq!(text_length(b"m\\u006f\":\"gpt\\n\"}  "), Some((7, false)));
    }
}
