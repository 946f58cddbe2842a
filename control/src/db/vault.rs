//! The table `vault`: sealed secrets of the database itself.

use crate::db::engine::{Db, DbError, DbResult, named_params};

/// The row of the key that seals all other secrets.
pub(crate) const DATA_KEY: &str = "data_key";
/// The row of the same key, sealed by the next key of the environment, while nodes restart with that one.
pub(crate) const NEXT_DATA_KEY: &str = "data_key_next";
/// The row of the key for hashing the keys that clients present.
pub(crate) const KEY_HASH_KEY: &str = "key_hash_key";

/// Inserts a row; its name must be new.
pub(crate) fn insert(db: &Db, name: &str, sealed: &[u8], now_ms: u64) -> DbResult<()> {
    db.execute(INSERT, named_params! {":name": name, ":sealed": sealed, ":now": now_ms})?;
    Ok(())
}

/// Replaces the sealed bytes of the row `name`, which must exist.
pub(crate) fn replace(db: &Db, name: &str, sealed: &[u8]) -> DbResult<()> {
    match db.execute(REPLACE, named_params! {":name": name, ":sealed": sealed})? {
        1 => Ok(()),
        _ => Err(DbError::no_row()),
    }
}

/// Deletes the row `name`, if it exists.
pub(crate) fn remove(db: &Db, name: &str) -> DbResult<()> {
    db.execute(REMOVE, named_params! {":name": name}).map(drop)
}

/// Returns the sealed bytes of the row `name`.
pub(crate) fn sealed(db: &Db, name: &str) -> DbResult<Option<Vec<u8>>> {
    db.optional_row(SEALED, named_params! {":name": name}, |row| row.get("sealed"))
}

/// Makes `db` overwrite deleted content from now on, so that old rows cannot be found in the file.
pub(crate) fn leave_nothing_behind(db: &Db) -> DbResult<()> {
    db.set_pragma(None, "secure_delete", true)
}

/// Moves all pages into the database file and empties the write-ahead log, which still contains older pages.
pub(crate) fn forget_pages(db: &Db) -> DbResult<()> {
    let busy: bool = db.row(CHECKPOINT, (), |row| row.get(0))?;
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
const REMOVE: &str = "DELETE FROM vault WHERE name = :name";
const SEALED: &str = "SELECT sealed FROM vault WHERE name = :name";
