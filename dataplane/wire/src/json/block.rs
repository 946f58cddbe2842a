//! Searches long JSON strings in blocks of 64 bytes, with the widest vector instructions of the processor. One pass finds
//! the end of a string and the kinds of bytes before it.
//!
//! Each block with a quote is reduced to bit masks, so that all its escaped quotes are found with a few instructions
//! instead of one search per quote. Text with many quotes is common in agent traffic: source code, and JSON inside JSON.

#![expect(
    clippy::indexing_slicing,
    reason = "positions are within the text; a wrong one must fail in the fuzzer"
)]

use fearless_simd::prelude::*;
use fearless_simd::{Level, dispatch, i8x16, mask8x64, u8x16, u8x64};

/// The size of a block in bytes.
pub(super) const BLOCK_BYTES: usize = 64;

/// The size of a lane in bytes: a short piece of text that is searched with the instructions that all processors have.
pub(super) const LANE_BYTES: usize = 16;

/// The kinds of bytes in a string, or in a part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextBytes {
    /// True if it contains an ASCII control character, which is only valid as an escape.
    pub(super) has_control: bool,
    /// True if it contains a byte beyond ASCII.
    pub(super) has_non_ascii: bool,
    /// True if it contains a backslash followed by `u`. The backslash may itself be escaped.
    pub(super) has_codes: bool,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextSearch {
    /// The index of the closing quote. `None` if it is not in the text.
    pub(super) end: Option<usize>,
    /// The kinds of bytes before the closing quote or the end of the text.
    pub(super) bytes: TextBytes,
}

/// Searches `text`, the contents of a string and what follows it. `carried` is true if the first byte of `text` is
/// escaped.
#[inline(never)]
pub(super) fn search(text: &[u8], carried: bool) -> TextSearch {
    dispatch!(Level::new(), simd => BlockSearch::new(simd).run(simd, text, carried))
}

/// Returns the positions of quotes, backslashes and, if `STRICT`, of control characters and bytes beyond ASCII as a bit
/// mask. The lowest bit stands for the first byte.
#[inline(always)]
pub(super) fn lane_marks<const STRICT: bool>(lane: &[u8; LANE_BYTES]) -> u64 {
    dispatch!(Level::baseline(), simd => marks::<_, STRICT>(simd, lane))
}

#[inline(always)]
fn marks<S: Simd, const STRICT: bool>(simd: S, lane: &[u8; LANE_BYTES]) -> u64 {
    let bytes = u8x16::load_array_ref(simd, lane);
    let mut marks = bytes.simd_eq(b'"') | bytes.simd_eq(b'\\');
    if STRICT {
        // As signed numbers, bytes beyond ASCII are negative.
        marks |= bytes.bitcast::<i8x16<S>>().simd_lt(SPACE);
    }
    marks.to_bitmask()
}

/// The state of a search: what the blocks so far contain.
#[derive(Debug)]
struct BlockSearch<S: Simd> {
    /// The lowest byte at each position of a block.
    lowest: u8x64<S>,
    /// The bits that are set in any byte at each position.
    bits: u8x64<S>,
    codes: mask8x64<S>,
}

impl<S: Simd> BlockSearch<S> {
    #[inline(always)]
    fn new(simd: S) -> Self {
        Self {
            lowest: u8x64::splat(simd, u8::MAX),
            bits: u8x64::splat(simd, 0),
            codes: mask8x64::splat(simd, false),
        }
    }

    #[inline(always)]
    fn run(mut self, simd: S, text: &[u8], carried: bool) -> TextSearch {
        let mut from = 0;
        while let Some(bytes) = text[from..].first_chunk() {
            if let Some(end) = self.block(simd, bytes, &text[..from], carried) {
                return self.result(Some(from + end));
            }
            from += BLOCK_BYTES;
        }
        let rest = &text[from..];
        let mut padded = [b' '; BLOCK_BYTES + 1];
        padded[..rest.len()].copy_from_slice(rest);
        let end = self.block(simd, &padded, &text[..from], carried);
        self.result(end.map(|end| from + end))
    }

    /// Reads the block at the start of `bytes`, which contain one byte more. Returns the index of the closing quote.
    #[inline(always)]
    fn block(
        &mut self,
        simd: S,
        bytes: &[u8; BLOCK_BYTES + 1],
        before: &[u8],
        carried: bool,
    ) -> Option<usize> {
        let block = u8x64::from_slice(simd, &bytes[..BLOCK_BYTES]);
        let next = u8x64::from_slice(simd, &bytes[1..]);
        let backslashes = block.simd_eq(b'\\');
        let codes = backslashes & next.simd_eq(b'u');
        let quotes = block.simd_eq(b'"');
        if quotes.any_true() {
            let first = ends_escaping(before, carried);
            let ends = quotes.to_bitmask() & !escaped_places(backslashes.to_bitmask(), first);
            if ends != 0 {
                let inside = mask8x64::from_bitmask(simd, (ends & ends.wrapping_neg()) - 1);
                let blank = u8x64::splat(simd, b' ');
                self.add(inside.select(block, blank), codes & inside);
                return Some(ends.trailing_zeros() as usize);
            }
        }
        self.add(block, codes);
        None
    }

    #[inline(always)]
    fn add(&mut self, block: u8x64<S>, codes: mask8x64<S>) {
        self.lowest = self.lowest.min(block);
        self.bits |= block;
        self.codes |= codes;
    }

    #[inline(always)]
    fn result(&self, end: Option<usize>) -> TextSearch {
        let bytes = TextBytes {
            has_control: self.lowest.simd_lt(b' ').any_true(),
            has_non_ascii: self.bits.simd_ge(0x80).any_true(),
            has_codes: self.codes.any_true(),
        };
        TextSearch { end, bytes }
    }
}

/// True if the byte after `text` is escaped, that is, an odd number of backslashes precedes it. `carried` is true if
/// the first byte of `text` is escaped.
#[inline]
pub(super) fn ends_escaping(text: &[u8], carried: bool) -> bool {
    let run = text.iter().rev().take_while(|&&byte| byte == b'\\').count();
    (run % 2 == 1) != (carried && run == text.len())
}

/// Returns the mask of escaped bytes in a block, given the mask of its backslashes. `first` is true if the block's
/// first byte is escaped.
#[inline]
fn escaped_places(backslashes: u64, first: bool) -> u64 {
    let first = u64::from(first);
    let mut escaping = backslashes & !first;
    if escaping & (escaping << 1) == 0 {
        return escaping << 1 | first;
    }
    let mut escaped = first;
    while escaping != 0 {
        let lowest = escaping & escaping.wrapping_neg();
        escaped |= lowest << 1;
        escaping &= !(lowest | lowest << 1);
    }
    escaped
}

/// The first ASCII character that is no control character, as a signed number.
const SPACE: i8 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random numbers, the same in each run.
    fn noise(count: usize) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(0x9e37_79b9_7f4a_7c15_u64), |state| {
            let state = state ^ state << 13;
            let state = state ^ state >> 7;
            Some(state ^ state << 17)
        })
        .take(count)
    }

    /// The search, byte by byte.
    fn slow(text: &[u8], carried: bool) -> TextSearch {
        let mut bytes = TextBytes::default();
        for at in 0..text.len() {
            if text[at] == b'"' && !ends_escaping(&text[..at], carried) {
                return TextSearch { end: Some(at), bytes };
            }
            bytes.has_control |= text[at] < b' ';
            bytes.has_non_ascii |= !text[at].is_ascii();
            bytes.has_codes |= text[at..].starts_with(br"\u");
        }
        TextSearch { end: None, bytes }
    }

    /// Searches with every set of instructions that this processor has.
    fn assert_found(text: &[u8], carried: bool) {
        let want = slow(text, carried);
        assert_eq!(search(text, carried), want, "{text:x?}");
        let baseline = dispatch!(Level::baseline(), simd => BlockSearch::new(simd).run(simd, text, carried));
        assert_eq!(baseline, want, "{text:x?}");
    }

    #[test]
    fn a_block_search_matches_a_sequential_reader() {
        for length in [0, 1, 15, 63, 64, 65, 66, 127, 128, 129, 200] {
            for (index, seed) in noise(200).enumerate() {
                // Letters, with marks in a few or in many places.
                let marks = b"\"\\\\\\\\u\x1f\x00\x80\xff";
                let rarity = 1 + 40 * (index as u64 % 3);
                let text: Vec<u8> = (0..length as u64)
                    .map(|at| {
                        (seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd)
                            >> 20
                    })
                    .map(|number| {
                        let mark =
                            marks.get(usize::try_from(number % (marks.len() as u64 * rarity)).unwrap());
                        mark.copied().unwrap_or(b'a')
                    })
                    .collect();
                assert_found(&text, index % 2 == 0);
            }
        }
    }

    #[test]
    fn a_search_finds_each_kind_of_byte_at_any_position() {
        let found = TextSearch { end: None, bytes: TextBytes::default() };
        for length in [1, 16, 64, 65, 150] {
            for at in 0..length {
                for (byte, want) in [
                    (b' ', found),
                    (0x7f, found),
                    (b'"', TextSearch { end: Some(at), ..found }),
                    (0x1f, TextSearch { bytes: TextBytes { has_control: true, ..found.bytes }, ..found }),
                    (0x80, TextSearch { bytes: TextBytes { has_non_ascii: true, ..found.bytes }, ..found }),
                ] {
                    let mut text = vec![b'x'; length];
                    text[at] = byte;
                    assert_eq!(search(&text, false), want, "{byte} at {at} of {length}");
                    // What follows the string does not count.
                    if want.end.is_none() {
                        text.push(b'"');
                        text.extend_from_slice(b"\x00\xff\\u");
                        let end = Some(length);
                        assert_eq!(search(&text, false), TextSearch { end, ..want }, "{byte} at {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_marks_of_a_lane_match_its_bytes() {
        for at in 0..LANE_BYTES {
            for (byte, is_mark, is_odd) in [
                (b'"', true, true),
                (b'\\', true, true),
                (0, false, true),
                (0x1f, false, true),
                (0x80, false, true),
                (0xff, false, true),
                (b' ', false, false),
                (0x7f, false, false),
            ] {
                let mut lane = [b'x'; LANE_BYTES];
                lane[at] = byte;
                assert_eq!(lane_marks::<false>(&lane), u64::from(is_mark) << at, "{byte}");
                assert_eq!(lane_marks::<true>(&lane), u64::from(is_odd) << at, "{byte}");
            }
        }
    }

    #[test]
    fn escaped_places_match_a_sequential_reader() {
        let sparse = noise(1_000).zip(noise(2_000).skip(1_000)).map(|(a, b)| a & b);
        for backslashes in [0, 1, 1 << 63, 3 << 62, u64::MAX].into_iter().chain(noise(1_000)).chain(sparse) {
            for first in [false, true] {
                let mut is_escaped = first;
                let expected = (0..64).fold(0, |all, at| {
                    let this = is_escaped;
                    is_escaped = !this && backslashes >> at & 1 == 1;
                    all | u64::from(this) << at
                });
                assert_eq!(escaped_places(backslashes, first), expected, "{backslashes:x}");
            }
        }
    }
}
