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
//! A run covers rows of one node. It is written bucket by bucket, in several transactions; its rows are in it when the last
//! one, that of bucket 0, is written, together with `usage_indexed`. The next run deletes what a killed process has left of
//! an incomplete one. A complete run is never changed. An entry for a deleted row has no effect, and no new row gets an id
//! that a run covers. Runs are ordered by the day of their newest exchange.

use std::time::{Duration, Instant};

use records::block::{may_hold, request_hash};

use crate::db::HOUR_MS;
use crate::db::engine::{Db, DbError, DbResult, Row, named_params};
use crate::db::record_id::{NodeId, RecordId};
use crate::usage::last_rows::last_rows;
use crate::usage::rollup::DAY_HOURS;

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

    /// Continues to create a run, if the rows of this node before `end`, which no longer change, contain enough exchanges.
    pub(crate) fn step(&mut self, db: &mut Db, end: RecordId) {
        let mut draft = self.draft.take().unwrap_or_else(|| RunDraft::new(NodeId::of(db), RUN));
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

/// A run of the oldest rows of a node that are in none. Its entries are first collected, then written bucket by bucket.
#[derive(Debug)]
pub(crate) struct RunDraft {
    node: NodeId,
    exchanges_min: u64,
    exchanges: u64,
    /// The first and the last row.
    rows: Option<(RecordId, RecordId)>,
    /// The time of the newest exchange.
    newest_ms: u64,
    /// True if all rows have been read.
    is_read: bool,
    /// The entries of the buckets that are not written yet.
    buckets: Vec<Vec<u8>>,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunStep {
    /// The run is not complete.
    More,
    /// The run is complete. There may be enough exchanges for another one.
    Complete,
    /// Only this many exchanges are not in any run.
    TooFew { waiting: u64 },
}

impl RunDraft {
    /// Creates a draft of a run that has at least `exchanges_min` exchanges.
    pub(crate) fn new(node: NodeId, exchanges_min: u64) -> Self {
        let buckets = (0..BUCKETS).map(|_| Vec::new()).collect();
        Self { node, exchanges_min, exchanges: 0, rows: None, newest_ms: 0, is_read: false, buckets }
    }

    /// The node whose rows are in the run.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Reads some rows before `end`, or writes some buckets.
    pub(crate) fn step(&mut self, db: &mut Db, end: RecordId) -> DbResult<RunStep> {
        if self.is_read {
            return db.lazily(|tx| self.write(tx));
        }
        self.read(db, end)
    }

    /// Reads rows until the run has enough exchanges, or the step has [`READ_AT_ONCE`].
    fn read(&mut self, db: &Db, end: RecordId) -> DbResult<RunStep> {
        let pause = self.exchanges.saturating_add(READ_AT_ONCE);
        let after = match self.rows {
            Some((_, last)) => last,
            None => covered(db, self.node)?,
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
            self.newest_ms = self.newest_ms.max(row.get("last_ms")?);
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
        let (node, day) = (self.node, self.newest_ms / DAY_MS);
        if self.buckets.len() == BUCKETS {
            begin_draft(tx, node, day, last)?;
        }
        let mut insert = tx.prepare(INSERT)?;
        for _ in 0..WRITTEN_AT_ONCE {
            let Some(entries) = self.buckets.pop() else { break };
            insert.execute((self.buckets.len(), day, last, first, entries))?;
        }
        if !self.buckets.is_empty() {
            return Ok(RunStep::More);
        }
        let ended = tx.execute(END_DRAFT, named_params! {":node": node, ":day": day, ":last": last})?;
        if ended == 0 {
            return Err(DbError::bad_value("another process indexes the records of this node"));
        }
        Ok(RunStep::Complete)
    }
}

/// Deletes what is left of an incomplete run of the node, and records the one that is about to be written.
fn begin_draft(tx: &Db, node: NodeId, day: u64, last: RecordId) -> DbResult<()> {
    let draft = |row: Row<'_>| Ok((row.get("draft_day")?, row.get("draft_last")?));
    let left: Option<(Option<u64>, Option<RecordId>)> = tx.optional_row(DRAFT, [node], draft)?;
    if let Some((Some(day), Some(last))) = left {
        delete_run(tx, day, last)?;
    }
    let covered = covered(tx, node)?;
    let values = named_params! {":node": node, ":covered": covered, ":day": day, ":last": last};
    tx.execute(BEGIN_DRAFT, values).map(drop)
}

/// Calls `each` with the rows of `usage` that may contain this request id: first those that are in no run, then those in
/// runs, the newest day first. Ends as soon as `is_over` is true for a time before which all other exchanges started.
pub(crate) fn each_row_with(
    db: &Db,
    request_id: &str,
    is_over: impl Fn(u64) -> bool,
    mut each: impl FnMut(RecordId) -> DbResult<()>,
) -> DbResult<()> {
    let hash = request_hash(request_id);
    // Reads these rows first: a row that is added to a run in the meantime is found twice instead of being missed.
    uncovered_with(db, hash)?.into_iter().try_for_each(&mut each)?;
    let [low, middle, high, bucket] = hash.to_le_bytes();
    let mut statement = db.prepare(BUCKET)?;
    let mut runs = statement.query([bucket])?;
    while let Some(run) = runs.next()? {
        let day: u64 = run.get("day")?;
        if is_over((day + 1).saturating_mul(DAY_MS)) {
            break;
        }
        let first: RecordId = run.get("first")?;
        let entries = run.get::<&[u8]>("entries")?.as_chunks::<ENTRY_BYTES>().0;
        let with_hash = entries.iter().filter(|entry| entry.starts_with(&[low, middle, high]));
        for [.., far, farther, farthest] in with_hash {
            each(first.later(u32::from_le_bytes([*far, *farther, *farthest, 0])))?;
        }
    }
    Ok(())
}

/// Returns the ids of all rows of `usage` that may contain this request id.
pub(crate) fn rows_with(db: &Db, request_id: &str) -> DbResult<Vec<RecordId>> {
    let mut found = Vec::new();
    each_row_with(
        db,
        request_id,
        |_| false,
        |id| {
            found.push(id);
            Ok(())
        },
    )?;
    found.sort_unstable_by(|one, other| other.cmp(one));
    found.dedup();
    Ok(found)
}

/// Returns the matching rows of all nodes that are not in any run, the newest first.
fn uncovered_with(db: &Db, hash: u32) -> DbResult<Vec<RecordId>> {
    let mut found = Vec::new();
    let mut statement = db.prepare(UNCOVERED)?;
    for last in last_rows(db)? {
        let mut rows = statement.query([covered(db, last.node())?, last.next()])?;
        while let Some(row) = rows.next()? {
            if may_hold(row.get::<&[u8]>("requests")?, hash) {
                found.push((row.get::<u64>("last_ms")?, row.get("id")?));
            }
        }
    }
    found.sort_unstable_by(|one, other| other.cmp(one));
    Ok(found.into_iter().map(|(_, id)| id).collect())
}

/// Returns the id of the last row of a node that is in a run, or of none. Later rows have greater ids.
pub(crate) fn covered(db: &Db, node: NodeId) -> DbResult<RecordId> {
    let last = db.optional_row(LAST, [node], |row| row.get("last"))?;
    Ok(last.unwrap_or_else(|| RecordId::before(node)))
}

/// Deletes the run of the oldest day if all of its rows of `usage` are deleted. Returns false if there is no such run.
pub(crate) fn forget_run(tx: &Db) -> DbResult<bool> {
    let run = |row: Row<'_>| Ok((row.get("day")?, row.get("first")?, row.get("last")?));
    let oldest: Option<(u64, RecordId, RecordId)> = tx.optional_row(OLDEST, (), run)?;
    let Some((day, first, last)) = oldest else { return Ok(false) };
    if tx.exists(IS_ROW_LEFT, [first, last])? {
        return Ok(false);
    }
    delete_run(tx, day, last)?;
    Ok(true)
}

/// Deletes a run, complete or not.
fn delete_run(tx: &Db, day: u64, last: RecordId) -> DbResult<()> {
    let mut delete = tx.prepare(DELETE)?;
    for bucket in 0..BUCKETS {
        delete.execute((bucket, day, last))?;
    }
    Ok(())
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
const DAY_MS: u64 = DAY_HOURS * HOUR_MS;
const ENTRY_BYTES: usize = 6;
const AFTER_FAILURE: Duration = Duration::from_secs(30);

const UNCOVERED: &str = "SELECT id, last_ms, requests FROM usage WHERE id > :after AND id < :end ORDER BY id";
const LAST: &str = "SELECT last FROM usage_indexed WHERE node = :node";
const BUCKET: &str =
    "SELECT day, first, entries FROM usage_requests WHERE bucket = :bucket ORDER BY day DESC, last DESC";
const INSERT: &str = "INSERT INTO usage_requests (bucket, day, last, first, entries) VALUES (:bucket, :day, :last, :first, :entries)";
const DRAFT: &str = "SELECT draft_day, draft_last FROM usage_indexed WHERE node = :node";
const BEGIN_DRAFT: &str = "INSERT INTO usage_indexed (node, last, draft_day, draft_last) \
     VALUES (:node, :covered, :day, :last) \
     ON CONFLICT (node) DO UPDATE SET draft_day = excluded.draft_day, draft_last = excluded.draft_last";
const END_DRAFT: &str = "UPDATE usage_indexed SET last = :last, draft_day = NULL, draft_last = NULL \
     WHERE node = :node AND draft_day = :day AND draft_last = :last";
const IS_ROW: &str = "SELECT 1 FROM usage WHERE id = :id";
const OLDEST: &str =
    "SELECT day, first, last FROM usage_requests WHERE bucket = 0 ORDER BY day, last LIMIT 1";
const IS_ROW_LEFT: &str = "SELECT 1 FROM usage WHERE id >= :first AND id <= :last";
const DELETE: &str = "DELETE FROM usage_requests WHERE bucket = :bucket AND day = :day AND last = :last";

#[cfg(test)]
mod tests;
