//! The meter: reads new events from the journal files and stores them in batches, one transaction each.
//!
//! A batch that cannot be stored is retried with growing pauses. The journal bounds the number of waiting events.

mod earlier;
mod shipping;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use records::frame::FileId;
use records::{Record, Trace};
use shared::clock::{monotonic_ms, unix_ms};
use shared::quota::Counters;

use self::shipping::{Batch, EventState, ShippingFence};
use super::charges::Charges;
use super::gauge::{Gauge, add};
use super::journal::Inbox;
use super::journal::resting::{REST, RestingFiles};
use super::journal::tracked::Tracked;
use super::last_answers::LastAnswers;
use super::metrics::ExchangeMetrics;
use super::origins;
use super::periods::Follower;
use super::read_positions;
use super::recent::EndedExchanges;
use super::recent::feed::RecentFeed;
use super::request_index::RequestIndex;
use super::table::{GroupSums, UsageTable};
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult};
use crate::db::record_id::NodeId;
use crate::db::usage_effects;
use crate::routing::publish::TouchedAccess;

/// Stores events in the database. Runs on the writer thread.
#[derive(Debug)]
pub(crate) struct Meter {
    db: Db,
    /// `None` if this process alone uses the database.
    fence: Option<ShippingFence>,
    /// The batch whose commit had no answer, until the fence decides it.
    doubtful: Option<Batch>,
    inbox: Inbox,
    gauge: Arc<Gauge>,
    usage: UsageTable,
    index: RequestIndex,
    charges: Charges,
    recent: Arc<RecentFeed>,
    metrics: Arc<ExchangeMetrics>,
    answers: Arc<LastAnswers>,
    follower: Follower,
    tracked: Vec<Tracked>,
    /// Files whose events are stored.
    resting: RestingFiles,
    /// Notes of exchanges that never ended, which are stored, and since when.
    resting_notes: Option<(Instant, Vec<PathBuf>)>,
    /// True if the journal of an earlier run was charged to quotas, in part or whole, but its read positions were lost
    /// together with the usage.
    is_lost: bool,
    /// True if the files of earlier processes have been registered.
    is_caught_up: bool,
    /// Files that were deleted or renamed; a power failure may undo that.
    left: Vec<FileId>,
    /// Files that are permanently gone. Their read positions can be deleted.
    gone: Vec<FileId>,
    buffer: Vec<u8>,
    stored_at: Option<Instant>,
    /// The time at which what earlier processes left was counted in the limits.
    counted_at_ms: Option<u64>,
    /// The time since which records of earlier processes are stored while the gateway serves.
    behind_since: Option<Instant>,
    trouble: Option<StoringTrouble>,
}

/// The state while storing fails.
#[derive(Clone, Copy, Debug)]
struct StoringTrouble {
    retry_at: Instant,
    pause: Duration,
    /// True if the disk is full.
    is_full: bool,
}

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// There was nothing to do.
    Idle,
    /// A batch was stored, and no more events wait.
    Worked,
    /// More events wait than fit into one round.
    More,
    /// Storing fails; retry after this time.
    Failing(Duration),
    /// A later process has started with the identity of this node: this one must end.
    Superseded,
}

impl Meter {
    /// Creates a meter that stores the events of `inbox` in `db`.
    pub(crate) fn new(db: Db, inbox: Inbox, gauge: Arc<Gauge>, counters: Arc<Counters>) -> Self {
        Self {
            fence: None,
            doubtful: None,
            inbox,
            gauge,
            usage: UsageTable::default(),
            index: RequestIndex::new(),
            charges: Charges::new(counters),
            recent: Arc::new(RecentFeed::of(NodeId::of(&db))),
            metrics: Arc::default(),
            answers: Arc::default(),
            follower: Follower::new(),
            tracked: Vec::new(),
            resting: RestingFiles::new(REST),
            resting_notes: None,
            is_lost: false,
            is_caught_up: false,
            left: Vec::new(),
            gone: Vec::new(),
            buffer: Vec::new(),
            stored_at: None,
            counted_at_ms: None,
            behind_since: None,
            trouble: None,
            db,
        }
    }

    /// The sums of what is stored, for the recent usage.
    pub(crate) fn recent(&self) -> &Arc<RecentFeed> {
        &self.recent
    }

    /// The distributions and counts of the exchanges that were stored since the start.
    pub(crate) fn metrics(&self) -> &Arc<ExchangeMetrics> {
        &self.metrics
    }

    /// The times of the last answers of targets.
    pub(crate) fn answers(&self) -> &Arc<LastAnswers> {
        &self.answers
    }

    /// Records that the earlier usage was lost, and with it the read positions of the journal.
    pub(crate) fn usage_is_lost(&mut self) {
        self.is_lost = true;
    }

    /// True if a round is due: enough bytes wait to be worth a transaction, or some have waited long enough.
    pub(crate) fn is_due(&mut self) -> bool {
        self.refill();
        if !self.is_caught_up || self.trouble.is_some() {
            return true;
        }
        self.track_new();
        let now = Instant::now();
        let waiting: u64 = self.tracked.iter().map(|tracked| tracked.waiting_bytes(now)).sum();
        self.count_waiting();
        let rested = self.stored_at.map(|at| now.duration_since(at));
        if waiting == 0 && rested.is_some_and(|rested| rested >= SHRINK_AFTER) {
            self.inbox.spares.shrink();
        }
        let is_time = rested.is_none_or(|rested| rested >= STORE_EVERY);
        let is_over = self.tracked.iter().any(Tracked::is_stored) || self.resting.is_due(now);
        let waits = waiting > 0 || is_over || self.must_store();
        waiting >= WORTH_BYTES || (is_time && waits)
    }

    /// True if events wait to be stored, due or not.
    pub(crate) fn is_waiting(&self) -> bool {
        self.tracked.iter().any(|tracked| tracked.waiting_bytes(Instant::now()) > 0)
    }

    /// Stores the waiting events, at most one transaction of them.
    pub(crate) fn round(&mut self) -> Round {
        if let Some(trouble) = self.trouble {
            let wait = trouble.retry_at.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                return Round::Failing(wait);
            }
        }
        match self.work() {
            Ok(round) => {
                self.sweep(Instant::now());
                self.refill();
                self.count_waiting();
                round
            }
            Err(error) => Round::Failing(self.fail(&error)),
        }
    }

    /// Updates the quota rules after the access of keys, and perhaps their limits, changed.
    pub(crate) fn access_changed(&mut self, access: &TouchedAccess) {
        self.charges.access_changed(&self.db, access);
    }

    /// True if no events wait, and those of every sealed file are certainly stored.
    pub(crate) fn is_done(&self) -> bool {
        let left = |tracked: &Tracked| tracked.segment.is_sealed() || tracked.waiting_events() > 0;
        self.inbox.segments.is_empty() && !self.tracked.iter().any(left) && !self.is_unsure()
    }

    /// Returns the number of events that wait in the journal.
    pub(crate) fn unstored(&self) -> u64 {
        self.tracked.iter().map(Tracked::waiting_events).sum()
    }

    /// Deletes the files whose events are certainly stored, and moves the write-ahead log into the database. Called at the end of the process.
    pub(crate) fn end(&mut self) {
        self.inbox.spares.remove_all();
        if !self.is_unsure() {
            self.resting.remove_all(Instant::now());
            if let Err(error) = self.remove_notes() {
                tracing::debug!("cannot delete notes of running exchanges: {error}");
            }
        }
        if let Err(error) = self.db.set_pragma(None, "wal_checkpoint", "TRUNCATE") {
            tracing::debug!("cannot truncate the write-ahead log: {error}");
        }
    }

    /// Extends the index of request ids if enough new rows are stored. Takes some milliseconds.
    pub(crate) fn index_requests(&mut self) {
        if self.index.is_due() {
            let open = self.usage.open_row(NodeId::of(&self.db));
            self.index.step(&mut self.db, open);
        }
    }

    /// Counts stored records in the periods, if it is time. Takes some milliseconds.
    pub(crate) fn follow_records(&mut self) {
        if self.follower.is_due() {
            self.follower.step(&mut self.db, &self.answers, unix_ms());
        }
    }

    /// Returns the time until stored records are to be counted; `None` if none wait for it.
    pub(crate) fn until_followed(&self) -> Option<Duration> {
        self.follower.until_due()
    }

    /// Returns the connection that writes.
    pub(crate) fn db_mut(&mut self) -> &mut Db {
        &mut self.db
    }

    /// Returns the connection for a change of existing usage rows. Closes the open row first, so that no more exchanges
    /// are added to one.
    pub(crate) fn usage_mut(&mut self) -> &mut Db {
        self.usage.leave_row();
        &mut self.db
    }

    /// Lets files whose events are stored rest for this time.
    #[cfg(test)]
    pub(super) fn rest_files_for(&mut self, time: Duration) {
        self.resting = RestingFiles::new(time);
    }

    #[cfg(test)]
    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// Creates journal files ahead of time. After a full disk, the database gets free room first: as long as it cannot
    /// store events, the journal cannot free any.
    fn refill(&mut self) {
        if !self.trouble.is_some_and(|trouble| trouble.is_full) {
            self.inbox.spares.refill();
        }
    }

    fn track_new(&mut self) {
        let fresh = self.inbox.segments.try_iter().map(|segment| Tracked::new(segment, 0));
        self.tracked.extend(fresh);
    }

    /// Registers the files of earlier processes, and finds read positions of files that no longer exist.
    fn catch_up(&mut self) -> DbResult<()> {
        let mut stored = read_positions::all(&self.db)?;
        for segment in self.inbox.segments.try_iter() {
            let mark = stored.get(&segment.id).copied().unwrap_or(0);
            let mut tracked = Tracked::new(segment, mark);
            // Charging the rest again would count most of it twice, so the last events are not charged.
            tracked.is_charged = self.is_lost && tracked.segment.is_left_over();
            self.tracked.push(tracked);
        }
        // If this fails, the next try finds the files among the tracked ones.
        self.mark_copies(&stored)?;
        for tracked in &self.tracked {
            stored.remove(&tracked.segment.id);
        }
        if is_on_disk(&self.inbox) {
            self.gone.extend(stored.into_keys());
        }
        self.is_caught_up = true;
        Ok(())
    }

    fn work(&mut self) -> DbResult<Round> {
        if self.is_caught_up {
            self.track_new();
        } else {
            self.catch_up()?;
        }
        let round = if self.must_store() { self.store() } else { Ok(Round::Idle) };
        let is_row_lost = self.usage.is_row_lost();
        if round.is_err() && self.doubtful.is_none() {
            self.abandon();
        }
        let round = if is_row_lost { Round::More } else { round? };
        if round == Round::Superseded {
            return Ok(round);
        }
        usage_effects::deliver(&mut self.db)?;
        self.recovered();
        self.end_earlier();
        Ok(round)
    }

    /// True if the notes that are stored have rested.
    fn is_rested(&self, now: Instant) -> bool {
        self.resting_notes.as_ref().is_some_and(|(since, _)| self.resting.is_rested(*since, now))
    }

    /// Stores one batch in one transaction.
    fn store(&mut self) -> DbResult<Round> {
        if self.is_unsure() {
            return self.resynchronize();
        }
        let (began, began_ms) = (Instant::now(), monotonic_ms());
        let tx = self.db.transaction()?;
        if let Some(fence) = &mut self.fence
            && !fence.pass(&tx)?
        {
            tx.rollback()?;
            return self.resynchronize();
        }
        let (from, mut ended, now_ms) = (self.usage.end(&tx)?, self.recent.begin(), unix_ms());
        let Self { usage, charges, .. } = self;
        let mut add = |record: &Record<'_>, trace: Trace<'_>, state: EventState| {
            usage.add(&tx, record, trace, (!state.is_counted).then_some(now_ms))?;
            origins::add(&tx, record)?;
            if let Some(ended) = ended.as_mut().filter(|_| !state.is_counted) {
                ended.add(record, trace, now_ms);
            }
            if state.is_charged { Ok(()) } else { charges.count(&tx, record, trace, state.counted_at_ms) }
        };
        let mut room = BATCH_MAX;
        let now = Instant::now();
        let mut garbage = 0;
        let mut is_known = true;
        for tracked in self.tracked.iter_mut().filter(|tracked| tracked.waiting_bytes(now) > 0) {
            let state = EventState::of(tracked, self.counted_at_ms);
            let taken = tracked.take(&mut self.buffer, room, |record, trace| add(record, trace, state))?;
            room = room.saturating_sub(taken.events);
            garbage += taken.garbage;
            if let Some((from, to)) = tracked.mark()
                && !read_positions::advance(&tx, tracked.segment.id, from, to)?
            {
                is_known = false;
                break;
            }
        }
        if !is_known {
            tx.rollback()?;
            return self.follow_other();
        }
        for file in &self.gone {
            read_positions::forget(&tx, *file)?;
        }
        let stored = usage.finish(&tx)?;
        let batch = Batch { from, to: usage.end(&tx)?, stored, garbage };
        // Last, since a larger share of a limit waits for its row.
        charges.store(&tx)?;
        // Without an answer, the fence decides.
        self.doubtful = self.fence.as_ref().map(|_| batch);
        tx.commit()?;
        self.doubtful = None;
        if let Some(fence) = &mut self.fence {
            fence.committed(began);
            if room > 0 {
                fence.shipped(began_ms);
            }
        }
        self.committed(batch, ended);
        // Start the next round with another file.
        let files = self.tracked.len();
        self.tracked.rotate_left(files.min(1));
        Ok(if room == 0 { Round::More } else { Round::Worked })
    }

    /// Goes on from the read positions in the database: another process, perhaps of another node, has stored events of the same
    /// files.
    fn follow_other(&mut self) -> DbResult<Round> {
        self.abandon();
        let marks = read_positions::of_all_nodes(&self.db)?;
        self.follow_marks(&marks);
        tracing::warn!("another process stores records of the same usage journal; each is stored once");
        Ok(Round::More)
    }

    fn committed(&mut self, batch: Batch, ended: Option<EndedExchanges>) {
        let Batch { from, to, stored, garbage } = batch;
        self.recent.committed(from, to, ended);
        self.charges.committed();
        self.publish_sums();
        self.tracked.iter_mut().for_each(Tracked::commit);
        self.gone.clear();
        if stored.added > 0 || garbage > 0 {
            self.stored_at = Some(Instant::now());
            self.gauge.stored_at_ms.store(unix_ms(), Ordering::Relaxed);
        }
        self.index.stored(stored.added);
        self.follower.stored(stored.added);
        add(&self.gauge.stored, stored.added);
        add(&self.gauge.rejected, stored.rejected);
        add(&self.gauge.garbage_lines, garbage);
        if garbage > 0 {
            tracing::warn!("skipped {garbage} invalid records of the usage journal");
        }
    }

    /// Adds the sums of a committed transaction to the metrics and to the last answers.
    fn publish_sums(&mut self) {
        let GroupSums { metrics, answers } = self.usage.take_sums();
        self.metrics.add(&metrics);
        self.answers.add(&answers);
    }

    /// Forgets what a failed transaction would have stored.
    fn abandon(&mut self) {
        self.usage.abandon();
        self.charges.abandon();
        self.tracked.iter_mut().for_each(Tracked::roll_back);
    }

    /// Clears the failure state.
    fn recovered(&mut self) {
        if self.trouble.take().is_none() {
            return;
        }
        if let Some(failing) = self.gauge.recover() {
            let seconds = unix_ms().saturating_sub(failing.since_ms) / 1_000;
            tracing::info!("usage records are stored again after {seconds} s");
        }
    }

    /// Lets the files rest whose events are all stored, and deletes or reuses those that have rested.
    pub(super) fn sweep(&mut self, now: Instant) {
        let Self { tracked, resting, inbox, gauge, left, .. } = self;
        for stored in tracked.extract_if(.., |tracked| tracked.is_stored()) {
            gauge.segments.fetch_sub(1, Ordering::Relaxed);
            gauge.sealed_bytes.fetch_sub(stored.segment.bytes(), Ordering::Relaxed);
            resting.add(stored, now);
        }
        let rested = self.fence.as_ref().map_or(now, ShippingFence::acknowledged_at);
        let gone = if inbox.spares.is_short() {
            resting.remove_all(now)
        } else {
            resting.leave(&mut inbox.spares, rested)
        };
        left.extend(gone);
        if self.is_rested(rested)
            && let Err(error) = self.remove_notes()
        {
            tracing::warn!("cannot delete the notes of running exchanges, which are stored: {error}");
        }
        // A read position may be deleted only once its file cannot reappear after a power failure. Syncing the
        // directory is slow, so it is done for many files at once; the next start handles the rest.
        if self.left.len() >= LEFT_MAX && is_on_disk(&self.inbox) {
            self.gone.append(&mut self.left);
        }
    }

    fn count_waiting(&self) {
        let unstored = self.unstored();
        self.gauge.waiting.store(unstored, Ordering::Relaxed);
        if unstored == 0
            && let Some(fence) = &self.fence
        {
            fence.shipped(monotonic_ms());
        }
    }

    /// Records a failure. Returns the pause before the next try.
    fn fail(&mut self, error: &DbError) -> Duration {
        let pause = self.trouble.map_or(PAUSE_MIN, |trouble| (trouble.pause * 2).min(PAUSE_MAX));
        // The disk of a server is another one than that of the journal.
        let is_full = error.kind() == DbErrorKind::DiskFull && !self.db.is_postgres();
        if is_full {
            self.left.extend(self.resting.remove_all(Instant::now()));
        }
        self.count_waiting();
        self.trouble = Some(StoringTrouble { retry_at: Instant::now() + pause, pause, is_full });
        if self.gauge.fail(error.to_string()) {
            tracing::error!("cannot store usage records; retrying: {error}");
        }
        pause
    }
}

/// Syncs the journal's directory, which makes deletions and renames permanent.
fn is_on_disk(inbox: &Inbox) -> bool {
    File::open(&inbox.dir).and_then(|dir| dir.sync_all()).is_ok()
}

/// Events in one transaction; at most about a millisecond of work.
const BATCH_MAX: usize = 1_024;
/// This many waiting bytes are stored at once.
const WORTH_BYTES: u64 = 256 << 10;
/// Fewer bytes are stored at this interval.
const STORE_EVERY: Duration = Duration::from_millis(450);
/// After this time without events to store, spare files that only load requires are deleted.
const SHRINK_AFTER: Duration = Duration::from_secs(10);
/// Number of files whose read positions are deleted together.
const LEFT_MAX: usize = 64;
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Bounds the time until the end of a full disk is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(4);
