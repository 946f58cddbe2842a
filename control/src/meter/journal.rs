//! The usage journal: where a data-plane thread leaves its events.
//!
//! One write(2) to a file of its own makes an event survive the end of the process, and the writer thread reads
//! it from there: nothing else crosses from one thread to the other while the file can be written. No lock, no
//! fsync, nothing that waits. Every bound is a constant at the end of this file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use shared::usage::{Note, UsageEvent, UsageLog};

use super::frame;
use super::gauge::{Gauge, add, read};
use super::notes::{Notes, is_notes};
use super::segment::{Segment, file_id, file_name};
use crate::store::marks::FileId;
use crate::vault::random;

/// The journal of a state directory, as the data plane's side sees it.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    /// Frames that could not be written to a file.
    queue: Sender<Box<[u8]>>,
    /// New segments; one every [`SEGMENT_BYTES`] of events, so its length needs no bound of its own.
    segments: Sender<Arc<Segment>>,
    gauge: Arc<Gauge>,
}

/// The same journal, as the writer thread sees it.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) dir: PathBuf,
    pub(crate) queue: Receiver<Box<[u8]>>,
    pub(crate) segments: Receiver<Arc<Segment>>,
    /// What earlier processes noted of exchanges that may not have ended.
    pub(crate) notes: Vec<PathBuf>,
}

impl Journal {
    /// Opens the journal in `dir` and offers what earlier processes left to the reader.
    pub(crate) fn open(dir: PathBuf, queue_max: usize) -> io::Result<(Self, Inbox)> {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let (queue, queued) = bounded(queue_max);
        let (segments, fresh) = unbounded();
        let gauge = Arc::new(Gauge::default());
        let (notes, left_over): (Vec<_>, Vec<_>) =
            left_over(&dir)?.into_iter().partition(|path| is_notes(path));
        for path in left_over {
            let Some(id) = file_id(&path) else {
                tracing::warn!("{} is no file of the usage journal and is left alone", path.display());
                continue;
            };
            let bytes = fs::metadata(&path)?.len();
            add(&gauge.sealed_bytes, bytes);
            add(&gauge.segments, 1);
            let _ = segments.send(Arc::new(Segment::left_over(path, id, bytes)));
        }
        let inbox = Inbox { dir: dir.clone(), queue: queued, segments: fresh, notes };
        Ok((Self { dir, queue, segments, gauge }, inbox))
    }

    /// A log for one thread.
    pub(crate) fn log(&self) -> io::Result<Log> {
        let origin = random::<8>().map(u64::from_be_bytes).map_err(io::Error::other)? >> 1;
        let id = FileId { origin, number: 0 };
        let (file, segment) = new_segment(&self.dir, &self.segments, &self.gauge, id)?;
        Ok(Log {
            file,
            segment,
            bytes: 0,
            events: 0,
            rotate_at: SEGMENT_BYTES,
            state: FileState::Good,
            notes: Notes::new(&self.dir, origin),
            frame: Vec::with_capacity(1_024),
            queue: self.queue.clone(),
            segments: self.segments.clone(),
            gauge: Arc::clone(&self.gauge),
            dir: self.dir.clone(),
        })
    }

    /// Where the files are.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Events that wait to be stored, in the files when the writer thread last looked, and in the queue now.
    pub(crate) fn queued(&self) -> usize {
        let in_files = usize::try_from(read(&self.gauge.waiting)).unwrap_or(usize::MAX);
        self.queue.len().saturating_add(in_files)
    }

    /// Counts and failures.
    pub(crate) fn gauge(&self) -> &Arc<Gauge> {
        &self.gauge
    }
}

/// The log of one thread.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    segment: Arc<Segment>,
    /// Bytes of whole frames in the file.
    bytes: u64,
    /// How many frames that is.
    events: u64,
    /// The size at which another file is tried.
    rotate_at: u64,
    state: FileState,
    notes: Notes,
    frame: Vec<u8>,
    queue: Sender<Box<[u8]>>,
    segments: Sender<Arc<Segment>>,
    gauge: Arc<Gauge>,
    dir: PathBuf,
}

/// How the last write to the file went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    Good,
    /// Nothing was written.
    Failing,
    /// A part of a frame was written; it is cut off before the next one.
    Torn,
}

impl UsageLog for Log {
    fn append(&mut self, event: UsageEvent) {
        self.frame.clear();
        frame::put(&mut self.frame, &event);
        if self.write() {
            self.events += 1;
            self.segment.written(self.bytes, self.events);
        } else if self.queue.try_send(self.frame.as_slice().into()).is_ok() {
            add(&self.gauge.spilled, 1);
        } else {
            self.lose();
        }
        if self.bytes >= self.rotate_at {
            self.rotate();
        }
    }

    fn has_room(&self) -> bool {
        match self.state {
            FileState::Good => read(&self.gauge.sealed_bytes).saturating_add(self.bytes) < JOURNAL_BYTES_MAX,
            // Half of the queue is for the exchanges that are on their way already.
            FileState::Failing | FileState::Torn => self.queue.len() < self.queue.capacity().unwrap_or(0) / 2,
        }
    }

    fn note(&mut self, pending: &UsageEvent) -> Option<Note> {
        self.notes.write(pending)
    }

    fn strike(&mut self, note: Note) {
        self.notes.strike(note);
    }
}

impl Log {
    /// Says so in the log, ever more rarely.
    fn lose(&self) {
        let lost = self.gauge.lost.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if lost.is_power_of_two() {
            tracing::error!(lost, "usage records are lost: neither the journal nor the queue takes them");
        }
    }

    /// Writes the frame to the file; false if it is not there now.
    fn write(&mut self) -> bool {
        let before = self.state;
        let written = if before == FileState::Torn && self.file.set_len(self.bytes).is_err() {
            Err(io::Error::other("what is left of a cut record cannot be taken away"))
        } else {
            write_once(&self.file, &self.frame)
        };
        self.state = match written {
            Ok(written) if written == self.frame.len() => FileState::Good,
            Ok(0) => FileState::Failing,
            Ok(_) => FileState::Torn,
            Err(error) => {
                if before == FileState::Good {
                    tracing::error!(
                        "the usage journal cannot be written; records go to the database alone: {error}"
                    );
                }
                if before == FileState::Torn { FileState::Torn } else { FileState::Failing }
            }
        };
        if self.state != FileState::Good {
            add(&self.gauge.journal_failures, 1);
            return false;
        }
        self.bytes += u64::try_from(self.frame.len()).unwrap_or(u64::MAX);
        true
    }

    /// Goes on in a new file. If there can be none, the old one goes on, and the next event tries again.
    fn rotate(&mut self) {
        let next = FileId { number: self.segment.id.number + 1, ..self.segment.id };
        match new_segment(&self.dir, &self.segments, &self.gauge, next) {
            Ok((file, segment)) => {
                self.seal();
                (self.file, self.segment) = (file, segment);
                (self.bytes, self.events, self.rotate_at) = (0, 0, SEGMENT_BYTES);
                self.state = FileState::Good;
            }
            Err(error) => {
                tracing::warn!(
                    "the usage journal cannot begin a new file, and goes on in the old one: {error}"
                );
                self.rotate_at = self.bytes.saturating_add(SEGMENT_BYTES);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn replace_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    #[cfg(test)]
    pub(super) fn set_torn(&mut self) {
        self.state = FileState::Torn;
    }

    fn seal(&self) {
        add(&self.gauge.sealed_bytes, self.bytes);
        self.segment.seal();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.seal();
    }
}

fn write_once(mut file: &File, frame: &[u8]) -> io::Result<usize> {
    loop {
        match file.write(frame) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn new_segment(
    dir: &Path,
    segments: &Sender<Arc<Segment>>,
    gauge: &Gauge,
    id: FileId,
) -> io::Result<(File, Arc<Segment>)> {
    let path = dir.join(file_name(id));
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
    let segment = Arc::new(Segment::fresh(path, id));
    add(&gauge.segments, 1);
    let _ = segments.send(Arc::clone(&segment));
    Ok((file, segment))
}

/// The files of the journal, oldest name first.
fn left_over(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Events that wait for the writer thread while the journal cannot be written. A place costs 16 bytes while it
/// is empty.
pub(crate) const QUEUE_MAX: usize = 16_384;
/// A file of the journal is left for a new one at this size.
const SEGMENT_BYTES: u64 = 8 << 20;
/// Bytes of files that are not stored yet; above it no more exchanges begin.
pub(super) const JOURNAL_BYTES_MAX: u64 = 1 << 30;
