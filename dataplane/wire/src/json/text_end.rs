//! Where a string ends. Most strings are so short that the call of a search for long ones would cost more than
//! the search: the first few blocks are searched in place.

#[cfg(target_arch = "aarch64")]
use memchr::arch::aarch64::neon::memchr::Two;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use memchr::arch::all::memchr::Two;
#[cfg(target_arch = "x86_64")]
use memchr::arch::x86_64::sse2::memchr::Two;
use memchr::memchr;

/// Bytes that are searched at once in a short string. The search for either mark then comes down to a handful of
/// instructions without a loop.
const BLOCK_BYTES: usize = 16;

/// Bytes that are searched in place.
const SHORT_BYTES: usize = 3 * BLOCK_BYTES;

/// The length of the string that `rest` begins inside of, and whether it is known to hold no backslash. `None`
/// if its last quote is not in `rest`.
#[inline(always)]
pub(crate) fn text_length(rest: &[u8]) -> Option<(usize, bool)> {
    let mut at = 0_usize;
    let Some(marks) = marks() else { return long_text_length(rest, at) };
    while at < SHORT_BYTES {
        let Some(block) = rest.get(at..).and_then(<[u8]>::first_chunk::<BLOCK_BYTES>) else { break };
        if let Some(mark) = marks.find(block) {
            at = at.wrapping_add(mark);
            if rest.get(at) == Some(&b'"') {
                return Some((at, true));
            }
            break;
        }
        at = at.wrapping_add(BLOCK_BYTES);
    }
    long_text_length(rest, at)
}

#[inline(never)]
fn long_text_length(rest: &[u8], from: usize) -> Option<(usize, bool)> {
    text_length_from(rest, from, false).map(|length| (length, false))
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

/// What finds the first quote or backslash. Always there: both instruction sets are part of their architecture.
#[inline]
fn marks() -> Option<Two> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    return Two::new(b'"', b'\\');
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Some(Two::new(b'"', b'\\'));
}
