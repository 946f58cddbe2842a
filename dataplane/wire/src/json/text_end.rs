//! Where a string ends. Most strings are shorter than it takes to call a vector search, so that the first bytes
//! are looked at a word at a time.

use memchr::memchr;

/// Bytes that are looked at in words before a vector search begins.
const SHORT_BYTES: usize = 40;

/// The length of the string that `rest` begins inside of, and whether it is known to hold no backslash. `None`
/// if its last quote is not in `rest`.
#[inline]
pub(crate) fn text_length(rest: &[u8]) -> Option<(usize, bool)> {
    let mut at = 0_usize;
    while at < SHORT_BYTES {
        let Some(word) = rest.get(at..).and_then(<[u8]>::first_chunk) else { break };
        let marks = marks(*word);
        if marks == 0 {
            at = at.wrapping_add(8);
            continue;
        }
        at = at.wrapping_add(usize::try_from(marks.trailing_zeros() / 8).unwrap_or_default());
        if rest.get(at) == Some(&b'"') {
            return Some((at, true));
        }
        break;
    }
    text_length_from(rest, at, false).map(|length| (length, false))
}

/// The same from `from` on. `carried` says that the first byte of `rest` is escaped.
pub(super) fn text_length_from(rest: &[u8], mut from: usize, carried: bool) -> Option<usize> {
    loop {
        let quote = from.checked_add(memchr(b'"', rest.get(from..)?)?)?;
        if !ends_escaping(rest.get(..quote)?, carried) {
            return Some(quote);
        }
        from = quote.checked_add(1)?;
    }
}

/// Whether the byte after `text` is escaped: an odd number of backslashes stands before it. `carried` says the
/// same of what came before `text`.
pub(super) fn ends_escaping(text: &[u8], carried: bool) -> bool {
    let run = text.iter().rev().take_while(|&&byte| byte == b'\\').count();
    (run % 2 == 1) != (carried && run == text.len())
}

/// The high bit of the first byte of `word` that is a quote or backslash; perhaps of later bytes too.
#[inline]
fn marks(word: [u8; 8]) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let word = u64::from_le_bytes(word);
    let zero = |word: u64| word.wrapping_sub(LOW) & !word;
    (zero(word ^ u64::from_ne_bytes([b'"'; 8])) | zero(word ^ u64::from_ne_bytes([b'\\'; 8]))) & HIGH
}
