//! Deletes expired rows, a few at a time.

use std::thread;
use std::time::Instant;

use crate::db::engine::postgres::partitions;
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::signed;

use crate::db::HOUR_MS;
use crate::usage::request_index;
use crate::usage::rollup::{DAY_HOURS, SumsTable};

macro_rules! delete_sums {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE (hour, node, project, key, principal, provider, model, endpoint, operation, outcome) IN \
             (SELECT hour, node, project, key, principal, provider, model, endpoint, operation, outcome FROM ",
            $table,
            " WHERE hour < :before ORDER BY hour LIMIT 16)"
        )
    };
}

/// Returns the number of rows of `usage` whose exchanges all started before `before_ms`.
pub(crate) fn usage_rows(db: &Db, before_ms: u64) -> DbResult<u64> {
    db.row(COUNT_USAGE, [signed(before_ms)], |row| row.get(0))
}

/// Deletes rows of `usage` whose exchanges all started before `before_ms`, oldest first, until it is `until`, together
/// with the runs of the request index whose rows are all deleted. On PostgreSQL, drops one partition at a time. Returns the numbers of deleted rows and of the
/// exchanges in them, and true if all are deleted.
pub(crate) fn usage(tx: &Db, before_ms: u64, until: Instant) -> DbResult<(u64, u64, bool)> {
    if tx.is_postgres()
        && let Some(dropped) = partitions::drop_oldest(tx, before_ms)?
    {
        return Ok((dropped.rows, dropped.exchanges, false));
    }
    let (mut rows, mut exchanges) = (0, 0);
    let mut statement = tx.prepare(if tx.is_postgres() { DELETE_REST } else { DELETE_USAGE })?;
    loop {
        let mut some = false;
        let mut deleted = statement.query([signed(before_ms)])?;
        while let Some(row) = deleted.next()? {
            some = true;
            rows += 1;
            exchanges += row.get::<u64>("exchanges")?;
        }
        give_way();
        let is_done = !some && !request_index::forget_run(tx)?;
        if is_done || Instant::now() >= until {
            return Ok((rows, exchanges, is_done));
        }
    }
}

/// Deletes sums of hours or days before `hour`, until it is `until`. Returns true if all are deleted.
pub(crate) fn sums(tx: &Db, which: SumsTable, hour: u64, until: Instant) -> DbResult<bool> {
    let sql = match which {
        SumsTable::Hours => DELETE_HOURS,
        SumsTable::Days => DELETE_DAYS,
    };
    let mut statement = tx.prepare(sql)?;
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

/// Yields to a thread that waits for this core. The kernel might let it wait for up to 4 ms; the statements here are
/// far shorter.
fn give_way() {
    thread::yield_now();
}

/// Deletes some stored answers to repeated requests from before `before_ms`. Returns true if all are deleted.
pub(crate) fn idempotency(tx: &Db, before_ms: u64) -> DbResult<bool> {
    let deleted = tx.execute(DELETE_ANSWERS, named_params! {":before": signed(before_ms)})?;
    Ok(deleted < 64)
}

/// Returns the start of the oldest exchange in the rows that are kept, at most `before_ms`. A row is kept as a whole, so
/// that some of its exchanges may have started before.
pub(crate) fn oldest_exchange(db: &Db, before_ms: u64) -> DbResult<u64> {
    let times =
        named_params! {":before": signed(before_ms), ":day": signed(before_ms.saturating_add(DAY_MS))};
    let oldest: Option<u64> = db.row(OLDEST_EXCHANGE, times, |row| row.get(0))?;
    Ok(oldest.map_or(before_ms, |oldest| oldest.min(before_ms)))
}

const DAY_MS: u64 = DAY_HOURS * HOUR_MS;
const OLDEST_EXCHANGE: &str = "SELECT min(first_ms) FROM usage \
     WHERE last_ms >= :before AND last_ms < :day";
const COUNT_USAGE: &str = "SELECT count(*) FROM usage WHERE last_ms < :before";
const DELETE_USAGE: &str = "DELETE FROM usage \
     WHERE id IN (SELECT id FROM usage WHERE last_ms < :before ORDER BY last_ms LIMIT 1) RETURNING exchanges";
const DELETE_REST: &str = "DELETE FROM usage_rest \
     WHERE id IN (SELECT id FROM usage_rest WHERE last_ms < :before ORDER BY last_ms LIMIT 1) RETURNING exchanges";
const DELETE_HOURS: &str = delete_sums!("usage_hour");
const DELETE_DAYS: &str = delete_sums!("usage_day");
const DELETE_ANSWERS: &str = "DELETE FROM idempotency WHERE (actor, key) IN \
     (SELECT actor, key FROM idempotency WHERE created_at_ms < :before LIMIT 64)";
