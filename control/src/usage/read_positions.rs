//! The table `usage_journal`: the read position of each journal file.

use std::collections::HashMap;

use records::frame::FileId;

use crate::db::engine::{Db, DbResult};

/// Returns the number of stored bytes of every known file.
pub(crate) fn all(db: &Db) -> DbResult<HashMap<FileId, u64>> {
    db.rows(ALL, (), |row| {
        let file = FileId { origin: row.get("origin")?, number: row.get("number")? };
        Ok((file, row.get("bytes")?))
    })
}

/// Records that the first `bytes` bytes of the file are stored. Runs in the transaction that stores them.
pub(crate) fn set(tx: &Db, file: FileId, bytes: u64) -> DbResult<()> {
    tx.execute(SET, [file.origin, file.number, bytes])?;
    Ok(())
}

/// Deletes the read position of a file that is permanently gone.
pub(crate) fn forget(tx: &Db, file: FileId) -> DbResult<()> {
    tx.execute(FORGET, [file.origin, file.number])?;
    Ok(())
}

const ALL: &str = "SELECT origin, number, bytes FROM usage_journal";
const SET: &str = "INSERT INTO usage_journal (origin, number, bytes) VALUES (:origin, :number, :bytes) \
     ON CONFLICT (origin, number) DO UPDATE SET bytes = excluded.bytes";
const FORGET: &str = "DELETE FROM usage_journal WHERE origin = :origin AND number = :number";
