//! A histogram of durations for percentiles with two significant digits. It holds only the buckets that have values: a
//! query keeps up to two histograms for each point of each group, most of which see few values.

use std::cmp::Ordering;

/// Counts of values by bucket. Buckets are exact below 128; above, 128 of them divide each power of two, so that a
/// value differs from the middle of its bucket by less than 0.4 %.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LatencyHistogram {
    /// Numbers and counts of the buckets, in the order of their numbers.
    buckets: Vec<(u16, u32)>,
    count: u64,
}

impl LatencyHistogram {
    /// Adds a value.
    pub(crate) fn add(&mut self, value: u64) {
        let wanted = bucket(value);
        match self.buckets.binary_search_by_key(&wanted, |(bucket, _)| *bucket) {
            Ok(place) => {
                if let Some((_, count)) = self.buckets.get_mut(place) {
                    *count = count.saturating_add(1);
                }
            }
            Err(place) => self.buckets.insert(place, (wanted, 1)),
        }
        self.count = self.count.saturating_add(1);
    }

    /// Adds all values of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else if !other.buckets.is_empty() {
            self.buckets = merged(&self.buckets, &other.buckets);
        }
        self.count = self.count.saturating_add(other.count);
    }

    /// Returns the number of values.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the smallest value that at least `percent` percent of the values do not exceed, or `None` if there are
    /// no values.
    pub(crate) fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = self.count.saturating_mul(percent).div_ceil(100).max(1);
        let mut counted = 0_u64;
        let found = self.buckets.iter().find(|(_, count)| {
            counted = counted.saturating_add(u64::from(*count));
            rank <= counted
        });
        found.map(|(bucket, _)| middle(*bucket))
    }
}

/// Returns the sums of the counts of two lists of buckets, both in order.
fn merged(mine: &[(u16, u32)], theirs: &[(u16, u32)]) -> Vec<(u16, u32)> {
    let mut all = Vec::with_capacity(mine.len().max(theirs.len()));
    let (mut mine, mut theirs) = (mine.iter().copied().peekable(), theirs.iter().copied().peekable());
    while let (Some(left), Some(right)) = (mine.peek(), theirs.peek()) {
        let next = match left.0.cmp(&right.0) {
            Ordering::Less => mine.next(),
            Ordering::Greater => theirs.next(),
            Ordering::Equal => {
                let sum = left.1.saturating_add(right.1);
                theirs.next();
                mine.next().map(|(bucket, _)| (bucket, sum))
            }
        };
        all.extend(next);
    }
    all.extend(mine.chain(theirs));
    all
}

/// Returns the number of the bucket of `value`.
fn bucket(value: u64) -> u16 {
    let octave = u64::from(value.checked_ilog2().unwrap_or(0));
    let Some(shift) = octave.checked_sub(u64::from(DIGITS)) else { return u16::try_from(value).unwrap_or(0) };
    // The leading bit is part of the number, so that the buckets of an octave follow those of the previous one.
    u16::try_from((shift << DIGITS) + (value >> shift)).unwrap_or(u16::MAX)
}

/// Returns the value in the middle of a bucket.
fn middle(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    let Some(shift) = (bucket >> DIGITS).checked_sub(1) else { return bucket };
    let leading = bucket - (shift << DIGITS);
    (leading << shift) + ((1 << shift) >> 1)
}

/// The binary digits of a value, after its leading one, that determine its bucket.
const DIGITS: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_near_the_middle_of_its_bucket() {
        let large =
            (12..64).flat_map(|bit| (0..8).map(move |part| (1_u64 << bit) + (1_u64 << bit) / 9 * part));
        let mut last = 0;
        for value in (0..5_000).chain(large.filter(|value| *value >= 5_000)) {
            let near = middle(bucket(value));
            assert!(near.abs_diff(value) <= value / 250, "{value} is counted as {near}");
            assert!(value < 256 || bucket(value) > 255, "{value}");
            if value < 5_000 {
                assert!(bucket(value) == last || bucket(value) == last + 1, "{value}: no bucket is left out");
                last = bucket(value);
            }
        }
        assert!(u64::MAX - middle(bucket(u64::MAX)) <= u64::MAX / 250);
    }

    #[test]
    fn percentiles_match_the_recorded_values() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!((histogram.percentile(50), histogram.percentile(99)), (None, None));
        histogram.add(0);
        assert_eq!((histogram.percentile(50), histogram.percentile(99)), (Some(0), Some(0)));
        let mut hundred = LatencyHistogram::default();
        (1..=100).rev().for_each(|value| hundred.add(value));
        for (percent, want) in [(0, 1), (1, 1), (50, 50), (99, 99), (100, 100)] {
            assert_eq!(hundred.percentile(percent), Some(want), "{percent}");
        }
        let mut both = hundred.clone();
        both.merge(&hundred);
        both.merge(&histogram);
        assert_eq!((both.count(), both.percentile(50), both.percentile(99)), (201, Some(50), Some(99)));
        let mut slow = LatencyHistogram::default();
        (0..1_000_u64).for_each(|n| slow.add(n * 10_000));
        let p99 = slow.percentile(99).unwrap();
        assert!(p99.abs_diff(9_890_000) < 9_890_000 / 250, "{p99}");
    }
}
