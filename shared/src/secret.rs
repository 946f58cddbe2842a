//! Values that must not be seen: cleared when dropped, dots in `Debug`, neither `Display` nor `Serialize`.

use std::fmt;

use zeroize::Zeroize;

/// A secret of type `T`. Read it with [`Secret::expose`], at the last moment and in as few places as possible.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Wraps a value that must not be seen.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself.
    pub fn expose(&self) -> &T {
        &self.0
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
