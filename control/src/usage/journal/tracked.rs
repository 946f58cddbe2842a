//! Reads a journal file from the end of its stored part.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use records::frame::{self, Frame, JournalSpot};
use records::{LastNames, Record, Trace};

use super::segment::Segment;
use super::spare_files::SpareFiles;

/// A journal file that is still needed.
#[derive(Debug)]
pub(in crate::usage) struct Tracked {
    pub(in crate::usage) segment: Arc<Segment>,
    file: Option<File>,
    /// Bytes that are stored.
    stored: u64,
    /// The read position in the database.
    marked: u64,
    /// Bytes that are read; they become stored when the transaction commits.
    read: u64,
    /// The bytes whose events this process has counted before: the database has lost what it had stored of them.
    counted_bytes: u64,
    /// Number of events in the first `stored` and in the first `read` bytes.
    events: (u64, u64),
    /// True if the last bytes read were zeros.
    is_blank: bool,
    /// True if the waiting events of the file have already been charged.
    pub(in crate::usage) is_charged: bool,
    /// The number of events that waited at the start and are counted in the limits, but not stored yet.
    pub(in crate::usage) counted: Option<u64>,
    /// The time to retry a file that could not be read or deleted.
    retry_at: Option<Instant>,
}

/// The result of reading.
#[derive(Debug, Default)]
pub(in crate::usage) struct Taken {
    pub(in crate::usage) events: usize,
    /// Runs of bytes that are not events: parts of frames that a full disk or a dying process cut off.
    pub(in crate::usage) garbage: u64,
}

impl Tracked {
    /// Tracks a file whose first `stored` bytes are in the database.
    pub(in crate::usage) fn new(segment: Arc<Segment>, stored: u64) -> Self {
        Self {
            segment,
            file: None,
            stored,
            marked: stored,
            read: stored,
            counted_bytes: 0,
            events: (0, 0),
            is_blank: false,
            is_charged: false,
            counted: None,
            retry_at: None,
        }
    }

    /// Returns the number of waiting bytes; 0 while the file is paused after an error.
    pub(in crate::usage) fn waiting_bytes(&self, now: Instant) -> u64 {
        if self.is_left_alone(now) { 0 } else { self.segment.bytes().saturating_sub(self.stored) }
    }

    /// Returns the number of waiting events; 0 for files of earlier processes whose events were not counted.
    pub(in crate::usage) fn waiting_events(&self) -> u64 {
        self.counted.unwrap_or_else(|| self.segment.events()).saturating_sub(self.events.0)
    }

    /// Passes each waiting event to `each`. The events go on waiting.
    pub(in crate::usage) fn look_ahead<E>(
        &mut self,
        buffer: &mut Vec<u8>,
        each: impl FnMut(&Record<'_>, Trace<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let seen = self.take(buffer, usize::MAX, each);
        let events = self.events.1 - self.events.0;
        self.roll_back();
        self.counted = Some(self.events.0 + events);
        seen.map(drop)
    }

    /// True if nothing will be read from the file any more.
    pub(in crate::usage) fn is_stored(&self) -> bool {
        self.segment.is_sealed() && self.stored >= self.segment.bytes()
    }

    /// Returns the read position in the database and the new one, if the transaction must store it. Without new events
    /// it need not: garbage may be read again.
    pub(in crate::usage) fn mark(&self) -> Option<(u64, u64)> {
        (self.events.1 > self.events.0).then_some((self.marked, self.read))
    }

    pub(in crate::usage) fn commit(&mut self) {
        if let Some((_, read)) = self.mark() {
            self.marked = read;
        }
        (self.stored, self.events.0) = (self.read, self.events.1);
    }

    pub(in crate::usage) fn roll_back(&mut self) {
        (self.read, self.events.1, self.is_blank) = (self.stored, self.events.0, false);
    }

    /// True if more is known to be stored than `mark`, the read position in the database.
    pub(in crate::usage) fn is_ahead_of(&self, mark: u64) -> bool {
        self.marked > mark
    }

    /// True if this process has counted the next events before.
    pub(in crate::usage) fn is_counted(&self) -> bool {
        self.read < self.counted_bytes
    }

    /// Goes on from `mark`, the read position in the database, which another process or a failover has changed. Returns the
    /// number of events that are stored again.
    pub(in crate::usage) fn follow(&mut self, buffer: &mut Vec<u8>, mark: u64) -> u64 {
        self.roll_back();
        if mark == self.marked {
            return 0;
        }
        // Only counts the events between the two positions.
        let (from, to) = (self.stored.min(mark), self.stored.max(mark));
        let before = self.events.0;
        self.read = from;
        let Ok(_) = self.take_to(buffer, to, usize::MAX, |_, _| Ok::<(), Infallible>(()));
        let passed = self.events.1 - before;
        let is_behind = mark < self.stored;
        self.events.0 = if is_behind { before.saturating_sub(passed) } else { before + passed };
        self.counted_bytes = self.counted_bytes.max(self.stored);
        (self.marked, self.stored) = (mark, mark);
        self.roll_back();
        if is_behind { passed } else { 0 }
    }

    /// Reads up to `events_max` events and passes each to `each`. Stops if `each` fails, and behind events that
    /// [were counted before](Self::is_counted).
    pub(in crate::usage) fn take<E>(
        &mut self,
        buffer: &mut Vec<u8>,
        events_max: usize,
        each: impl FnMut(&Record<'_>, Trace<'_>) -> Result<(), E>,
    ) -> Result<Taken, E> {
        let end = if self.is_counted() { self.counted_bytes } else { self.segment.bytes() };
        self.take_to(buffer, end, events_max, each)
    }

    /// Reads events before the position `end`.
    fn take_to<E>(
        &mut self,
        buffer: &mut Vec<u8>,
        end: u64,
        events_max: usize,
        mut each: impl FnMut(&Record<'_>, Trace<'_>) -> Result<(), E>,
    ) -> Result<Taken, E> {
        let mut taken = Taken::default();
        let mut window = WINDOW_BYTES;
        while taken.events < events_max {
            let left = usize::try_from(end.saturating_sub(self.read)).unwrap_or(usize::MAX);
            if left == 0 {
                break;
            }
            if let Err(error) = self.fill(buffer, left.min(window)) {
                self.give_up_or_wait(&error);
                break;
            }
            let (mut rest, mut names) = (buffer.as_slice(), LastNames::default());
            while taken.events < events_max && !rest.is_empty() {
                let found = frame::first(rest, Some(JournalSpot { file: self.segment.id, at: self.read }));
                taken.garbage += self.gap(found);
                let passed = match found {
                    Frame::Whole(record, length) => {
                        self.events.1 += 1;
                        match &Record::take_next(record, &mut names) {
                            Some((record, trace)) => each(record, *trace)?,
                            None => taken.garbage += 1,
                        }
                        taken.events += 1;
                        length
                    }
                    Frame::Part(length) if length <= left - (buffer.len() - rest.len()) => {
                        window = length.max(WINDOW_BYTES);
                        break;
                    }
                    // The frame would extend past the end of the file.
                    Frame::Part(_) => {
                        taken.garbage += 1;
                        frame::after_marker(rest)
                    }
                    Frame::Garbage(length) => {
                        taken.garbage += 1;
                        length
                    }
                    Frame::Blank(length) => length,
                };
                rest = rest.split_at(passed).1;
                self.read += passed as u64;
            }
        }
        Ok(taken)
    }

    /// Returns 1 if zeros precede a record: an event was lost there. Zeros up to the end of the file are unwritten
    /// space.
    fn gap(&mut self, found: Frame<'_>) -> u64 {
        let was_blank = std::mem::replace(&mut self.is_blank, matches!(found, Frame::Blank(_)));
        u64::from(was_blank && matches!(found, Frame::Whole(..)))
    }

    /// Recycles or deletes the file. Returns true if the file no longer exists under this name.
    pub(in crate::usage) fn leave(&mut self, spares: &mut SpareFiles, now: Instant) -> bool {
        if self.is_left_alone(now) {
            return false;
        }
        if spares.renew(&self.segment) { true } else { self.remove(now) }
    }

    /// Deletes the file. Returns true if it no longer exists.
    pub(in crate::usage) fn remove(&mut self, now: Instant) -> bool {
        match fs::remove_file(&self.segment.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(
                    "cannot delete {}, whose records are stored: {error}",
                    self.segment.path.display()
                );
                self.retry_at = Some(now + FILE_PAUSE);
                false
            }
            Ok(()) | Err(_) => true,
        }
    }

    /// Closes the file, from which nothing will be read any more.
    pub(in crate::usage) fn close(&mut self) {
        self.file = None;
    }

    fn is_left_alone(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|retry_at| now < retry_at)
    }

    fn fill(&mut self, buffer: &mut Vec<u8>, length: usize) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(File::open(&self.segment.path)?),
        };
        buffer.resize(length, 0);
        file.read_exact_at(buffer, self.read)
    }

    fn give_up_or_wait(&mut self, error: &io::Error) {
        let path = self.segment.path.display();
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) {
            tracing::error!("{path} was deleted or truncated, and its usage records are lost");
            self.read = self.segment.bytes();
        } else {
            tracing::error!("cannot read {path}; retrying later: {error}");
            self.retry_at = Some(Instant::now() + FILE_PAUSE);
        }
    }
}

/// Bytes that are read at a time, unless a record is longer.
const WINDOW_BYTES: usize = 64 << 10;
const FILE_PAUSE: Duration = Duration::from_secs(5);
