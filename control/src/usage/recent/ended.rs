//! The sums of exchanges by the time at which they ended.

use std::collections::BTreeMap;

use records::{Record, RecordName, Trace};
use shared::bound::Bound;

use super::Share;
use crate::common::bounds::RECENT_NAMES;
use crate::usage::metrics::{LabelBound, Variants};
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

/// Shares by name.
pub(super) type Shares = Variants<Share, OfName>;

/// The selectors, and the providers, of recent exchanges.
#[derive(Debug)]
pub(super) struct OfName;

impl LabelBound for OfName {
    fn bound() -> &'static Bound {
        &RECENT_NAMES
    }
}

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
            let bad = u64::from(matches!(end, ExchangeEnd::Failed | ExchangeEnd::Cut));
            add(&mut self.selectors, name, Share { total: 1, bad });
        }
        let mut failover = Failover::default();
        for step in trace {
            if failover.take(&step) {
                let attempt = Attempt::of(record, &step);
                self.all.add_attempt(attempt.is_failure);
                let bad = u64::from(attempt.is_failure);
                add(&mut self.providers, attempt.provider, Share { total: 1, bad });
            }
        }
        self.all.add_exchange(record, end, failover.failed_over);
        lost_attempts(record, trace).for_each(|(_, _, lost)| self.all.add_lost(&lost));
    }

    /// Adds the sums of other exchanges.
    pub(super) fn merge(&mut self, other: &Self) {
        self.all.add(&other.all);
        other.selectors.iter().for_each(|(name, share)| add(&mut self.selectors, name, *share));
        other.providers.iter().for_each(|(name, share)| add(&mut self.providers, name, *share));
    }

    /// Returns the requests without refused ones.
    pub(super) fn share(&self) -> Share {
        let all = &self.all;
        Share { total: all.requests - all.refused, bad: all.failed + all.cut }
    }
}

/// Adds a share.
fn add(shares: &mut Shares, name: &str, share: Share) {
    shares.update(name, |sum| *sum = sum.plus(share));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;
    use crate::usage::metrics::OTHER;

    #[test]
    fn names_beyond_the_maximum_are_counted_together() {
        let mut shares = Shares::default();
        let names: Vec<String> = (0..RECENT_NAMES.max() + 2).map(|n| n.to_string()).collect();
        let share = Share { total: 1, ..Share::default() };
        passes(&RECENT_NAMES, || names.iter().for_each(|name| add(&mut shares, name, share)));
        assert_eq!(shares.iter().count(), RECENT_NAMES.max() + 1);
        assert_eq!(shares.get(OTHER).map(|share| share.total), Some(2));
    }
}
