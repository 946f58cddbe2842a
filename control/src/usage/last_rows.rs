//! The ends of the rows of all nodes in the table `usage`.

use crate::db::engine::{Db, DbResult};
use crate::db::record_id::RecordId;

/// Returns the id of the last row of each node that has rows, in the order of the nodes. Takes two look-ups for each.
pub(crate) fn last_rows(db: &Db) -> DbResult<Vec<RecordId>> {
    let (mut first, mut last) = (db.prepare(FIRST)?, db.prepare(LAST)?);
    let (mut ids, mut from) = (Vec::new(), RecordId::default());
    while let Some(id) = first.row([from], |row| row.get::<Option<RecordId>>("id"))? {
        from = RecordId::end_of(id.node());
        ids.push(last.row([from], |row| row.get("id"))?);
    }
    Ok(ids)
}

const FIRST: &str = "SELECT min(id) AS id FROM usage WHERE id >= :from";
const LAST: &str = "SELECT max(id) AS id FROM usage WHERE id < :end";
