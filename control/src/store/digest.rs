//! A quick digest that finds accidents, not adversaries: eight bytes a step.

/// A digest of `bytes`, different for each `seed`.
pub(crate) fn digest(seed: u64, bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let mut state = (seed ^ FACTOR).wrapping_add(length);
    for word in words {
        state = mix(state ^ u64::from_le_bytes(*word));
    }
    state = mix(mix(state ^ u64::from_le_bytes(last)));
    // The upper half depends on every bit.
    u32::try_from(state >> 32).unwrap_or_default()
}

/// The two halves of a 128-bit product, folded.
fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ SALT) * u128::from(FACTOR);
    let low = u64::try_from(product & u128::from(u64::MAX)).unwrap_or_default();
    let high = u64::try_from(product >> 64).unwrap_or_default();
    low ^ high
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const SALT: u64 = 0xa076_1d64_78bd_642f;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_and_the_length_count() {
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
