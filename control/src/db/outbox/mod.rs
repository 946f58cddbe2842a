//! The tables `events` and `outbox`: events, and their deliveries to webhooks and external workers (ADM-5).
//!
//! [`emit`] runs in the transaction of the event's cause, so that an event exists exactly if its cause was committed.

pub(crate) mod delivery;
pub(crate) mod lease;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::common::bounds::OUTBOX_EVENTS;
use crate::common::vault::random;
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult, Row, named_params};

/// An event to emit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewEvent<'a> {
    /// The kind, such as `provider_down`.
    pub(crate) kind: &'a str,
    /// The object concerned, such as a provider; `None` for the gateway.
    pub(crate) object: Option<&'a str>,
    /// A JSON object for the receivers.
    pub(crate) data: &'a Value,
    /// True if it only reports the end of a condition; webhooks receive it if they ask for such events.
    pub(crate) is_resolution: bool,
}

/// Stores an event and its deliveries: one to workers, and one to each webhook whose filter it passes. Returns its
/// number.
pub(crate) fn emit(tx: &Db, event: &NewEvent<'_>, now_ms: u64) -> DbResult<i64> {
    let random: [u8; 10] = random().map_err(|error| DbError::new(DbErrorKind::Other, error.to_string()))?;
    let values = named_params! {
        ":name": format!("evt_{now_ms:012x}{}", hex::encode(&random)),
        ":kind": event.kind,
        ":object": event.object,
        ":data": event.data.to_string(),
        ":now": now_ms,
    };
    let number: i64 = tx.row(INSERT_EVENT, values, |row| row.get(0))?;
    tx.execute(
        INSERT_DELIVERIES,
        named_params! {
            ":event": number,
            ":kind": event.kind,
            ":is_resolution": event.is_resolution,
            ":now": now_ms,
        },
    )?;
    Ok(number)
}

/// An event as receivers get it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OutboxEvent"))]
pub(crate) struct Event {
    /// Unique; the same for all deliveries and tries of the event.
    pub(crate) id: String,
    /// Ascends in the order in which events were stored.
    pub(crate) sequence: i64,
    /// The kind, such as `provider_down`.
    pub(crate) kind: String,
    /// The object concerned; null for the gateway.
    pub(crate) object: Option<String>,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
    /// The content, which depends on the kind.
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, Value>"))]
    pub(crate) data: Box<RawValue>,
}

impl Event {
    /// Reads the columns of `events`, which the query names `event_*`.
    fn of(row: Row<'_>) -> DbResult<Self> {
        let data: String = row.get("event_data")?;
        Ok(Self {
            id: row.get("event_name")?,
            sequence: row.get("event_id")?,
            kind: row.get("event_kind")?,
            object: row.get("event_object")?,
            created_at_ms: row.get("event_created_at_ms")?,
            data: RawValue::from_string(data).unwrap_or_default(),
        })
    }
}

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeliveryState {
    /// It waits for its next try, or for a worker.
    Pending,
    /// A worker holds it.
    Leased,
    Delivered,
    /// It failed too often and is only tried again on request.
    Dead,
}

impl DeliveryState {
    pub(crate) const ALL: [(&'static str, Self); 4] = [
        ("pending", Self::Pending),
        ("leased", Self::Leased),
        ("delivered", Self::Delivered),
        ("dead", Self::Dead),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, state)| *state == self).map_or("", |(name, _)| name)
    }

    fn named(name: &str) -> Self {
        Self::ALL.iter().find(|(known, _)| *known == name).map_or(Self::Dead, |(_, state)| *state)
    }
}

/// One delivery of an event.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Delivery {
    pub(crate) id: String,
    pub(crate) event: Event,
    /// The webhook; null for external workers.
    pub(crate) webhook: Option<String>,
    /// The name of the webhook; null for external workers.
    pub(crate) webhook_name: Option<String>,
    pub(crate) state: DeliveryState,
    /// The failed tries, plus the successful one.
    pub(crate) tries: u32,
    /// The time of the next try, or the end of the lease, in milliseconds since the Unix epoch; null if neither follows.
    pub(crate) next_at_ms: Option<u64>,
    /// The worker that holds it, or held it last; null for webhooks, and before a worker claimed it.
    pub(crate) worker: Option<String>,
    /// The status of the receiver's last answer; null if there was none.
    pub(crate) last_status: Option<u16>,
    /// The reason of the last failure; null after a success.
    pub(crate) last_error: Option<String>,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
    /// The time of the last change, in milliseconds since the Unix epoch.
    pub(crate) updated_at_ms: u64,
    /// The lease that a worker must name.
    #[serde(skip)]
    pub(crate) lease: Option<String>,
}

impl Delivery {
    fn of(row: Row<'_>) -> DbResult<Self> {
        let state: String = row.get("state")?;
        Ok(Self {
            id: row.get::<i64>("id")?.to_string(),
            event: Event::of(row)?,
            webhook: row.get("webhook")?,
            webhook_name: row.get("webhook_name")?,
            state: DeliveryState::named(&state),
            tries: row.get("tries")?,
            next_at_ms: row.get("next_at_ms")?,
            worker: row.get("worker")?,
            last_status: row.get("last_status")?,
            last_error: row.get("last_error")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
            lease: row.get("lease")?,
        })
    }
}

/// A filter for deliveries. An absent field matches all.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliveryFilter {
    pub(crate) state: Option<DeliveryState>,
    pub(crate) kind: Option<String>,
    /// The ID of a webhook, or `workers`.
    pub(crate) to: Option<String>,
    /// A part of the kind or object of the event, of the receiver's name, or of the last error; case is ignored for ASCII
    /// letters.
    pub(crate) text: Option<String>,
}

/// Returns up to `rows` matching deliveries with numbers below `before`, newest first.
pub(crate) fn page(db: &Db, filter: &DeliveryFilter, before: i64, rows: i64) -> DbResult<Vec<Delivery>> {
    let values = named_params! {
        ":before": before,
        ":state": filter.state.map(DeliveryState::name),
        ":kind": filter.kind,
        ":to": filter.to,
        ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
        ":rows": rows,
    };
    db.rows(PAGE, values, Delivery::of)
}

/// Returns the delivery with this number.
pub(crate) fn find(db: &Db, number: i64) -> DbResult<Option<Delivery>> {
    db.optional_row(FIND, [number], Delivery::of)
}

/// The deliveries that are not finished, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OutboxFigures {
    /// Deliveries to webhooks that wait for a try.
    pub(crate) pending: u64,
    /// Deliveries that failed too often and need a person.
    pub(crate) dead: u64,
    /// Deliveries that wait for a worker, or that a worker holds.
    pub(crate) for_workers: u64,
}

/// Returns the numbers of unfinished deliveries.
pub(crate) fn figures(db: &Db) -> DbResult<OutboxFigures> {
    db.row(FIGURES, (), |row| {
        Ok(OutboxFigures {
            pending: row.get("pending")?,
            dead: row.get("dead")?,
            for_workers: row.get("for_workers")?,
        })
    })
}

/// Returns the number of dead deliveries of each webhook that has some.
pub(crate) fn dead_by_webhook(db: &Db) -> DbResult<HashMap<String, u64>> {
    db.rows(DEAD_BY_WEBHOOK, (), |row| Ok((row.get("webhook")?, row.get("dead")?)))
}

/// Deletes up to `rows` events of which nothing is left to deliver, with their deliveries: those from before `before_ms`, and
/// the oldest beyond [`OUTBOX_EVENTS`]. Deliveries that wait or have failed are kept, however old or many they are. Those for
/// workers count only if a worker has ever claimed one. Returns the number of deleted events.
pub(crate) fn forget(tx: &Db, before_ms: u64, rows: u32) -> DbResult<usize> {
    // The latest event that a worker had is kept, because it shows that there are workers.
    let of_worker: Option<i64> = tx.optional_row(LAST_OF_WORKER, (), |row| row.get(0))?;
    let expired = named_params! {":before": before_ms, ":of_worker": of_worker, ":rows": rows};
    let deleted = tx.execute(DELETE_EXPIRED, expired)?;
    let over = named_params! {":max": OUTBOX_EVENTS.max(), ":of_worker": of_worker, ":rows": rows};
    let surplus = tx.execute(DELETE_SURPLUS, over)?;
    OUTBOX_EVENTS.reach_times(u64::try_from(surplus).unwrap_or(u64::MAX));
    Ok(deleted + surplus)
}

const INSERT_EVENT: &str = "INSERT INTO events (name, kind, object, data, created_at_ms) VALUES \
     (:name, :kind, :object, :data, :now) RETURNING id";
const INSERT_DELIVERIES: &str = "INSERT INTO outbox (event, webhook, state, tries, next_at_ms, created_at_ms, updated_at_ms) \
     SELECT CAST(:event AS BIGINT), NULL, 'pending', 0, CAST(:now AS BIGINT), CAST(:now AS BIGINT), CAST(:now AS BIGINT) UNION ALL \
     SELECT :event, id, 'pending', 0, :now, :now, :now FROM webhooks WHERE disabled = 0 \
     AND (send_resolved = 1 OR :is_resolution = 0) \
     AND (kinds IS NULL OR EXISTS (SELECT 1 FROM json_each(kinds) WHERE value = :kind))";

macro_rules! select_deliveries {
    ($rest:literal) => {
        concat!(
            "SELECT o.*, w.name AS webhook_name, e.id AS event_id, e.name AS event_name, e.kind AS event_kind, \
             e.object AS event_object, e.data AS event_data, e.created_at_ms AS event_created_at_ms \
             FROM outbox o JOIN events e ON e.id = o.event LEFT JOIN webhooks w ON w.id = o.webhook ",
            $rest
        )
    };
}
use select_deliveries;
use shared::hex;

const PAGE: &str = select_deliveries!(
    "WHERE o.id < :before AND (:state IS NULL OR o.state = :state) AND (:kind IS NULL OR e.kind = :kind) \
     AND (coalesce(o.webhook, 'workers') = :to OR :to IS NULL AND (o.webhook IS NOT NULL OR EXISTS \
     (SELECT 1 FROM outbox WHERE webhook IS NULL AND (state <> 'pending' OR tries > 0)))) \
     AND (:q IS NULL OR instr(lower(e.kind), :q) > 0 OR instr(lower(e.object), :q) > 0 \
     OR instr(lower(coalesce(w.name, 'workers')), :q) > 0 OR instr(lower(o.last_error), :q) > 0) ORDER BY o.id DESC LIMIT :rows"
);
const FIND: &str = select_deliveries!("WHERE o.id = :id");
const FIGURES: &str = "SELECT \
     (SELECT count(*) FROM outbox WHERE state = 'pending' AND webhook IS NOT NULL) AS pending, \
     (SELECT count(*) FROM outbox WHERE state = 'dead') AS dead, \
     (SELECT count(*) FROM outbox WHERE state = 'pending' AND webhook IS NULL) \
     + (SELECT count(*) FROM outbox WHERE state = 'leased') AS for_workers";
const DEAD_BY_WEBHOOK: &str = "SELECT webhook, count(*) AS dead FROM outbox \
     WHERE state = 'dead' AND webhook IS NOT NULL GROUP BY webhook";
const LAST_OF_WORKER: &str = "SELECT event FROM outbox WHERE webhook IS NULL AND (state <> 'pending' OR tries > 0) \
     ORDER BY id DESC LIMIT 1";

/// Deletes the first `:rows` events that `$which` names and of which all is delivered.
macro_rules! delete_delivered {
    ($which:literal) => {
        concat!(
            "DELETE FROM events WHERE id IN (SELECT id FROM events e WHERE ",
            $which,
            " AND id IS DISTINCT FROM :of_worker AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.event = e.id AND o.state <> 'delivered' \
             AND (o.webhook IS NOT NULL OR :of_worker IS NOT NULL)) ORDER BY id LIMIT :rows)"
        )
    };
}

const DELETE_EXPIRED: &str = delete_delivered!("created_at_ms < :before");
const DELETE_SURPLUS: &str = delete_delivered!("id <= (SELECT max(id) FROM events) - :max");

#[cfg(test)]
mod tests;
