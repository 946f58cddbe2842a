//! Metrics of what is in the database: alerts, the outbox, and quotas.

use rusqlite::Connection;
use shared::clock::unix_ms;
use shared::quota::Counters;

use super::text::MetricsText;
use crate::db::alert_rules::AlertKind;
use crate::db::alerts::{Alert, AlertState, unresolved};
use crate::db::outbox::{self, OutboxFigures};
use crate::db::quotas::{self, QuotaFilter};

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
}

impl StoredFigures {
    pub(super) fn read(db: &Connection, counters: &Counters) -> rusqlite::Result<Self> {
        Ok(Self {
            unresolved: unresolved(db)?,
            outbox: outbox::figures(db)?,
            quotas: QuotaFigures::read(db, counters)?,
        })
    }

    pub(super) fn write(&self, text: &mut MetricsText) {
        self.alerts(text);
        let OutboxFigures { pending, dead, for_workers } = self.outbox;
        text.begin("llmgw_outbox_deliveries", "gauge", "Deliveries of events that are not finished.");
        for (state, count) in [("pending", pending), ("dead", dead), ("for_workers", for_workers)] {
            text.value("llmgw_outbox_deliveries", &[("state", state)], count);
        }
        let QuotaFigures { ok, warning, exhausted } = self.quotas;
        text.begin("llmgw_quotas", "gauge", "Limits by use: ok, warning from 80 %, exhausted.");
        for (state, count) in [("ok", ok), ("warning", warning), ("exhausted", exhausted)] {
            text.value("llmgw_quotas", &[("state", state)], count);
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
    fn read(db: &Connection, counters: &Counters) -> rusqlite::Result<Self> {
        let (now_ms, mut figures) = (unix_ms(), Self::default());
        for row in quotas::page(db, &QuotaFilter::default(), "", QUOTAS_MAX)? {
            let counter = counters.get(&row.id);
            let used = counter.map_or(0, |counter| counter.read(now_ms).used / row.metric.units());
            let state = match row.limit {
                limit if used >= limit => &mut figures.exhausted,
                limit if used.saturating_mul(100) >= limit.saturating_mul(WARNING_PERCENT) => {
                    &mut figures.warning
                }
                _ => &mut figures.ok,
            };
            *state += 1;
        }
        Ok(figures)
    }
}

const WARNING_PERCENT: u64 = 80;
/// Limits beyond this number are not counted.
const QUOTAS_MAX: i64 = 10_000;
