//! The table `vault`: secrets of the database itself, sealed.

use rusqlite::{Connection, OptionalExtension as _, named_params};

/// The row of the key that seals all other secrets.
pub(crate) const DATA_KEY: &str = "data_key";
/// The row of the key under which presented keys are hashed.
pub(crate) const KEY_HASH_KEY: &str = "key_hash_key";

/// Adds a row; its name must be new.
pub(crate) fn insert(db: &Connection, name: &str, sealed: &[u8], now_ms: u64) -> rusqlite::Result<()> {
    db.execute(INSERT, named_params! {":name": name, ":sealed": sealed, ":now": now_ms})?;
    Ok(())
}

/// Puts other sealed bytes in the place of those called `name`.
pub(crate) fn replace(db: &Connection, name: &str, sealed: &[u8]) -> rusqlite::Result<()> {
    match db.prepare_cached(REPLACE)?.execute(named_params! {":name": name, ":sealed": sealed})? {
        1 => Ok(()),
        _ => Err(rusqlite::Error::QueryReturnedNoRows),
    }
}

/// The sealed bytes called `name`.
pub(crate) fn sealed(db: &Connection, name: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    db.query_row(SEALED, named_params! {":name": name}, |row| row.get("sealed")).optional()
}

const INSERT: &str = "INSERT INTO vault (name, sealed, created_at_ms) VALUES (:name, :sealed, :now)";
const REPLACE: &str = "UPDATE vault SET sealed = :sealed WHERE name = :name";
const SEALED: &str = "SELECT sealed FROM vault WHERE name = :name";
