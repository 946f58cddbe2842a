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
     FROM usage_hour WHERE hour IN (SELECT value FROM json_each(:hours)) GROUP BY hour, project, key";
