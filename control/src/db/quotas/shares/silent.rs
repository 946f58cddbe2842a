//! The nodes that are not heard of any more, whose shares in timed limits are free.
//!
//! Invariant: the row of a node's fence is locked before its row in `nodes`, and both before windows. So two transactions
//! never wait for each other.

use shared::quota::share::{MINUTE_LEFT_MS, PERMITS_FREE_MS};

use crate::db::cluster::fences::{self, Lane};
use crate::db::cluster::nodes::ALIVE_MS;
use crate::db::engine::{Db, DbResult};

/// Returns the other nodes that hold a share in one of the limits in `quotas` (a JSON list of IDs) and were not heard of for so
/// long that their shares by the minute, and their permits of concurrent requests, are free. Locks their rows and raises
/// their fences, so that a node that returns resynchronizes.
pub(super) fn silent(tx: &Db, quotas: &str, (node, now_ms): (u64, u64)) -> DbResult<[Vec<u64>; 2]> {
    let live_until = |left_ms: u64| now_ms.saturating_sub(left_ms).saturating_add(ALIVE_MS);
    let (minute, permits) = (live_until(MINUTE_LEFT_MS), live_until(PERMITS_FREE_MS));
    let found: Vec<u64> = tx.rows(SILENT, (node, quotas, minute, permits), |row| row.get("node"))?;
    let mut silent = [Vec::new(), Vec::new()];
    for node in found {
        fences::bar(tx, Lane::Shares, node)?;
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

const SILENT: &str = "SELECT DISTINCT s.node FROM quota_share AS s JOIN quotas AS q ON q.id = s.quota \
     JOIN nodes AS n ON n.node = s.node WHERE s.node <> :node AND s.quota IN (SELECT value FROM json_each(:quotas)) AND s.granted > 0 \
     AND ((q.period = 'minute' AND n.alive_until_ms <= :minute) OR (q.period IS NULL AND n.alive_until_ms <= :permits)) \
     ORDER BY s.node";
const LOCK_NODE: &str =
    "UPDATE nodes SET alive_until_ms = alive_until_ms WHERE node = :node RETURNING alive_until_ms";
