//! Reads the records that no period counts: those of cut periods, and those that were stored lately.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use records::{Record, Trace, block};

use crate::db::engine::{Db, DbResult, Row, Rows, named_params};
use crate::db::packed_row::PackedRow;
use crate::db::record_id::{NodeId, RecordId};
use crate::db::signed;
use crate::usage::last_rows::last_rows;
use crate::usage::periods::Followed;
use crate::usage::recent::feed::RowPlace;

/// Reads records, the newest first.
pub(crate) struct RecordReading<'a> {
    pub(crate) db: &'a Db,
    /// At this time, reading stops.
    pub(crate) until: Instant,
    /// True for the id and the names of a row that may contain records to be read.
    pub(crate) may_have: &'a dyn Fn(RecordId, &[&str]) -> bool,
}

impl RecordReading<'_> {
    /// Passes the records of exchanges that started in a time to `each`, until it returns false. Returns the moment from which
    /// none is missing.
    pub(crate) fn between(
        &self,
        time: &Range<u64>,
        each: impl FnMut(&Record<'_>, Trace<'_>) -> bool,
    ) -> DbResult<u64> {
        let of = named_params! {":from": signed(time.start), ":to": signed(time.end)};
        let mut statement = self.db.prepare(NEWEST_FIRST)?;
        let stopped_ms = self.read(statement.query(of)?, (time, RowPlace::default()), each)?;
        Ok(stopped_ms.unwrap_or(time.start))
    }

    /// Does the same for the records of all nodes that no period counts yet.
    pub(crate) fn uncounted(
        &self,
        followed: &BTreeMap<NodeId, Followed>,
        time: &Range<u64>,
        mut each: impl FnMut(&Record<'_>, Trace<'_>) -> bool,
    ) -> DbResult<u64> {
        let mut stopped_ms = time.start;
        for last in last_rows(self.db)? {
            let before = RowPlace { id: RecordId::before(last.node()), taken: 0 };
            let place = followed.get(&last.node()).map_or(before, |followed| followed.place);
            stopped_ms = stopped_ms.max(self.of_node((place, last), time, &mut each)?);
        }
        Ok(stopped_ms)
    }

    /// Reads the rows of a node from a place on.
    fn of_node(
        &self,
        (place, last): (RowPlace, RecordId),
        time: &Range<u64>,
        each: impl FnMut(&Record<'_>, Trace<'_>) -> bool,
    ) -> DbResult<u64> {
        if last.distance_from(place.id).is_none_or(|rows| rows < FEW_ROWS) {
            let mut statement = self.db.prepare(BACK_TO)?;
            let of = named_params! {":id": place.id, ":last": last};
            let stopped_ms = self.read(statement.query(of)?, (time, place), each)?;
            // These rows are not in the order of time.
            return Ok(stopped_ms.map_or(time.start, |_| time.end));
        }
        let of = named_params! {
            ":from": signed(time.start), ":to": signed(time.end), ":id": place.id, ":last": last,
        };
        let mut statement = self.db.prepare(NEWEST_BACK_TO)?;
        let stopped_ms = self.read(statement.query(of)?, (time, place), each)?;
        Ok(stopped_ms.unwrap_or(time.start))
    }

    /// Returns the moment from which none is missing if the rows are in the order of time; `None` if all were read.
    fn read(
        &self,
        mut rows: Rows<'_>,
        (time, place): (&Range<u64>, RowPlace),
        mut each: impl FnMut(&Record<'_>, Trace<'_>) -> bool,
    ) -> DbResult<Option<u64>> {
        while let Some(row) = rows.next()? {
            if Instant::now() >= self.until {
                let last_ms: u64 = row.get("last_ms")?;
                return Ok(Some(last_ms.saturating_add(1).clamp(time.start, time.end)));
            }
            if !self.row(row, (time, place), &mut each)? {
                return Ok(Some(time.end));
            }
        }
        Ok(None)
    }

    fn row(
        &self,
        row: Row<'_>,
        (time, place): (&Range<u64>, RowPlace),
        each: &mut impl FnMut(&Record<'_>, Trace<'_>) -> bool,
    ) -> DbResult<bool> {
        let row = PackedRow::read(row)?;
        if !(self.may_have)(row.id, &row.names) {
            return Ok(true);
        }
        let known = if row.id == place.id { place.taken } else { 0 };
        let after = usize::try_from(known).unwrap_or(usize::MAX);
        for piece in block::pieces(row.rows()?).skip(after) {
            let Some((record, trace)) = block::record(piece, &row.names) else { continue };
            if time.contains(&record.started_at_ms) && !each(&record, trace) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// So many rows are read in any order of time.
const FEW_ROWS: u64 = 64;
const NEWEST_FIRST: &str = "SELECT * FROM usage \
     WHERE last_ms >= :from AND first_ms < :to ORDER BY last_ms DESC";
const BACK_TO: &str = "SELECT * FROM usage WHERE id >= :id AND id <= :last ORDER BY id DESC";
const NEWEST_BACK_TO: &str = "SELECT * FROM usage \
     WHERE last_ms >= :from AND first_ms < :to AND +id >= :id AND +id <= :last ORDER BY last_ms DESC";
