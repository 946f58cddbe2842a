//! The figures of the exchanges that are being stored, by operation and target: the source of the metrics and of
//! the last answers of targets.
//!
//! A record is counted by the places of its names in the block, as the sums of hours are: names are looked up and compared
//! once for each group of a transaction, not for each record.

#![expect(clippy::indexing_slicing, reason = "the index was found or is that of the element that was added")]

use std::collections::HashMap;

use records::block::{BlockNames, LostAt, Pushed};
use records::{Record, RecordName, Trace};
use shared::usage::{Outcome, Provenance, TokenCounts};

use super::metrics::{Distribution, Figure};
use super::requests::attempts::AttemptSummary;

/// The groups of the exchanges that were added to a block since the groups were last emptied.
#[derive(Debug, Default)]
pub(super) struct TargetGroups {
    /// In the order in which they were first seen, so that the first names are counted by themselves if there are too
    /// many.
    groups: Vec<(TargetGroup, GroupFigures)>,
    indexes: HashMap<TargetGroup, usize>,
    /// The index of the last group: the next exchange is usually of the same one.
    last: usize,
}

/// The key of a group: places of names in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TargetGroup {
    pub(super) operation: u32,
    pub(super) provider: u32,
    pub(super) model: u32,
}

/// The figures of a group. Its exchanges are those that the target served, or was the last one to be tried for.
#[derive(Debug, Default)]
pub(super) struct GroupFigures {
    /// The durations of the exchanges by result.
    pub(super) ends: Vec<(GroupEnd, Distribution)>,
    /// The times to the first content of streams.
    pub(super) first_content: Distribution,
    pub(super) per_output_token: Distribution,
    /// The gaps of streams that had content.
    pub(super) stream_gaps: Distribution,
    pub(super) overhead: Distribution,
    pub(super) input_tokens: Distribution,
    pub(super) output_tokens: Distribution,
    /// The known costs of the exchanges, and of failed attempts at this target.
    pub(super) cost: Distribution,
    /// The same without a known cost.
    pub(super) unpriced: u64,
    /// The tokens of both.
    pub(super) tokens: TokenCounts,
    pub(super) failovers: u64,
    /// The end of the last exchange with content, in milliseconds since the Unix epoch; 0 if there was none.
    pub(super) answered_at_ms: u64,
    /// The steps at this target by the place of their result.
    pub(super) results: Vec<(u32, u64)>,
}

/// The result of an exchange: the places of two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupEnd {
    outcome: u32,
    error: u32,
}

impl TargetGroups {
    /// Adds an exchange. One that claims to end later than `now_ms` ended now.
    pub(super) fn add(&mut self, record: &Record<'_>, trace: Trace<'_>, pushed: &Pushed<'_>, now_ms: u64) {
        let ended_ms = record.started_at_ms.saturating_add(record.duration_us / 1_000).min(now_ms);
        let group = TargetGroup {
            operation: pushed.place(RecordName::Operation),
            provider: pushed.place(RecordName::Provider),
            model: pushed.place(RecordName::Model),
        };
        let end =
            GroupEnd { outcome: pushed.place(RecordName::Outcome), error: pushed.place(RecordName::Error) };
        let figures = self.figures(group);
        figures.add(record, end);
        if record.first_content_us.is_some() {
            figures.answered_at_ms = figures.answered_at_ms.max(ended_ms);
        }
        figures.failovers += u64::from(has_failed_over(record, trace, pushed));
        for step in pushed.steps {
            let at_target = TargetGroup { provider: step.provider, model: step.model, ..group };
            *value_of(&mut self.figures(at_target).results, step.result) += 1;
        }
        for LostAt { step, lost } in &pushed.lost {
            let at_target = TargetGroup { provider: step.provider, model: step.model, ..group };
            self.figures(at_target).bill(&lost.tokens, lost.cost_nano_usd);
        }
    }

    /// Passes the groups to `take`, and removes them.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&TargetGroup, &GroupFigures)) {
        self.groups.iter().for_each(|(group, figures)| take(group, figures));
        self.clear();
    }

    /// Removes the groups.
    fn clear(&mut self) {
        self.groups.clear();
        self.indexes.clear();
    }

    fn figures(&mut self, group: TargetGroup) -> &mut GroupFigures {
        let next = self.groups.len();
        if self.groups.get(self.last).is_none_or(|(last, _)| *last != group) {
            self.last = *self.indexes.entry(group).or_insert(next);
            if self.last == next {
                self.groups.push((group, GroupFigures::default()));
            }
        }
        &mut self.groups[self.last].1
    }
}

impl GroupFigures {
    fn add(&mut self, record: &Record<'_>, end: GroupEnd) {
        value_of(&mut self.ends, end).observe(Figure::Duration.bounds(), record.duration_us);
        if let Some(us) = record.gateway_us {
            self.overhead.observe(Figure::Overhead.bounds(), us);
        }
        if record.stream {
            self.add_stream(record);
        }
        if record.name(RecordName::Provenance) != Provenance::None.name() {
            self.input_tokens.observe(Figure::Tokens.bounds(), record.tokens.input_total());
            self.output_tokens.observe(Figure::Tokens.bounds(), record.tokens.output_total());
            self.bill(&record.tokens, record.cost_nano_usd);
        }
    }

    /// Adds the times of a stream that had content.
    fn add_stream(&mut self, record: &Record<'_>) {
        let Some(first_us) = record.first_content_us else { return };
        self.first_content.observe(Figure::FirstContent.bounds(), first_us);
        if !record.gaps.is_empty() {
            self.stream_gaps.add_gaps(&record.gaps);
        }
        let further = record.tokens.output_total().saturating_sub(1);
        let rest_us = record.duration_us.saturating_sub(first_us);
        let is_complete = record.name(RecordName::Outcome) == Outcome::Completed.name();
        if let Some(us) = rest_us.checked_div(further).filter(|_| is_complete) {
            self.per_output_token.observe(Figure::PerOutputToken.bounds(), us);
        }
    }

    /// Adds what an attempt used.
    fn bill(&mut self, tokens: &TokenCounts, cost_nano_usd: Option<u64>) {
        match cost_nano_usd {
            Some(nano) => self.cost.observe(Figure::Cost.bounds(), nano),
            None => self.unpriced += 1,
        }
        self.tokens = self.tokens.plus(tokens);
    }
}

impl GroupEnd {
    /// Returns the kind of the error, or the outcome of an exchange that was not completed; empty for a complete answer.
    pub(super) fn name(self, names: &BlockNames) -> &str {
        let outcome = Some(names.get(self.outcome)).filter(|name| *name != Outcome::Completed.name());
        let error = Some(names.get(self.error)).filter(|name| !name.is_empty());
        error.or(outcome).unwrap_or("")
    }
}

/// True for a failover. The trace of an interrupted exchange lacks the attempt that was in progress.
fn has_failed_over(record: &Record<'_>, trace: Trace<'_>, pushed: &Pushed<'_>) -> bool {
    pushed.steps.len() > 1
        && record.name(RecordName::Outcome) != Outcome::Interrupted.name()
        && AttemptSummary::has_failed_over(trace)
}

/// Returns the value of a key in a short list.
fn value_of<K: PartialEq, V: Default>(list: &mut Vec<(K, V)>, key: K) -> &mut V {
    let place = list.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        list.push((key, V::default()));
        list.len() - 1
    });
    &mut list[place].1
}
