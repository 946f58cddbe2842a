//! Metrics of what is in the database: alerts, the outbox, and quotas.

use shared::clock::unix_ms;
use shared::quota::Counters;

use super::text::MetricsText;
use crate::db::alert_rules::AlertKind;
use crate::db::alerts::{Alert, AlertState, unresolved};
use crate::db::engine::{Db, DbResult};
use crate::db::outbox::{self, OutboxFigures};

/// The figures that the metrics read from the database.
pub(super) struct StoredFigures {
    unresolved: Vec<Alert>,
    outbox: OutboxFigures,
    quotas: QuotaFigures,
}

/// The numbers of limits by how much of them is used.
#[derive(Default)]
struct QuotaFigures {
    ok: u64,
    warning: u64,
    exhausted: u64,
    /// The number of requests in the line of each limit that lets requests wait, by its ID.
    waiting: Vec<(Box<str>, usize)>,
}

impl StoredFigures {
    pub(super) fn read(db: &Db, counters: &Counters) -> DbResult<Self> {
        Ok(Self {
            unresolved: unresolved(db)?,
            outbox: outbox::figures(db)?,
            quotas: QuotaFigures::of(counters),
        })
    }

    pub(super) fn write(&self, text: &mut MetricsText) {
        self.alerts(text);
        let OutboxFigures { pending, dead, for_workers } = self.outbox;
        text.begin("llmgw_outbox_deliveries", "gauge", "Deliveries of events that are not finished.");
        for (state, count) in [("pending", pending), ("dead", dead), ("for_workers", for_workers)] {
            text.value("llmgw_outbox_deliveries", &[("state", state)], count);
        }
        let QuotaFigures { ok, warning, exhausted, waiting } = &self.quotas;
        text.begin("llmgw_quotas", "gauge", "Limits by use: ok, warning from 80 %, exhausted.");
        for (state, count) in [("ok", ok), ("warning", warning), ("exhausted", exhausted)] {
            text.value("llmgw_quotas", &[("state", state)], count);
        }
        let help = "Requests that wait in the line of a limit, by its ID; limits that let requests wait.";
        text.begin("llmgw_waiting_requests", "gauge", help);
        for (quota, count) in waiting {
            text.value("llmgw_waiting_requests", &[("quota", quota)], count);
        }
    }

    /// Writes the numbers of unresolved alerts. Every kind has its lines, so that a query finds a 0.
    fn alerts(&self, text: &mut MetricsText) {
        text.begin("llmgw_alerts", "gauge", "Alerts that are not resolved.");
        for (kind, _) in AlertKind::ALL {
            for (name, state) in
                AlertState::ALL.into_iter().filter(|(_, state)| *state != AlertState::Resolved)
            {
                let is_counted = |alert: &&Alert| alert.kind == kind && alert.state == state;
                let count = self.unresolved.iter().filter(is_counted).count();
                text.value("llmgw_alerts", &[("kind", kind), ("state", name)], count);
            }
        }
    }
}

impl QuotaFigures {
    /// Counts every limit of the process.
    fn of(counters: &Counters) -> Self {
        let (now_ms, mut figures) = (unix_ms(), Self::default());
        for quota in counters.all() {
            let (limit, used) = (quota.limit, quota.counter.read(now_ms).used / quota.metric.units());
            let state = match limit {
                limit if used >= limit => &mut figures.exhausted,
                limit if used.saturating_mul(100) >= limit.saturating_mul(WARNING_PERCENT) => {
                    &mut figures.warning
                }
                _ => &mut figures.ok,
            };
            *state += 1;
            if quota.has_line() {
                figures.waiting.push((quota.id.clone(), quota.counter.waiting()));
            }
        }
        figures.waiting.sort();
        figures
    }
}

const WARNING_PERCENT: u64 = 80;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::quota::{Counter, Metric, Period, Quota, Scope, Subject};

    use super::*;

    #[test]
    fn every_limit_is_counted_by_how_much_of_it_is_used() {
        let counters = Counters::default();
        for n in 0..10_004_u64 {
            let quota = counters.put(Quota {
                id: format!("quo_{n:05}").into(),
                subject: Subject::Key,
                scope: Scope::default(),
                metric: Metric::CostMicroUsd,
                period: Some(Period::Day),
                limit: 10,
                is_hard: true,
                wait_ms: 0,
                counter: Arc::new(Counter::new(Period::Day, unix_ms())),
            });
            let micro = match n {
                10_001 => 8,
                10_002 => 10,
                10_003 => 11,
                _ => 7,
            };
            quota.counter.add(unix_ms(), micro * 1_000, unix_ms());
        }
        let QuotaFigures { ok, warning, exhausted, .. } = QuotaFigures::of(&counters);
        assert_eq!((ok, warning, exhausted), (10_001, 1, 2));
    }
}
