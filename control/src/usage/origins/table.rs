//! The table `response_origins`.

use records::{Record, RecordName};
use shared::id::ProviderId;
use shared::port::{StateOrigin, WantedState};
use shared::usage::{Provenance, owner_of_state};

use crate::db::engine::{Db, DbResult, Row, named_params};
use crate::db::{HOUR_MS, signed};

/// Adds the state that the provider of an exchange stored, if it stored any, or marks a response that the exchange has
/// deleted. Runs in the transaction that stores the exchange. The mark stays as long as an origin would: the exchanges of
/// several workers are stored in any order, so the one that made the response may follow.
pub(crate) fn add(tx: &Db, record: &Record<'_>) -> DbResult<()> {
    let Some(state) = record.stored_state else { return Ok(()) };
    let is_reported = record.name(RecordName::Provenance) == Provenance::Reported.name();
    let tokens = is_reported.then(|| signed(record.tokens.total()));
    let [provider, model] = [RecordName::Provider, RecordName::Model]
        .map(|name| if state.is_deleted { "" } else { record.name(name) });
    let tokens = tokens.filter(|_| !state.is_deleted);
    let owner = owner_of_state(record.name_if_any(RecordName::Project), record.name(RecordName::Key));
    let states = [Some((state.response, tokens)), state.conversation.map(|hash| (hash, None))];
    for (hash, tokens) in states.into_iter().flatten() {
        let values = named_params! {
            ":day": record.started_at_ms / DAY_MS,
            ":hash": &hash.0[..],
            ":owner": owner,
            ":provider": provider,
            ":model": model,
            ":address": state.address,
            ":tokens": tokens,
        };
        tx.execute(ADD, values)?;
    }
    Ok(())
}

/// Returns the newest origin of the wanted state. A response that was deleted has none.
pub(super) fn find(db: &Db, wanted: &WantedState, now_ms: u64) -> DbResult<StateOrigin> {
    let WantedState { owner, hash, tells_foreign } = wanted;
    let today = now_ms / DAY_MS;
    // A clock that was set back does not hide what was stored before.
    let days: Vec<String> =
        (today.saturating_sub(KEPT_DAYS)..=today + 1).rev().map(|day| day.to_string()).collect();
    let days = format!("[{}]", days.join(","));
    let own = |row: Row<'_>| {
        Ok(StateOrigin::Own {
            provider: ProviderId::new(row.get::<String>("provider")?),
            address: row.get("address")?,
            tokens: row.get("tokens")?,
        })
    };
    let values = named_params! {":hash": &hash.0[..], ":owner": owner, ":days": days};
    match db.optional_row(OWN, values, own)? {
        Some(StateOrigin::Own { provider, .. }) if provider.as_str().is_empty() => {
            return Ok(StateOrigin::Unknown);
        }
        Some(own) => return Ok(own),
        None => {}
    }
    let is_foreign =
        *tells_foreign && db.exists(ANYONES, named_params! {":hash": &hash.0[..], ":days": days})?;
    Ok(if is_foreign { StateOrigin::Foreign } else { StateOrigin::Unknown })
}

/// Deletes some rows of days before `before_ms`, the oldest first. Returns true if all are deleted.
pub(crate) fn forget(tx: &Db, before_ms: u64) -> DbResult<bool> {
    let deleted = tx.execute(FORGET, named_params! {":before": before_ms / DAY_MS})?;
    Ok(deleted < FORGOTTEN_AT_ONCE)
}

/// The days for which an origin is kept, as vendors keep responses; fewer if usage is kept for fewer.
pub(crate) const KEPT_DAYS: u64 = 30;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The limit in `FORGET`.
const FORGOTTEN_AT_ONCE: usize = 256;
const ADD: &str = "INSERT INTO response_origins (day, hash, owner, provider, model, address, tokens) \
     VALUES (:day, :hash, :owner, :provider, :model, :address, :tokens) ON CONFLICT (day, hash, owner) DO UPDATE SET \
     provider = excluded.provider, model = excluded.model, address = excluded.address, tokens = excluded.tokens \
     WHERE response_origins.provider <> ''";
const OWN: &str = "SELECT provider, address, tokens FROM response_origins \
     WHERE day IN (SELECT CAST(value AS BIGINT) FROM json_each(:days)) AND hash = :hash AND owner = :owner ORDER BY day DESC LIMIT 1";
const ANYONES: &str = "SELECT 1 FROM response_origins \
     WHERE day IN (SELECT CAST(value AS BIGINT) FROM json_each(:days)) AND hash = :hash LIMIT 1";
const FORGET: &str = "DELETE FROM response_origins WHERE (day, hash, owner) IN \
     (SELECT day, hash, owner FROM response_origins WHERE day < :before ORDER BY day LIMIT 256)";
