//! The table `usage_journal`: the read position of each journal file.

use std::collections::HashMap;

use records::frame::FileId;
use rusqlite::Connection;

/// Returns the number of stored bytes of every known file.
pub(crate) fn all(db: &Connection) -> rusqlite::Result<HashMap<FileId, u64>> {
    let mut statement = db.prepare_cached(ALL)?;
    let rows = statement.query_map([], |row| {
        let file = FileId { origin: row.get("origin")?, number: row.get("number")? };
        Ok((file, row.get("bytes")?))
    })?;
    rows.collect()
}

/// Records that the first `bytes` bytes of the file are stored. Runs in the transaction that stores them.
pub(crate) fn set(tx: &Connection, file: FileId, bytes: u64) -> rusqlite::Result<()> {
    tx.prepare_cached(SET)?.execute([file.origin, file.number, bytes])?;
    Ok(())
}

/// Deletes the read position of a file that is permanently gone.
pub(crate) fn forget(tx: &Connection, file: FileId) -> rusqlite::Result<()> {
    tx.prepare_cached(FORGET)?.execute([file.origin, file.number])?;
    Ok(())
}

const ALL: &str = "SELECT origin, number, bytes FROM usage_journal";
const SET: &str = "REPLACE INTO usage_journal (origin, number, bytes) VALUES (?, ?, ?)";
const FORGET: &str = "DELETE FROM usage_journal WHERE origin = ? AND number = ?";
