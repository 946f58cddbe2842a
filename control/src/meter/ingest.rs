//! The meter: takes events from the queue and, where that was not enough, from journal files, and stores them
//! in batches, one transaction each.
//!
//! A batch that cannot be stored stays and is tried again with growing pauses; nothing is taken from the queue
//! meanwhile, so that what waits stays bounded by the queue and the journal.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use shared::clock::unix_ms;
use shared::usage::UsageEvent;

use super::gauge::{Gauge, add};
use super::journal::{Inbox, Queued};
use super::segment::{Segment, read_chunk};
use crate::store::usage::{self, EventId};

/// Moves events into the database. Runs on the writer thread.
#[derive(Debug)]
pub(crate) struct Meter {
    db: Connection,
    inbox: Inbox,
    gauge: Arc<Gauge>,
    tracked: Vec<Tracked>,
    /// Taken from the queue and not stored yet.
    #[expect(clippy::vec_box, reason = "the queue carries boxes, and what is large stays where it is")]
    batch: Vec<Box<Queued>>,
    trouble: Option<Trouble>,
}

/// A journal file that is still needed.
#[derive(Debug)]
struct Tracked {
    segment: Arc<Segment>,
    reading: Reading,
    /// When to look again at a file that could not be read or deleted.
    retry_at: Option<Instant>,
}

/// Whether and how far a file has been read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// All its events came through the queue so far.
    NotNeeded,
    /// There is more to read from this byte on.
    From(u64),
    /// It was read to its end, which was here.
    Done(u64),
}

/// Storing fails at the moment.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    retry_at: Instant,
    pause: Duration,
}

/// What a round found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Nothing.
    Idle,
    /// Something, and it is done.
    Worked,
    /// More than one round takes.
    More,
    /// Storing fails; to be tried again after this time.
    Failing(Duration),
}

impl Meter {
    /// A meter that stores into `db` what comes out of `inbox`.
    pub(crate) fn new(db: Connection, inbox: Inbox, gauge: Arc<Gauge>) -> Self {
        Self { db, inbox, gauge, tracked: Vec::new(), batch: Vec::new(), trouble: None }
    }

    /// Stores what there is, as far as one round goes.
    pub(crate) fn round(&mut self) -> Round {
        for segment in self.inbox.segments.try_iter() {
            self.tracked.push(Tracked { segment, reading: Reading::NotNeeded, retry_at: None });
        }
        if let Some(trouble) = self.trouble {
            let wait = trouble.retry_at.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                return Round::Failing(wait);
            }
        }
        match self.work() {
            Ok(round) => {
                self.sweep();
                round
            }
            Err(error) => Round::Failing(self.fail(&error)),
        }
    }

    /// Whether everything that was offered is stored.
    pub(crate) fn is_done(&self) -> bool {
        let nothing_left = self.tracked.iter().all(|tracked| !tracked.segment.is_sealed());
        self.batch.is_empty() && self.inbox.queue.is_empty() && nothing_left
    }

    /// Events that would be gone with the process: not stored, and not known to be in a file.
    pub(crate) fn unstored(&self) -> usize {
        self.batch.len() + self.inbox.queue.len()
    }

    /// Folds the write-ahead log into the database; for the end of the process.
    pub(crate) fn checkpoint(&self) {
        if let Err(error) = self.db.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(())) {
            tracing::debug!("the write-ahead log stays: {error}");
        }
    }

    #[cfg(test)]
    pub(super) fn db(&self) -> &Connection {
        &self.db
    }

    fn work(&mut self) -> rusqlite::Result<Round> {
        let mut round = Round::Idle;
        for _ in 0..BATCHES_MAX {
            let missing = BATCH_MAX.saturating_sub(self.batch.len());
            self.batch.extend(self.inbox.queue.try_iter().take(missing));
            if self.batch.is_empty() {
                break;
            }
            let full = self.batch.len() >= BATCH_MAX;
            self.store_batch()?;
            round = if full { Round::More } else { Round::Worked };
            if !full {
                break;
            }
        }
        if self.read_again()? { Ok(Round::More) } else { Ok(round) }
    }

    fn store_batch(&mut self) -> rusqlite::Result<()> {
        let events = self.batch.iter().map(|queued| (queued.id, &queued.event));
        store(&mut self.db, &self.gauge, events)?;
        self.trouble = None;
        for queued in self.batch.drain(..) {
            queued.segment.commit_one();
        }
        Ok(())
    }

    /// Reads a part of the first file that needs it. True if there is more to read.
    fn read_again(&mut self) -> rusqlite::Result<bool> {
        let now = Instant::now();
        for tracked in &mut self.tracked {
            // Before the file is read, so that nothing is appended after a look at a sealed one.
            if tracked.segment.take_dirty() {
                tracked.reading = match tracked.reading {
                    Reading::NotNeeded => Reading::From(0),
                    Reading::From(at) | Reading::Done(at) => Reading::From(at),
                };
            }
            let Reading::From(at) = tracked.reading else { continue };
            if tracked.retry_at.is_some_and(|retry_at| now < retry_at) {
                continue;
            }
            let chunk = match read_chunk(&tracked.segment, at) {
                Ok(chunk) => chunk,
                Err(error) => {
                    tracked.give_up_or_wait(&error, now);
                    continue;
                }
            };
            let events = chunk.events.iter().map(|(id, event)| (*id, event));
            store(&mut self.db, &self.gauge, events)?;
            self.trouble = None;
            add(&self.gauge.garbage_lines, chunk.garbage_lines);
            if chunk.garbage_lines > 0 {
                let (path, lines) = (tracked.segment.path.display(), chunk.garbage_lines);
                tracing::warn!("{lines} lines of {path} are no usage records and are passed over");
            }
            tracked.reading =
                if chunk.at_end { Reading::Done(chunk.next) } else { Reading::From(chunk.next) };
            return Ok(true);
        }
        Ok(false)
    }

    /// Deletes the files whose events are all stored.
    fn sweep(&mut self) {
        let now = Instant::now();
        let gauge = &self.gauge;
        self.tracked.retain_mut(|tracked| !(tracked.is_stored() && tracked.delete(gauge, now)));
    }

    /// Notes a failure. Gives the pause until the next try.
    fn fail(&mut self, error: &rusqlite::Error) -> Duration {
        let pause = self.trouble.map_or(PAUSE_MIN, |trouble| (trouble.pause * 2).min(PAUSE_MAX));
        self.trouble = Some(Trouble { retry_at: Instant::now() + pause, pause });
        if self.gauge.fail(error.to_string()) {
            tracing::error!("usage records cannot be stored and wait: {error}");
        }
        pause
    }
}

impl Tracked {
    fn is_stored(&self) -> bool {
        let segment = &self.segment;
        segment.is_sealed()
            && match self.reading {
                Reading::NotNeeded => segment.is_committed() && !segment.is_dirty(),
                Reading::From(_) => false,
                Reading::Done(_) => !segment.is_dirty(),
            }
    }

    /// True if the file is gone.
    fn delete(&mut self, gauge: &Gauge, now: Instant) -> bool {
        if self.retry_at.is_some_and(|retry_at| now < retry_at) {
            return false;
        }
        match fs::remove_file(&self.segment.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{} is stored and cannot be deleted: {error}", self.segment.path.display());
                self.retry_at = Some(now + FILE_PAUSE);
                false
            }
            Ok(()) | Err(_) => {
                gauge.segments.fetch_sub(1, Ordering::Relaxed);
                gauge.sealed_bytes.fetch_sub(self.segment.bytes(), Ordering::Relaxed);
                true
            }
        }
    }

    fn give_up_or_wait(&mut self, error: &io::Error, now: Instant) {
        let path = self.segment.path.display();
        if error.kind() == io::ErrorKind::NotFound {
            tracing::error!("{path} is gone, and with it the usage records in it");
            self.reading = Reading::Done(0);
        } else {
            tracing::error!("{path} cannot be read and waits: {error}");
            self.retry_at = Some(now + FILE_PAUSE);
        }
    }
}

fn store<'a>(
    db: &mut Connection,
    gauge: &Gauge,
    events: impl Iterator<Item = (EventId, &'a UsageEvent)>,
) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let stored = usage::store(&tx, events)?;
    tx.commit()?;
    add(&gauge.stored, stored.added);
    add(&gauge.rejected, stored.rejected);
    gauge.stored_at_ms.store(unix_ms(), Ordering::Relaxed);
    if let Some(failing) = gauge.recover() {
        let seconds = unix_ms().saturating_sub(failing.since_ms) / 1_000;
        tracing::info!("usage records are stored again, after {seconds} s");
    }
    Ok(())
}

/// Events of one transaction.
const BATCH_MAX: usize = 2_048;
/// Transactions of one round.
const BATCHES_MAX: usize = 8;
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// A full disk that has room again is noticed within this time.
const PAUSE_MAX: Duration = Duration::from_secs(4);
const FILE_PAUSE: Duration = Duration::from_secs(5);
