//! Reads every exchange that passes a filter, for lists that are not in the order of time.

use std::time::Instant;

use records::{Record, Trace, block};

use super::{NEWEST_FIRST, RequestCursor, RequestFilter};
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::packed_row::PackedRow;
use crate::db::signed;

/// Calls `take` with the exchanges that pass `filter`, the newest blocks first, until all are read or `until` has passed.
/// Returns the time since which all were read; `None` if all were.
pub(crate) fn each(
    db: &Db,
    filter: &RequestFilter,
    until: Instant,
    mut take: impl FnMut(RequestCursor, &Record<'_>, Trace<'_>),
) -> DbResult<Option<u64>> {
    let filter = &filter.resolved(db)?;
    let mut statement = db.prepare(NEWEST_FIRST)?;
    let (from_ms, to_ms) = (filter.from_ms.unwrap_or(0), filter.to_ms.unwrap_or(u64::MAX));
    let mut blocks = statement.query(named_params! {":from": signed(from_ms), ":to": signed(to_ms)})?;
    let mut is_first = true;
    while let Some(found) = blocks.next()? {
        if !is_first && Instant::now() >= until {
            let last_ms: u64 = found.get("last_ms")?;
            return Ok(Some(last_ms.saturating_add(1)));
        }
        is_first = false;
        let row = PackedRow::read(found)?;
        if !filter.may_pass(row.id, &row.names) {
            continue;
        }
        for (at, bytes) in (0..).zip(block::pieces(row.rows()?)) {
            let Some((record, trace)) = block::record(bytes, &row.names) else { continue };
            if filter.passes(&record, trace) {
                take(RequestCursor::of(&record, row.id, at), &record, trace);
            }
        }
    }
    Ok(None)
}
