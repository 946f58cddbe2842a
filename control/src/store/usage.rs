//! Writing the table `usage`. The last row is added to until it is worth a row of its own, so that a gateway
//! with little to do has few rows, and one with much to do writes each row once.

use std::mem;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::block::Block;
use super::record::{Record, Trace};
use super::request_index;
use super::rollup::Rollup;
use crate::store::signed;

/// Where exchanges are stored. It remembers what the last row holds.
#[derive(Debug, Default)]
pub(crate) struct UsageTable {
    /// The row that is being filled.
    block: Block,
    /// Its id, once known.
    id: Option<i64>,
    rollup: Rollup,
    /// Of the exchanges of this transaction.
    counts: Stored,
}

/// What came of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Exchanges that are new.
    pub(crate) added: u64,
    /// Exchanges whose sums no table takes.
    pub(crate) rejected: u64,
}

impl UsageTable {
    /// Stores an exchange and its sums when [`finish`](Self::finish) is called, in the same transaction.
    pub(crate) fn add(
        &mut self,
        tx: &Connection,
        record: &Record<'_>,
        trace: Trace<'_>,
    ) -> rusqlite::Result<()> {
        let pushed = self.block.push(record, trace);
        self.rollup.count(record, &pushed);
        self.counts.added += 1;
        if self.block.rows.len() >= BYTES_MAX {
            self.write(tx)?;
            self.next();
        }
        Ok(())
    }

    /// Writes what was added. To be called before the commit.
    pub(crate) fn finish(&mut self, tx: &Connection) -> rusqlite::Result<Stored> {
        self.write(tx)?;
        if self.block.exchanges >= ENOUGH {
            self.next();
        }
        Ok(mem::take(&mut self.counts))
    }

    /// Forgets what was added: the transaction failed.
    pub(crate) fn abandon(&mut self) {
        self.rollup.clear();
        self.counts = Stored::default();
        // The row as it was before is in the table, and stays.
        self.next();
    }

    fn write(&mut self, tx: &Connection) -> rusqlite::Result<()> {
        let block = &self.block;
        if block.exchanges == 0 {
            return Ok(());
        }
        self.counts.rejected += self.rollup.store(tx, block.names())?;
        let id = match self.id {
            Some(id) => id,
            None => *self.id.insert(next_id(tx)?),
        };
        put(tx, id, block)
    }

    /// Leaves the last row as it is: what comes next goes into a new one.
    pub(crate) fn leave_row(&mut self) {
        self.next();
    }

    /// Returns the id from which on rows may still change.
    pub(crate) fn open_row(&self) -> i64 {
        self.id.unwrap_or(i64::MAX)
    }

    fn next(&mut self) {
        self.block.clear();
        self.id = self.id.map(|id| id + 1);
    }
}

/// Writes a row, in the place of the one that has this id.
pub(crate) fn put(tx: &Connection, id: i64, block: &Block) -> rusqlite::Result<()> {
    tx.prepare_cached(WRITE)?.execute(params![
        id,
        signed(block.first_ms),
        signed(block.last_ms),
        block.exchanges,
        block.requests,
        block.names().packed,
        block.rows
    ])?;
    Ok(())
}

/// An id that no row has, and that no run of the look-up of request ids covers.
fn next_id(db: &Connection) -> rusqlite::Result<i64> {
    let last: Option<i64> = db.query_row(LAST, [], |row| row.get("id")).optional()?;
    Ok(last.unwrap_or(0).max(request_index::covered(db)?) + 1)
}

/// Exchanges that are worth a row.
const ENOUGH: u32 = 64;
/// A row is not added to above this size.
const BYTES_MAX: usize = 256 << 10;

const LAST: &str = "SELECT id FROM usage ORDER BY id DESC LIMIT 1";
const WRITE: &str = "REPLACE INTO usage (id, first_ms, last_ms, exchanges, requests, names, rows) \
     VALUES (?, ?, ?, ?, ?, ?, ?)";
