//! The amounts that nodes have used of the limits that they share. Runs in the transaction that stores the usage.
//!
//! Invariant: `granted` changes in the session of the shares alone. A window that was used up stays so, even if what was
//! used of it is corrected later: the counter of the node has the correction, and gives back what nothing uses then.

use super::super::used::{SHARES, USED_MAX, forget_old};
use crate::db::engine::{Db, DbResult, named_params};

/// Adds to what a node has used of windows, each with its limit and its start in milliseconds, which it had granted to requests.
/// Locks their rows in this order.
pub(crate) fn add(tx: &Db, node: u32, amounts: &[((String, u64), u64)]) -> DbResult<()> {
    let values =
        amounts.iter().map(|((id, start_ms), amount)| (id, *start_ms, node, within_range(*amount), USED_MAX));
    let used = tx.prepare(ADD)?.optional_row_each(values, |row| row.get::<i64>("used"))?;
    for (((id, start_ms), amount), used) in amounts.iter().zip(used) {
        let is_new = used.is_some_and(|used| used <= within_range(*amount));
        if is_new {
            forget_old(tx, id, *start_ms)?;
        }
    }
    Ok(())
}

fn within_range(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(USED_MAX).min(USED_MAX)
}

/// Changes what was used of a window after the cost of an exchange that `node` stored has changed. What is too much for its
/// share is taken from those of the other nodes; no amount becomes negative.
pub(crate) fn correct(tx: &Db, (id, start_ms): (&str, u64), node: u32, change: i64) -> DbResult<()> {
    if let Ok(amount) = u64::try_from(change) {
        return add(tx, node, &[((id.to_owned(), start_ms), amount)]);
    }
    let mut left = change.max(-USED_MAX).saturating_neg();
    let mut shares: Vec<(u32, i64)> =
        tx.rows(SHARES, (id, start_ms), |row| Ok((row.get("node")?, row.get("used")?)))?;
    shares.sort_by_key(|(other, _)| (*other != node, *other));
    for (node, used) in shares {
        let amount = used.clamp(0, left);
        if amount > 0 {
            let values = named_params! {":quota": id, ":start": start_ms, ":node": node, ":amount": amount};
            tx.execute(TAKE_BACK, values)?;
        }
        left -= amount;
    }
    Ok(())
}

const ADD: &str = "INSERT INTO quota_share (quota, start_ms, node, granted, used) \
     VALUES (:quota, :start, :node, 0, :amount) ON CONFLICT (quota, start_ms, node) DO UPDATE SET \
     used = CASE WHEN quota_share.used < :most THEN quota_share.used ELSE :most END + excluded.used RETURNING used";
const TAKE_BACK: &str = "UPDATE quota_share SET used = used - :amount \
     WHERE quota = :quota AND start_ms = :start AND node = :node";
