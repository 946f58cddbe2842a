//! The gaps between the pieces of a streamed answer, counted by length.

use serde::{Deserialize, Serialize};

/// Counts of the gaps between the pieces of a streamed answer. A piece is what one read of the upstream's connection
/// returned, which may contain several events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gaps {
    /// The counts by bucket: the first one is of gaps up to the first of [`BOUNDS_US`](Self::BOUNDS_US), the last one of
    /// gaps beyond all bounds.
    pub counts: [u32; Self::BUCKETS],
    /// The sum of all gaps in microseconds.
    pub sum_us: u64,
}

impl Gaps {
    /// The upper bounds of the buckets in microseconds. Up to 2.5 s they are those of OpenTelemetry's
    /// `gen_ai.client.operation.time_per_output_chunk`. Records contain counts by bucket, so the bounds never change.
    pub const BOUNDS_US: [u64; Self::BUCKETS - 1] = [
        10_000, 25_000, 50_000, 75_000, 100_000, 150_000, 200_000, 300_000, 400_000, 500_000, 750_000,
        1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
    ];
    /// The number of buckets.
    pub const BUCKETS: usize = 17;

    /// Counts a gap.
    pub fn add(&mut self, us: u64) {
        let bucket = Self::BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(Self::BUCKETS - 1);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// Returns true if there was no gap.
    pub fn is_empty(&self) -> bool {
        self.counts == [0; Self::BUCKETS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_counted_in_the_first_bucket_that_contains_it() {
        let mut gaps = Gaps::default();
        assert!(gaps.is_empty());
        for us in [0, 10_000, 10_001, 30_000_000, 30_000_001, 40_000_000] {
            gaps.add(us);
        }
        let mut want = [0; Gaps::BUCKETS];
        (want[0], want[1], want[15], want[16]) = (2, 1, 1, 2);
        assert_eq!((gaps.counts, gaps.sum_us), (want, 100_020_002));
        assert!(Gaps::BOUNDS_US.is_sorted());
    }
}
