//! The cost of single hours by key and by project, read from the sums by hour.

use std::collections::HashMap;

use crate::db::engine::{Db, DbResult, Row};

/// The subject of costs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CostSubject {
    Key(String),
    Project(String),
}

/// The sums of one subject and hour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct HourCost {
    pub(crate) requests: u64,
    pub(crate) micro_usd: f64,
}

/// The sums of the asked hours, by subject.
pub(crate) type HourCosts = HashMap<CostSubject, HashMap<u64, HourCost>>;

/// Returns the sums of `hours` (hours since the Unix epoch).
pub(crate) fn hour_costs(db: &Db, hours: &[u64]) -> DbResult<HourCosts> {
    let mut costs = HourCosts::new();
    let mut statement = db.prepare(OF_HOURS)?;
    let mut rows = statement.query([serde_json::json!(hours).to_string()])?;
    while let Some(row) = rows.next()? {
        let (key, project): (String, String) = (row.get("key")?, row.get("project")?);
        let (hour, cost) = sums(row)?;
        let subjects = [CostSubject::Key(key), CostSubject::Project(project)];
        for subject in subjects.into_iter().filter(|subject| !subject.id().is_empty()) {
            let sum: &mut HourCost = costs.entry(subject).or_default().entry(hour).or_default();
            sum.requests += cost.requests;
            sum.micro_usd += cost.micro_usd;
        }
    }
    Ok(costs)
}

impl CostSubject {
    /// The ID of the key or project.
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Key(id) | Self::Project(id) => id,
        }
    }
}

fn sums(row: Row<'_>) -> DbResult<(u64, HourCost)> {
    let nano_usd: f64 = row.get("cost_nano_usd")?;
    Ok((row.get("hour")?, HourCost { requests: row.get("requests")?, micro_usd: nano_usd / 1_000.0 }))
}

const OF_HOURS: &str = "SELECT hour, project, key, CAST(sum(requests) AS BIGINT) AS requests, CAST(sum(cost_nano_usd) AS DOUBLE PRECISION) AS cost_nano_usd \
     FROM usage_hour WHERE hour IN (SELECT CAST(value AS BIGINT) FROM json_each(:hours)) GROUP BY hour, project, key";

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use shared::id::KeyId;
    use shared::usage::{UsageEvent, UsageLog as _};

    use super::*;
    use crate::db::HOUR_MS;
    use crate::usage::tests::{Process, event};

    /// The watch of spending reads hour by hour, so the other hours of very many keys must not make a read longer.
    #[test]
    fn an_hour_of_thirty_thousand_keys_is_read_whole_and_alone() {
        const KEYS: u64 = 30_000;
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let steps = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&steps);
        process.meter.db_mut().on_each_step(move || {
            count.fetch_add(1, Ordering::Relaxed);
            false
        });
        let first = event(0).started_at_ms / HOUR_MS;
        let mut taken = Vec::new();
        for hour in [first + 1, first] {
            for n in 0..KEYS {
                let (key, started_at_ms) = (KeyId::new(format!("key_{n}")), hour * HOUR_MS);
                let cost = Some(1_000 * (n + 1));
                log.append(&UsageEvent { key, started_at_ms, cost_nano_usd: cost, ..event(hour * KEYS + n) });
            }
            process.settle();
            let before = steps.load(Ordering::Relaxed);
            let costs = hour_costs(process.meter.db_mut(), &[first + 1]).unwrap();
            taken.push(steps.load(Ordering::Relaxed) - before);
            assert_eq!(costs.len() as u64, KEYS);
            let last = &costs[&CostSubject::Key(format!("key_{}", KEYS - 1))];
            assert_eq!(last[&(first + 1)], HourCost { requests: 1, micro_usd: KEYS as f64 });
        }
        assert!(taken[1] <= taken[0] + 9, "{taken:?}");
    }
}
