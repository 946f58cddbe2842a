//! The use of keys and projects since the beginning of the month, for lists of them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde::Serialize;
use shared::clock::unix_ms;
use shared::quota::Period;

use crate::common::money::MicroUsd;
use crate::db::HOUR_MS;
use crate::usage::dimension::{Dimension, Marks};
use crate::usage::report::calendar::Calendar;
use crate::usage::report::{ReportQuestion, sums};
use crate::usage::requests::Column;
use crate::usage::scope::UsageScope;
use crate::usage::sums::UsageSums;

/// The use of an object since the beginning of this month in UTC.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MonthSpend {
    pub(super) requests: u64,
    /// Attempts, failed ones included, whose cost is unknown and not in the sum.
    pub(super) requests_unpriced: u64,
    /// The known cost, including failed attempts.
    pub(super) cost_micro_usd: MicroUsd,
}

/// The use of all objects of a kind since the beginning of this month.
#[derive(Debug)]
pub(super) struct MonthSpends(HashMap<String, MonthSpend>);

impl MonthSpends {
    /// Sums the exchanges in `scope` by the ids that `column` holds.
    pub(super) fn of(db: &Connection, column: Column, scope: UsageScope) -> rusqlite::Result<Self> {
        let now_ms = unix_ms();
        let from_ms = Period::Month.window(now_ms).map_or(now_ms, |(start_ms, _)| start_ms);
        let spend = |sums: UsageSums| MonthSpend {
            requests: sums.requests,
            requests_unpriced: sums.unpriced,
            cost_micro_usd: MicroUsd(sums.cost_nano_usd),
        };
        let found = sums_since(db, column, from_ms, scope)?;
        Ok(Self(found.into_iter().map(|(id, sums)| (id, spend(sums))).collect()))
    }

    pub(super) fn of_id(&self, id: &str) -> MonthSpend {
        self.0.get(id).copied().unwrap_or_default()
    }
}

/// Sums the exchanges in `scope` that started since `from_ms`, a full hour, by the ids that `column` holds. Only sums of
/// full hours are read, not the exchanges.
pub(super) fn sums_since(
    db: &Connection,
    column: Column,
    from_ms: u64,
    scope: UsageScope,
) -> rusqlite::Result<HashMap<String, UsageSums>> {
    let question = ReportQuestion {
        from_ms,
        to_ms: (unix_ms() / HOUR_MS).saturating_add(1).saturating_mul(HOUR_MS),
        calendar: Calendar::whole(),
        group_by: vec![Dimension::Column(column)],
        filters: Vec::new(),
        marks: Marks::default(),
        scope,
    };
    let groups = sums(db, &question, Instant::now() + READING_TIME)?;
    let named = groups.into_iter().filter_map(|mut group| Some((group.names.pop()??, group.sums)));
    Ok(named.collect())
}

const READING_TIME: Duration = Duration::from_secs(5);
