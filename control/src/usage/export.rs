//! All exchanges that pass a filter, day by day in the order of their times, one row at a time. No statement stays open
//! between two rows, so a slow reader of an export blocks nothing.
//!
//! The ids of a day's rows are read at once: a row never changes its day, while its last time may change until it is
//! closed. So each row is read once, whatever is stored meanwhile.

use std::collections::HashMap;

use records::{Record, Trace, block};

use super::last_rows::last_rows;
use super::requests::RequestFilter;
use super::rollup::DAY_HOURS;
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::packed_row::PackedRow;
use crate::db::record_id::{NodeId, RecordId};
use crate::db::{HOUR_MS, signed};

/// The progress of an export.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    filter: RequestFilter,
    /// The last row of each node that existed at the start.
    last: HashMap<NodeId, RecordId>,
    /// The rows of the current day that were not read yet, in reverse order.
    rows: Vec<RecordId>,
    /// The start of the time that follows the current day.
    next_ms: u64,
}

impl Progress {
    /// Starts an export of the exchanges that are stored now.
    pub(crate) fn start(db: &Db, filter: &RequestFilter) -> DbResult<Self> {
        let last = last_rows(db)?.into_iter().map(|id| (id.node(), id)).collect();
        let next_ms = filter.from_ms.unwrap_or(0);
        Ok(Self { filter: filter.resolved(db)?, last, rows: Vec::new(), next_ms })
    }

    /// Passes the exchanges of the next row to `each`. Returns false if there is no row left.
    pub(crate) fn step(
        &mut self,
        db: &Db,
        mut each: impl FnMut(&Record<'_>, Trace<'_>) -> DbResult<()>,
    ) -> DbResult<bool> {
        loop {
            while let Some(id) = self.rows.pop() {
                if self.row(db, id, &mut each)? {
                    return Ok(true);
                }
            }
            if !self.next_day(db)? {
                return Ok(false);
            }
        }
    }

    /// Passes the exchanges of a row to `each`. Returns false if it was deleted.
    fn row(
        &self,
        db: &Db,
        id: RecordId,
        each: &mut impl FnMut(&Record<'_>, Trace<'_>) -> DbResult<()>,
    ) -> DbResult<bool> {
        let mut statement = db.prepare(ROW)?;
        let mut found = statement.query([id])?;
        let Some(row) = found.next()? else { return Ok(false) };
        let row = PackedRow::read(row)?;
        if self.filter.may_pass(row.id, &row.names) {
            let rows = block::rows(row.rows()?, &row.names).flatten();
            let mut passing = rows.filter(|(record, trace)| self.filter.passes(record, *trace));
            passing.try_for_each(|(record, trace)| each(&record, trace))?;
        }
        Ok(true)
    }

    /// Reads the ids of the next day's rows. Returns false if there is no such day.
    fn next_day(&mut self, db: &Db) -> DbResult<bool> {
        let from_ms = signed(self.next_ms);
        let first_ms: Option<u64> = db.row(NEXT_MS, [from_ms], |row| row.get("last_ms"))?;
        let Some(first_ms) = first_ms else { return Ok(false) };
        self.next_ms = (first_ms / DAY_MS + 1).saturating_mul(DAY_MS);
        let times = named_params! {
            ":from": from_ms,
            ":end": signed(self.next_ms),
            ":to": signed(self.filter.to_ms.unwrap_or(u64::MAX)),
        };
        self.rows = db.rows(OF_DAY, times, |row| row.get("id"))?;
        self.rows.retain(|id: &RecordId| self.last.get(&id.node()).is_some_and(|last| id <= last));
        Ok(true)
    }
}

const DAY_MS: u64 = DAY_HOURS * HOUR_MS;
const ROW: &str = "SELECT * FROM usage WHERE id = :id";
const NEXT_MS: &str = "SELECT min(last_ms) AS last_ms FROM usage WHERE last_ms >= :from";
const OF_DAY: &str = "SELECT id FROM usage WHERE last_ms >= :from AND last_ms < :end AND first_ms < :to \
     ORDER BY last_ms DESC, id DESC";

#[cfg(test)]
mod tests {
    use shared::usage::{UsageEvent, UsageLog as _};

    use super::*;
    use crate::usage::tests::{Process, event};

    #[test]
    fn an_export_contains_each_exchange_once_while_rows_grow() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let start = event(0).started_at_ms / DAY_MS * DAY_MS;
        let mut store = |process: &mut Process, times: &[u64]| {
            for at in times {
                log.append(&UsageEvent { started_at_ms: start + at, ..event(*at) });
            }
            process.settle();
        };
        // A closed row with a later time than the open one, which grows between the steps.
        store(&mut process, &[500, DAY_MS + 7]);
        process.meter.usage_mut();
        store(&mut process, &[100, 101]);
        let mut found = Vec::new();
        let mut export = Progress::start(process.meter.db(), &RequestFilter::default()).unwrap();
        for later in [200, 300, 600, DAY_MS + 9] {
            let each = |record: &Record<'_>, _: Trace<'_>| {
                found.push(record.started_at_ms - start);
                Ok(())
            };
            export.step(process.meter.db(), each).unwrap();
            store(&mut process, &[later]);
        }
        assert_eq!(found, [100, 101, 500, DAY_MS + 7], "in the order of time");
    }
}
