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
//! A run is written bucket by bucket, in several transactions; the rows of `usage` are in it when its last row, that of
//! bucket 0, is written. The next run deletes what a killed process has left of an incomplete one. A complete run is
//! never changed. An entry for a deleted row has no effect, and no new row gets an id that a run covers.

use std::time::{Duration, Instant};

use records::block::{may_hold, request_hash};

use crate::db::engine::{Db, DbResult};
use crate::db::record_id::{NodeId, RecordId};
use crate::usage::retention::tables::lazily;

/// Creates runs for the stored rows, one at a time, in steps that hold the writer thread for a short time.
#[derive(Debug)]
pub(crate) struct RequestIndex {
    /// Upper bound for the number of exchanges that are not in any run.
    waiting: u64,
    /// The run that is being created.
    draft: Option<RunDraft>,
    /// The time of the next try after a failure.
    due: Instant,
}

impl RequestIndex {
    /// Creates the state for an index whose stored rows were not counted yet.
    pub(crate) fn new() -> Self {
        Self { waiting: u64::MAX, draft: None, due: Instant::now() }
    }

    /// Adds newly stored exchanges to the count.
    pub(crate) fn stored(&mut self, exchanges: u64) {
        self.waiting = self.waiting.saturating_add(exchanges);
    }

    /// True if a run is being created, or there may be enough exchanges for one.
    pub(crate) fn is_due(&self) -> bool {
        (self.draft.is_some() || self.waiting >= RUN) && self.due <= Instant::now()
    }

    /// Continues to create a run, if the rows of `usage` before `end`, which no longer change, contain enough exchanges.
    pub(crate) fn step(&mut self, db: &mut Db, end: RecordId) {
        let mut draft = self.draft.take().unwrap_or_else(|| RunDraft::new(RUN));
        match draft.step(db, end) {
            Ok(RunStep::More) => self.draft = Some(draft),
            Ok(RunStep::Complete) => {}
            Ok(RunStep::TooFew { waiting }) => self.waiting = waiting,
            Err(error) => {
                tracing::warn!("cannot extend the index of request IDs: {error}");
                self.due = Instant::now() + AFTER_FAILURE;
            }
        }
    }
}

/// A run of the oldest rows of `usage` that are in none. Its entries are first collected, then written bucket by bucket.
#[derive(Debug)]
struct RunDraft {
    exchanges_min: u64,
    exchanges: u64,
    /// The first and the last row.
    rows: Option<(RecordId, RecordId)>,
    /// True if all rows have been read.
    is_read: bool,
    /// The entries of the buckets that are not written yet.
    buckets: Vec<Vec<u8>>,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStep {
    /// The run is not complete.
    More,
    /// The run is complete. There may be enough exchanges for another one.
    Complete,
    /// Only this many exchanges are not in any run.
    TooFew { waiting: u64 },
}

impl RunDraft {
    /// Creates a draft of a run that has at least `exchanges_min` exchanges.
    fn new(exchanges_min: u64) -> Self {
        let buckets = (0..BUCKETS).map(|_| Vec::new()).collect();
        Self { exchanges_min, exchanges: 0, rows: None, is_read: false, buckets }
    }

    /// Reads some rows before `end`, or writes some buckets.
    fn step(&mut self, db: &mut Db, end: RecordId) -> DbResult<RunStep> {
        if self.is_read {
            return lazily(db, |tx| self.write(tx));
        }
        self.read(db, end)
    }

    /// Reads rows until the run has enough exchanges, or the step has [`READ_AT_ONCE`].
    fn read(&mut self, db: &Db, end: RecordId) -> DbResult<RunStep> {
        let pause = self.exchanges.saturating_add(READ_AT_ONCE);
        let after = match self.rows {
            Some((_, last)) => last,
            None => covered(db)?,
        };
        let mut statement = db.prepare(UNCOVERED)?;
        let mut rows = statement.query([after, end])?;
        while self.exchanges < self.exchanges_min {
            if self.exchanges >= pause {
                return Ok(RunStep::More);
            }
            let Some(row) = rows.next()? else { return Ok(RunStep::TooFew { waiting: self.exchanges }) };
            let id = row.get("id")?;
            let (first, _) = self.rows.unwrap_or((id, id));
            // The rows behind a wide gap go into another run.
            let Some(place) = place_in_run(first, id) else { break };
            self.add(row.get::<&[u8]>("requests")?, place);
            self.rows = Some((first, id));
        }
        self.is_read = true;
        Ok(RunStep::More)
    }

    /// Adds the entries of a row.
    fn add(&mut self, requests: &[u8], place: [u8; 3]) {
        for hash in requests.as_chunks::<4>().0 {
            let [low, middle, high, bucket] = *hash;
            let [far, farther, farthest] = place;
            let entry = [low, middle, high, far, farther, farthest];
            if let Some(entries) = self.buckets.get_mut(usize::from(bucket))
                && !entries.ends_with(&entry)
            {
                entries.extend_from_slice(&entry);
            }
            self.exchanges += 1;
        }
    }

    /// Writes up to [`WRITTEN_AT_ONCE`] buckets, the last first: bucket 0 states which rows are in a run.
    fn write(&mut self, tx: &Db) -> DbResult<RunStep> {
        let Some((first, last)) = self.rows else { return Ok(RunStep::Complete) };
        // Ids of deleted rows may be used again. No id before a row that exists is.
        if !tx.exists(IS_ROW, [last])? {
            return Ok(RunStep::Complete);
        }
        let covered = covered(tx)?;
        let (mut discard, mut insert) = (tx.prepare(DISCARD)?, tx.prepare(INSERT)?);
        for _ in 0..WRITTEN_AT_ONCE {
            let Some(entries) = self.buckets.pop() else { break };
            let bucket = self.buckets.len();
            discard.execute((bucket, covered))?;
            insert.execute((bucket, last, first, entries))?;
        }
        Ok(if self.buckets.is_empty() { RunStep::Complete } else { RunStep::More })
    }
}

/// Returns the ids of the rows of `usage` that may contain this request id, newest first.
pub(crate) fn rows_with(db: &Db, request_id: &str) -> DbResult<Vec<RecordId>> {
    let hash = request_hash(request_id);
    // Reads these rows first: a row that is added to a run in the meantime is found twice instead of being missed.
    let mut found = uncovered_with(db, hash)?;
    let [low, middle, high, bucket] = hash.to_le_bytes();
    let mut statement = db.prepare(BUCKET)?;
    let mut runs = statement.query([bucket])?;
    while let Some(run) = runs.next()? {
        let first: RecordId = run.get("first")?;
        let entries = run.get::<&[u8]>("entries")?.as_chunks::<ENTRY_BYTES>().0;
        let with_hash = entries.iter().filter(|entry| entry.starts_with(&[low, middle, high]));
        found.extend(with_hash.map(|[.., far, farther, farthest]| {
            first.later(u32::from_le_bytes([*far, *farther, *farthest, 0]))
        }));
    }
    found.sort_unstable_by(|one, other| other.cmp(one));
    found.dedup();
    Ok(found)
}

/// Returns the matching rows that are not in any run.
fn uncovered_with(db: &Db, hash: u32) -> DbResult<Vec<RecordId>> {
    let mut statement = db.prepare(UNCOVERED)?;
    let mut rows = statement.query([covered(db)?, RecordId::end_of(NodeId::THIS)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if may_hold(row.get::<&[u8]>("requests")?, hash) {
            found.push(row.get("id")?);
        }
    }
    Ok(found)
}

/// Returns the id of the last row of `usage` that is in a run, or 0 if no row is. Later rows have greater ids.
pub(crate) fn covered(db: &Db) -> DbResult<RecordId> {
    let last: Option<RecordId> = db.optional_row(LAST, (), |row| row.get(0))?;
    Ok(last.unwrap_or_default())
}

/// Deletes the oldest run if all of its rows of `usage` are deleted. Returns false if there is no such run.
pub(crate) fn forget_run(tx: &Db) -> DbResult<bool> {
    let oldest: Option<RecordId> = tx.optional_row(OLDEST, (), |row| row.get(0))?;
    let Some(last) = oldest else { return Ok(false) };
    if tx.exists(IS_ROW_LEFT, [last])? {
        return Ok(false);
    }
    let mut forget = tx.prepare(FORGET)?;
    for bucket in 0..BUCKETS {
        forget.execute((bucket, last))?;
    }
    Ok(true)
}

/// Returns the distance of `id` from the run's first row, or `None` if it exceeds 24 bits.
fn place_in_run(first: RecordId, id: RecordId) -> Option<[u8; 3]> {
    match u32::try_from(id.distance_from(first)?).ok()?.to_le_bytes() {
        [far, farther, farthest, 0] => Some([far, farther, farthest]),
        _ => None,
    }
}

/// Exchanges of a run, or slightly more. A search reads about 128 entries of each run.
pub(crate) const RUN: u64 = 32_768;
/// Exchanges that a step reads, or slightly more.
const READ_AT_ONCE: u64 = 8_192;
/// Buckets that a step writes.
const WRITTEN_AT_ONCE: usize = 32;
const BUCKETS: usize = 256;
const ENTRY_BYTES: usize = 6;
const AFTER_FAILURE: Duration = Duration::from_secs(30);

const UNCOVERED: &str = "SELECT id, requests FROM usage WHERE id > :after AND id < :end ORDER BY id";
const LAST: &str = "SELECT last FROM usage_requests WHERE bucket = 0 ORDER BY last DESC LIMIT 1";
const BUCKET: &str = "SELECT first, entries FROM usage_requests WHERE bucket = :bucket";
const INSERT: &str =
    "INSERT INTO usage_requests (bucket, last, first, entries) VALUES (:bucket, :last, :first, :entries)";
const DISCARD: &str = "DELETE FROM usage_requests WHERE bucket = :bucket AND last > :covered";
const IS_ROW: &str = "SELECT 1 FROM usage WHERE id = :id";
const OLDEST: &str = "SELECT last FROM usage_requests WHERE bucket = 0 ORDER BY last LIMIT 1";
const IS_ROW_LEFT: &str = "SELECT 1 FROM usage WHERE id <= :last";
const FORGET: &str = "DELETE FROM usage_requests WHERE bucket = :bucket AND last = :last";

#[cfg(test)]
mod tests;
