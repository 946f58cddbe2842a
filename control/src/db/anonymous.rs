//! The table `anonymous_checks`: the last claim on the check of each anonymous provider. A row outlives its provider, so
//! that one that was deleted is not created again.

use std::collections::HashMap;

use crate::db::engine::{Db, DbResult};

/// Returns the time of the last claim.
pub(crate) fn claimed_at(db: &Db, id: &str) -> DbResult<Option<u64>> {
    db.optional_row(FIND, [id], |row| row.get("claimed_at_ms"))
}

/// Returns the time of each provider's last claim.
pub(crate) fn claims(db: &Db) -> DbResult<HashMap<String, u64>> {
    db.rows(ALL, (), |row| Ok((row.get("id")?, row.get("claimed_at_ms")?)))
}

/// Stores a claim.
pub(crate) fn claim(tx: &Db, id: &str, now_ms: u64) -> DbResult<()> {
    tx.execute(CLAIM, (id, now_ms))?;
    Ok(())
}

const FIND: &str = "SELECT claimed_at_ms FROM anonymous_checks WHERE id = :id";
const ALL: &str = "SELECT id, claimed_at_ms FROM anonymous_checks";
const CLAIM: &str = "INSERT INTO anonymous_checks (id, claimed_at_ms) VALUES (:id, :claimed_at_ms) \
     ON CONFLICT (id) DO UPDATE SET claimed_at_ms = excluded.claimed_at_ms";
