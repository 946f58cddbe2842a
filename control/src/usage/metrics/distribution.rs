//! The distribution of a figure: counts by bucket, and the sum.

use shared::usage::Gaps;

/// The distribution of a figure, in the figure's own unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// The counts by bucket, the last one of values beyond all bounds. Not cumulative. Empty if there is no value.
    pub(crate) counts: Vec<u64>,
    /// The sum of all values.
    pub(crate) sum: u64,
}

impl Distribution {
    /// Adds a value to the first bucket whose bound it does not exceed.
    pub(super) fn observe(&mut self, bounds: &[u64], value: u64) {
        self.counts.resize(bounds.len() + 1, 0);
        let bucket = bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(value);
    }

    /// Adds the gaps of a stream.
    pub(super) fn add_gaps(&mut self, gaps: &Gaps) {
        self.counts.resize(Gaps::BUCKETS, 0);
        self.counts.iter_mut().zip(gaps.counts).for_each(|(mine, count)| *mine += u64::from(count));
        self.sum = self.sum.saturating_add(gaps.sum_us);
    }

    /// Adds all values of another distribution of the same figure.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.resize(other.counts.len().max(self.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns the number of values.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
