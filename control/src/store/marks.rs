//! The table `usage_journal`: how far each journal file is stored.

use std::collections::HashMap;

use rusqlite::Connection;

/// A journal file: who wrote it (random for each worker of each process), and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) origin: u64,
    pub(crate) number: u64,
}

impl FileId {
    /// This id, for a file that is made now; the next file of the same origin gets another one.
    pub(crate) fn take(&mut self) -> Self {
        let id = *self;
        self.number += 1;
        id
    }
}

/// Every file that is known, with the bytes of it that are stored.
pub(crate) fn all(db: &Connection) -> rusqlite::Result<HashMap<FileId, u64>> {
    let mut statement = db.prepare_cached(ALL)?;
    let rows = statement.query_map([], |row| {
        let file = FileId { origin: row.get("origin")?, number: row.get("number")? };
        Ok((file, row.get("bytes")?))
    })?;
    rows.collect()
}

/// The first `bytes` of the file are stored. Runs in the transaction that stores them.
pub(crate) fn set(tx: &Connection, file: FileId, bytes: u64) -> rusqlite::Result<()> {
    tx.prepare_cached(SET)?.execute([file.origin, file.number, bytes])?;
    Ok(())
}

/// The file is gone for good.
pub(crate) fn forget(tx: &Connection, file: FileId) -> rusqlite::Result<()> {
    tx.prepare_cached(FORGET)?.execute([file.origin, file.number])?;
    Ok(())
}

const ALL: &str = "SELECT origin, number, bytes FROM usage_journal";
const SET: &str = "REPLACE INTO usage_journal (origin, number, bytes) VALUES (?, ?, ?)";
const FORGET: &str = "DELETE FROM usage_journal WHERE origin = ? AND number = ?";
