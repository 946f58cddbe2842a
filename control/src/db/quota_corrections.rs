//! Corrections of the amounts that limits on cost have counted, for stored exchanges whose cost changes (ADM-6). They
//! are written, or become due, in the transaction that changes the exchange, so each change counts once.

use std::collections::HashMap;

use records::{Record, RecordName, Trace, rare_fields};
use shared::clock::unix_ms;
use shared::quota::{Counters, Metric};

use super::quotas::{KEPT_MS, Rules};
use super::usage_effects;
use crate::db::engine::{Db, DbResult};

/// The corrections of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Corrections {
    /// The limits. Loaded on first use.
    rules: Option<Rules>,
    /// The changes by limit and window, in nano-dollars.
    sums: HashMap<(String, u64), i64>,
    /// The changes for the counters in memory: limit, start of the exchange, change in nano-dollars.
    changes: Vec<(String, u64, i64)>,
}

/// The costs of an exchange, before or after a change.
#[derive(Debug)]
pub(crate) struct Costs {
    served: Option<u64>,
    lost: Vec<LostCost>,
}

/// The cost of a failed attempt.
#[derive(Debug)]
struct LostCost {
    /// The position of its step in the trace.
    place: usize,
    cost: Option<u64>,
    /// The amount that counts for quotas while the cost is unknown.
    held: Option<u64>,
}

impl Costs {
    /// Returns the costs of `record`.
    pub(crate) fn of(record: &Record<'_>) -> Self {
        let lost = rare_fields::lost(&record.lost).map(|(place, lost)| {
            let (cost, held) = (lost.cost_nano_usd, lost.quota_nano_usd);
            LostCost { place, cost, held }
        });
        Self { served: record.cost_nano_usd, lost: lost.collect() }
    }
}

impl Corrections {
    /// Adds the corrections for `record`, whose costs were `before`.
    pub(crate) fn add(
        &mut self,
        db: &Db,
        before: &Costs,
        record: &Record<'_>,
        trace: Trace<'_>,
    ) -> DbResult<()> {
        let Self { rules, sums, changes } = self;
        let rules = Rules::loaded(rules, db)?;
        let (at_ms, after) = (record.started_at_ms, Costs::of(record));
        let served = (record.name(RecordName::Provider), record.name(RecordName::Model));
        let lost = before.lost.iter().zip(&after.lost).filter_map(|(before, after)| {
            let step = { trace }.nth(before.place)?;
            Some((before.cost, after.cost, before.held, (step.provider, step.model)))
        });
        let all = std::iter::once((before.served, after.served, record.quota_nano_usd, served)).chain(lost);
        for (before, after, held, target) in all {
            let rules = rules.of_record(record, target);
            for rule in rules.filter(|rule| rule.metric == Metric::CostMicroUsd) {
                // A limit that was created later started with known costs only.
                let held = held.filter(|_| at_ms >= rule.created_at_ms);
                let change = signed(after.or(held)).saturating_sub(signed(before.or(held)));
                if change == 0 {
                    continue;
                }
                changes.push((rule.id.clone(), at_ms, change));
                let window = rule.period.and_then(|period| period.window(at_ms));
                if let Some((start_ms, end_ms)) = window
                    && end_ms.saturating_add(KEPT_MS) > unix_ms()
                {
                    let sum = sums.entry((rule.id.clone(), start_ms)).or_default();
                    *sum = sum.saturating_add(change);
                }
            }
        }
        Ok(())
    }

    /// Writes the corrections. Must be called before the commit.
    pub(crate) fn store(&mut self, tx: &Db) -> DbResult<()> {
        let sums = self.sums.drain();
        sums.filter(|(_, change)| *change != 0).try_for_each(|((id, start_ms), change)| {
            usage_effects::quota_corrected(tx, &id, start_ms, change)
        })
    }

    /// Corrects the counters in memory. Must be called after the commit.
    pub(crate) fn apply(self, counters: &Counters) {
        let now_ms = unix_ms();
        for (id, at_ms, change) in self.changes {
            if let Some(counter) = counters.get(&id) {
                counter.correct(at_ms, change, now_ms);
            }
        }
    }
}

fn signed(cost: Option<u64>) -> i64 {
    i64::try_from(cost.unwrap_or(0)).unwrap_or(i64::MAX)
}
