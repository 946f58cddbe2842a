//! The table `anonymous_checks`: the last claim on the check of each anonymous provider. A row outlives its provider, so
//! that one that was deleted is not created again.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _};

/// Returns the time of the last claim.
pub(crate) fn claimed_at(db: &Connection, id: &str) -> rusqlite::Result<Option<u64>> {
    db.prepare_cached(FIND)?.query_row([id], |row| row.get("claimed_at_ms")).optional()
}

/// Returns the time of each provider's last claim.
pub(crate) fn claims(db: &Connection) -> rusqlite::Result<HashMap<String, u64>> {
    db.prepare_cached(ALL)?.query_map([], |row| Ok((row.get("id")?, row.get("claimed_at_ms")?)))?.collect()
}

/// Stores a claim.
pub(crate) fn claim(tx: &Connection, id: &str, now_ms: u64) -> rusqlite::Result<()> {
    tx.prepare_cached(CLAIM)?.execute((id, now_ms))?;
    Ok(())
}

const FIND: &str = "SELECT claimed_at_ms FROM anonymous_checks WHERE id = ?";
const ALL: &str = "SELECT id, claimed_at_ms FROM anonymous_checks";
const CLAIM: &str = "INSERT INTO anonymous_checks (id, claimed_at_ms) VALUES (?, ?) \
     ON CONFLICT (id) DO UPDATE SET claimed_at_ms = excluded.claimed_at_ms";
