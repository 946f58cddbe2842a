//! Counts how often the names of one kind occur in the latest usage records, for kinds that the sums do not contain.

use std::collections::HashMap;
use std::time::Instant;

use records::{RecordName, block};

use crate::db::engine::{Db, DbResult};
use crate::db::packed_row::PackedRow;
use crate::db::signed;
use crate::usage::scope::UsageScope;

/// Returns the names of a kind in the records in `scope` since `from_ms`, with the number of exchanges. Reads the newest records
/// first, up to the time `until` and at most [`NAMES_MAX`] names.
pub(crate) fn occurrences(
    db: &Db,
    (kind, scope): (RecordName, &UsageScope),
    from_ms: u64,
    until: Instant,
) -> DbResult<HashMap<String, u64>> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    let mut statement = db.prepare(NEWEST_FIRST)?;
    let mut blocks = statement.query([signed(from_ms)])?;
    while let Some(block) = blocks.next()? {
        if Instant::now() >= until {
            break;
        }
        let row = PackedRow::read(block)?;
        if !scope.may_have(&row.names) {
            continue;
        }
        for (record, _) in block::rows(row.rows()?, &row.names).flatten() {
            let name = record.name(kind);
            if name.is_empty() || record.started_at_ms < from_ms || !scope.has(&record) {
                continue;
            }
            if let Some(count) = counts.get_mut(name) {
                *count += 1;
            } else if counts.len() < NAMES_MAX {
                counts.insert(name.to_owned(), 1);
            }
        }
    }
    Ok(counts)
}

const NAMES_MAX: usize = 10_000;
const NEWEST_FIRST: &str = "SELECT * FROM usage WHERE last_ms >= :from ORDER BY last_ms DESC";
