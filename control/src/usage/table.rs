//! Writes the table `usage`. Exchanges are added to the last row until it is large enough, so that an idle gateway has
//! few rows and a busy one writes each row once.

use std::mem;

use records::block::Block;
use records::{Record, Trace};

use super::metrics::ExchangeSums;
use super::minutes::MinuteSums;
use super::recent::feed::RowPlace;
use super::request_index;
use super::rollup::Rollup;
use super::target_groups::TargetGroups;
use crate::db::engine::{Db, DbResult, Row};
use crate::db::packed_row::put;

/// The writer of the table. Caches the contents of the last row.
#[derive(Debug, Default)]
pub(crate) struct UsageTable {
    /// The row that is being filled.
    block: Block,
    /// Its id, once known.
    id: Option<i64>,
    rollup: Rollup,
    groups: TargetGroups,
    /// The sums of the groups of the current transaction.
    sums: GroupSums,
    /// The counts of the current transaction.
    counts: Stored,
    /// The end of the table; `None` if it has not been read since the start or since a failure.
    end: Option<RowPlace>,
}

/// The sums of groups of exchanges.
#[derive(Debug, Default)]
pub(crate) struct GroupSums {
    pub(crate) metrics: ExchangeSums,
    pub(crate) minutes: MinuteSums,
}

/// The result of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The number of new exchanges.
    pub(crate) added: u64,
    /// The number of exchanges whose sums were rejected by a table.
    pub(crate) rejected: u64,
}

impl UsageTable {
    /// Adds an exchange and its sums at `now_ms`. They are stored when [`finish`](Self::finish) is called in the same
    /// transaction.
    pub(crate) fn add(
        &mut self,
        tx: &Db,
        record: &Record<'_>,
        trace: Trace<'_>,
        now_ms: u64,
    ) -> DbResult<()> {
        let pushed = self.block.push(record, trace);
        self.rollup.count(record, &pushed);
        self.groups.add(record, trace, &pushed, now_ms);
        self.counts.added += 1;
        if self.block.rows.len() >= BYTES_MAX {
            self.write(tx)?;
            self.next();
        }
        Ok(())
    }

    /// Writes the added exchanges. Must be called before the commit.
    pub(crate) fn finish(&mut self, tx: &Db) -> DbResult<Stored> {
        self.write(tx)?;
        if self.block.exchanges >= ENOUGH {
            self.next();
        }
        Ok(mem::take(&mut self.counts))
    }

    /// Discards the added exchanges after the transaction failed.
    pub(crate) fn abandon(&mut self) {
        self.rollup.clear();
        self.groups.clear();
        self.sums = GroupSums::default();
        self.counts = Stored::default();
        self.end = None;
        // The table still contains the row as it was before.
        self.next();
    }

    fn write(&mut self, tx: &Db) -> DbResult<()> {
        let block = &self.block;
        if block.exchanges == 0 {
            return Ok(());
        }
        self.counts.rejected += self.rollup.store(tx, block.names())?;
        self.groups.drain(|group, figures| {
            self.sums.metrics.add_group(group, figures, block.names());
            self.sums.minutes.add_group(group, figures, block.names());
        });
        let id = match self.id {
            Some(id) => id,
            None => *self.id.insert(next_id(tx)?),
        };
        self.end = Some(RowPlace { id, taken: block.exchanges });
        put(tx, id, block)
    }

    /// Takes the sums of the transaction, which has committed.
    pub(crate) fn take_sums(&mut self) -> GroupSums {
        mem::take(&mut self.sums)
    }

    /// Returns the end of the table.
    pub(crate) fn end(&mut self, db: &Db) -> DbResult<RowPlace> {
        match self.end {
            Some(end) => Ok(end),
            None => Ok(*self.end.insert(end_of_table(db)?)),
        }
    }

    /// Closes the last row: the next exchange starts a new one.
    pub(crate) fn leave_row(&mut self) {
        self.next();
    }

    /// Returns the id of the first row that may still change.
    pub(crate) fn open_row(&self) -> i64 {
        self.id.unwrap_or(i64::MAX)
    }

    fn next(&mut self) {
        self.block.clear();
        self.id = self.id.map(|id| id + 1);
    }
}

/// Returns the end of the table: that of its last row.
fn end_of_table(db: &Db) -> DbResult<RowPlace> {
    let place = |row: Row<'_>| Ok(RowPlace { id: row.get("id")?, taken: row.get("exchanges")? });
    Ok(db.optional_row(LAST, (), place)?.unwrap_or_default())
}

/// Returns an id that no row has and that no run of the request index covers.
fn next_id(db: &Db) -> DbResult<i64> {
    let last: Option<i64> = db.optional_row(LAST, (), |row| row.get("id"))?;
    Ok(last.unwrap_or(0).max(request_index::covered(db)?) + 1)
}

/// Number of exchanges at which a row is closed.
const ENOUGH: u32 = 64;
/// Size in bytes at which a row is closed.
const BYTES_MAX: usize = 256 << 10;

const LAST: &str = "SELECT id, exchanges FROM usage ORDER BY id DESC LIMIT 1";
