//! The usage journal: where a data-plane thread leaves its events.
//!
//! A copy into the pages of a file of its own, or one write(2), makes an event survive the end of the process, and
//! the writer thread reads it from there: nothing else crosses from one thread to the other while the file can be
//! written. No lock, no fsync, nothing that waits. Every bound is a constant at the end of this file.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use shared::usage::{Note, UsageEvent, UsageLog};

use super::frame;
use super::gauge::{Gauge, add, read};
use super::notes::{Notes, is_notes};
use super::segment::{Place, SEGMENT_BYTES, Segment, create, create_written, file_id};
use super::spares::{self, Exchange, Spares};
#[cfg(test)]
use super::written::Written;
use crate::store::marks::FileId;
use crate::vault::random;

/// The journal of a state directory, as the data plane's side sees it.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    /// Records that could not be written to a file.
    queue: Sender<Box<[u8]>>,
    /// New segments; one every [`SEGMENT_BYTES`] of events, so its length needs no bound of its own.
    segments: Sender<Arc<Segment>>,
    exchange: Exchange,
    gauge: Arc<Gauge>,
}

/// The same journal, as the writer thread sees it.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) dir: PathBuf,
    pub(crate) queue: Receiver<Box<[u8]>>,
    pub(crate) segments: Receiver<Arc<Segment>>,
    pub(crate) spares: Spares,
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
        let (exchange, spares) = spares::exchange(dir.clone(), origin()?);
        let inbox = Inbox { dir: dir.clone(), queue: queued, segments: fresh, spares, notes };
        Ok((Self { dir, queue, segments, exchange, gauge }, inbox))
    }

    /// A log for one thread.
    pub(crate) fn log(&self) -> io::Result<Log> {
        let id = FileId { origin: origin()?, number: 0 };
        let (place, segment) = create(&self.dir, id)?;
        announce(&segment, &self.segments, &self.gauge);
        Ok(Log {
            place,
            segment,
            bytes: 0,
            events: 0,
            next: FileId { number: 1, ..id },
            is_stuck: false,
            notes: Notes::new(&self.dir, id.origin),
            frame: Vec::with_capacity(1_024),
            queue: self.queue.clone(),
            segments: self.segments.clone(),
            exchange: self.exchange.clone(),
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
    place: Place,
    segment: Arc<Segment>,
    /// Bytes of whole frames in the file.
    bytes: u64,
    /// How many frames that is.
    events: u64,
    /// What the next file is called that this thread makes itself.
    next: FileId,
    /// There is no room in the file, and no other can be had.
    is_stuck: bool,
    notes: Notes,
    frame: Vec<u8>,
    queue: Sender<Box<[u8]>>,
    segments: Sender<Arc<Segment>>,
    exchange: Exchange,
    gauge: Arc<Gauge>,
    dir: PathBuf,
}

impl UsageLog for Log {
    fn append(&mut self, event: &UsageEvent) {
        frame::put(&mut self.frame, event);
        if self.write() {
            self.bytes += u64::try_from(self.frame.len()).unwrap_or(u64::MAX);
            self.events += 1;
            self.segment.written(self.bytes, self.events);
            return;
        }
        add(&self.gauge.journal_failures, 1);
        if self.queue.try_send(frame::record_of(&self.frame).into()).is_ok() {
            add(&self.gauge.spilled, 1);
        } else {
            self.lose();
        }
    }

    fn has_room(&self) -> bool {
        let is_good = !self.is_stuck
            && match &self.place {
                Place::Mapped(_) => true,
                Place::Written(file) => file.is_good(),
            };
        if is_good {
            read(&self.gauge.sealed_bytes).saturating_add(self.bytes) < JOURNAL_BYTES_MAX
        } else {
            // Half of the queue is for the exchanges that are on their way already.
            self.queue.len() < self.queue.capacity().unwrap_or(0) / 2
        }
    }

    fn note(&mut self, running: &UsageEvent) -> Option<Note> {
        self.notes.write(running)
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

    /// Writes the frame to the file, or to the next one; false if it is not there now.
    fn write(&mut self) -> bool {
        if !self.has_place() && !self.rotate() {
            return false;
        }
        frame::close(&mut self.frame, Some(self.segment.id));
        match &mut self.place {
            Place::Mapped(map) => map.append(&self.frame),
            Place::Written(file) => file.append(self.bytes, &self.frame),
        }
    }

    /// Whether the frame belongs into the file.
    fn has_place(&self) -> bool {
        match &self.place {
            Place::Mapped(map) => self.frame.len() <= map.room(),
            Place::Written(_) => self.bytes < SEGMENT_BYTES as u64,
        }
    }

    /// Goes on in another file. If there is none, the next event tries again.
    fn rotate(&mut self) -> bool {
        match self.next_file() {
            Ok((place, segment)) => self.go_on(place, segment),
            Err(error) if !self.is_stuck => {
                tracing::error!(
                    "the usage journal cannot begin a new file; records go to the database alone: {error}"
                );
                self.is_stuck = true;
            }
            Err(_) => {}
        }
        !self.is_stuck
    }

    fn go_on(&mut self, place: Place, segment: Arc<Segment>) {
        let full = std::mem::replace(&mut self.place, place);
        let sealed = std::mem::replace(&mut self.segment, segment);
        if let Place::Mapped(map) = full {
            self.exchange.give(map, sealed.id);
        }
        seal(&self.gauge, &sealed);
        announce(&self.segment, &self.segments, &self.gauge);
        (self.bytes, self.events, self.is_stuck) = (0, 0, false);
    }

    /// A file with room for the frame: one that is ready, or else one that is made now.
    fn next_file(&mut self) -> io::Result<(Place, Arc<Segment>)> {
        let is_ordinary = self.frame.len() <= SEGMENT_BYTES;
        if let Some(spare) = is_ordinary.then(|| self.exchange.take()).flatten() {
            return Ok((Place::Mapped(spare.map), spare.segment));
        }
        let id = self.next.take();
        if is_ordinary { create(&self.dir, id) } else { create_written(&self.dir, id) }
    }

    /// Goes on in a file that is written with write(2), as everywhere on some file systems.
    #[cfg(test)]
    pub(super) fn go_on_written(&mut self) -> &mut Written {
        let (place, segment) = create_written(&self.dir, self.next.take()).unwrap();
        self.go_on(place, segment);
        self.written()
    }

    #[cfg(test)]
    pub(super) fn written(&mut self) -> &mut Written {
        match &mut self.place {
            Place::Written(written) => written,
            Place::Mapped(_) => panic!("the file is mapped"),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        seal(&self.gauge, &self.segment);
    }
}

/// Nothing is appended to it from now on.
fn seal(gauge: &Gauge, segment: &Segment) {
    add(&gauge.sealed_bytes, segment.bytes());
    segment.seal();
}

/// Lets the writer thread read a new file.
fn announce(segment: &Arc<Segment>, segments: &Sender<Arc<Segment>>, gauge: &Gauge) {
    add(&gauge.segments, 1);
    let _ = segments.send(Arc::clone(segment));
}

/// What tells the files of one thread from those of all others, now and later.
fn origin() -> io::Result<u64> {
    Ok(random::<8>().map(u64::from_be_bytes).map_err(io::Error::other)? >> 1)
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
/// Bytes of files that are not stored yet; above it no more exchanges begin.
pub(super) const JOURNAL_BYTES_MAX: u64 = 1 << 30;
