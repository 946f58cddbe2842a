//! Writes the table `usage`. Exchanges are added to the last row until it is large enough, so that an idle gateway has
//! few rows and a busy one writes each row once. A row contains the exchanges of one node that started on one UTC day.

use std::mem;

use records::block::Block;
use records::{Record, Trace};

use super::last_answers::NewAnswers;
use super::metrics::ExchangeSums;
use super::periods;
use super::recent::feed::RowPlace;
use super::request_index;
use super::rollup::{DAY_HOURS, Rollup};
use super::target_groups::TargetGroups;
use crate::db::HOUR_MS;
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult, Row};
use crate::db::packed_row::{change, insert};
use crate::db::record_id::{NodeId, RecordId};

/// The writer of the table.
#[derive(Debug, Default)]
pub(crate) struct UsageTable {
    /// The rows that are being filled, one for each day of the current transaction. Between transactions only the last
    /// row of the table, unless it is closed.
    rows: Vec<OpenRow>,
    /// The id of the next row, once known.
    next: Option<RecordId>,
    /// The sums of the groups of the current transaction.
    sums: GroupSums,
    /// The counts of the current transaction.
    counts: Stored,
    /// The end of the table; `None` if it has not been read since the start or since a failure.
    end: Option<RowPlace>,
    /// True if the current transaction found that another process has changed or deleted the row that it adds to.
    is_row_lost: bool,
}

/// A row that is being filled: exchanges that started on one UTC day.
#[derive(Debug, Default)]
struct OpenRow {
    /// The number of the day since the Unix epoch; `None` if the row is empty.
    day: Option<u64>,
    /// The id and the digest, once it was written.
    stored: Option<(RecordId, u64)>,
    block: Block,
    rollup: Rollup,
    groups: TargetGroups,
    /// True if exchanges were added since it was written.
    is_changed: bool,
}

/// The sums of groups of exchanges.
#[derive(Debug, Default)]
pub(crate) struct GroupSums {
    pub(crate) metrics: ExchangeSums,
    pub(crate) answers: NewAnswers,
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
    /// Adds an exchange and its sums at `now_ms`; `None` for one that this process has counted before. They are stored when
    /// [`finish`](Self::finish) is called in the same transaction.
    pub(crate) fn add(
        &mut self,
        tx: &Db,
        record: &Record<'_>,
        trace: Trace<'_>,
        now_ms: Option<u64>,
    ) -> DbResult<()> {
        let at = self.row_of(record.started_at_ms / DAY_MS);
        self.counts.added += 1;
        let Some(row) = self.rows.get_mut(at) else { return Ok(()) };
        row.add(record, trace, now_ms);
        if row.block.rows.len() >= BYTES_MAX {
            self.write(tx, at)?;
            self.rows.get_mut(at).into_iter().for_each(OpenRow::close);
        }
        Ok(())
    }

    /// Writes the added exchanges. Must be called before the commit.
    pub(crate) fn finish(&mut self, tx: &Db) -> DbResult<Stored> {
        // The row that has an id already is the first.
        self.rows.sort_by_key(|row| (row.stored.is_none(), row.day));
        (0..self.rows.len()).try_for_each(|at| self.write(tx, at))?;
        // Only the last row of the table may grow, so that whoever has read the rows in order knows what is new.
        let last = self.end.map(|end| end.id);
        self.rows.retain(|row| row.id().is_some() && row.id() == last && row.block.exchanges < ENOUGH);
        Ok(mem::take(&mut self.counts))
    }

    /// Discards the added exchanges after the transaction failed.
    pub(crate) fn abandon(&mut self) {
        // The table still contains the last row as it was before.
        self.rows.clear();
        self.sums = GroupSums::default();
        self.counts = Stored::default();
        self.end = None;
        self.is_row_lost = false;
    }

    /// True if the current transaction failed because another process has changed or deleted the row that it adds to, such as a
    /// node that reprices. Repeated after [`abandon`](Self::abandon), it starts a new row.
    pub(crate) fn is_row_lost(&self) -> bool {
        self.is_row_lost
    }

    /// Returns the position of the row for exchanges of a day.
    fn row_of(&mut self, day: u64) -> usize {
        let of_day = self.rows.iter().position(|row| row.day == Some(day));
        let at = of_day.or_else(|| self.rows.iter().position(|row| row.day.is_none()));
        at.unwrap_or_else(|| {
            self.rows.push(OpenRow::default());
            self.rows.len() - 1
        })
    }

    fn write(&mut self, tx: &Db, at: usize) -> DbResult<()> {
        let Some(row) = self.rows.get_mut(at).filter(|row| row.is_changed) else { return Ok(()) };
        let OpenRow { block, groups, .. } = row;
        self.counts.rejected += row.rollup.store(tx, block.names())?;
        groups.drain(|group, figures| {
            self.sums.metrics.add_group(group, figures, block.names());
            self.sums.answers.add_group(group, figures, block.names());
        });
        let (id, digest) = match row.stored {
            Some((id, read)) => {
                let Some(digest) = change(tx, id, Some(read), &row.block)? else {
                    self.is_row_lost = true;
                    return Err(DbError::new(
                        DbErrorKind::Busy,
                        format!("another process has changed row {id} of usage"),
                    ));
                };
                (id, digest)
            }
            None => {
                let id = self.next.map_or_else(|| next_id(tx), Ok)?;
                self.next = Some(id.next());
                (id, insert(tx, id, &row.block)?)
            }
        };
        row.stored = Some((id, digest));
        row.is_changed = false;
        let place = RowPlace { id, taken: row.block.exchanges };
        self.end = self.end.filter(|end| end.id > id).or(Some(place));
        Ok(())
    }

    /// Takes the sums of the transaction, which has committed.
    pub(crate) fn take_sums(&mut self) -> GroupSums {
        mem::take(&mut self.sums)
    }

    /// Returns the end of the table: that of the last row of this node.
    pub(crate) fn end(&mut self, db: &Db) -> DbResult<RowPlace> {
        match self.end {
            Some(end) => Ok(end),
            None => Ok(*self.end.insert(end_of_table(db)?)),
        }
    }

    /// Closes the last row: the next exchange starts a new one.
    pub(crate) fn leave_row(&mut self) {
        self.rows.clear();
    }

    /// Returns the id of the first row of `node`, whose rows this writes, that may still change.
    pub(crate) fn open_row(&self, node: NodeId) -> RecordId {
        let open = self.rows.iter().filter_map(OpenRow::id).min();
        open.or(self.next).unwrap_or_else(|| RecordId::end_of(node))
    }
}

impl OpenRow {
    fn add(&mut self, record: &Record<'_>, trace: Trace<'_>, now_ms: Option<u64>) {
        self.day = Some(record.started_at_ms / DAY_MS);
        let pushed = self.block.push(record, trace);
        self.rollup.count(record, &pushed);
        if let Some(now_ms) = now_ms {
            self.groups.add(record, trace, &pushed, now_ms);
        }
        self.is_changed = true;
    }

    /// Prepares a row that was written for exchanges of another one.
    fn close(&mut self) {
        self.block.clear();
        (self.day, self.stored) = (None, None);
    }

    fn id(&self) -> Option<RecordId> {
        self.stored.map(|(id, _)| id)
    }
}

/// Returns the end of the table: that of the last row of this node.
fn end_of_table(db: &Db) -> DbResult<RowPlace> {
    let place = |row: Row<'_>| Ok(RowPlace { id: row.get("id")?, taken: row.get("exchanges")? });
    Ok(db.optional_row(LAST, rows_of(NodeId::of(db)), place)?.unwrap_or_default())
}

/// Returns an id that no row has, no run of the request index covers, and no period counts.
fn next_id(db: &Db) -> DbResult<RecordId> {
    let node = NodeId::of(db);
    let last: Option<RecordId> = db.optional_row(LAST, rows_of(node), |row| row.get("id"))?;
    let counted = periods::followed_of(db, node)?.map(|followed| followed.place.id);
    let covered = request_index::covered(db, node)?;
    Ok(last.unwrap_or_else(|| RecordId::before(node)).max(covered).max(counted.unwrap_or_default()).next())
}

/// Returns the bounds of the ids of a node.
fn rows_of(node: NodeId) -> [RecordId; 2] {
    [RecordId::before(node), RecordId::end_of(node)]
}

/// Number of exchanges at which a row is closed.
const ENOUGH: u32 = 64;
/// Size in bytes at which a row is closed.
const BYTES_MAX: usize = 256 << 10;

const DAY_MS: u64 = DAY_HOURS * HOUR_MS;

const LAST: &str =
    "SELECT id, exchanges FROM usage WHERE id >= :first AND id < :end ORDER BY id DESC LIMIT 1";
