//! Fast digests that detect accidental changes, not deliberate ones.

/// Returns a digest of `bytes`, different for each `seed`. Processes eight bytes per step.
pub fn digest(seed: u64, bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks();
    let mut state = begun(seed, bytes);
    for word in words.iter().chain([&padded(tail)]) {
        state = mix(state ^ u64::from_le_bytes(*word));
    }
    ended(state)
}

/// Returns a different digest, which processes sixteen bytes per step: each step depends on the previous one, so half
/// the steps take half the time.
pub fn wide_digest(seed: u64, bytes: &[u8]) -> u32 {
    ended(wide_state(seed, bytes))
}

/// Same as `wide_digest`, but returns 64 bits.
pub fn long_digest(seed: u64, bytes: &[u8]) -> u64 {
    mix(wide_state(seed, bytes))
}

fn wide_state(seed: u64, bytes: &[u8]) -> u64 {
    let (pairs, tail) = bytes.as_chunks();
    let mut state = begun(seed, bytes);
    for pair in pairs.iter().chain([&padded(tail)]) {
        let both = u128::from_le_bytes(*pair);
        state = fold(state ^ low(both), high(both) ^ SALT);
    }
    state
}

fn begun(seed: u64, bytes: &[u8]) -> u64 {
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    (seed ^ FACTOR).wrapping_add(length)
}

/// Returns the last bytes, padded with zeros.
fn padded<const N: usize>(tail: &[u8]) -> [u8; N] {
    let mut last = [0; N];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    last
}

/// Returns the upper half of the mixed state, which depends on every bit.
fn ended(state: u64) -> u32 {
    u32::try_from(mix(state) >> 32).unwrap_or_default()
}

fn mix(word: u64) -> u64 {
    fold(word ^ SALT, FACTOR)
}

/// Returns the exclusive or of the two halves of the 128-bit product.
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    low(product) ^ high(product)
}

fn low(both: u128) -> u64 {
    u64::try_from(both & u128::from(u64::MAX)).unwrap_or_default()
}

fn high(both: u128) -> u64 {
    u64::try_from(both >> 64).unwrap_or_default()
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const SALT: u64 = 0xa076_1d64_78bd_642f;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_changes_with_every_bit_and_the_length() {
        for digest in [digest, wide_digest] {
            for length in 0..40 {
                let bytes = vec![0x5a; length];
                let whole = digest(1, &bytes);
                assert_ne!(whole, digest(2, &bytes));
                assert_ne!(whole, digest(1, &[bytes.as_slice(), &[0]].concat()), "{length}");
                for bit in 0..length * 8 {
                    let mut changed = bytes.clone();
                    changed[bit / 8] ^= 1 << (bit % 8);
                    assert_ne!(whole, digest(1, &changed), "bit {bit} of {length} bytes");
                }
            }
        }
    }

    /// Files and rows that later releases read contain these digests.
    #[test]
    fn digests_are_stable_across_releases() {
        let bytes: Vec<u8> = (0..=99).collect();
        assert_eq!([digest(7, &bytes), wide_digest(7, &bytes)], [0xa964_4c1a, 0x8d63_b61e]);
    }
}
