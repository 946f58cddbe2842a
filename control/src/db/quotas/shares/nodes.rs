//! What the transactions of shares do in the tables `cluster`, `nodes` and `fences`.
//!
//! Invariant: the row of a node's fence is locked before its row in `nodes`, and both before windows. So two transactions
//! never wait for each other.

use shared::quota::share::{Fence, FoundFence, MINUTE_LEFT_MS, PAUSE_MS, PERMITS_FREE_MS};

use crate::db::cluster::nodes::ALIVE_MS;
use crate::db::engine::{Db, DbResult, named_params};

/// A fence that let a transaction pass. Times are of the database's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) now_ms: u64,
    pub(super) no_grants_before_ms: u64,
    /// The number of nodes that are live.
    pub(super) live: u64,
}

/// The state of a fence when a node resynchronizes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// A later process has the ID of the node.
    Superseded,
    /// Commits were lost; the row was left as it is.
    Lost(FoundFence),
    /// The number of the fence, which was raised. The node was renewed.
    Raised(u64),
}

/// Lets a transaction of a process pass, and raises the number of the fence. Returns `None`, and changes nothing, if the
/// process, its last transaction or the server is another one.
pub(super) fn pass(tx: &Db, fence: Fence) -> DbResult<Option<Passed>> {
    let sql = if tx.is_postgres() { PASS } else { PASS_IN_FILE };
    let values = named_params! {":node": fence.node, ":incarnation": fence.incarnation, ":seq": fence.seq};
    tx.optional_row(sql, values, |row| {
        Ok(Passed {
            now_ms: row.get("now_ms")?,
            no_grants_before_ms: row.get("no_grants_before_ms")?,
            live: row.get("live")?,
        })
    })
}

/// Replaces the fence that a resynchronization found, after commits were lost. Returns `None`, and changes nothing, if it is
/// another one by now, else the time of the database's clock.
pub(super) fn replace(tx: &Db, found: FoundFence, fence: Fence) -> DbResult<Option<u64>> {
    let sql = if tx.is_postgres() { REPLACE } else { REPLACE_IN_FILE };
    let values = named_params! {
        ":node": fence.node,
        ":incarnation": fence.incarnation,
        ":seq": fence.seq,
        ":found_incarnation": found.incarnation,
        ":found_seq": found.seq,
    };
    tx.optional_row(sql, values, |row| row.get("now_ms"))
}

/// Decides all earlier transactions of the node: waits for those in progress, or makes them fail.
pub(super) fn resynchronize(tx: &Db, fence: Fence) -> DbResult<Found> {
    let now_ms = see_server(tx)?;
    tx.execute(CREATE_FENCE, [fence.node])?;
    let (incarnation, seq) =
        tx.row(LOCK_FENCE, [fence.node], |row| Ok((row.get("incarnation")?, row.get("seq")?)))?;
    if incarnation > fence.incarnation {
        return Ok(Found::Superseded);
    }
    if incarnation < fence.incarnation || seq < fence.seq {
        return Ok(Found::Lost(FoundFence { incarnation, seq }));
    }
    tx.execute(RAISE_FENCE, [fence.node])?;
    renew(tx, fence.node, now_ms)?;
    Ok(Found::Raised(seq + 1))
}

/// Takes the next incarnation of a node for a process that starts.
pub(super) fn begin(tx: &Db, node: u64) -> DbResult<Fence> {
    let now_ms = see_server(tx)?;
    tx.execute(CREATE_FENCE, [node])?;
    let fence = tx.row(BEGIN_FENCE, [node], |row| {
        Ok(Fence { node, incarnation: row.get("incarnation")?, seq: row.get("seq")? })
    })?;
    renew(tx, node, now_ms)?;
    Ok(fence)
}

/// Writes down that the server is another one since the last look, and grants nothing for a while then, unless it is the first.
/// Returns the time.
fn see_server(tx: &Db) -> DbResult<u64> {
    let is_postgres = tx.is_postgres();
    let (clock, seen) = if is_postgres { (CLOCK, SEE_SERVER) } else { (CLOCK_OF_FILE, SEE_FILE) };
    let now_ms: u64 = tx.row(clock, (), |row| row.get("now_ms"))?;
    tx.execute(seen, [now_ms.saturating_add(PAUSE_MS)])?;
    Ok(now_ms)
}

/// Records that the node was heard of at `now_ms`.
pub(super) fn renew(tx: &Db, node: u64, now_ms: u64) -> DbResult<()> {
    tx.execute(RENEW, named_params! {":node": node, ":until": now_ms.saturating_add(ALIVE_MS)})?;
    Ok(())
}

/// Returns the other nodes that hold a share in one of the limits in `quotas` (a JSON list of IDs) and were not heard of for so
/// long that their shares by the minute, and their permits of concurrent requests, are free. Locks their rows and raises
/// their fences, so that a node that returns resynchronizes.
pub(super) fn silent(tx: &Db, quotas: &str, (node, now_ms): (u64, u64)) -> DbResult<[Vec<u64>; 2]> {
    let live_until = |left_ms: u64| now_ms.saturating_sub(left_ms).saturating_add(ALIVE_MS);
    let (minute, permits) = (live_until(MINUTE_LEFT_MS), live_until(PERMITS_FREE_MS));
    let found: Vec<u64> = tx.rows(SILENT, (node, quotas, minute, permits), |row| row.get("node"))?;
    let mut silent = [Vec::new(), Vec::new()];
    for node in found {
        tx.execute(RAISE_FENCE, [node])?;
        // The node may have returned before its rows were locked.
        let until: Option<u64> = tx.optional_row(LOCK_NODE, [node], |row| row.get("alive_until_ms"))?;
        let Some(until) = until else { continue };
        for (nodes, bound) in silent.iter_mut().zip([minute, permits]) {
            if until <= bound {
                nodes.push(node);
            }
        }
    }
    Ok(silent)
}

const CLOCK: &str = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS now_ms";
const CLOCK_OF_FILE: &str = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now_ms ";
const SEE_SERVER: &str = "UPDATE cluster SET no_grants_before_ms = CASE WHEN server = 0 THEN 0 ELSE :until END, \
     server = CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT) \
     WHERE id = 1 AND server <> CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT)";
const SEE_FILE: &str =
    "UPDATE cluster SET no_grants_before_ms = :until, server = 1 WHERE id = 1 AND server <> 1";
const PASS: &str = "UPDATE fences SET seq = seq + 1 \
     WHERE node = :node AND lane = 'shares' AND incarnation = :incarnation AND seq = :seq \
     AND (SELECT server FROM cluster WHERE id = 1) \
     = CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT) \
     RETURNING CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS now_ms, \
     (SELECT no_grants_before_ms FROM cluster WHERE id = 1) AS no_grants_before_ms, (SELECT count(*) FROM nodes \
     WHERE alive_until_ms > CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)) AS live";
const PASS_IN_FILE: &str = "UPDATE fences SET seq = seq + 1 \
     WHERE node = :node AND lane = 'shares' AND incarnation = :incarnation AND seq = :seq \
     AND (SELECT server FROM cluster WHERE id = 1) = 1 \
     RETURNING CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now_ms, \
     (SELECT no_grants_before_ms FROM cluster WHERE id = 1) AS no_grants_before_ms, (SELECT count(*) FROM nodes \
     WHERE alive_until_ms > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) AS live ";
const REPLACE: &str = "UPDATE fences SET incarnation = :incarnation, seq = :seq + 1 WHERE node = :node \
     AND lane = 'shares' AND incarnation = :found_incarnation AND seq = :found_seq \
     AND (SELECT server FROM cluster WHERE id = 1) \
     = CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT) \
     RETURNING CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS now_ms";
const REPLACE_IN_FILE: &str = "UPDATE fences SET incarnation = :incarnation, seq = :seq + 1 WHERE node = :node \
     AND lane = 'shares' AND incarnation = :found_incarnation AND seq = :found_seq \
     AND (SELECT server FROM cluster WHERE id = 1) = 1 \
     RETURNING CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now_ms ";
const CREATE_FENCE: &str = "INSERT INTO fences (node, lane, incarnation, seq) VALUES (:node, 'shares', 0, 0) \
     ON CONFLICT (node, lane) DO NOTHING";
const LOCK_FENCE: &str =
    "UPDATE fences SET seq = seq WHERE node = :node AND lane = 'shares' RETURNING incarnation, seq";
const BEGIN_FENCE: &str = "UPDATE fences SET incarnation = incarnation + 1, seq = seq + 1 \
     WHERE node = :node AND lane = 'shares' RETURNING incarnation, seq";
const RAISE_FENCE: &str = "UPDATE fences SET seq = seq + 1 WHERE node = :node AND lane = 'shares'";
const RENEW: &str = "UPDATE nodes SET alive_until_ms = :until, left_at_ms = NULL WHERE node = :node";
const SILENT: &str = "SELECT DISTINCT s.node FROM quota_share AS s JOIN quotas AS q ON q.id = s.quota \
     JOIN nodes AS n ON n.node = s.node WHERE s.node <> :node AND s.quota IN (SELECT value FROM json_each(:quotas)) AND s.granted > 0 \
     AND ((q.period = 'minute' AND n.alive_until_ms <= :minute) OR (q.period IS NULL AND n.alive_until_ms <= :permits)) \
     ORDER BY s.node";
const LOCK_NODE: &str =
    "UPDATE nodes SET alive_until_ms = alive_until_ms WHERE node = :node RETURNING alive_until_ms";
