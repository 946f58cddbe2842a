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
    pub(crate) fn observe(&mut self, bounds: &[u64], value: u64) {
        self.counts.resize(bounds.len() + 1, 0);
        let bucket = bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(value);
    }

    /// Adds the gaps of a stream.
    pub(crate) fn add_gaps(&mut self, gaps: &Gaps) {
        self.counts.resize(Gaps::BUCKETS, 0);
        self.counts.iter_mut().zip(gaps.counts).for_each(|(mine, count)| *mine += u64::from(count));
        self.sum = self.sum.saturating_add(gaps.sum_us);
    }

    /// Adds all values of another distribution of the same figure.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.resize(other.counts.len().max(self.counts.len()), 0);
        self.counts
            .iter_mut()
            .zip(&other.counts)
            .for_each(|(mine, theirs)| *mine = mine.saturating_add(*theirs));
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// True if there is no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns the number of values.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().copied().fold(0, u64::saturating_add)
    }

    /// Estimates the value that `percent` percent of the values do not exceed, evenly within its bucket; `None` if there
    /// are no values. Beyond all bounds it is the last bound.
    pub(crate) fn percentile(&self, bounds: &[u64], percent: u64) -> Option<u64> {
        let rank = self.count().saturating_mul(percent).div_ceil(100).max(1);
        let mut before = 0_u64;
        for (bucket, count) in self.counts.iter().copied().enumerate() {
            if rank > before.saturating_add(count) {
                before = before.saturating_add(count);
                continue;
            }
            let lower = bucket.checked_sub(1).and_then(|last| bounds.get(last)).copied().unwrap_or(0);
            let Some(upper) = bounds.get(bucket) else { return Some(lower) };
            let part =
                u128::from(upper.saturating_sub(lower)) * u128::from(rank - before) / u128::from(count);
            return Some(lower.saturating_add(u64::try_from(part).unwrap_or(u64::MAX)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_estimated_within_its_bucket() {
        let bounds = [10, 20, 40];
        let of = |values: &[u64]| {
            let mut distribution = Distribution::default();
            values.iter().for_each(|value| distribution.observe(&bounds, *value));
            [50, 90, 99].map(|percent| distribution.percentile(&bounds, percent))
        };
        assert_eq!(of(&[]), [None; 3]);
        assert_eq!(of(&[15]), [Some(20); 3]);
        assert_eq!(of(&[1, 2, 3, 4]), [Some(5), Some(10), Some(10)]);
        assert_eq!(of(&[5, 30, 30, 30, 30, 30, 30, 30, 30, 99]), [Some(30), Some(40), Some(40)]);
    }
}
