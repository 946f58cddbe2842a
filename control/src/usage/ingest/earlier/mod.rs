//! Records, and notes of exchanges that never ended, that earlier processes left in the journal. A start stores them for a
//! second at most. It only reads the rest, to count it in the limits, so that no limit lets more through; the rest is stored
//! while the gateway serves.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use records::frame::FileId;
use records::{Record, Texts, Trace};
use shared::clock::unix_ms;

use super::{Meter, Round};
use crate::db::engine::{DbError, DbResult};
use crate::db::record_id::NodeId;
use crate::db::usage_effects;
use crate::usage::journal::notes;
use crate::usage::journal::tracked::Tracked;
use crate::usage::{read_positions, requests};

impl Meter {
    /// Stores the events that earlier processes left, for at most [`BEGIN_TIME_MAX`]. The rest, and what cannot be stored
    /// now, is for [`Self::count_rest`] and later rounds.
    pub(crate) fn begin(&mut self) {
        self.begin_until(Instant::now() + BEGIN_TIME_MAX);
    }

    pub(super) fn begin_until(&mut self, until: Instant) {
        while Instant::now() < until && matches!(self.round(), Round::More | Round::Worked) {}
    }

    /// Counts in the published limits what earlier processes left and is not stored yet, before any request is admitted. It
    /// is stored while the gateway serves.
    pub(crate) fn count_rest(&mut self) -> DbResult<()> {
        if !self.is_caught_up {
            self.catch_up()?;
        }
        let now = Instant::now();
        let is_behind = |tracked: &Tracked| tracked.segment.is_left_over() && tracked.waiting_bytes(now) > 0;
        let bytes: u64 =
            self.tracked.iter().filter(|one| is_behind(one)).map(|one| one.waiting_bytes(now)).sum();
        if bytes == 0 && self.inbox.notes.is_empty() {
            return Ok(());
        }
        self.behind_since = Some(now);
        self.gauge.is_behind.store(true, Ordering::Release);
        // The notes are read again when the journal is stored, and an error is reported then.
        let files = note_files(&self.inbox.notes).unwrap_or_default();
        let noted = records_of(&files);
        let starts: HashSet<u64> = noted.keys().map(|(_, started_at_ms)| *started_at_ms).collect();
        let Self { tracked, charges, db, buffer, .. } = self;
        let mut known = requests::stored(db, noted.values().map(|(record, _)| record))?;
        for tracked in tracked.iter_mut().filter(|one| is_behind(one)) {
            let is_charged = tracked.is_charged;
            // Without limits this only finds out how many wait.
            tracked.look_ahead(buffer, |record, trace| {
                if starts.contains(&record.started_at_ms) {
                    known.insert((record.request_id.to_owned(), record.started_at_ms));
                }
                if is_charged { Ok(()) } else { charges.count_ahead(db, record, trace) }
            })?;
        }
        for (record, trace) in noted.values() {
            if !known.contains(&(record.request_id.to_owned(), record.started_at_ms)) {
                charges.count_ahead(db, record, *trace)?;
            }
        }
        self.counted_at_ms = Some(unix_ms());
        tracing::info!(
            "{} usage records that an earlier process left are stored while the gateway serves",
            self.unstored()
        );
        Ok(())
    }

    /// Finds files of earlier processes that the database has whole, although their read positions are not among those that are
    /// `known`: a directory that was restored from a snapshot has files that were stored, and whose positions were deleted with
    /// them. All records of such a file are stored if its first one is.
    pub(super) fn mark_copies(&mut self, known: &HashMap<FileId, u64>) -> DbResult<()> {
        // Files of SQLite are restored together with the journal.
        if NodeId::of(&self.db) == NodeId::FIRST {
            return Ok(());
        }
        let Self { db, tracked, buffer, .. } = self;
        let is_unknown =
            |one: &&mut Tracked| one.segment.is_left_over() && !known.contains_key(&one.segment.id);
        for tracked in tracked.iter_mut().filter(is_unknown) {
            let (segment, mut is_stored) = (Arc::clone(&tracked.segment), false);
            Tracked::new(Arc::clone(&segment), 0).take(buffer, 1, |record, _| {
                is_stored = !requests::stored(db, std::iter::once(record))?.is_empty();
                Ok::<(), DbError>(())
            })?;
            // So that the next look at the positions finds it too.
            if is_stored && read_positions::advance(db, segment.id, 0, segment.bytes())? {
                tracing::warn!(
                    "a file of the usage journal is in the database already, and is not stored again: the state directory \
                     is a copy from before"
                );
                *tracked = Tracked::new(Arc::clone(&segment), segment.bytes());
            }
        }
        Ok(())
    }

    /// Stores the notes of exchanges that never ended.
    fn begin_notes(&mut self) {
        let paths = std::mem::take(&mut self.inbox.notes);
        match self.take_notes(&paths) {
            Ok(Some(0)) => {}
            Ok(Some(count)) => tracing::warn!(
                "{count} exchanges were running when the gateway ended; each is recorded as interrupted, \
                 and its reservations count as used"
            ),
            Ok(None) => self.inbox.notes = paths,
            Err(error) => {
                self.abandon();
                if self.fence.is_some() && error.is::<DbError>() {
                    tracing::warn!("cannot store the notes of running exchanges yet: {error}");
                    self.inbox.notes = paths;
                    return;
                }
                tracing::error!(
                    "cannot read the notes of running exchanges; the next start retries: {error}"
                );
            }
        }
    }

    /// Records the exchanges that have a note but no record, then deletes the files of notes, at a node after a minute. Returns
    /// the number of recorded exchanges; `None` if the fence must be resynchronized first.
    fn take_notes(&mut self, paths: &[PathBuf]) -> Result<Option<u64>, Box<dyn std::error::Error>> {
        let files = note_files(paths)?;
        let noted = records_of(&files);
        let began = Instant::now();
        let tx = self.db.transaction()?;
        if let Some(fence) = &mut self.fence
            && !fence.pass(&tx)?
        {
            return Ok(None);
        }
        let now_ms = unix_ms();
        let known = requests::stored(&tx, noted.values().map(|(record, _)| record))?;
        for (record, trace) in noted.values() {
            if !known.contains(&(record.request_id.to_owned(), record.started_at_ms)) {
                self.usage.add(&tx, record, *trace, Some(now_ms))?;
                self.charges.count(&tx, record, *trace, self.counted_at_ms)?;
            }
        }
        self.charges.store(&tx)?;
        let stored = self.usage.finish(&tx)?;
        tx.commit()?;
        self.charges.committed();
        self.publish_sums();
        usage_effects::deliver(&mut self.db)?;
        self.resting_notes = Some((began, paths.to_vec()));
        match &mut self.fence {
            Some(fence) => fence.committed(began),
            None => self.remove_notes()?,
        }
        Ok(Some(stored.added))
    }

    /// Deletes the files of notes that are stored.
    pub(super) fn remove_notes(&mut self) -> io::Result<()> {
        let paths = self.resting_notes.take().map(|(_, paths)| paths).unwrap_or_default();
        paths.iter().try_for_each(fs::remove_file)
    }

    /// Completes what earlier processes left, once their journal is stored.
    pub(super) fn end_earlier(&mut self) {
        let is_left = self.tracked.iter().any(|one| one.segment.is_left_over() && !one.is_stored());
        if is_left {
            return;
        }
        if !self.inbox.notes.is_empty() {
            self.begin_notes();
        }
        if let Some(since) = self.behind_since.take() {
            self.gauge.is_behind.store(false, Ordering::Release);
            tracing::info!(
                "the records of an earlier process are stored, after {} s",
                since.elapsed().as_secs()
            );
        }
    }
}

/// The bytes of a file of notes.
type NoteFile<'a> = (&'a PathBuf, Vec<u8>);

fn note_files(paths: &[PathBuf]) -> io::Result<Vec<NoteFile<'_>>> {
    paths.iter().map(|path| Ok((path, notes::read(path)?))).collect()
}

/// Returns the noted exchanges by request ID and start.
fn records_of<'a>(files: &'a [NoteFile<'_>]) -> HashMap<(&'a str, u64), (Record<'a>, Trace<'a>)> {
    let records = files.iter().flat_map(|(path, bytes)| notes::records(path, bytes));
    let noted = records.filter_map(|bytes| Record::take(bytes, Texts::Inline));
    noted.map(|(record, trace)| ((record.request_id, record.started_at_ms), (record, trace))).collect()
}

/// The time for which a start stores what earlier processes left before it serves.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
