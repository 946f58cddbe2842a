//! Deliveries to webhooks: those that are due, and the outcome of a try.

use super::{Delivery, select_deliveries};
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::webhooks::{self, WebhookRow};

/// The deliveries of one webhook that are due.
#[derive(Debug)]
pub(crate) struct DueDeliveries {
    pub(crate) webhook: WebhookRow,
    pub(crate) deliveries: Vec<Delivery>,
}

/// Returns, for each enabled webhook, up to `rows` deliveries that are due, the one that waits longest first. A webhook
/// that receives in order has at most one: the oldest that is neither delivered nor dead.
pub(crate) fn due(db: &Db, now_ms: u64, rows: i64) -> DbResult<Vec<DueDeliveries>> {
    let mut found = Vec::new();
    for id in webhooks::with_due(db, now_ms)? {
        let Some(webhook) = webhooks::find(db, &id)? else { continue };
        let (sql, rows) = if webhook.in_order { (DUE_IN_ORDER, 1) } else { (DUE, rows) };
        let values = named_params! {":webhook": id, ":now": now_ms, ":rows": rows};
        let deliveries: Vec<Delivery> = db.rows(sql, values, Delivery::of)?;
        if !deliveries.is_empty() {
            found.push(DueDeliveries { webhook, deliveries });
        }
    }
    Ok(found)
}

/// The outcome of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tried {
    /// The number of the delivery.
    pub(crate) number: i64,
    /// Its tries before this one.
    pub(crate) tries_before: u32,
    /// The status of the receiver's answer, if there was one.
    pub(crate) status: Option<u16>,
    /// The reason of the failure; `None` for a success.
    pub(crate) error: Option<String>,
    /// The time of the next try; `None` if there is none, because it was delivered or failed too often.
    pub(crate) next_at_ms: Option<u64>,
}

/// Stores the outcome of a try, unless the delivery was changed or deleted in the meantime.
pub(crate) fn record(tx: &Db, tried: &Tried, now_ms: u64) -> DbResult<()> {
    let state = match (&tried.error, tried.next_at_ms) {
        (None, _) => "delivered",
        (Some(_), Some(_)) => "pending",
        (Some(_), None) => "dead",
    };
    tx.execute(
        RECORD,
        named_params! {
            ":id": tried.number,
            ":tries_before": tried.tries_before,
            ":state": state,
            ":next": tried.next_at_ms.filter(|_| state == "pending"),
            ":status": tried.status,
            ":error": tried.error,
            ":now": now_ms,
        },
    )?;
    Ok(())
}

/// Returns the number of deliveries to a webhook that were not delivered.
pub(crate) fn undelivered(db: &Db, webhook: &str) -> DbResult<u64> {
    db.row(UNDELIVERED, [webhook], |row| row.get(0))
}

/// Makes a delivery due again, as if it had never been tried. Returns it, or `None` if it is unknown or delivered.
pub(crate) fn retry(tx: &Db, number: i64, now_ms: u64) -> DbResult<Option<Delivery>> {
    let changed = tx.execute(RETRY, named_params! {":id": number, ":now": now_ms})?;
    if changed == 0 {
        return Ok(None);
    }
    tx.optional_row(super::FIND, [number], Delivery::of)
}

const DUE: &str = select_deliveries!(
    "WHERE o.webhook = :webhook AND o.state = 'pending' AND o.next_at_ms <= :now ORDER BY o.next_at_ms, o.id LIMIT :rows"
);
const DUE_IN_ORDER: &str = select_deliveries!(
    "WHERE o.id = (SELECT min(id) FROM outbox WHERE webhook = :webhook AND state = 'pending') AND o.next_at_ms <= :now \
     LIMIT :rows"
);
const RECORD: &str = "UPDATE outbox SET state = :state, tries = tries + 1, next_at_ms = :next, last_status = :status, \
     last_error = :error, updated_at_ms = :now WHERE id = :id AND state = 'pending' AND tries = :tries_before";
const UNDELIVERED: &str = "SELECT count(*) FROM outbox WHERE webhook = :webhook AND state <> 'delivered'";
const RETRY: &str = "UPDATE outbox SET state = 'pending', tries = 0, next_at_ms = :now, lease = NULL, \
     updated_at_ms = :now WHERE id = :id AND state <> 'delivered'";
