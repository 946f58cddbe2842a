//! The sums of one target in one minute, and their packed form in `telemetry.db`:
//!
//! ```text
//! FORMAT requests silence_us_max | errors | results | one distribution for each of TargetTime::ALL
//! names:        count, then for each: text, count
//! distribution: sum, number of buckets that have values, then for each: its place, its count
//! ```
//!
//! All numbers are varints. The bounds of the buckets are part of the format: a change of them needs another [`FORMAT`].

use records::block::BlockNames;
use records::varint::{put, put_text, take, take_text};
use shared::usage::StepResult;

use crate::usage::metrics::{Distribution, Figure, Variants};
use crate::usage::target_groups::GroupFigures;

/// The figures of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetSums {
    /// The exchanges that this target served, or was the last one to be tried for.
    pub(crate) requests: u64,
    /// The longest time without a piece of an answer; 0 if there was none.
    pub(crate) silence_us_max: u64,
    /// Those of the exchanges that were not completed, by kind of error, or by outcome if they have none.
    pub(crate) errors: NameCounts,
    /// Attempts at this target by result, and reasons for skipping it, also of exchanges that another target served.
    pub(crate) results: NameCounts,
    /// The time at which the last exchange with an answer of this target ended, in milliseconds since the Unix epoch; 0 if
    /// there was none, and in unpacked sums.
    pub(crate) answered_at_ms: u64,
    /// The distribution of each [`TargetTime`].
    times: [Distribution; TargetTime::ALL.len()],
}

/// A time of which the distribution is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetTime {
    /// From the request to the head of the upstream's answer.
    Head,
    /// From the request to the first content of a stream.
    FirstContent,
    /// Between two pieces of a stream.
    Gap,
    /// The gateway's own time.
    Gateway,
}

/// Counts by name.
pub(crate) type NameCounts = Variants<u64>;

impl TargetTime {
    /// Every time, in the order of the packed form.
    pub(crate) const ALL: [Self; 4] = [Self::Head, Self::FirstContent, Self::Gap, Self::Gateway];

    /// Returns the upper bounds of the buckets in microseconds: those of the metrics.
    pub(crate) fn bounds_us(self) -> &'static [u64] {
        let figure = match self {
            Self::Head | Self::FirstContent => Figure::FirstContent,
            Self::Gap => Figure::Gap,
            Self::Gateway => Figure::Overhead,
        };
        figure.bounds()
    }
}

impl TargetSums {
    /// Adds a group of exchanges.
    pub(super) fn add_group(&mut self, figures: &GroupFigures, names: &BlockNames) {
        for (end, durations) in &figures.ends {
            let (name, requests) = (end.name(names), durations.count());
            self.requests = self.requests.saturating_add(requests);
            if !name.is_empty() {
                self.errors.count(name, requests);
            }
        }
        for (result, number) in &figures.results {
            self.results.count(names.get(*result), *number);
        }
        self.silence_us_max = self.silence_us_max.max(figures.silence_us_max);
        self.answered_at_ms = self.answered_at_ms.max(figures.answered_at_ms);
        let times = [&figures.head, &figures.first_content, &figures.gaps, &figures.overhead];
        self.times.iter_mut().zip(times).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// Adds other sums.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.silence_us_max = self.silence_us_max.max(other.silence_us_max);
        self.answered_at_ms = self.answered_at_ms.max(other.answered_at_ms);
        self.errors.merge(&other.errors);
        self.results.merge(&other.results);
        self.times.iter_mut().zip(&other.times).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// True if the target began an answer.
    pub(crate) fn has_answered(&self) -> bool {
        self.results.iter().any(|(name, count)| name == StepResult::Served.name() && *count > 0)
    }

    /// Returns the distribution of a time.
    pub(crate) fn time(&self, time: TargetTime) -> &Distribution {
        let [head, first_content, gap, gateway] = &self.times;
        match time {
            TargetTime::Head => head,
            TargetTime::FirstContent => first_content,
            TargetTime::Gap => gap,
            TargetTime::Gateway => gateway,
        }
    }

    /// Returns the packed form.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        [FORMAT, self.requests, self.silence_us_max].into_iter().for_each(|number| put(&mut out, number));
        self.errors.pack(&mut out);
        self.results.pack(&mut out);
        for distribution in &self.times {
            let filled = || (0_u64..).zip(&distribution.counts).filter(|(_, count)| **count > 0);
            put(&mut out, distribution.sum);
            put(&mut out, u64::try_from(filled().count()).unwrap_or(u64::MAX));
            for (place, count) in filled() {
                put(&mut out, place);
                put(&mut out, *count);
            }
        }
        out
    }

    /// Returns packed sums; `None` if they are malformed or of another release's format.
    pub(crate) fn unpack(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        if take(bytes)? != FORMAT {
            return None;
        }
        let mut sums = Self { requests: take(bytes)?, silence_us_max: take(bytes)?, ..Self::default() };
        sums.errors = NameCounts::unpack(bytes)?;
        sums.results = NameCounts::unpack(bytes)?;
        for (time, distribution) in TargetTime::ALL.into_iter().zip(&mut sums.times) {
            distribution.sum = take(bytes)?;
            for _ in 0..take(bytes)? {
                let place = usize::try_from(take(bytes)?).ok()?;
                distribution.counts.resize(time.bounds_us().len() + 1, 0);
                *distribution.counts.get_mut(place)? = take(bytes)?;
            }
        }
        bytes.is_empty().then_some(sums)
    }
}

impl NameCounts {
    /// Adds a number to the count of a name.
    pub(crate) fn count(&mut self, name: &str, number: u64) {
        self.update(name, |count| *count = count.saturating_add(number));
    }

    /// Returns the sum of all counts.
    pub(crate) fn sum(&self) -> u64 {
        self.iter().map(|(_, count)| *count).fold(0, u64::saturating_add)
    }

    fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(name, count)| self.count(name, *count));
    }

    fn pack(&self, out: &mut Vec<u8>) {
        put(out, u64::try_from(self.iter().count()).unwrap_or(u64::MAX));
        for (name, count) in self.iter() {
            put_text(out, name);
            put(out, *count);
        }
    }

    fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let mut counts = Self::default();
        for _ in 0..take(bytes)? {
            let name = take_text(bytes)?;
            counts.count(name, take(bytes)?);
        }
        Some(counts)
    }
}

/// The version of the packed form.
const FORMAT: u64 = 1;
