//! All exchanges that pass a filter, in the order in which they ended, one block at a time. No statement stays open
//! between two blocks, so a slow reader of an export blocks nothing.

use records::{Record, Trace, block};

use super::requests::RequestFilter;
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::packed_row::PackedRow;
use crate::db::record_id::RecordId;

/// The progress of an export.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    filter: RequestFilter,
    /// The id of the last block that was read.
    done: RecordId,
    /// The id of the last block that existed at the start.
    last: RecordId,
}

impl Progress {
    /// Starts an export of the exchanges that are stored now.
    pub(crate) fn start(db: &Db, filter: &RequestFilter) -> DbResult<Self> {
        let last: Option<RecordId> = db.optional_row(LAST, (), |row| row.get("id"))?;
        Ok(Self { filter: filter.resolved(db)?, done: RecordId::default(), last: last.unwrap_or_default() })
    }

    /// Passes the exchanges of the next block to `each`. Returns false if there is no block left.
    pub(crate) fn step(
        &mut self,
        db: &Db,
        mut each: impl FnMut(&Record<'_>, Trace<'_>) -> DbResult<()>,
    ) -> DbResult<bool> {
        let (from_ms, to_ms) = (self.filter.from_ms.unwrap_or(0), self.filter.to_ms.unwrap_or(u64::MAX));
        let mut statement = db.prepare(NEXT)?;
        let mut blocks = statement.query(named_params! {
            ":done": self.done,
            ":last": self.last,
            ":from": i64::try_from(from_ms).unwrap_or(i64::MAX),
            ":to": i64::try_from(to_ms).unwrap_or(i64::MAX),
        })?;
        let Some(block) = blocks.next()? else { return Ok(false) };
        let row = PackedRow::read(block)?;
        self.done = row.id;
        if self.filter.may_pass(row.id, &row.names) {
            let rows = block::rows(row.rows()?, &row.names).flatten();
            let mut passing = rows.filter(|(record, trace)| self.filter.passes(record, *trace));
            passing.try_for_each(|(record, trace)| each(&record, trace))?;
        }
        Ok(true)
    }
}

const LAST: &str = "SELECT id FROM usage ORDER BY id DESC LIMIT 1";
const NEXT: &str = "SELECT * FROM usage \
     WHERE id > :done AND id <= :last AND last_ms >= :from AND first_ms < :to ORDER BY id LIMIT 1";
