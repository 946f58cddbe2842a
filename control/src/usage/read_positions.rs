//! The table `usage_journal`: the read position of each journal file. It only moves from the position that its reader
//! knows, so the records of a file that two processes read are stored once.

use std::collections::HashMap;

use records::frame::FileId;

use crate::db::engine::{Db, DbResult, Row, named_params};
use crate::db::record_id::NodeId;

/// Returns the number of stored bytes of every known file of this node.
pub(crate) fn all(db: &Db) -> DbResult<HashMap<FileId, u64>> {
    db.rows(ALL, [NodeId::of(db)], read)
}

/// Returns the number of stored bytes of every known file of any node.
pub(crate) fn of_all_nodes(db: &Db) -> DbResult<HashMap<FileId, u64>> {
    db.rows(OF_ALL_NODES, (), read)
}

fn read(row: Row<'_>) -> DbResult<(FileId, u64)> {
    let file = FileId { origin: row.get("origin")?, number: row.get("number")? };
    Ok((file, row.get("bytes")?))
}

/// Records that the first `to` bytes of the file are stored, of which the first `from` were before. Runs in the transaction
/// that stores them. Returns false if another number was: the transaction must not be committed.
pub(crate) fn advance(tx: &Db, file: FileId, from: u64, to: u64) -> DbResult<bool> {
    let FileId { origin, number } = file;
    let moved = if from == 0 {
        let node = NodeId::of(tx);
        tx.execute(BEGIN, named_params! {":origin": origin, ":number": number, ":bytes": to, ":node": node})?
    } else {
        let values = named_params! {":origin": origin, ":number": number, ":from": from, ":to": to};
        tx.execute(ADVANCE, values)?
    };
    Ok(moved == 1)
}

/// Deletes the read position of a file that is permanently gone.
pub(crate) fn forget(tx: &Db, file: FileId) -> DbResult<()> {
    tx.execute(FORGET, [file.origin, file.number])?;
    Ok(())
}

const ALL: &str = "SELECT origin, number, bytes FROM usage_journal WHERE node = :node";
const OF_ALL_NODES: &str = "SELECT origin, number, bytes FROM usage_journal";
const BEGIN: &str = "INSERT INTO usage_journal (origin, number, bytes, node) VALUES (:origin, :number, :bytes, :node) \
     ON CONFLICT (origin, number) DO NOTHING";
const ADVANCE: &str = "UPDATE usage_journal SET bytes = :to \
     WHERE origin = :origin AND number = :number AND bytes = :from";
const FORGET: &str = "DELETE FROM usage_journal WHERE origin = :origin AND number = :number";
