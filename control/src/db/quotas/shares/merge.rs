//! Merges the shares of nodes that have left into those of node 0, which no process uses. The sum of the shares of a window
//! stays as it is.
//!
//! Invariant: the row of the node is locked, so it does not begin again meanwhile. A node that comes back has no share in the
//! windows, and what it then stores of them is in a new row.

use super::super::used::USED_MAX;
use crate::db::cluster::nodes::ABSENT_MS;
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::record_id::NodeId;

/// Returns the nodes that are absent and have shares.
pub(crate) fn absent_holders(db: &Db) -> DbResult<Vec<NodeId>> {
    db.rows(HOLDERS, named_params! {":absent": ABSENT_MS}, |row| row.get("node"))
}

/// Merges some shares of an absent node. Of one that has stopped in order, all of which nothing is left; of each, those of
/// windows that ended long ago. Returns false if there are none.
pub(crate) fn merge_some(tx: &Db, node: NodeId) -> DbResult<bool> {
    let absent = named_params! {":node": node, ":absent": ABSENT_MS};
    let Some(has_left) = tx.optional_row(LOCK_ABSENT, absent, |row| row.get::<bool>("has_left"))? else {
        return Ok(false);
    };
    let values = named_params! {":node": node, ":has_left": has_left, ":ended": ENDED_MS};
    let taken: Vec<(String, u64, i64, i64)> = tx.rows(TAKE, values, |row| {
        Ok((row.get("quota")?, row.get("start_ms")?, row.get("granted")?, row.get("used")?))
    })?;
    for (quota, start_ms, granted, used) in taken.iter().filter(|(_, _, granted, used)| granted | used != 0) {
        let values = named_params! {
            ":quota": quota, ":start": start_ms, ":node": NodeId::FIRST, ":granted": granted, ":used": used,
            ":most": USED_MAX,
        };
        tx.execute(ADD, values)?;
    }
    Ok(!taken.is_empty())
}

/// A window that began so long ago has ended, unless it never does.
const ENDED_MS: u64 = 33 * 24 * 3_600_000;

const HOLDERS: &str = "SELECT DISTINCT s.node FROM quota_share AS s JOIN nodes AS n ON n.node = s.node \
     WHERE n.left_at_ms IS NOT NULL OR n.alive_until_ms + :absent < now_ms()";
const LOCK_ABSENT: &str = "UPDATE nodes SET left_at_ms = left_at_ms WHERE node = :node \
     AND (left_at_ms IS NOT NULL OR alive_until_ms + :absent < now_ms()) RETURNING left_at_ms IS NOT NULL AS has_left";
const TAKE: &str = "DELETE FROM quota_share WHERE (quota, start_ms, node) IN (SELECT s.quota, s.start_ms, s.node \
     FROM quota_share AS s JOIN quota_window AS w ON w.quota = s.quota AND w.start_ms = s.start_ms \
     WHERE s.node = :node AND w.short_node IS DISTINCT FROM s.node \
     AND ((:has_left = 1 AND s.granted <= s.used) OR (s.start_ms > 0 AND s.start_ms + :ended < now_ms())) \
     ORDER BY s.quota, s.start_ms LIMIT 256) RETURNING quota, start_ms, granted, used";
const ADD: &str = "INSERT INTO quota_share (quota, start_ms, node, granted, used) \
     VALUES (:quota, :start, :node, :granted, :used) ON CONFLICT (quota, start_ms, node) DO UPDATE SET \
     granted = CASE WHEN quota_share.granted < :most THEN quota_share.granted ELSE :most END + excluded.granted, \
     used = CASE WHEN quota_share.used < :most THEN quota_share.used ELSE :most END + excluded.used";
