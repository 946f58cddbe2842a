//! Searches long JSON text in blocks of 64 bytes. Each block is reduced to bit masks, so that all escaped quotes of a
//! block are found with a few instructions instead of one search per quote. Text with many quotes is common in agent
//! traffic: source code, and JSON inside JSON.

use wide::u8x16;

/// The size of a block in bytes.
pub(super) const BLOCK_BYTES: usize = 64;

/// One block of text, held as vectors of 16 bytes.
#[derive(Debug)]
pub(super) struct JsonBlock([u8x16; BLOCK_BYTES / 16]);

impl JsonBlock {
    /// Loads the first bytes of `bytes`. A shorter input is padded with zeros.
    #[inline]
    pub(super) fn of(bytes: &[u8]) -> Self {
        match bytes.first_chunk() {
            Some(block) => Self::new(block),
            None => Self::padded(bytes),
        }
    }

    #[inline]
    fn new(block: &[u8; BLOCK_BYTES]) -> Self {
        let (lanes, _) = block.as_chunks();
        Self(std::array::from_fn(|lane| lanes.get(lane).copied().unwrap_or_default().into()))
    }

    #[cold]
    fn padded(bytes: &[u8]) -> Self {
        let mut block = [0; BLOCK_BYTES];
        block.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self::new(&block)
    }

    /// Returns the positions of `byte` as a bit mask. The lowest bit stands for the first byte of the block.
    #[inline]
    pub(super) fn places(&self, byte: u8) -> u64 {
        let same = self.0.map(|lane| lane.simd_eq(u8x16::splat(byte)));
        let [first, second, third, fourth] = same;
        if (first | second | third | fourth).to_bitmask() == 0 {
            return 0;
        }
        same.iter().rev().fold(0, |places, lane| places << 16 | u64::from(lane.to_bitmask()))
    }
}

/// Returns the mask of escaped bytes in a block, given the mask of its backslashes. `first` is true if the block's
/// first byte is escaped.
#[inline]
pub(super) fn escaped_places(backslashes: u64, first: bool) -> u64 {
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

    #[test]
    fn a_byte_is_found_wherever_it_stands() {
        for mask in [0, 1, 1 << 63, u64::MAX, 0x8000_0001_0000_8001].into_iter().chain(noise(1_000)) {
            for (wanted, other) in [(b'"', b'#'), (b'"', b'!'), (b'"', 0xa2), (b'\\', 0xdc), (0, 0x80)] {
                let block: [u8; BLOCK_BYTES] =
                    std::array::from_fn(|at| if mask >> at & 1 == 1 { wanted } else { other });
                assert_eq!(JsonBlock::of(&block).places(wanted), mask);
            }
        }
    }

    #[test]
    fn escapes_are_those_that_a_reader_from_left_to_right_finds() {
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
