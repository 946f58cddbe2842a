//! The ends of the rows of all nodes in the table `usage`.

use crate::db::engine::{Db, DbResult};
use crate::db::record_id::RecordId;

/// Returns the id of the last row of each node that has rows, in the order of the nodes. Takes one look-up for each.
pub(crate) fn last_rows(db: &Db) -> DbResult<Vec<RecordId>> {
    db.rows(LAST_ROWS, (), |row| row.get("id"))
}

/// From the last row on, the last one before the first of the same node.
const LAST_ROWS: &str = "WITH RECURSIVE last_rows(id) AS (SELECT max(id) FROM usage UNION ALL \
     SELECT (SELECT max(usage.id) FROM usage WHERE usage.id < ((last_rows.id >> 40) << 40)) FROM last_rows \
     WHERE last_rows.id IS NOT NULL) SELECT id FROM last_rows WHERE id IS NOT NULL ORDER BY id";
