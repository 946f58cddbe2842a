//! The figures of the exchanges of a period. Outcomes count what clients noticed; attempts count what upstreams did.

use records::{Record, RecordName, RecordStep, Trace, rare_fields};
use shared::usage::Lost;

use crate::usage::metrics::{Distribution, Scale};
use crate::usage::requests::attempts::{AttemptSummary, was_tried};
use crate::usage::requests::exchange_end::{ExchangeEnd, is_fault_of_client};
use crate::usage::sums::UsageSums;
use records::varint::{put, take};

/// The figures of a set of exchanges. `requests` is the sum of `completed`, `failed`, `cut`, `cancelled` and `refused`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeriodFigures {
    pub(crate) requests: u64,
    pub(crate) completed: u64,
    /// The completed exchanges after a failover, as [`AttemptSummary::failed_over`] defines it.
    pub(crate) failed_over: u64,
    /// Exchanges that failed for no fault of the client.
    pub(crate) failed: u64,
    /// Exchanges whose answer broke off after output had started.
    pub(crate) cut: u64,
    /// Exchanges that the client left.
    pub(crate) cancelled: u64,
    /// Exchanges that failed because of the request or because of a limit of the caller.
    pub(crate) refused: u64,
    /// The targets that were tried, each as often as it was.
    pub(crate) attempts: u64,
    /// The attempts that failed for no fault of the client.
    pub(crate) attempt_failures: u64,
    pub(crate) input: u64,
    pub(crate) cache_read: u64,
    pub(crate) output: u64,
    /// The sum of the known costs, including those of failed attempts.
    pub(crate) cost_nano_usd: u64,
    /// Attempts with unknown cost.
    pub(crate) unpriced: u64,
    /// The times to the first content.
    pub(crate) first_content: Distribution,
    /// The durations of completed exchanges.
    pub(crate) duration: Distribution,
}

impl PeriodFigures {
    /// Adds an exchange without its attempts.
    pub(crate) fn add_exchange(&mut self, record: &Record<'_>, end: ExchangeEnd, failed_over: bool) {
        self.requests += 1;
        match end {
            ExchangeEnd::Completed => {
                self.completed += 1;
                self.failed_over += u64::from(failed_over);
                self.duration.observe(Scale::Fine, record.duration_us);
            }
            ExchangeEnd::Failed => self.failed += 1,
            ExchangeEnd::Cut => self.cut += 1,
            ExchangeEnd::Cancelled => self.cancelled += 1,
            ExchangeEnd::Refused => self.refused += 1,
        }
        if let Some(us) = record.first_content_us {
            self.first_content.observe(Scale::Fine, us);
        }
        self.add_sums(&UsageSums::of(record));
    }

    /// Adds an attempt.
    pub(crate) fn add_attempt(&mut self, is_failure: bool) {
        self.attempts += 1;
        self.attempt_failures += u64::from(is_failure);
    }

    /// Adds the consumption of a failed attempt.
    pub(crate) fn add_lost(&mut self, lost: &Lost) {
        self.add_sums(&UsageSums::of_lost(lost));
    }

    /// Adds the figures of other exchanges.
    pub(crate) fn add(&mut self, other: &Self) {
        self.add_counts(other);
        self.first_content.merge(&other.first_content);
        self.duration.merge(&other.duration);
    }

    /// Adds the figures of other exchanges without their latencies.
    pub(crate) fn add_counts(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.requests, other.requests),
            (&mut self.completed, other.completed),
            (&mut self.failed_over, other.failed_over),
            (&mut self.failed, other.failed),
            (&mut self.cut, other.cut),
            (&mut self.cancelled, other.cancelled),
            (&mut self.refused, other.refused),
            (&mut self.attempts, other.attempts),
            (&mut self.attempt_failures, other.attempt_failures),
            (&mut self.input, other.input),
            (&mut self.cache_read, other.cache_read),
            (&mut self.output, other.output),
            (&mut self.cost_nano_usd, other.cost_nano_usd),
            (&mut self.unpriced, other.unpriced),
        ] {
            *mine = mine.saturating_add(theirs);
        }
    }

    /// Adds a part of an exchange.
    pub(crate) fn take(&mut self, part: &Part<'_>) {
        match part {
            Part::Exchange { record, end, failed_over } => self.add_exchange(record, *end, *failed_over),
            Part::Attempt { is_failure } => self.add_attempt(*is_failure),
            Part::Lost(lost) => self.add_lost(lost),
            Part::Sums(figures) => self.add(figures),
        }
    }

    /// Appends the packed form, without the money, which repricing changes.
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        self.counts().into_iter().for_each(|count| put(out, count));
        self.first_content.pack(out);
        self.duration.pack(out);
    }

    /// Takes packed figures off the front; `None` if they are malformed.
    pub(super) fn unpack(bytes: &mut &[u8]) -> Option<Self> {
        let mut counts = [0; 12];
        for count in &mut counts {
            *count = take(bytes)?;
        }
        let [
            requests,
            completed,
            failed_over,
            failed,
            cut,
            cancelled,
            refused,
            attempts,
            attempt_failures,
            input,
            cache_read,
            output,
        ] = counts;
        Some(Self {
            requests,
            completed,
            failed_over,
            failed,
            cut,
            cancelled,
            refused,
            attempts,
            attempt_failures,
            input,
            cache_read,
            output,
            cost_nano_usd: 0,
            unpriced: 0,
            first_content: Distribution::unpack(bytes)?,
            duration: Distribution::unpack(bytes)?,
        })
    }

    fn counts(&self) -> [u64; 12] {
        [
            self.requests,
            self.completed,
            self.failed_over,
            self.failed,
            self.cut,
            self.cancelled,
            self.refused,
            self.attempts,
            self.attempt_failures,
            self.input,
            self.cache_read,
            self.output,
        ]
    }

    fn add_sums(&mut self, sums: &UsageSums) {
        self.input = self.input.saturating_add(sums.tokens.input);
        self.cache_read = self.cache_read.saturating_add(sums.tokens.cache_read);
        self.output = self.output.saturating_add(sums.tokens.output);
        self.cost_nano_usd = self.cost_nano_usd.saturating_add(sums.cost_nano_usd);
        self.unpriced = self.unpriced.saturating_add(sums.unpriced);
    }
}

/// A part of the figures of an exchange.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    /// The exchange without its attempts.
    Exchange {
        record: &'a Record<'a>,
        end: ExchangeEnd,
        failed_over: bool,
    },
    Attempt {
        is_failure: bool,
    },
    /// The consumption of a failed attempt.
    Lost(Lost),
    /// The sums of other exchanges.
    Sums(&'a PeriodFigures),
}

impl Part<'_> {
    /// Returns the number of exchanges and attempts.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Exchange { .. } | Self::Attempt { .. } => 1,
            Self::Lost(_) => 0,
            Self::Sums(figures) => figures.requests.saturating_add(figures.attempts),
        }
    }
}

/// A provider and a model.
pub(crate) type Target<'a> = (&'a str, &'a str);

/// Returns the target that served an exchange, or was the last one to be tried for it.
pub(super) fn target_of<'a>(record: &Record<'a>) -> Target<'a> {
    (record.name(RecordName::Provider), record.name(RecordName::Model))
}

/// Passes the parts of an exchange to `each`. Those of attempts come with their own targets, the first part with that of the
/// exchange.
pub(crate) fn each_part(record: &Record<'_>, trace: Trace<'_>, mut each: impl FnMut(Target<'_>, &Part<'_>)) {
    let end = ExchangeEnd::of(record, trace);
    let failed_over = AttemptSummary::has_failed_over(trace);
    each(target_of(record), &Part::Exchange { record, end, failed_over });
    for attempt in attempts(record, trace) {
        each((attempt.provider, attempt.model), &Part::Attempt { is_failure: attempt.is_failure });
    }
    for (provider, model, lost) in lost_attempts(record, trace) {
        each((provider, model), &Part::Lost(lost));
    }
}

/// One attempt of an exchange.
pub(crate) struct Attempt<'a> {
    pub(crate) provider: &'a str,
    pub(crate) model: &'a str,
    /// True if it failed for no fault of the client. An answer that broke off is a failure.
    pub(crate) is_failure: bool,
}

/// Returns the attempts of an exchange, in order.
fn attempts<'a>(record: &Record<'_>, trace: Trace<'a>) -> impl Iterator<Item = Attempt<'a>> {
    trace.filter(was_tried).map(|step| Attempt::of(record, &step))
}

impl<'a> Attempt<'a> {
    /// Returns the attempt of a step of the trace of `record` whose target was tried.
    pub(crate) fn of(record: &Record<'_>, step: &RecordStep<'a>) -> Self {
        let &RecordStep { provider, model, result, status, .. } = step;
        let is_failure = match result {
            "served" => record.name(RecordName::Outcome) == "cut",
            "cancelled" => false,
            "status" => !status.is_some_and(is_fault_of_client),
            _ => true,
        };
        Self { provider, model, is_failure }
    }
}

/// Returns the consumption of the failed attempts of an exchange, each with its provider and model.
pub(crate) fn lost_attempts<'r, 'a: 'r>(
    record: &'r Record<'a>,
    trace: Trace<'a>,
) -> impl Iterator<Item = (&'a str, &'a str, Lost)> + 'r {
    rare_fields::lost(&record.lost).filter_map(move |(place, lost)| {
        let step = { trace }.nth(place)?;
        Some((step.provider, step.model, lost))
    })
}
