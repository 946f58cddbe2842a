//! The table `fences`: the first statement of each transaction of a session that writes usage or shares.
//!
//! Invariant: a transaction whose outcome is unknown is decided by [`resynchronize`], and never happens after it. The number
//! of a late transaction is then no longer the next one; one that holds the row already is waited for.

use shared::quota::share::{Fence, FoundFence, PAUSE_MS};

use crate::db::engine::{Db, DbResult, Row, named_params};
use crate::db::record_id::NodeId;

/// The sessions of a node that have a fence each, so that neither waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Shares of limits, and the sign of life.
    Shares,
    /// Usage from the journal.
    Shipping,
}

/// A transaction that the fence let pass. Times are of the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) now_ms: u64,
    /// The rest of the time in which no shares are granted after the server changed; 0 if there is none.
    pub(crate) pause_ms: u64,
    /// The number of nodes that are live.
    pub(crate) live: u64,
}

/// The result of [`resynchronize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resynchronized {
    /// All earlier transactions are decided. This is the number of this one.
    Current(u64),
    /// Acknowledged commits were lost. The row stays as it is until [`assert`].
    Lost(FoundFence),
    /// A later process has the number of this node: this one must end.
    Superseded,
}

/// Gives the fences of a node to a process that starts, and returns the number of the process. Waits for transactions of an
/// earlier one. The transaction must have locked the row of `cluster`.
pub(crate) fn take(tx: &Db, node: NodeId) -> DbResult<u64> {
    let incarnation: u64 = tx.row(NEXT_INCARNATION, named_params! {":node": node}, |row| row.get(0))?;
    for lane in [Lane::Shares, Lane::Shipping] {
        let values = named_params! {":node": node, ":lane": lane.name(), ":incarnation": incarnation};
        tx.execute(TAKE, values)?;
    }
    Ok(incarnation)
}

/// Begins a transaction, whose number is that of `fence` plus one. Returns `None` if it must not do anything: the session then
/// resynchronizes.
pub(crate) fn pass(tx: &Db, lane: Lane, fence: &Fence) -> DbResult<Option<Passed>> {
    let Fence { node, incarnation, seq } = fence;
    let values =
        named_params! {":node": node, ":lane": lane.name(), ":incarnation": incarnation, ":seq": seq};
    tx.optional_row(PASS, values, |row| {
        Ok(Passed { now_ms: row.get("now_ms")?, pause_ms: row.get("pause_ms")?, live: row.get("live")? })
    })
}

/// Decides all earlier transactions of the session; the first statements of a transaction on a new connection. If the server is
/// another one than before, no shares are granted for [`PAUSE_MS`].
pub(crate) fn resynchronize(tx: &Db, lane: Lane, fence: &Fence) -> DbResult<Resynchronized> {
    tx.execute(MEET_SERVER, named_params! {":pause": PAUSE_MS})?;
    // The commit that created the row may have been lost.
    tx.execute(ADD, named_params! {":node": fence.node, ":lane": lane.name()})?;
    let read = |row: Row<'_>| Ok(FoundFence { incarnation: row.get("incarnation")?, seq: row.get("seq")? });
    let found = tx.row(LOCK, named_params! {":node": fence.node, ":lane": lane.name()}, read)?;
    if found.incarnation > fence.incarnation {
        return Ok(Resynchronized::Superseded);
    }
    if found.incarnation < fence.incarnation || found.seq < fence.seq {
        return Ok(Resynchronized::Lost(found));
    }
    let seq = found.seq.saturating_add(1);
    tx.execute(RAISE, named_params! {":node": fence.node, ":lane": lane.name(), ":seq": seq})?;
    Ok(Resynchronized::Current(seq))
}

/// Takes the fence back after commits were lost, in the transaction that restores what they contained. Its number is that of
/// `fence` plus one. Returns false if the row is no longer the one that [`resynchronize`] found.
pub(crate) fn assert(tx: &Db, lane: Lane, fence: &Fence, found: FoundFence) -> DbResult<bool> {
    let Fence { node, incarnation, seq } = fence;
    let values = named_params! {
        ":node": node,
        ":lane": lane.name(),
        ":incarnation": incarnation,
        ":seq": seq.saturating_add(1),
        ":found_incarnation": found.incarnation,
        ":found_seq": found.seq,
    };
    Ok(tx.execute(ASSERT, values)? == 1)
}

/// Makes the next transaction of another node fail, which then resynchronizes. Waits for one that has passed.
pub(crate) fn bar(tx: &Db, lane: Lane, node: u64) -> DbResult<()> {
    tx.execute(BAR, named_params! {":node": node, ":lane": lane.name()}).map(drop)
}

impl Lane {
    fn name(self) -> &'static str {
        match self {
            Self::Shares => "shares",
            Self::Shipping => "shipping",
        }
    }
}

const NEXT_INCARNATION: &str = "SELECT coalesce(max(incarnation), 0) + 1 FROM fences WHERE node = :node";
const TAKE: &str = "INSERT INTO fences (node, lane, incarnation, seq) VALUES (:node, :lane, :incarnation, 0) \
     ON CONFLICT (node, lane) DO UPDATE SET incarnation = excluded.incarnation, seq = 0";
const PASS: &str = "UPDATE fences SET seq = seq + 1 WHERE node = :node AND lane = :lane AND incarnation = :incarnation \
     AND seq = :seq AND (SELECT server FROM cluster WHERE id = 1) = server_start() RETURNING now_ms() AS now_ms, \
     (SELECT CASE WHEN no_grants_before_ms > now_ms() THEN no_grants_before_ms - now_ms() ELSE 0 END \
     FROM cluster WHERE id = 1) AS pause_ms, (SELECT count(*) FROM nodes WHERE alive_until_ms > now_ms()) AS live";
const BAR: &str = "UPDATE fences SET seq = seq + 1 WHERE node = :node AND lane = :lane";
const MEET_SERVER: &str = "UPDATE cluster SET server = server_start(), \
     no_grants_before_ms = CASE WHEN server = 0 THEN 0 ELSE now_ms() + :pause END \
     WHERE id = 1 AND server <> server_start()";
const ADD: &str = "INSERT INTO fences (node, lane, incarnation, seq) VALUES (:node, :lane, 0, 0) ON CONFLICT (node, lane) DO NOTHING";
const LOCK: &str = "SELECT incarnation, seq FROM fences WHERE node = :node AND lane = :lane FOR UPDATE";
const RAISE: &str = "UPDATE fences SET seq = :seq WHERE node = :node AND lane = :lane";
const ASSERT: &str = "UPDATE fences SET incarnation = :incarnation, seq = :seq WHERE node = :node AND lane = :lane \
     AND incarnation = :found_incarnation AND seq = :found_seq \
     AND (SELECT server FROM cluster WHERE id = 1) = server_start()";

#[cfg(test)]
mod tests;
