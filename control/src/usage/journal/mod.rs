//! The usage journal: the files to which data-plane threads append their events.
//!
//! One write(2) to the thread's own file makes an event survive the end of the process. The writer thread reads it from
//! the file; the threads share no event in memory. There is no lock, no fsync and nothing that waits. Every bound is a
//! constant at the end of this file.
//!
//! Exchanges start only while each log has a *reserve*: an empty, fully allocated file. When the disk and the current
//! file are full, the running exchanges are recorded in the reserve, and no others start until the writer thread has
//! created another file. An event that cannot be written to any file is lost, and its client gets no complete answer.

pub(crate) mod examine;
pub(super) mod notes;
pub(super) mod resting;
pub(super) mod segment;
pub(super) mod spare_files;
pub(super) mod tracked;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, unbounded};
use records::frame::{self, FileId, JournalSpot};
use shared::usage::{Note, UsageEvent, UsageLog};

use self::notes::{Notes, is_notes};
use self::segment::{SEGMENT_BYTES, Segment, Spare, create, file_id, is_full};
use self::spare_files::{SpareExchange, SpareFiles};
use crate::common::bounds::JOURNAL_BYTES;
use crate::common::private_file;
use crate::common::vault::random;
use crate::usage::gauge::{Gauge, add, read};

/// The journal of a state directory, as used by the data plane.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    /// Announces new segments. There is one for every [`SEGMENT_BYTES`] of events, so the channel needs no bound.
    segments: Sender<Arc<Segment>>,
    exchange: SpareExchange,
    gauge: Arc<Gauge>,
}

/// The journal as used by the writer thread.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) dir: PathBuf,
    pub(crate) segments: Receiver<Arc<Segment>>,
    pub(crate) spares: SpareFiles,
    /// The note files of earlier processes: exchanges that may not have ended.
    pub(crate) notes: Vec<PathBuf>,
}

impl Journal {
    /// Opens the journal in `dir` and passes the files of earlier processes to the reader.
    pub(crate) fn open(dir: PathBuf) -> io::Result<(Self, Inbox)> {
        private_file::create_directories(&dir)?;
        let (segments, fresh) = unbounded();
        let gauge = Arc::new(Gauge::default());
        let (notes, left_over): (Vec<_>, Vec<_>) =
            left_over(&dir)?.into_iter().partition(|(path, _)| is_notes(path));
        for (path, bytes) in left_over {
            let Some(id) = file_id(&path) else {
                tracing::warn!("ignoring {}: not a file of the usage journal", path.display());
                continue;
            };
            if bytes > LEFT_BYTES_MAX {
                tracing::error!(
                    "{} has {bytes} bytes, more than the gateway writes to a file of the usage journal; records are read \
                     from its first {LEFT_BYTES_MAX} bytes, and it is deleted",
                    path.display()
                );
            }
            let bytes = bytes.min(LEFT_BYTES_MAX);
            add(&gauge.sealed_bytes, bytes);
            add(&gauge.segments, 1);
            let _ = segments.send(Arc::new(Segment::left_over(path, id, bytes)));
        }
        let (exchange, spares) = spare_files::exchange(dir.clone(), origin()?);
        let notes = notes.into_iter().map(|(path, _)| path).collect();
        let inbox = Inbox { dir: dir.clone(), segments: fresh, spares, notes };
        Ok((Self { dir, segments, exchange, gauge }, inbox))
    }

    /// Returns a log for one thread. If the disk is full, the log has no room until some is freed.
    pub(crate) fn log(&self) -> io::Result<WorkerLog> {
        let id = FileId { origin: origin()?, number: 0 };
        let mut log = WorkerLog {
            current: None,
            reserve: None,
            next: id,
            notes: Notes::new(&self.dir, id.origin),
            frame: Vec::with_capacity(1_024),
            segments: self.segments.clone(),
            exchange: self.exchange.clone(),
            gauge: Arc::clone(&self.gauge),
            dir: self.dir.clone(),
        };
        add(&log.gauge.logs_stuck, 1);
        match log.open_files() {
            Err(error) if is_full(&error) => {
                tracing::error!("no space for the usage journal; requests get 503: {error}");
            }
            opened => opened?,
        }
        Ok(log)
    }

    /// The directory of the journal.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the number of events that waited to be stored when the writer thread last looked.
    pub(crate) fn queued(&self) -> usize {
        usize::try_from(read(&self.gauge.waiting)).unwrap_or(usize::MAX)
    }

    /// The counters and failures of metering.
    pub(crate) fn gauge(&self) -> &Arc<Gauge> {
        &self.gauge
    }
}

/// The log of one data-plane thread.
#[derive(Debug)]
pub(crate) struct WorkerLog {
    current: Option<Current>,
    /// The reserve, for running exchanges when the current file is full and no other is available.
    reserve: Option<Spare>,
    /// The id of the next file that this thread creates itself.
    next: FileId,
    notes: Notes,
    frame: Vec<u8>,
    segments: Sender<Arc<Segment>>,
    exchange: SpareExchange,
    gauge: Arc<Gauge>,
    dir: PathBuf,
}

/// The file to which events are appended.
#[derive(Debug)]
struct Current {
    file: File,
    /// Allocated bytes in the file.
    bytes_max: u64,
    segment: Arc<Segment>,
    /// Bytes of complete frames in the file.
    bytes: u64,
    /// Number of complete frames in the file.
    events: u64,
    /// True if a write failed, so that the file may end with part of a frame.
    is_torn: bool,
}

impl UsageLog for WorkerLog {
    fn append(&mut self, event: &UsageEvent) -> bool {
        frame::put(&mut self.frame, event);
        let is_written = self.write_here() || (self.rotate() && self.write_here());
        if !is_written {
            self.lose();
        }
        is_written
    }

    fn has_room(&self) -> bool {
        let current = self.current.as_ref().map_or(0, |current| current.bytes);
        let waiting = read(&self.gauge.sealed_bytes).saturating_add(current);
        read(&self.gauge.logs_stuck) == 0
            && !JOURNAL_BYTES.is_full(usize::try_from(waiting).unwrap_or(usize::MAX))
    }

    fn tend(&mut self) {
        if self.reserve.is_none()
            && let Some(spare) = self.exchange.take()
        {
            tracing::info!("the usage journal has space again");
            self.keep(spare);
        }
    }

    fn note(&mut self, running: &UsageEvent) -> Option<Note> {
        self.notes.write(running)
    }

    fn strike(&mut self, note: Note) {
        self.notes.strike(note);
    }
}

impl WorkerLog {
    /// Creates the first file and the reserve.
    fn open_files(&mut self) -> io::Result<()> {
        let id = self.next.take();
        let first = create(&self.dir, id, SEGMENT_BYTES)?;
        self.go_on(first);
        let id = self.next.take();
        let reserve = create(&self.dir, id, SEGMENT_BYTES)?;
        self.keep(reserve);
        Ok(())
    }

    fn keep(&mut self, reserve: Spare) {
        if self.reserve.replace(reserve).is_none() {
            self.gauge.logs_stuck.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes the reserve. From now on no exchanges start.
    fn take_reserve(&mut self) -> Option<Spare> {
        let reserve = self.reserve.take()?;
        add(&self.gauge.logs_stuck, 1);
        Some(reserve)
    }

    /// Counts and logs the loss of an event; logs only at powers of two. Deletes the reserve, because it could not be
    /// written.
    fn lose(&mut self) {
        if let Some(reserve) = self.take_reserve() {
            reserve.remove();
        }
        add(&self.gauge.journal_failures, 1);
        self.gauge.lost_at_ms.store(shared::clock::unix_ms(), Ordering::Relaxed);
        let lost = self.gauge.lost.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if lost.is_power_of_two() {
            tracing::error!(lost, "the usage journal accepts no more records; running exchanges fail");
        }
    }

    /// Appends the frame to the current file. Returns false if there is no file or no room in it.
    fn write_here(&mut self) -> bool {
        self.current.as_mut().is_some_and(|current| current.append(&mut self.frame))
    }

    /// Switches to another file. Returns false if no other file is available.
    fn rotate(&mut self) -> bool {
        let next = self.next_file().or_else(|error| {
            let reserve = self.take_reserve();
            if reserve.is_some() {
                tracing::error!("cannot create a new file of the usage journal; requests get 503: {error}");
            }
            reserve.ok_or(error)
        });
        next.map(|spare| self.go_on(spare)).is_ok()
    }

    fn go_on(&mut self, Spare { file, bytes_max, segment }: Spare) {
        announce(&segment, &self.segments, &self.gauge);
        let next = Current { file, bytes_max, segment, bytes: 0, events: 0, is_torn: false };
        if let Some(full) = self.current.replace(next) {
            self.leave(full);
        }
    }

    fn leave(&mut self, full: Current) {
        let Current { file, bytes_max, segment, is_torn, .. } = full;
        if bytes_max == SEGMENT_BYTES && !is_torn {
            self.exchange.give(file, segment.id);
        }
        seal(&self.gauge, &segment);
    }

    /// Returns a file with room for the frame: a spare file, or else a newly created one.
    fn next_file(&mut self) -> io::Result<Spare> {
        let bytes = u64::try_from(self.frame.len()).unwrap_or(u64::MAX);
        if bytes <= SEGMENT_BYTES
            && let Some(spare) = self.exchange.take()
        {
            return Ok(spare);
        }
        let id = self.next.take();
        create(&self.dir, id, bytes.max(SEGMENT_BYTES))
    }

    /// Puts the log into the state after a failed write.
    #[cfg(test)]
    pub(super) fn tear(&mut self) {
        self.current.as_mut().unwrap().is_torn = true;
    }

    /// Switches to `file`, which the reader does not find.
    #[cfg(test)]
    pub(super) fn go_on_in(&mut self, file: File) {
        let id = self.next.take();
        let segment = Arc::new(Segment::fresh(self.dir.join("elsewhere"), id));
        self.go_on(Spare { file, bytes_max: SEGMENT_BYTES, segment });
    }
}

impl Current {
    /// Closes the frame that [`frame::put`] built, and appends it. Returns false if there is no room or the write
    /// failed.
    fn append(&mut self, frame: &mut [u8]) -> bool {
        let length = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        let end = self.bytes.saturating_add(length);
        if end > self.bytes_max || self.is_torn {
            return false;
        }
        frame::close(frame, Some(JournalSpot { file: self.segment.id, at: self.bytes }));
        if let Err(error) = self.file.write_all_at(frame, self.bytes) {
            tracing::error!("{} cannot be written: {error}", self.segment.path.display());
            self.is_torn = true;
            return false;
        }
        self.bytes = end;
        self.events += 1;
        self.segment.written(self.bytes, self.events);
        true
    }
}

impl Drop for WorkerLog {
    fn drop(&mut self) {
        if let Some(current) = self.current.take() {
            seal(&self.gauge, &current.segment);
        }
        match self.reserve.take() {
            Some(reserve) => reserve.remove(),
            None => {
                self.gauge.logs_stuck.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// Marks a segment as complete: nothing more is appended to it.
fn seal(gauge: &Gauge, segment: &Segment) {
    add(&gauge.sealed_bytes, segment.bytes());
    segment.seal();
}

/// Passes a new file to the writer thread.
fn announce(segment: &Arc<Segment>, segments: &Sender<Arc<Segment>>, gauge: &Gauge) {
    add(&gauge.segments, 1);
    let _ = segments.send(Arc::clone(segment));
}

/// Returns a random number that distinguishes the files of one thread from those of all other threads and processes.
fn origin() -> io::Result<u64> {
    Ok(random::<8>().map(u64::from_be_bytes).map_err(io::Error::other)? >> 1)
}

/// Returns the regular files in the journal's directory with their sizes, sorted by name.
fn left_over(dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_file() {
            files.push((path, metadata.len()));
        } else {
            tracing::warn!("ignoring {}: not a regular file", path.display());
        }
    }
    files.sort();
    Ok(files)
}

/// Bytes that are read of an earlier process's file: the longest file that the gateway writes.
const LEFT_BYTES_MAX: u64 = SEGMENT_BYTES + (frame::HEADER + frame::RECORD_BYTES_MAX) as u64;
