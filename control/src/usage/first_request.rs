//! Finds the first request that a client completed, among the records that are kept.

use std::time::Instant;

use records::{Record, RecordName, block};

use crate::db::engine::{Db, DbResult};
use crate::db::packed_row::{PackedRow, unless_damaged};

/// Returns the request ID of the oldest completed exchange of a project key. The search ends without a result at
/// `until`: the records may be many, all of administrators.
pub(crate) fn first_request(db: &Db, until: Instant) -> DbResult<Option<String>> {
    let mut statement = db.prepare(OLDEST_FIRST)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        if let Some(Some(id)) = unless_damaged(PackedRow::read(row).and_then(|row| first_of(&row)))? {
            return Ok(Some(id));
        }
        if Instant::now() >= until {
            break;
        }
    }
    Ok(None)
}

fn first_of(row: &PackedRow<'_>) -> DbResult<Option<String>> {
    if !row.names.iter().any(|name| name.starts_with(KEY_PREFIX)) {
        return Ok(None);
    }
    let records = block::rows(row.rows()?, &row.names).flatten().map(|(record, _)| record);
    let first = records.filter(is_wanted).min_by_key(|record| record.started_at_ms);
    Ok(first.map(|record| record.request_id.to_owned()))
}

fn is_wanted(record: &Record<'_>) -> bool {
    record.name(RecordName::Key).starts_with(KEY_PREFIX) && record.name(RecordName::Outcome) == COMPLETED
}

/// The prefix of the IDs of project keys. Those of administrators have another.
const KEY_PREFIX: &str = "key_";
const COMPLETED: &str = "completed";
const OLDEST_FIRST: &str = "SELECT * FROM usage ORDER BY last_ms";
