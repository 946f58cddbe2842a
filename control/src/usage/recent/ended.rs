//! The sums of exchanges by the time at which they ended.

use std::collections::BTreeMap;

use records::{Record, RecordName, Trace};

use super::Share;
use crate::usage::periods::{Attempt, PeriodFigures, lost_attempts};
use crate::usage::requests::attempts::Failover;
use crate::usage::requests::exchange_end::ExchangeEnd;

/// Sums by the second in which the exchanges ended.
#[derive(Debug, Default)]
pub(crate) struct EndedExchanges(BTreeMap<u64, EndedSums>);

/// The sums of the exchanges that ended in one second or in one minute.
#[derive(Debug, Default)]
pub(super) struct EndedSums {
    pub(super) all: PeriodFigures,
    /// The requests by endpoint, or by selector if it names no endpoint, without refused ones; those that failed or
    /// were cut are bad.
    pub(super) selectors: Shares,
    /// The attempts by provider.
    pub(super) providers: Shares,
}

/// Shares by name. Names beyond [`NAMES_MAX`] are counted together.
#[derive(Debug, Default)]
pub(super) struct Shares(BTreeMap<Box<str>, Share>);

impl EndedExchanges {
    /// Adds an exchange. One that claims to end later than `now_ms` ended now.
    pub(crate) fn add(&mut self, record: &Record<'_>, trace: Trace<'_>, now_ms: u64) {
        let ended_ms = record.started_at_ms.saturating_add(record.duration_us / 1_000).min(now_ms);
        self.0.entry(ended_ms / 1_000).or_default().add(record, trace);
    }

    pub(super) fn into_seconds(self) -> impl Iterator<Item = (u64, EndedSums)> {
        self.0.into_iter()
    }
}

impl EndedSums {
    fn add(&mut self, record: &Record<'_>, trace: Trace<'_>) {
        let end = ExchangeEnd::of(record, trace);
        if end != ExchangeEnd::Refused {
            let endpoint = record.name_if_any(RecordName::Endpoint);
            let name = endpoint.unwrap_or_else(|| record.name(RecordName::Selector));
            self.selectors.count(name, matches!(end, ExchangeEnd::Failed | ExchangeEnd::Cut));
        }
        let mut failover = Failover::default();
        for step in trace {
            if failover.take(&step) {
                let attempt = Attempt::of(record, &step);
                self.all.add_attempt(attempt.is_failure);
                self.providers.count(attempt.provider, attempt.is_failure);
            }
        }
        self.all.add_exchange(record, end, failover.failed_over);
        lost_attempts(record, trace).for_each(|(_, _, lost)| self.all.add_lost(&lost));
    }

    /// Adds the sums of other exchanges.
    pub(super) fn merge(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.selectors.merge(&other.selectors);
        self.providers.merge(&other.providers);
    }

    /// Returns the requests without refused ones.
    pub(super) fn share(&self) -> Share {
        let all = &self.all;
        Share { total: all.requests - all.refused, bad: all.failed + all.cut }
    }
}

impl Shares {
    fn count(&mut self, name: &str, is_bad: bool) {
        self.add(name, Share { total: 1, bad: u64::from(is_bad) });
    }

    fn add(&mut self, name: &str, share: Share) {
        if let Some(known) = self.0.get_mut(name) {
            *known = known.plus(share);
            return;
        }
        let name = if self.0.len() < NAMES_MAX { name } else { OTHERS };
        let known = self.0.entry(name.into()).or_default();
        *known = known.plus(share);
    }

    fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(name, share)| self.add(name, *share));
    }

    pub(super) fn get(&self, name: &str) -> Option<Share> {
        self.0.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Box<str>> {
        self.0.keys()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Box<str>, Share)> {
        self.0.iter().map(|(name, share)| (name, *share))
    }
}

/// The maximum number of selectors, and of providers, that are counted separately.
const NAMES_MAX: usize = 256;
const OTHERS: &str = "others";
