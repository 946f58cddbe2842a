//! The clock of the database, by which nodes are live and leases end.

use crate::db::engine::{Db, DbResult};

/// Returns the time in milliseconds since the Unix epoch.
pub(crate) fn now_ms(db: &Db) -> DbResult<u64> {
    db.row(NOW, (), |row| row.get(0))
}

const NOW: &str = "SELECT now_ms()";
