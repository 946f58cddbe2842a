//! The set of what lacks a price in a cost that is unknown. Records contain its bits, so none of them may ever change.

use serde::{Deserialize, Serialize};

use super::Class;

/// What was used, or applied, and has no price. Empty if the cost is known, or if the model has no prices at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unpriced(u64);

impl Unpriced {
    /// Nothing lacks a price.
    pub const NOTHING: Self = Self(0);
    /// The service tier of the answer.
    pub const TIER: Self = Self(1 << 32);
    /// Prompts of this length.
    pub const LENGTH: Self = Self(1 << 33);

    /// Returns the set of one class.
    pub fn class(class: Class) -> Self {
        Self(1 << (class as u64))
    }

    /// Returns the set with these bits; `None` if it is empty.
    pub fn of_bits(bits: Option<u64>) -> Self {
        Self(bits.unwrap_or(0))
    }

    /// Returns the bits of the set; `None` if it is empty.
    pub fn bits(self) -> Option<u64> {
        Some(self.0).filter(|bits| *bits != 0)
    }

    /// Returns true if nothing lacks a price.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Returns true if all of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns both sets together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
