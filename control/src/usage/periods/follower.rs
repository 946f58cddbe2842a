//! Counts stored records in the table, in steps on the writer thread: those of this node, and those of nodes that have left.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use records::block;

use super::table::{self, Followed, followed_of, move_followed};
use super::tally::{DayNames, PeriodTally};
use crate::common::bounds::RECALLED_ANSWERS;
use crate::db::engine::{Db, DbError, DbResult, named_params};
use crate::db::packed_row::{PackedRow, unless_damaged};
use crate::db::record_id::{NodeId, RecordId};
use crate::usage::last_answers::LastAnswers;
use crate::usage::recent::feed::RowPlace;
use crate::usage::report::only_days_before;

/// Counts the records that were stored since it last did.
#[derive(Debug)]
pub(crate) struct Follower {
    /// Upper bound for the number of exchanges that are not counted.
    waiting: u64,
    counting: RecordCounting,
    /// The next step.
    due: Instant,
    /// True if the last answers of earlier processes are noted.
    has_recalled: bool,
    /// True once that was done again with what they had stored, but not counted.
    has_recalled_all: bool,
    /// The start of a long catching up, the place at which it began, and the next report of its progress.
    behind: Option<(Instant, RowPlace, Instant)>,
}

/// Counts the records of one node, in steps.
#[derive(Debug)]
pub(crate) struct RecordCounting {
    /// The exchanges of the next step: as many as take about [`STEP_TIME`].
    size: u64,
    names: DayNames,
}

impl Follower {
    /// Creates the state for a table whose distance from the records is unknown.
    pub(crate) fn new() -> Self {
        Self {
            waiting: u64::MAX,
            counting: RecordCounting::new(),
            due: Instant::now(),
            has_recalled: false,
            has_recalled_all: false,
            behind: None,
        }
    }

    /// Notes newly stored exchanges.
    pub(crate) fn stored(&mut self, exchanges: u64) {
        self.waiting = self.waiting.saturating_add(exchanges);
        // While it catches up, the pauses between its steps stay.
        if self.waiting >= STEP_EXCHANGES_MAX && self.behind.is_none() {
            self.due = self.due.min(Instant::now());
        }
    }

    /// True if a step is due.
    pub(crate) fn is_due(&self) -> bool {
        self.waiting > 0 && self.due <= Instant::now()
    }

    /// Returns the time until the next step; `None` if no records wait.
    pub(crate) fn until_due(&self) -> Option<Duration> {
        (self.waiting > 0).then(|| self.due.saturating_duration_since(Instant::now()))
    }

    /// Counts some of the records, and decides when the next step is due. Periods that expired before `now_ms` are left out.
    pub(crate) fn step(&mut self, db: &mut Db, answers: &LastAnswers, now_ms: u64) {
        let began = Instant::now();
        let counted = self.counting.step(db, NodeId::of(db), now_ms);
        let is_end = matches!(counted, Ok((_, true)));
        if !self.has_recalled || (is_end && !self.has_recalled_all) {
            let is_recalled = recall(db, answers).is_ok();
            self.has_recalled |= is_recalled;
            self.has_recalled_all |= is_recalled && is_end;
        }
        match counted {
            Ok((place, true)) => {
                self.waiting = 0;
                self.due = began + EVERY;
                if let Some((since, ..)) = self.behind.take()
                    && since.elapsed() >= REPORTED_AFTER
                {
                    tracing::info!("charts are complete, after {} s", since.elapsed().as_secs());
                }
                tracing::trace!(row = %place.id, "charts follow the records");
            }
            Ok((place, false)) => {
                self.due = Instant::now() + began.elapsed() * REST;
                self.report(db, place);
            }
            Err(error) => {
                tracing::warn!("cannot count usage records for charts: {error}");
                self.due = Instant::now() + AFTER_FAILURE;
            }
        }
    }

    /// Reports the progress of a long catching up.
    fn report(&mut self, db: &Db, place: RowPlace) {
        let now = Instant::now();
        let (since, from, next) = self.behind.get_or_insert((now, place, now + REPORTED_AFTER));
        if now < *next {
            return;
        }
        *next = now + REPORT_EVERY;
        let last: Option<RecordId> =
            db.row(LAST, [RecordId::end_of(NodeId::of(db))], |row| row.get("id")).ok();
        let rows_to = |id: RecordId| id.distance_from(from.id).unwrap_or(0);
        let (done, all) = (rows_to(place.id), rows_to(last.unwrap_or(place.id)).max(1));
        tracing::info!(
            "charts are computed from the records: {} % after {} s; until then they are partial",
            done * 100 / all,
            since.elapsed().as_secs()
        );
    }
}

impl RecordCounting {
    pub(crate) fn new() -> Self {
        Self { size: STEP_EXCHANGES_MIN, names: DayNames::default() }
    }

    /// Counts some exchanges of `node` in one transaction. Returns the place that is reached, and true if it is the end.
    pub(crate) fn step(&mut self, db: &mut Db, node: NodeId, now_ms: u64) -> DbResult<(RowPlace, bool)> {
        let began = Instant::now();
        let counted = self.count(db, node, now_ms);
        match counted {
            Ok((_, true)) => self.names.forget(false),
            Ok((_, false)) => self.size = next_size(self.size, began.elapsed()),
            Err(_) => self.names.forget(true),
        }
        counted
    }

    fn count(&mut self, db: &mut Db, node: NodeId, now_ms: u64) -> DbResult<(RowPlace, bool)> {
        let before = followed_of(db, node)?;
        let mut now = match before {
            Some(followed) => followed,
            None => {
                let place = RowPlace { id: RecordId::before(node), taken: 0 };
                Followed { place, from_ms: only_days_before(db)?.unwrap_or(0) }
            }
        };
        let mut tally = PeriodTally::default();
        let is_end = self.read(db, &mut now.place, &mut tally)?;
        if tally.exchanges == 0 && is_end {
            return Ok((now.place, true));
        }
        let mut rows = tally.rolled_up(|day, names| self.names.counted(db, day, names, false))?;
        rows.retain(|key, _| key.start >= key.grain.kept_from(now_ms).unwrap_or(0));
        db.lazily(|tx| {
            if !move_followed(tx, node, before.as_ref(), &now)? {
                return Err(DbError::bad_value("another process counts the records of this node"));
            }
            table::add(tx, node, &rows)
        })?;
        Ok((now.place, is_end))
    }

    /// Adds records behind `place`, and moves it. Returns true if there are no more.
    fn read(&self, db: &Db, place: &mut RowPlace, tally: &mut PeriodTally) -> DbResult<bool> {
        let mut statement = db.prepare(FROM)?;
        let end = RecordId::end_of(place.id.node());
        let mut rows = statement.query(named_params! {":id": place.id, ":end": end})?;
        while let Some(row) = rows.next()? {
            let (id, exchanges): (RecordId, u32) = (row.get("id")?, row.get("exchanges")?);
            let known = if id == place.id { place.taken } else { 0 };
            let read = PackedRow::read(row).and_then(|row| Ok((row.rows()?, row.names)));
            if let Some((packed, names)) = unless_damaged(read)? {
                let after = usize::try_from(known).unwrap_or(usize::MAX);
                for piece in block::pieces(packed).skip(after) {
                    let Some((record, trace)) = block::record(piece, &names) else { continue };
                    tally.add(&record, trace);
                }
            }
            *place = RowPlace { id, taken: exchanges };
            if tally.exchanges >= self.size {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the exchanges of the next step, after one of `size` exchanges took this time. A machine that was busy with something
/// else changes it by half at most.
fn next_size(size: u64, took: Duration) -> u64 {
    let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    let fitting = size.saturating_mul(u64::try_from(STEP_TIME.as_micros()).unwrap_or(u64::MAX)) / took;
    fitting.clamp(size / 2, size * 2).clamp(STEP_EXCHANGES_MIN, STEP_EXCHANGES_MAX)
}

/// Notes the last answers that earlier processes stored, to the minute.
fn recall(db: &Db, answers: &LastAnswers) -> DbResult<()> {
    let mut rows = 0;
    table::newest_targets(db, |minute_ms, target, sums| {
        if sums.target.has_answered() {
            answers.note(target, minute_ms);
        }
        rows += 1;
        if RECALLED_ANSWERS.is_full(rows) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// The time of a step: jobs of the writer thread wait for it.
const STEP_TIME: Duration = Duration::from_millis(4);
const STEP_EXCHANGES_MIN: u64 = 256;
const STEP_EXCHANGES_MAX: u64 = 2_048;
/// Fewer exchanges are counted at this interval. Readers read them from the records until then.
const EVERY: Duration = Duration::from_secs(5);
/// The pause after a step that left records, as a multiple of its duration.
const REST: u32 = 3;
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// A catching up that takes longer is reported.
const REPORTED_AFTER: Duration = Duration::from_secs(2);
const REPORT_EVERY: Duration = Duration::from_secs(10);
const FROM: &str = "SELECT * FROM usage WHERE id >= :id AND id < :end ORDER BY id";
const LAST: &str = "SELECT max(id) AS id FROM usage WHERE id < :end";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_gets_as_many_exchanges_as_take_its_time() {
        let [shorter, fitting, longer] = [1, 4, 6].map(Duration::from_millis);
        assert_eq!([next_size(1_024, fitting), next_size(900, longer)], [1_024, 600]);
        assert_eq!(next_size(512, shorter), 1_024, "twice as many at most");
        assert_eq!(next_size(1_024, Duration::from_secs(9)), 512, "half as many at least");
        let bounds = [next_size(STEP_EXCHANGES_MIN, longer), next_size(STEP_EXCHANGES_MAX, Duration::ZERO)];
        assert_eq!(bounds, [STEP_EXCHANGES_MIN, STEP_EXCHANGES_MAX]);
    }
}
