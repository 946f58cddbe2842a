//! Counts how often the names of one kind occur in the latest usage records, for kinds that the sums do not contain.

use std::collections::HashMap;
use std::time::Instant;

use records::{RecordName, block};

use crate::common::bounds::COUNTED_NAMES;
use crate::db::engine::{Db, DbResult};
use crate::db::packed_row::PackedRow;
use crate::db::signed;
use crate::usage::scope::UsageScope;

/// Returns the names of a kind in the records in `scope` since `from_ms`, with the number of exchanges. Reads the newest records
/// first, up to the time `until` and at most [`COUNTED_NAMES`] names;
/// true with them if these are all.
pub(crate) fn occurrences(
    db: &Db,
    (kind, scope): (RecordName, &UsageScope),
    from_ms: u64,
    until: Instant,
) -> DbResult<(HashMap<String, u64>, bool)> {
    let (mut counts, mut is_complete) = (HashMap::<String, u64>::new(), true);
    let mut statement = db.prepare(NEWEST_FIRST)?;
    let mut blocks = statement.query([signed(from_ms)])?;
    while let Some(block) = blocks.next()? {
        if Instant::now() >= until {
            is_complete = false;
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
            } else if COUNTED_NAMES.is_full(counts.len()) {
                is_complete = false;
            } else {
                counts.insert(name.to_owned(), 1);
            }
        }
    }
    Ok((counts, is_complete))
}

const NEWEST_FIRST: &str = "SELECT * FROM usage WHERE last_ms >= :from ORDER BY last_ms DESC";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::usage::{Details, UsageEvent, UsageLog as _};

    use super::*;
    use crate::common::bounds::tests::passes;
    use crate::usage::tests::{Process, event};

    #[test]
    fn names_beyond_the_maximum_are_counted_and_the_answer_says_so() {
        let home = tempfile::TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        for n in 0..=COUNTED_NAMES.max() as u64 {
            let details = Details { client: Some(format!("client {n}").into()), ..Details::default() };
            assert!(log.append(&UsageEvent { details, ..event(n) }));
        }
        process.settle();
        let db = process.meter.db_mut();
        let count = |kind, until| occurrences(db, (kind, &UsageScope::default()), 0, until).unwrap();
        let until = Instant::now() + Duration::from_secs(600);
        let (clients, is_complete) = passes(&COUNTED_NAMES, || count(RecordName::Client, until));
        assert_eq!((clients.len(), is_complete), (COUNTED_NAMES.max(), false));
        let (models, is_complete) = count(RecordName::Model, until);
        assert_eq!((models.get("m"), is_complete), (Some(&(COUNTED_NAMES.max() as u64 + 1)), true));
        assert!(!count(RecordName::Model, Instant::now()).1, "the time is over");
    }
}
