//! The clock of the database, by which nodes are live and leases end.

use shared::clock::unix_ms;

use crate::db::engine::{Db, DbResult};

/// Returns the time in milliseconds since the Unix epoch.
pub(crate) fn now_ms(db: &Db) -> DbResult<u64> {
    db.row(NOW, (), |row| row.get(0))
}

/// Returns the earlier of the times of this machine and of a database on a server: nothing is deleted before it has expired by both.
pub(crate) fn earlier_ms(db: &Db) -> DbResult<u64> {
    let own_ms = unix_ms();
    if db.is_postgres() { now_ms(db).map(|now_ms| now_ms.min(own_ms)) } else { Ok(own_ms) }
}

/// Returns by how many milliseconds the clock of this machine is ahead of that of the database, beyond the time of the question.
pub(crate) fn ahead_ms(db: &Db) -> DbResult<i64> {
    let (before_ms, database_ms, after_ms) = (unix_ms(), now_ms(db)?, unix_ms());
    Ok(outside_ms(before_ms, database_ms, after_ms))
}

/// Returns by how much the period in which a time was asked for lies behind it; less than 0 if it lies before it.
pub(crate) fn outside_ms(before_ms: u64, database_ms: u64, after_ms: u64) -> i64 {
    let behind = i64::try_from(before_ms.saturating_sub(database_ms)).unwrap_or(i64::MAX);
    let before = i64::try_from(database_ms.saturating_sub(after_ms)).unwrap_or(i64::MAX);
    behind - before
}

/// True if the clocks of this machine and of the database differ so much that this node must not work.
pub(crate) fn is_wrong(ahead_ms: i64) -> bool {
    ahead_ms.unsigned_abs() > DIFFERENCE_MS_MAX
}

const DIFFERENCE_MS_MAX: u64 = 30_000;
const NOW: &str = "SELECT now_ms()";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_beyond_the_time_of_the_question() {
        for (database_ms, ahead_ms) in [(4, 1), (5, 0), (9, 0), (12, -3)] {
            assert_eq!(outside_ms(5, database_ms, 9), ahead_ms);
        }
    }
}
