//! Deleting what has been kept long enough, a little at a time.

use crate::store::signed;
use std::thread;
use std::time::Instant;

use rusqlite::{Connection, Transaction, TransactionBehavior, named_params};

use super::files::schema_of_usage;
use super::request_index;

macro_rules! delete_sums {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE (hour, project, key, principal, provider, model, endpoint, operation, outcome) IN \
             (SELECT hour, project, key, principal, provider, model, endpoint, operation, outcome FROM ",
            $table,
            " WHERE hour < ? ORDER BY hour LIMIT 16)"
        )
    };
}

/// One transaction whose commit does not wait for the disk. A power failure may undo it as a whole, which does no
/// harm to what is only deleted: it is deleted again.
pub(crate) fn lazily<T>(
    db: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let set = |db: &Connection, how| {
        db.pragma_update(None, "synchronous", how)?;
        db.pragma_update(Some(schema_of_usage(db)), "synchronous", how)
    };
    set(db, "NORMAL")?;
    let worked = db.transaction_with_behavior(TransactionBehavior::Immediate).and_then(|tx| {
        let worked = work(&tx)?;
        tx.commit().map(|()| worked)
    });
    set(db, "FULL")?;
    worked
}

/// How many rows of `usage` ended before `before_ms`.
pub(crate) fn usage_rows(db: &Connection, before_ms: u64) -> rusqlite::Result<u64> {
    db.prepare_cached(COUNT_USAGE)?.query_row([signed(before_ms)], |row| row.get(0))
}

/// Deletes rows of `usage` that ended before `before_ms`, the oldest first, until it is `until`, and then the entries of
/// the look-up of request ids for rows that are gone. Gives the numbers of rows and of exchanges in them, and whether
/// all are gone.
pub(crate) fn usage(tx: &Connection, before_ms: u64, until: Instant) -> rusqlite::Result<(u64, u64, bool)> {
    let (mut rows, mut exchanges) = (0, 0);
    let mut statement = tx.prepare_cached(DELETE_USAGE)?;
    loop {
        let mut some = false;
        let mut deleted = statement.query([signed(before_ms)])?;
        while let Some(row) = deleted.next()? {
            some = true;
            rows += 1;
            exchanges += row.get::<_, u64>("exchanges")?;
        }
        give_way();
        let is_done = !some && !request_index::forget_run(tx)?;
        if is_done || Instant::now() >= until {
            return Ok((rows, exchanges, is_done));
        }
    }
}

/// Deletes sums of hours before `hour`, or of days, until it is `until`. True if all are gone.
pub(crate) fn sums(tx: &Connection, which: SumsTable, hour: u64, until: Instant) -> rusqlite::Result<bool> {
    let sql = match which {
        SumsTable::Hours => DELETE_HOURS,
        SumsTable::Days => DELETE_DAYS,
    };
    let mut statement = tx.prepare_cached(sql)?;
    loop {
        if statement.execute([signed(hour)])? == 0 {
            return Ok(true);
        }
        give_way();
        if Instant::now() >= until {
            return Ok(false);
        }
    }
}

/// Lets a thread that waits for this core go first. The kernel would leave it waiting for up to 4 ms; the statements
/// here are far shorter.
fn give_way() {
    thread::yield_now();
}

/// A table of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumsTable {
    Hours,
    Days,
}

/// Forgets some answers to repeated requests from before `before_ms`. True if all are gone.
pub(crate) fn idempotency(tx: &Connection, before_ms: u64) -> rusqlite::Result<bool> {
    let deleted = tx.prepare_cached(DELETE_ANSWERS)?.execute(named_params! {":before": signed(before_ms)})?;
    Ok(deleted < 64)
}

const COUNT_USAGE: &str = "SELECT count(*) FROM usage WHERE last_ms < ?";
const DELETE_USAGE: &str = "DELETE FROM usage \
     WHERE id IN (SELECT id FROM usage WHERE last_ms < ? ORDER BY last_ms LIMIT 1) RETURNING exchanges";
const DELETE_HOURS: &str = delete_sums!("usage_hour");
const DELETE_DAYS: &str = delete_sums!("usage_day");
const DELETE_ANSWERS: &str = "DELETE FROM idempotency WHERE (actor, key) IN \
     (SELECT actor, key FROM idempotency WHERE created_at_ms < :before LIMIT 64)";
