//! The statements of the transactions of shares on the tables `quota_window` and `quota_share`.
//!
//! Lists of windows are JSON lists of texts with fields of fixed width, which plain SQL takes apart.
//! Rows of windows are created and locked in the order of their keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::quota::share::{STARVED_MS, ShareRow, WindowKey};
use shared::quota::{Metric, Period};

use super::super::StoredName;
use crate::db::engine::{Db, DbResult, Row, named_params};
use crate::db::signed;

/// A window whose row is locked, with the limit of now.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) granted: u64,
    pub(super) short_node: Option<u64>,
    /// In counted units.
    pub(super) limit: u64,
    pub(super) period: Option<Period>,
}

/// A change of a window and of this node's share in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) key: WindowKey,
    /// The amount by which both change.
    pub(super) amount: i64,
    pub(super) short: ShortChange,
    /// True if a request of this node waits and nothing can be granted.
    pub(super) is_starved: bool,
}

/// A change of `short_node`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ShortChange {
    #[default]
    Stays,
    BecomesThisNode,
    BecomesNone,
}

/// The news of a window that a node gets with each sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WindowNews {
    pub(crate) key: WindowKey,
    /// True if another node starves, or if more is granted than the limit allows.
    pub(crate) is_pressed: bool,
    /// The amount that other nodes have used, in counted units.
    pub(crate) elsewhere: u64,
}

/// Creates missing windows of limits that exist, and locks all of them. Windows of limits that are gone are left out.
pub(super) fn lock(tx: &Db, keys: &[&WindowKey]) -> DbResult<BTreeMap<WindowKey, Window>> {
    let list = list_of(keys);
    tx.execute(CREATE, [&list])?;
    tx.rows(LOCK, [&list], |row| Ok((key_of(row)?, Window::of(row)?)))
}

/// Returns the shares of a node in locked windows; those that have no row are left out.
pub(super) fn shares(tx: &Db, keys: &[&WindowKey], node: u64) -> DbResult<BTreeMap<WindowKey, i64>> {
    tx.rows(SHARES, (list_of(keys), node), |row| Ok((key_of(row)?, row.get("granted")?)))
}

impl Window {
    fn of(row: Row<'_>) -> DbResult<Self> {
        Ok(Self {
            granted: row.get::<i64>("granted")?.try_into().unwrap_or(0),
            short_node: row.get("short_node")?,
            limit: limit_of(row)?,
            period: row.get::<Option<StoredName<Period>>>("period")?.map(|named| named.0),
        })
    }
}

/// Writes the changes of locked windows.
pub(super) fn write(tx: &Db, changes: &[Change], node: u64) -> DbResult<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = changes.iter().map(Change::text).collect();
    let list = serde_json::json!(texts).to_string();
    tx.execute(CHANGE_WINDOWS, named_params! {":changes": list, ":node": node})?;
    if changes.iter().any(|change| change.amount != 0) {
        tx.execute(CHANGE_SHARES, named_params! {":changes": list, ":node": node})?;
    }
    Ok(())
}

/// Frees the shares in a locked window of nodes that are silent (a JSON list). Returns the amount.
pub(super) fn free(tx: &Db, key: &WindowKey, silent: &str) -> DbResult<u64> {
    let values = named_params! {":quota": key.quota, ":start": key.start_ms, ":silent": silent};
    let freed: Vec<u64> = tx.rows(FREED, values, |row| row.get("granted"))?;
    if freed.is_empty() {
        return Ok(0);
    }
    let amount = freed.into_iter().fold(0, u64::saturating_add);
    tx.execute(FREE_SHARES, named_params! {":quota": key.quota, ":start": key.start_ms, ":silent": silent})?;
    let values = named_params! {
        ":quota": key.quota, ":start": key.start_ms, ":silent": silent, ":amount": amount,
    };
    tx.execute(FREE_WINDOW, values)?;
    Ok(amount)
}

/// Returns the shares of a node in the windows of `keys`, or in all windows that began at `since_ms` or later and in those
/// that never end.
pub(super) fn rows(tx: &Db, node: u64, of: Result<&[&WindowKey], u64>) -> DbResult<Vec<ShareRow>> {
    let read = |row: Row<'_>| {
        let has_short = row.get::<Option<u64>>("short_node")? == Some(node);
        Ok(ShareRow { key: key_of(row)?, granted: row.get("granted")?, has_short })
    };
    match of {
        Ok(keys) => tx.rows(ROWS_OF_WINDOWS, (list_of(keys), node), read),
        Err(since_ms) => tx.rows(ROWS_SINCE, (node, since_ms), read),
    }
}

/// Returns the news of windows in which this node has a share.
pub(super) fn news(tx: &Db, keys: &[&WindowKey], (node, now_ms): (u64, u64)) -> DbResult<Vec<WindowNews>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    tx.rows(NEWS, named_params! {":windows": list_of(keys), ":node": node}, |row| {
        let starved_at_ms: Option<u64> = row.get("starved_at_ms")?;
        let is_starved = starved_at_ms.is_some_and(|at_ms| now_ms < at_ms.saturating_add(STARVED_MS));
        let is_above = row.get::<i64>("granted")? > signed(limit_of(row)?);
        Ok(WindowNews {
            key: key_of(row)?,
            is_pressed: is_starved || is_above,
            elsewhere: row.get::<i64>("elsewhere")?.try_into().unwrap_or(0),
        })
    })
}

/// Returns the limit of a row in counted units.
fn limit_of(row: Row<'_>) -> DbResult<u64> {
    let metric = row.get::<StoredName<Metric>>("metric")?.0;
    Ok(row.get::<u64>("amount")?.saturating_mul(metric.units()))
}

fn key_of(row: Row<'_>) -> DbResult<WindowKey> {
    Ok(WindowKey { quota: row.get::<Arc<str>>("quota")?, start_ms: row.get("start_ms")? })
}

/// Returns windows as a list for a statement: 20 digits of the start, and the quota.
fn list_of(keys: &[&WindowKey]) -> String {
    let texts: Vec<String> =
        keys.iter().map(|WindowKey { quota, start_ms }| format!("{start_ms:020}{quota}")).collect();
    serde_json::json!(texts).to_string()
}

impl Change {
    /// Returns the change for a statement: 20 digits of the start, 20 of the amount, two flags, and the quota.
    fn text(&self) -> String {
        let Self { key: WindowKey { quota, start_ms }, amount, short, is_starved } = self;
        let short = match short {
            ShortChange::Stays => 0,
            ShortChange::BecomesThisNode => 1,
            ShortChange::BecomesNone => 2,
        };
        format!("{start_ms:020}{amount:020}{short}{}{quota}", u8::from(*is_starved))
    }
}

const CREATE: &str = "INSERT INTO quota_window (quota, start_ms, granted) \
     SELECT wanted.quota, wanted.start_ms, 0 FROM (SELECT substr(value, 21) AS quota, \
     CAST(substr(value, 1, 20) AS BIGINT) AS start_ms FROM json_each(:windows)) AS wanted \
     WHERE wanted.quota IN (SELECT id FROM quotas) ORDER BY wanted.quota, wanted.start_ms \
     ON CONFLICT (quota, start_ms) DO NOTHING";
const LOCK: &str = "SELECT w.quota, w.start_ms, w.granted, w.short_node, q.amount, q.metric, q.period \
     FROM (SELECT substr(value, 21) AS quota, CAST(substr(value, 1, 20) AS BIGINT) AS start_ms FROM json_each(:windows)) AS wanted \
     JOIN quota_window AS w ON w.quota = wanted.quota AND w.start_ms = wanted.start_ms \
     JOIN quotas AS q ON q.id = w.quota ORDER BY w.quota, w.start_ms FOR UPDATE OF w";
const SHARES: &str = "SELECT s.quota, s.start_ms, s.granted \
     FROM (SELECT substr(value, 21) AS quota, CAST(substr(value, 1, 20) AS BIGINT) AS start_ms FROM json_each(:windows)) AS wanted \
     JOIN quota_share AS s ON s.quota = wanted.quota AND s.start_ms = wanted.start_ms AND s.node = :node";
const CHANGE_WINDOWS: &str = "UPDATE quota_window SET granted = granted + change.amount, \
     short_node = CASE change.short WHEN '1' THEN :node WHEN '2' THEN NULL ELSE short_node END, \
     starved_at_ms = CASE change.starved WHEN '1' THEN now_ms() ELSE starved_at_ms END \
     FROM (SELECT substr(value, 43) AS quota, CAST(substr(value, 1, 20) AS BIGINT) AS start_ms, \
     CAST(substr(value, 21, 20) AS BIGINT) AS amount, substr(value, 41, 1) AS short, substr(value, 42, 1) AS starved \
     FROM json_each(:changes)) AS change \
     WHERE quota_window.quota = change.quota AND quota_window.start_ms = change.start_ms";
const CHANGE_SHARES: &str = "INSERT INTO quota_share (quota, start_ms, node, granted, used) \
     SELECT change.quota, change.start_ms, :node, change.amount, 0 FROM (SELECT substr(value, 43) AS quota, \
     CAST(substr(value, 1, 20) AS BIGINT) AS start_ms, CAST(substr(value, 21, 20) AS BIGINT) AS amount \
     FROM json_each(:changes)) AS change WHERE change.amount <> 0 ON CONFLICT (quota, start_ms, node) DO UPDATE SET \
     granted = quota_share.granted + excluded.granted";
const FREED: &str = "SELECT granted FROM quota_share WHERE quota = :quota AND start_ms = :start \
     AND CAST(node AS TEXT) IN (SELECT value FROM json_each(:silent)) AND granted > 0";
const FREE_SHARES: &str = "UPDATE quota_share SET granted = 0 WHERE quota = :quota AND start_ms = :start \
     AND CAST(node AS TEXT) IN (SELECT value FROM json_each(:silent)) AND granted > 0";
const FREE_WINDOW: &str = "UPDATE quota_window SET granted = granted - :amount, \
     short_node = CASE WHEN CAST(short_node AS TEXT) IN (SELECT value FROM json_each(:silent)) THEN NULL ELSE short_node END \
     WHERE quota = :quota AND start_ms = :start";
const ROWS_OF_WINDOWS: &str = "SELECT s.quota, s.start_ms, s.granted, w.short_node \
     FROM (SELECT substr(value, 21) AS quota, CAST(substr(value, 1, 20) AS BIGINT) AS start_ms FROM json_each(:windows)) AS wanted \
     JOIN quota_share AS s ON s.quota = wanted.quota AND s.start_ms = wanted.start_ms AND s.node = :node \
     JOIN quota_window AS w ON w.quota = s.quota AND w.start_ms = s.start_ms";
const ROWS_SINCE: &str = "SELECT s.quota, s.start_ms, s.granted, w.short_node FROM quota_share AS s \
     JOIN quota_window AS w ON w.quota = s.quota AND w.start_ms = s.start_ms \
     WHERE s.node = :node AND (s.start_ms >= :since OR s.start_ms = 0) AND (s.granted > 0 OR w.short_node = s.node) \
     ORDER BY s.quota, s.start_ms";
const NEWS: &str = "SELECT w.quota, w.start_ms, w.granted, w.starved_at_ms, q.amount, q.metric, \
     (SELECT CAST(coalesce(sum(o.used), 0) AS BIGINT) FROM quota_share AS o \
     WHERE o.quota = w.quota AND o.start_ms = w.start_ms AND o.node <> :node) AS elsewhere \
     FROM (SELECT substr(value, 21) AS quota, CAST(substr(value, 1, 20) AS BIGINT) AS start_ms FROM json_each(:windows)) AS wanted \
     JOIN quota_window AS w ON w.quota = wanted.quota AND w.start_ms = wanted.start_ms \
     JOIN quotas AS q ON q.id = w.quota ORDER BY w.quota, w.start_ms";
