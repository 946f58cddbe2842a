//! What is measured at one target in a period, beside the figures of a chart.
//!
//! The bounds of the buckets are part of the packed form: a change of them needs another `FORMAT` (`tally.rs`).

use records::varint::{put, put_text, take, take_text};
use records::{Record, RecordName};
use shared::usage::{Outcome, StepResult};

use crate::usage::metrics::{Distribution, Figure, Variants};

/// The sums of a target.
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
    /// Adds an exchange that this target served, or was the last one to be tried for.
    pub(super) fn add_exchange(&mut self, record: &Record<'_>) {
        self.requests = self.requests.saturating_add(1);
        let outcome =
            Some(record.name(RecordName::Outcome)).filter(|name| *name != Outcome::Completed.name());
        if let Some(name) = record.name_if_any(RecordName::Error).or(outcome) {
            self.errors.count(name, 1);
        }
        self.silence_us_max = self.silence_us_max.max(record.silence_us_max.unwrap_or(0));
        let [head, first_content, gap, gateway] = &mut self.times;
        if let Some(us) = record.head_us {
            head.observe(TargetTime::Head.bounds_us(), us);
        }
        if let Some(us) = record.first_content_us.filter(|_| record.stream) {
            first_content.observe(TargetTime::FirstContent.bounds_us(), us);
        }
        if !record.gaps.is_empty() {
            gap.add_gaps(&record.gaps);
        }
        if let Some(us) = record.gateway_us {
            gateway.observe(TargetTime::Gateway.bounds_us(), us);
        }
    }

    /// Adds the result of an attempt at this target, or the reason for skipping it.
    pub(super) fn add_result(&mut self, result: &str) {
        self.results.count(result, 1);
    }

    /// Adds other sums.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.silence_us_max = self.silence_us_max.max(other.silence_us_max);
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

    /// Appends the packed form.
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        [self.requests, self.silence_us_max].into_iter().for_each(|number| put(out, number));
        self.errors.pack(out);
        self.results.pack(out);
        self.times.iter().for_each(|distribution| distribution.pack(out));
    }

    /// Takes packed sums off the front; `None` if they are malformed.
    pub(super) fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let mut sums = Self { requests: take(bytes)?, silence_us_max: take(bytes)?, ..Self::default() };
        sums.errors = NameCounts::unpack(bytes)?;
        sums.results = NameCounts::unpack(bytes)?;
        for distribution in &mut sums.times {
            *distribution = Distribution::unpack(bytes)?;
        }
        Some(sums)
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
