//! The shares of one node in limits by calendar windows, and what is left of those of a lost node.
//!
//! Shares by the minute and permits of concurrent requests need no one to give them back: they are free some time after the
//! node was last heard of.

use shared::clock::unix_ms;
use shared::quota::share::WindowKey;
use shared::quota::{Metric, Period};

use super::super::StoredName;
use super::windows::{self, Change, ShortChange};
use crate::db::cluster::fences::{self, Lane};
use crate::db::engine::{Db, DbError, DbResult, Row, named_params};
use crate::db::record_id::NodeId;

/// The share of a node in the current window of a limit, and the amount that its stored records have used. Amounts are in the
/// unit of the metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeShare {
    pub(crate) quota: String,
    pub(crate) metric: Metric,
    /// `None` for concurrent requests.
    pub(crate) period: Option<Period>,
    pub(crate) limit: u64,
    pub(crate) granted: u64,
    pub(crate) used: u64,
}

/// Returns the shares that a node has in current windows, by limit.
pub(crate) fn of_node(db: &Db, node: NodeId) -> DbResult<Vec<NodeShare>> {
    let now_ms = unix_ms();
    let found: Vec<Option<NodeShare>> = db.rows(HELD, named_params! {":node": node}, |row| {
        let period = row.get::<Option<StoredName<Period>>>("period")?.map(|named| named.0);
        let start_ms = period.and_then(|period| period.window(now_ms)).map_or(0, |(start_ms, _)| start_ms);
        Ok((row.get::<u64>("start_ms")? == start_ms).then_some(NodeShare::of(row, period)?))
    })?;
    Ok(found.into_iter().flatten().collect())
}

impl NodeShare {
    fn of(row: Row<'_>, period: Option<Period>) -> DbResult<Self> {
        let metric = row.get::<StoredName<Metric>>("metric")?.0;
        let amount = |name: &str| Ok::<_, DbError>(row.get::<i64>(name)?.max(0).unsigned_abs());
        let (granted, used) = (amount("granted")? / metric.units(), amount("used")?.div_ceil(metric.units()));
        Ok(Self { quota: row.get("quota")?, metric, period, limit: row.get("amount")?, granted, used })
    }
}

/// Gives back what a node has unused of limits by calendar windows. Returns the number of these limits. What the node had used
/// and not stored is given back too.
pub(crate) fn release(tx: &Db, node: NodeId) -> DbResult<usize> {
    let number = u64::from(node.number());
    fences::bar(tx, Lane::Shares, number)?;
    let unused = || -> DbResult<Vec<(WindowKey, i64)>> {
        tx.rows(UNUSED, named_params! {":node": node}, |row| {
            let key = WindowKey { quota: row.get("quota")?, start_ms: row.get("start_ms")? };
            Ok((key, row.get::<i64>("unused")?))
        })
    };
    let keys: Vec<WindowKey> = unused()?.into_iter().map(|(key, _)| key).collect();
    let locked = windows::lock(tx, &keys.iter().collect::<Vec<_>>())?;
    // Nothing changes the rows from now on.
    let changes = unused()?.into_iter().filter_map(|(key, unused)| {
        let had_short = locked.get(&key)?.short_node == Some(number);
        let short = if had_short { ShortChange::BecomesNone } else { ShortChange::Stays };
        Some(Change { key, amount: -unused, short, is_starved: false })
    });
    let changes: Vec<Change> = changes.collect();
    windows::write(tx, &changes, number)?;
    let mut limits: Vec<_> = changes.iter().map(|change| &change.key.quota).collect();
    limits.dedup();
    Ok(limits.len())
}

const HELD: &str = "SELECT s.quota, s.start_ms, s.granted, s.used, q.metric, q.period, q.amount \
     FROM quota_share AS s JOIN quotas AS q ON q.id = s.quota WHERE s.node = :node AND s.granted > 0 ORDER BY s.quota";
const UNUSED: &str = "SELECT s.quota, s.start_ms, s.granted - s.used AS unused FROM quota_share AS s \
     JOIN quotas AS q ON q.id = s.quota WHERE s.node = :node AND s.granted > s.used \
     AND q.period IS NOT NULL AND q.period <> 'minute' ORDER BY s.quota, s.start_ms";
