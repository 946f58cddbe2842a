//! The index of request ids: finds the rows of `usage` that may contain one. It is written in runs, because writing a
//! separate entry for each exchange would cost more than writing the exchange.
//!
//! ```text
//!  usage           1 ... 900 | 901 ... 1700 | 1701 ...      rows, by their ids
//!  usage_requests    a run   |    a run     | no run yet: scanned
//!                  a run has a row in each of 256 buckets; the rows of one bucket are adjacent
//!  entry           the lower 24 bits of a request id's hash, then the distance of its row from the run's first, 24 bits
//! ```
//!
//! A run is never changed. An entry for a deleted row has no effect, and no new row gets an id that a run covers.

use std::time::{Duration, Instant};

use records::block::{may_hold, request_hash};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::usage::retention::tables::lazily;

/// Creates runs for the stored rows, one at a time.
#[derive(Debug)]
pub(crate) struct RequestIndex {
    /// Upper bound for the number of exchanges that are not in any run.
    waiting: u64,
    /// The time of the next try after a failure.
    due: Instant,
}

impl RequestIndex {
    /// Creates the state for an index whose stored rows were not counted yet.
    pub(crate) fn new() -> Self {
        Self { waiting: u64::MAX, due: Instant::now() }
    }

    /// Adds newly stored exchanges to the count.
    pub(crate) fn stored(&mut self, exchanges: u64) {
        self.waiting = self.waiting.saturating_add(exchanges);
    }

    /// True if there may be enough exchanges for a run.
    pub(crate) fn is_due(&self) -> bool {
        self.waiting >= RUN && self.due <= Instant::now()
    }

    /// Creates one run, if the rows of `usage` before `end`, which no longer change, contain enough exchanges.
    pub(crate) fn step(&mut self, db: &mut Connection, end: i64) {
        match lazily(db, |tx| make_run(tx, end, RUN)) {
            Ok(Made::Run) => {}
            Ok(Made::Nothing { waiting }) => self.waiting = waiting,
            Err(error) => {
                tracing::warn!("the look-up of request ids cannot be extended now: {error}");
                self.due = Instant::now() + AFTER_FAILURE;
            }
        }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// A run was created. There may be enough exchanges for another one.
    Run,
    /// Only this many exchanges are not in any run.
    Nothing { waiting: u64 },
}

/// Creates a run of the oldest rows of `usage` that are in none, if they contain at least `exchanges_min` exchanges.
pub(crate) fn make_run(tx: &Connection, end: i64, exchanges_min: u64) -> rusqlite::Result<Made> {
    let mut buckets: Vec<Vec<u8>> = (0..BUCKETS).map(|_| Vec::new()).collect();
    let (mut waiting, mut run) = (0_u64, None);
    let mut statement = tx.prepare_cached(UNCOVERED)?;
    let mut rows = statement.query([covered(tx)?, end])?;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get("id")?;
        let (first, _) = run.unwrap_or((id, id));
        let Some(place) = place_in_run(first, id) else {
            waiting = exchanges_min;
            break;
        };
        for hash in row.get_ref("requests")?.as_blob()?.as_chunks::<4>().0 {
            let [low, middle, high, bucket] = *hash;
            let [far, farther, farthest] = place;
            let entry = [low, middle, high, far, farther, farthest];
            if let Some(entries) = buckets.get_mut(usize::from(bucket))
                && !entries.ends_with(&entry)
            {
                entries.extend_from_slice(&entry);
            }
            waiting += 1;
        }
        run = Some((first, id));
        if waiting >= exchanges_min {
            break;
        }
    }
    let Some((first, last)) = run.filter(|_| waiting >= exchanges_min) else {
        return Ok(Made::Nothing { waiting });
    };
    let mut insert = tx.prepare_cached(INSERT)?;
    for (bucket, entries) in (0_i64..).zip(buckets) {
        insert.execute(params![bucket, last, first, entries])?;
    }
    Ok(Made::Run)
}

/// Returns the ids of the rows of `usage` that may contain this request id, newest first.
pub(crate) fn rows_with(db: &Connection, request_id: &str) -> rusqlite::Result<Vec<i64>> {
    let hash = request_hash(request_id);
    // Reads these rows first: a row that is added to a run in the meantime is found twice instead of being missed.
    let mut found = uncovered_with(db, hash)?;
    let [low, middle, high, bucket] = hash.to_le_bytes();
    let mut statement = db.prepare_cached(BUCKET)?;
    let mut runs = statement.query([bucket])?;
    while let Some(run) = runs.next()? {
        let first: i64 = run.get("first")?;
        let entries = run.get_ref("entries")?.as_blob()?.as_chunks::<ENTRY_BYTES>().0;
        let with_hash = entries.iter().filter(|entry| entry.starts_with(&[low, middle, high]));
        found.extend(with_hash.map(|[.., far, farther, farthest]| {
            first + i64::from(u32::from_le_bytes([*far, *farther, *farthest, 0]))
        }));
    }
    found.sort_unstable_by(|one, other| other.cmp(one));
    found.dedup();
    Ok(found)
}

/// Returns the matching rows that are not in any run.
fn uncovered_with(db: &Connection, hash: u32) -> rusqlite::Result<Vec<i64>> {
    let mut statement = db.prepare_cached(UNCOVERED)?;
    let mut rows = statement.query([covered(db)?, i64::MAX])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if may_hold(row.get_ref("requests")?.as_blob()?, hash) {
            found.push(row.get("id")?);
        }
    }
    Ok(found)
}

/// Returns the id of the last row of `usage` that is in a run, or 0 if no row is. Later rows have greater ids.
pub(crate) fn covered(db: &Connection) -> rusqlite::Result<i64> {
    let last: Option<i64> = db.prepare_cached(LAST)?.query_row([], |row| row.get(0)).optional()?;
    Ok(last.unwrap_or(0))
}

/// Deletes the oldest run if all of its rows of `usage` are deleted. Returns false if there is no such run.
pub(crate) fn forget_run(tx: &Connection) -> rusqlite::Result<bool> {
    let oldest: Option<i64> = tx.prepare_cached(OLDEST)?.query_row([], |row| row.get(0)).optional()?;
    let Some(last) = oldest else { return Ok(false) };
    if tx.prepare_cached(IS_ROW_LEFT)?.exists([last])? {
        return Ok(false);
    }
    let mut forget = tx.prepare_cached(FORGET)?;
    for bucket in 0..BUCKETS {
        forget.execute(params![bucket, last])?;
    }
    Ok(true)
}

/// Returns the distance of `id` from the run's first row, or `None` if it exceeds 24 bits.
fn place_in_run(first: i64, id: i64) -> Option<[u8; 3]> {
    match u32::try_from(id - first).ok()?.to_le_bytes() {
        [far, farther, farthest, 0] => Some([far, farther, farthest]),
        _ => None,
    }
}

/// Exchanges of a run, or slightly more. A step takes some milliseconds, and a search reads about 128 entries of each
/// run.
pub(crate) const RUN: u64 = 32_768;
const BUCKETS: usize = 256;
const ENTRY_BYTES: usize = 6;
const AFTER_FAILURE: Duration = Duration::from_secs(30);

const UNCOVERED: &str = "SELECT id, requests FROM usage WHERE id > ? AND id < ? ORDER BY id";
const LAST: &str = "SELECT last FROM usage_requests WHERE bucket = 0 ORDER BY last DESC LIMIT 1";
const BUCKET: &str = "SELECT first, entries FROM usage_requests WHERE bucket = ?";
const INSERT: &str = "INSERT INTO usage_requests (bucket, last, first, entries) VALUES (?, ?, ?, ?)";
const OLDEST: &str = "SELECT last FROM usage_requests WHERE bucket = 0 ORDER BY last LIMIT 1";
const IS_ROW_LEFT: &str = "SELECT 1 FROM usage WHERE id <= ?";
const FORGET: &str = "DELETE FROM usage_requests WHERE bucket = ? AND last = ?";

#[cfg(test)]
mod tests;
