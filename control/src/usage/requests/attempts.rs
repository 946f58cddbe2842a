//! The attempts of an exchange, as its trace shows them.

use records::{Record, RecordName, RecordStep, Trace};
use serde::Serialize;
use shared::id::CredentialNumber;
use shared::usage::{Outcome, StepResult};

/// The attempts of an exchange in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AttemptSummary {
    /// The number of attempts, including retries.
    pub(crate) attempts: u64,
    /// The number of targets that were skipped, whatever the reason.
    pub(crate) passed_over: u64,
    /// True if another target was tried, or skipped because of an open circuit, a rest or a used-up quota, before the
    /// target that was tried last.
    pub(crate) failed_over: bool,
    /// The results of the last steps of the trace, at most 16, in order.
    pub(crate) results: Vec<String>,
}

impl AttemptSummary {
    /// Returns the attempts of an exchange; `None` if the process ended before the exchange did, because the record then
    /// lacks the attempt that was in progress.
    pub(crate) fn of_exchange(record: &Record<'_>, trace: Trace<'_>) -> Option<Self> {
        let is_whole = record.name(RecordName::Outcome) != Outcome::Interrupted.name();
        is_whole.then(|| Self::of(trace))
    }

    /// Returns `failed_over` alone.
    pub(crate) fn has_failed_over(trace: Trace<'_>) -> bool {
        Self::counted(trace).failed_over
    }

    /// Returns the counts, without the results.
    fn counted(trace: Trace<'_>) -> Self {
        let mut summary = Self::default();
        let mut failover = Failover::default();
        for step in trace {
            if failover.take(&step) {
                summary.attempts += 1;
            } else if step.result != StepResult::Waited.name() {
                summary.passed_over += 1;
            }
        }
        Self { failed_over: failover.failed_over, ..summary }
    }

    fn of(trace: Trace<'_>) -> Self {
        let mut summary = Self::counted(trace);
        let before = { trace }.count().saturating_sub(RESULTS_MAX);
        summary.results = trace.skip(before).map(|step| step.result.to_owned()).collect();
        summary
    }
}

/// Conditions on the attempts of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttemptFilter {
    /// The value of [`AttemptSummary::failed_over`].
    pub(crate) failed_over: Option<bool>,
    /// A provider instance that was tried.
    pub(crate) attempted: Option<String>,
    /// One of several keys with which a provider was tried: the one of `attempted` if that is given.
    pub(crate) credential: Option<CredentialNumber>,
    /// The result of a step.
    pub(crate) result: Option<StepResult>,
}

impl AttemptFilter {
    pub(super) fn fits(&self, record: &Record<'_>, mut trace: Trace<'_>) -> bool {
        let is_interrupted = || record.name(RecordName::Outcome) == Outcome::Interrupted.name();
        let has_failed_over = || !is_interrupted() && AttemptSummary::has_failed_over(trace);
        let at_provider = |step: &RecordStep<'_>| {
            self.attempted.as_deref().is_none_or(|provider| step.provider == provider)
        };
        let with_key = |step: &RecordStep<'_>| {
            self.credential.is_none_or(|wanted| step.credential == Some(u64::from(wanted.0)))
        };
        let is_about_one = self.attempted.is_some() || self.credential.is_some();
        let has_tried = || { trace }.any(|step| at_provider(&step) && with_key(&step) && was_tried(&step));
        self.failed_over.is_none_or(|wanted| wanted == has_failed_over())
            && (!is_about_one || has_tried())
            && self.result.is_none_or(|result| trace.any(|step| step.result == result.name()))
    }

    /// Returns names that a block contains if one of its exchanges fits.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.attempted.as_deref().into_iter().chain(self.result.map(StepResult::name))
    }
}

/// Returns the time for which an exchange waited in lines of quotas, in microseconds; `None` if it did not.
pub(crate) fn queue_us(trace: Trace<'_>) -> Option<u64> {
    let waits = trace.filter(|step| step.result == StepResult::Waited.name());
    waits.fold(None, |sum, step| Some(sum.unwrap_or(0_u64).saturating_add(step.spent_us.unwrap_or(0))))
}

/// True if the target of a step was tried. Results of later releases count as attempts.
pub(crate) fn was_tried(step: &RecordStep<'_>) -> bool {
    StepResult::named(step.result).is_none_or(StepResult::is_attempt)
}

/// Finds [`AttemptSummary::failed_over`] while the steps of a trace are read.
#[derive(Debug, Default)]
pub(crate) struct Failover<'a> {
    last_tried: Option<(&'a str, &'a str)>,
    gave_way: bool,
    pub(crate) failed_over: bool,
}

impl<'a> Failover<'a> {
    /// Takes the next step. Returns true if the target was tried, and false if it was skipped.
    pub(crate) fn take(&mut self, step: &RecordStep<'a>) -> bool {
        let was_tried = was_tried(step);
        if was_tried {
            let target = (step.provider, step.model);
            self.failed_over |= self.gave_way || self.last_tried.is_some_and(|last| last != target);
            self.last_tried = Some(target);
        } else {
            self.gave_way |= GIVES_WAY.into_iter().any(|result| result.name() == step.result);
        }
        was_tried
    }
}

/// Returns the number of each attempt among those at its target, from 1; `None` for skipped targets.
pub(super) fn numbers(trace: Trace<'_>) -> impl Iterator<Item = Option<u32>> {
    let mut known: Vec<((&str, &str), u32)> = Vec::new();
    trace.map(move |step| {
        if !was_tried(&step) {
            return None;
        }
        let target = (step.provider, step.model);
        if let Some((_, count)) = known.iter_mut().find(|(other, _)| *other == target) {
            *count += 1;
            return Some(*count);
        }
        known.push((target, 1));
        Some(1)
    })
}

/// The reasons for skipping a target that make the next one a failover.
const GIVES_WAY: [StepResult; 3] = [StepResult::CircuitOpen, StepResult::Resting, StepResult::OverQuota];
const RESULTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use records::{Texts, varint};

    use super::*;

    /// Packs a trace of (provider, result).
    fn packed(steps: &[(&str, &str)]) -> Vec<u8> {
        let text = |out: &mut Vec<u8>, _, text: &str| varint::put_text(out, text);
        let mut bytes = Vec::new();
        Record::default().put(&mut bytes, text);
        for (provider, result) in steps {
            RecordStep { provider, model: "m", result, ..RecordStep::default() }.put(&mut bytes, text);
        }
        bytes
    }

    #[test]
    fn attempts_are_counted_and_only_another_target_is_a_failover() {
        for (steps, attempts, passed_over, failed_over) in [
            (&[("a", "served")][..], 1, 0, false),
            (&[("a", "status"), ("a", "served")], 2, 0, false),
            (&[("a", "status"), ("b", "served")], 2, 0, true),
            (&[("a", "circuit_open"), ("b", "served")], 1, 1, true),
            (&[("a", "resting"), ("b", "served")], 1, 1, true),
            (&[("a", "over_quota"), ("b", "status")], 1, 1, true),
            (&[("b", "no_vision"), ("a", "served")], 1, 1, false),
            (&[("a", "circuit_open"), ("b", "circuit_open")], 0, 2, false),
            (&[("a", "unreachable"), ("b", "circuit_open")], 1, 1, false),
            (&[("a", "status"), ("b", "timed_out"), ("a", "served")], 3, 0, true),
            (&[("a", "from_a_later_release")], 1, 0, false),
            (&[], 0, 0, false),
        ] {
            let bytes = packed(steps);
            let trace = Record::take(&bytes, Texts::Inline).unwrap().1;
            let results = steps.iter().map(|(_, result)| (*result).to_owned()).collect();
            let want = AttemptSummary { attempts, passed_over, failed_over, results };
            assert_eq!(AttemptSummary::of(trace), want);
        }
    }

    #[test]
    fn attempt_results_are_limited_to_the_last_steps() {
        let steps = [&[("a", "status"); 4][..], &[("b", "timed_out"); 15], &[("c", "served")]].concat();
        let bytes = packed(&steps);
        let trace = Record::take(&bytes, Texts::Inline).unwrap().1;
        let summary = AttemptSummary::of(trace);
        assert_eq!((summary.attempts, summary.results.len()), (20, RESULTS_MAX));
        assert_eq!(summary.results.last().unwrap(), "served");
        let attempts: Vec<_> = numbers(trace).collect();
        assert_eq!((attempts[3], attempts[4], attempts[19]), (Some(4), Some(1), Some(1)));
    }
}
