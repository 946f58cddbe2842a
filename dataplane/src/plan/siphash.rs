//! SipHash-1-3 with a key of zeros. The hasher of Rust's standard library may become another one with any of its
//! releases; this one never changes, so that releases and nodes agree on the first target of an affinity key and on the
//! tables of affinity.

/// A hash in progress.
#[derive(Clone, Debug)]
pub(super) struct SipHash {
    state: [u64; 4],
    /// The bytes since the last whole word, the first of them lowest.
    tail: u64,
    /// The number of all bytes.
    bytes: u64,
}

impl SipHash {
    pub(super) fn new() -> Self {
        Self {
            state: [
                0x736f_6d65_7073_6575,
                0x646f_7261_6e64_6f6d,
                0x6c79_6765_6e65_7261,
                0x7465_6462_7974_6573,
            ],
            tail: 0,
            bytes: 0,
        }
    }

    /// Adds bytes.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            let place = self.bytes & 7;
            self.tail |= u64::from(*byte) << (8 * place);
            self.bytes += 1;
            if place == 7 {
                self.word(self.tail);
                self.tail = 0;
            }
        }
        self
    }

    /// Adds a text and a byte that no text contains.
    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes()).bytes(&[0xff])
    }

    pub(super) fn finish(mut self) -> u64 {
        self.word((self.bytes & 0xff) << 56 | self.tail);
        self.state[2] ^= 0xff;
        (0..3).for_each(|_| self.round());
        let [a, b, c, d] = self.state;
        a ^ b ^ c ^ d
    }

    fn word(&mut self, word: u64) {
        self.state[3] ^= word;
        self.round();
        self.state[0] ^= word;
    }

    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.state;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.state = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes that the standard library of Rust 1.90 computed, with `DefaultHasher`.
    #[test]
    fn hashes_are_those_of_earlier_releases() {
        assert_eq!(SipHash::new().finish(), 0xd1fb_a762_150c_532c);
        for (length, want) in [
            (1, 0x84af_35f1_e346_98a9),
            (7, 0x96c0_e41a_faec_1dae),
            (8, 0x3929_7755_72f6_d9e9),
            (9, 0x1464_5042_eb85_502c),
            (15, 0x457c_276b_b145_3b06),
            (16, 0x5472_4c1b_b3a1_707e),
            (64, 0x88b1_cb41_6456_15a5),
        ] {
            let bytes = vec![0xa5; length];
            assert_eq!(SipHash::new().bytes(&bytes).finish(), want, "{length} bytes");
            for cut in 0..length {
                let (one, two) = bytes.split_at(cut);
                assert_eq!(
                    SipHash::new().bytes(one).bytes(two).finish(),
                    want,
                    "{length} bytes cut at {cut}"
                );
            }
        }
    }
}
