//! Values that must not be shown: zeroized on drop, masked in `Debug`, without `Display` and `Serialize`.

use std::fmt;

use zeroize::Zeroize;

/// A secret of type `T`. Read it with [`Secret::expose`], as late and in as few places as possible.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Wraps a secret value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the secret value.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl Secret<Vec<u8>> {
    /// Returns true if the secret equals `other`. The comparison time depends only on the lengths, not on the contents.
    pub fn is(&self, other: &[u8]) -> bool {
        let differing = self.0.iter().zip(other).fold(0, |bits, (own, other)| bits | (own ^ other));
        self.0.len() == other.len() && std::hint::black_box(differing) == 0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(••••)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_equals_only_the_same_bytes() {
        let secret = Secret::new(b"abc".to_vec());
        for (other, same) in [("abc", true), ("abd", false), ("ab", false), ("abcd", false), ("", false)] {
            assert_eq!(secret.is(other.as_bytes()), same, "{other}");
        }
    }
}
