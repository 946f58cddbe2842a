//! The table `vault`: sealed secrets of the database itself.

use rusqlite::{Connection, OptionalExtension as _, named_params};

/// The row of the key that seals all other secrets.
pub(crate) const DATA_KEY: &str = "data_key";
/// The row of the key for hashing the keys that clients present.
pub(crate) const KEY_HASH_KEY: &str = "key_hash_key";

/// Inserts a row; its name must be new.
pub(crate) fn insert(db: &Connection, name: &str, sealed: &[u8], now_ms: u64) -> rusqlite::Result<()> {
    db.execute(INSERT, named_params! {":name": name, ":sealed": sealed, ":now": now_ms})?;
    Ok(())
}

/// Replaces the sealed bytes of the row `name`, which must exist.
pub(crate) fn replace(db: &Connection, name: &str, sealed: &[u8]) -> rusqlite::Result<()> {
    match db.prepare_cached(REPLACE)?.execute(named_params! {":name": name, ":sealed": sealed})? {
        1 => Ok(()),
        _ => Err(rusqlite::Error::QueryReturnedNoRows),
    }
}

/// Returns the sealed bytes of the row `name`.
pub(crate) fn sealed(db: &Connection, name: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    db.query_row(SEALED, named_params! {":name": name}, |row| row.get("sealed")).optional()
}

/// Makes `db` overwrite deleted content from now on, so that old rows cannot be found in the file.
pub(crate) fn leave_nothing_behind(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))
}

/// Moves all pages into the database file and empties the write-ahead log, which still contains older pages.
pub(crate) fn forget_pages(db: &Connection) -> rusqlite::Result<()> {
    let busy: bool = db.query_row(CHECKPOINT, [], |row| row.get(0))?;
    if busy {
        tracing::warn!(
            "the write-ahead log could not be emptied, because another process reads the database"
        );
    }
    Ok(())
}

const CHECKPOINT: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
const INSERT: &str = "INSERT INTO vault (name, sealed, created_at_ms) VALUES (:name, :sealed, :now)";
const REPLACE: &str = "UPDATE vault SET sealed = :sealed WHERE name = :name";
const SEALED: &str = "SELECT sealed FROM vault WHERE name = :name";
