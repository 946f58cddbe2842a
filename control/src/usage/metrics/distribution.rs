//! The distribution of a figure: counts by bucket, and the sum. The one histogram of the gateway: for exporters, which
//! prescribe the buckets, and for percentiles of charts, with fine buckets.
//!
//! It holds only the buckets that have values: a chart keeps two distributions for each point of each group, most of which
//! see few values.

use std::cmp::Ordering;

use records::varint::{put, take};
use shared::usage::Gaps;

/// The buckets of a distribution.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    /// Their upper bounds. One more has the values beyond all bounds.
    Bounds(&'static [u64]),
    /// Exact below 64; above, 32 buckets divide each power of two, so that a value differs from the middle of its bucket by
    /// less than 1.6 %.
    Fine,
}

/// The distribution of a figure, in the figure's own unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// Numbers and counts of the buckets that have values, in the order of their numbers.
    buckets: Vec<(u16, u64)>,
    /// The sum of all values.
    pub(crate) sum: u64,
}

impl From<&'static [u64]> for Scale {
    fn from(bounds: &'static [u64]) -> Self {
        Self::Bounds(bounds)
    }
}

impl Scale {
    /// Returns the number of the bucket of a value: the first one whose bound it does not exceed.
    fn bucket(self, value: u64) -> u16 {
        let bucket = match self {
            Self::Bounds(bounds) => bounds.partition_point(|bound| *bound < value),
            Self::Fine => return fine_bucket(value),
        };
        u16::try_from(bucket).unwrap_or(u16::MAX)
    }

    /// Estimates a value of a bucket after `rank` of its `count` values: evenly between its bounds, or its middle. Beyond all
    /// bounds it is the last bound.
    fn value(self, bucket: u16, rank: u64, count: u64) -> u64 {
        let Self::Bounds(bounds) = self else { return fine_middle(bucket) };
        let bucket = usize::from(bucket);
        let lower = bucket.checked_sub(1).and_then(|last| bounds.get(last)).copied().unwrap_or(0);
        let Some(upper) = bounds.get(bucket) else { return lower };
        let part = u128::from(upper.saturating_sub(lower)) * u128::from(rank) / u128::from(count.max(1));
        lower.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

impl Distribution {
    /// Adds a value.
    pub(crate) fn observe(&mut self, scale: impl Into<Scale>, value: u64) {
        self.add(scale.into().bucket(value), 1);
        self.sum = self.sum.saturating_add(value);
    }

    /// Adds the gaps of a stream.
    pub(crate) fn add_gaps(&mut self, gaps: &Gaps) {
        for (bucket, count) in (0..).zip(gaps.counts).filter(|(_, count)| *count > 0) {
            self.add(bucket, count.into());
        }
        self.sum = self.sum.saturating_add(gaps.sum_us);
    }

    fn add(&mut self, bucket: u16, count: u64) {
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(place) => {
                if let Some((_, known)) = self.buckets.get_mut(place) {
                    *known = known.saturating_add(count);
                }
            }
            Err(place) => self.buckets.insert(place, (bucket, count)),
        }
    }

    /// Adds all values of another distribution of the same scale.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else if let [(bucket, count)] = other.buckets.as_slice() {
            self.add(*bucket, *count);
        } else if !other.buckets.is_empty() {
            self.buckets = merged(&self.buckets, &other.buckets);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// True if there is no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Returns the number of values.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| *count).fold(0, u64::saturating_add)
    }

    /// Returns the counts of all buckets with these bounds, the last one of values beyond all bounds; empty if there is no
    /// value.
    pub(crate) fn counts(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = if self.is_empty() { Vec::new() } else { vec![0; bounds.len() + 1] };
        for (bucket, count) in &self.buckets {
            if let Some(place) = counts.get_mut(usize::from(*bucket)) {
                *place = *count;
            }
        }
        counts
    }

    /// Estimates the smallest value that at least `percent` percent of the values do not exceed; `None` if there are none.
    pub(crate) fn percentile(&self, scale: impl Into<Scale>, percent: u64) -> Option<u64> {
        let rank = self.count().saturating_mul(percent).div_ceil(100).max(1);
        let mut before = 0_u64;
        for (bucket, count) in &self.buckets {
            if rank <= before.saturating_add(*count) {
                return Some(scale.into().value(*bucket, rank - before, *count));
            }
            before = before.saturating_add(*count);
        }
        None
    }

    /// Appends the packed form: the sum, the number of buckets, and for each the distance of its number from the previous
    /// one, and its count.
    pub(crate) fn pack(&self, out: &mut Vec<u8>) {
        put(out, self.sum);
        put(out, u64::try_from(self.buckets.len()).unwrap_or(u64::MAX));
        let mut last = 0;
        for (bucket, count) in &self.buckets {
            put(out, u64::from(bucket - last));
            put(out, *count);
            last = *bucket;
        }
    }

    /// Takes a packed distribution off the front; `None` if it is malformed.
    pub(crate) fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let (sum, length) = (take(bytes)?, usize::try_from(take(bytes)?).ok()?);
        // Each bucket takes two bytes at least.
        let mut buckets = Vec::with_capacity(length.min(bytes.len() / 2));
        let mut last = 0_u16;
        for place in 0..length {
            let distance = u16::try_from(take(bytes)?).ok()?;
            if place > 0 && distance == 0 {
                return None;
            }
            last = last.checked_add(distance)?;
            buckets.push((last, take(bytes)?));
        }
        Some(Self { buckets, sum })
    }
}

/// Returns the sums of the counts of two lists of buckets, both in order.
fn merged(mine: &[(u16, u64)], theirs: &[(u16, u64)]) -> Vec<(u16, u64)> {
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

/// Returns the number of the fine bucket of a value.
fn fine_bucket(value: u64) -> u16 {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(DIGITS + 1);
    let bucket = (u64::from(shift) << DIGITS) + (value >> shift);
    u16::try_from(bucket).unwrap_or(u16::MAX)
}

/// Returns the value in the middle of a fine bucket.
fn fine_middle(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    let Some(shift) = (bucket >> DIGITS).checked_sub(1) else { return bucket };
    let leading = bucket - (shift << DIGITS);
    (leading << shift) + ((1 << shift) >> 1)
}

/// The binary digits of a value, after its leading one, that determine its fine bucket.
const DIGITS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_estimated_within_its_bucket() {
        let bounds: &'static [u64] = &[10, 20, 40];
        let of = |values: &[u64]| {
            let mut distribution = Distribution::default();
            values.iter().for_each(|value| distribution.observe(bounds, *value));
            [50, 90, 99].map(|percent| distribution.percentile(bounds, percent))
        };
        assert_eq!(of(&[]), [None; 3]);
        assert_eq!(of(&[15]), [Some(20); 3]);
        assert_eq!(of(&[1, 2, 3, 4]), [Some(5), Some(10), Some(10)]);
        assert_eq!(of(&[5, 30, 30, 30, 30, 30, 30, 30, 30, 99]), [Some(30), Some(40), Some(40)]);
    }

    #[test]
    fn a_value_is_near_the_middle_of_its_fine_bucket() {
        let large =
            (10..64).flat_map(|bit| (0..8).map(move |part| (1_u64 << bit) + (1_u64 << bit) / 9 * part));
        let mut last = 0;
        for value in (0..1_000).chain(large.filter(|value| *value >= 1_000)) {
            let near = fine_middle(fine_bucket(value));
            assert!(near.abs_diff(value) <= value / 63, "{value} is counted as {near}");
            assert!(value < 64 || fine_bucket(value) > 63, "{value}");
            if value < 1_000 {
                assert!([last, last + 1].contains(&fine_bucket(value)), "{value}: no bucket is left out");
                last = fine_bucket(value);
            }
        }
        assert!(u64::MAX - fine_middle(fine_bucket(u64::MAX)) <= u64::MAX / 63);
    }

    #[test]
    fn fine_percentiles_match_the_recorded_values() {
        let percentile = |of: &Distribution, percent| of.percentile(Scale::Fine, percent);
        let mut one = Distribution::default();
        assert_eq!((percentile(&one, 50), percentile(&one, 99)), (None, None));
        one.observe(Scale::Fine, 0);
        assert_eq!((percentile(&one, 50), percentile(&one, 99)), (Some(0), Some(0)));
        let mut sixty = Distribution::default();
        (1..=60).rev().for_each(|value| sixty.observe(Scale::Fine, value));
        for (percent, want) in [(0, 1), (1, 1), (50, 30), (99, 60), (100, 60)] {
            assert_eq!(percentile(&sixty, percent), Some(want), "{percent}");
        }
        let mut both = sixty.clone();
        both.merge(&sixty);
        both.merge(&one);
        assert_eq!((both.count(), percentile(&both, 50), percentile(&both, 99)), (121, Some(30), Some(60)));
        let mut slow = Distribution::default();
        (0..1_000_u64).for_each(|n| slow.observe(Scale::Fine, n * 10_000));
        let p99 = percentile(&slow, 99).unwrap();
        assert!(p99.abs_diff(9_890_000) < 9_890_000 / 63, "{p99}");
    }

    #[test]
    fn a_distribution_is_packed_without_loss() {
        let mut some = Distribution::default();
        [0, 1, 63, 64, 5_000, u64::MAX / 4].into_iter().for_each(|value| some.observe(Scale::Fine, value));
        for distribution in [Distribution::default(), some] {
            let mut packed = Vec::new();
            distribution.pack(&mut packed);
            assert_eq!(Distribution::unpack(&mut packed.as_slice()), Some(distribution.clone()));
            packed.pop();
            assert_eq!(Distribution::unpack(&mut packed.as_slice()), None);
        }
    }
}
