//! One file of the usage journal: written by one data-plane thread, read again only where that is needed.
//!
//! ```text
//!  open, clean --queue full--> open, dirty --read again--> open, clean
//!    | sealed                    | sealed
//!  sealed, clean               sealed, dirty <-- found at start-up
//!    | all it offered is stored  | read to its end and stored
//!    '--------> deleted <--------'
//! ```

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use shared::usage::UsageEvent;

use crate::store::usage::EventId;

/// One journal file, as its writer and its reader share it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    /// Who wrote its events.
    pub(crate) origin: u64,
    /// Nothing is appended any more.
    sealed: AtomicBool,
    /// It holds events that did not go through the queue.
    dirty: AtomicBool,
    /// Events that went through the queue; final once sealed.
    offered: AtomicU64,
    /// Of those, the ones that are stored. Written by the meter alone.
    committed: AtomicU64,
    /// Size of the file once sealed.
    bytes: AtomicU64,
}

impl Segment {
    /// A file that a data-plane thread is going to write.
    pub(crate) fn fresh(path: PathBuf, origin: u64) -> Self {
        Self {
            path,
            origin,
            sealed: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            offered: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// A file that an earlier process left.
    pub(crate) fn left_over(path: PathBuf, origin: u64, bytes: u64) -> Self {
        let segment = Self::fresh(path, origin);
        segment.mark_dirty();
        segment.seal(0, bytes);
        segment
    }

    /// Nothing is appended from now on; `offered` events went through the queue, and `bytes` were written.
    pub(crate) fn seal(&self, offered: u64, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.offered.store(offered, Ordering::Relaxed);
        self.sealed.store(true, Ordering::Release);
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Its size. Only asked of a sealed segment.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What was just written must be read again. Comes after the write.
    pub(crate) fn mark_dirty(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// Whether it must be read again; the answer is given once.
    pub(crate) fn take_dirty(&self) -> bool {
        self.dirty.swap(false, Ordering::AcqRel)
    }

    /// Whether it must be read again, without taking the answer.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// One event that came through the queue is stored.
    pub(crate) fn commit_one(&self) {
        self.committed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all events that went through the queue are stored. Only asked of a sealed segment.
    pub(crate) fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed) >= self.offered.load(Ordering::Relaxed)
    }
}

/// A line of the file.
#[derive(Serialize)]
pub(crate) struct LineOut<'a> {
    /// The event's number.
    pub(crate) s: u64,
    /// The event.
    pub(crate) e: &'a UsageEvent,
}

#[derive(Deserialize)]
struct LineIn {
    s: u64,
    e: UsageEvent,
}

/// Some events of a file.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) events: Vec<(EventId, UsageEvent)>,
    /// Lines that are no events: what a full disk or a dying process cut off.
    pub(crate) garbage_lines: u64,
    /// Where the next line begins.
    pub(crate) next: u64,
    /// Whether no whole line was left.
    pub(crate) at_end: bool,
}

/// Reads up to [`CHUNK_EVENTS_MAX`] lines from byte `from` on. A last line without its end is left alone.
pub(crate) fn read_chunk(segment: &Segment, from: u64) -> io::Result<Chunk> {
    let mut file = File::open(&segment.path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut chunk = Chunk { next: from, ..Chunk::default() };
    let mut line = Vec::new();
    for _ in 0..CHUNK_EVENTS_MAX {
        line.clear();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        let read = u64::try_from(read).unwrap_or(u64::MAX);
        if !line.ends_with(b"\n") && read < LINE_BYTES_MAX {
            chunk.at_end = true;
            break;
        }
        chunk.next = chunk.next.saturating_add(read);
        match serde_json::from_slice::<LineIn>(&line) {
            Ok(LineIn { s, e }) => {
                chunk.events.push((EventId { origin: segment.origin, sequence: s }, e));
            }
            Err(_) if line == b"\n" => {}
            Err(_) => chunk.garbage_lines += 1,
        }
    }
    Ok(chunk)
}

/// The file's name for a writer and a number.
pub(crate) fn file_name(origin: u64, number: u64) -> String {
    format!("{origin:016x}-{number:06}{EXTENSION}")
}

/// Who wrote the file, if its name is one of ours.
pub(crate) fn origin_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?;
    let (origin, _) = name.split_once('-')?;
    (origin.len() == 16).then(|| u64::from_str_radix(origin, 16).ok()).flatten()
}

const EXTENSION: &str = ".jsonl";
const CHUNK_EVENTS_MAX: usize = 1_024;
/// Longer than any event; a longer line is garbage.
const LINE_BYTES_MAX: u64 = 1 << 20;
