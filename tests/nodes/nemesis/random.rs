//! Numbers that depend on a seed alone.

use std::time::Duration;

/// A sequence of numbers (splitmix64).
#[derive(Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Returns the sequence of a part of a round.
    pub(super) fn part(&mut self) -> Self {
        Self(self.next())
    }

    /// Returns a number from `least` to below `end`.
    pub(super) fn between(&mut self, least: u64, end: u64) -> u64 {
        least + self.next() % (end - least)
    }

    /// Waits for a number of milliseconds from `least` to below `end`.
    pub(super) async fn pause_ms(&mut self, least: u64, end: u64) {
        tokio::time::sleep(Duration::from_millis(self.between(least, end))).await;
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
