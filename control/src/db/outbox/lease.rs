//! Deliveries to external workers: a worker claims some for a bounded time, and reports each as delivered or failed.

use super::{Delivery, select_deliveries};
use crate::db::engine::{Db, DbResult, named_params};

/// A claim of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The name of the worker.
    pub(crate) worker: String,
    /// The name of the lease, which later reports must contain.
    pub(crate) lease: String,
    /// The end of the lease.
    pub(crate) until_ms: u64,
    /// The maximum number of deliveries.
    pub(crate) limit: u32,
    /// The kinds of events as a JSON array; `None` for all.
    pub(crate) kinds: Option<String>,
}

/// True if a worker could claim a delivery, or a lease has ended.
pub(crate) fn is_waiting(db: &Db, now_ms: u64) -> DbResult<bool> {
    db.row(IS_WAITING, named_params! {":now": now_ms}, |row| row.get(0))
}

/// Returns the deliveries whose lease has ended before `now_ms`, oldest first.
pub(crate) fn ended(db: &Db, now_ms: u64) -> DbResult<Vec<Delivery>> {
    let values = named_params! {":now": now_ms, ":rows": ENDED_MAX};
    db.rows(ENDED, values, Delivery::of)
}

/// Leases the oldest deliveries to a worker and returns them.
pub(crate) fn claim(tx: &Db, claim: &Claim, now_ms: u64) -> DbResult<Vec<Delivery>> {
    tx.execute(
        CLAIM,
        named_params! {
            ":lease": claim.lease,
            ":worker": claim.worker,
            ":until": claim.until_ms,
            ":kinds": claim.kinds,
            ":now": now_ms,
            ":rows": claim.limit,
        },
    )?;
    tx.rows(CLAIMED, [&claim.lease], Delivery::of)
}

/// Ends the lease of a delivery: with the error and the time of the next try, or as delivered.
pub(crate) fn end(
    tx: &Db,
    delivery: &Delivery,
    failure: Option<(&str, Option<u64>)>,
    now_ms: u64,
) -> DbResult<()> {
    let (state, next_at_ms) = match failure {
        None => ("delivered", None),
        Some((_, None)) => ("dead", None),
        Some((_, Some(next_at_ms))) => ("pending", Some(next_at_ms)),
    };
    tx.execute(
        END,
        named_params! {
            ":id": delivery.id,
            ":state": state,
            ":next": next_at_ms,
            ":error": failure.map(|(error, _)| error),
            ":now": now_ms,
        },
    )?;
    Ok(())
}

/// Leases that one claim ends; the next claim continues.
const ENDED_MAX: u32 = 1_000;
const IS_WAITING: &str = "SELECT EXISTS (SELECT 1 FROM outbox WHERE webhook IS NULL AND state = 'pending' AND next_at_ms <= :now) \
     OR EXISTS (SELECT 1 FROM outbox WHERE state = 'leased' AND next_at_ms <= :now)";
const ENDED: &str =
    select_deliveries!("WHERE o.state = 'leased' AND o.next_at_ms <= :now ORDER BY o.id LIMIT :rows");
const CLAIM: &str = "UPDATE outbox SET state = 'leased', lease = :lease, worker = :worker, next_at_ms = :until, \
     updated_at_ms = :now WHERE id IN (SELECT o.id FROM outbox o JOIN events e ON e.id = o.event \
     WHERE o.webhook IS NULL AND o.state = 'pending' AND o.next_at_ms <= :now \
     AND (:kinds IS NULL OR e.kind IN (SELECT value FROM json_each(:kinds))) ORDER BY o.id LIMIT :rows)";
const CLAIMED: &str = select_deliveries!("WHERE o.state = 'leased' AND o.lease = :lease ORDER BY o.id");
const END: &str = "UPDATE outbox SET state = :state, tries = tries + 1, next_at_ms = :next, lease = NULL, \
     last_error = :error, updated_at_ms = :now WHERE id = CAST(:id AS INTEGER)";
