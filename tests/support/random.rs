//! Random choices that can be reproduced from a seed.

use std::time::Duration;

/// A generator of the SplitMix64 family.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a generator for a part of the test, whose choices do not depend on how often this one is asked meanwhile.
    pub(crate) fn part(&mut self) -> Self {
        Self(self.next())
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number from `least` to below `end`.
    pub(crate) fn between(&mut self, least: u64, end: u64) -> u64 {
        least + self.below(end - least)
    }

    /// Returns true in `percent` of all cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `choices`.
    pub(crate) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()].clone()
    }

    /// Waits for a number of milliseconds from `least` to below `end`.
    pub(crate) async fn pause_ms(&mut self, least: u64, end: u64) {
        tokio::time::sleep(Duration::from_millis(self.between(least, end))).await;
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
