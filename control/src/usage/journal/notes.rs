//! Notes of running exchanges: the record that each exchange gets if the process ends first. With them, a kill loses no
//! exchange and cannot be used to spend reserved quota without being charged.
//!
//! ```text
//!  slot 0: frame of the record, zeros ..... | slot 1: zeros (struck) | slot 2: ...
//! ```
//!
//! A note is written before anything is sent upstream, and struck after the record is in the journal. Between these,
//! both the note and the record may exist, so the reader looks for the record first. Writing and striking are one
//! pwrite(2) each, into blocks that are allocated when the file is created.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use records::frame::{self, Frame};
use shared::usage::{Note, UsageEvent};

use super::segment::create_allocated;

/// The notes of one data-plane thread.
#[derive(Debug)]
pub(in crate::usage) struct Notes {
    short: Slots,
    long: Slots,
    buffer: Vec<u8>,
}

impl Notes {
    /// Creates notes in the directory `dir`, for the thread whose journal files are named after `origin`.
    pub(in crate::usage) fn new(dir: &Path, origin: u64) -> Self {
        let slots = |kind| Slots::new(dir.join(format!("{origin:016x}")), kind);
        Self { short: slots(&SHORT), long: slots(&LONG), buffer: Vec::new() }
    }

    /// Writes a note. Returns `None` if all slots are taken or the write failed.
    pub(in crate::usage) fn write(&mut self, running: &UsageEvent) -> Option<Note> {
        frame::put_interrupted(&mut self.buffer, running, LONG.slot_bytes);
        frame::close(&mut self.buffer, None);
        if self.buffer.len() <= SHORT.slot_bytes {
            self.short.write(&self.buffer).map(Note)
        } else {
            self.long.write(&self.buffer).map(|slot| Note(slot | IS_LONG))
        }
    }

    /// Erases a note. If that fails, a later reader finds the exchange's record and ignores the note.
    pub(in crate::usage) fn strike(&mut self, Note(slot): Note) {
        match slot & IS_LONG {
            0 => self.short.strike(slot),
            _ => self.long.strike(slot & !IS_LONG),
        }
    }
}

/// A kind of slots.
#[derive(Debug)]
struct SlotKind {
    slot_bytes: usize,
    slots_max: u32,
    extension: &'static str,
}

/// The slots of one kind, in files of [`FILE_BYTES`] that are created on demand.
#[derive(Debug)]
struct Slots {
    /// The path of the files, without number and extension.
    stem: PathBuf,
    kind: &'static SlotKind,
    files: Vec<File>,
    /// Struck slots that can be reused.
    free: Vec<u32>,
    /// The first slot that was never used.
    next: u32,
    /// True if the last note could not be written, which has been logged.
    is_failing: bool,
}

impl Slots {
    fn new(stem: PathBuf, kind: &'static SlotKind) -> Self {
        Self { stem, kind, files: Vec::new(), free: Vec::new(), next: 0, is_failing: false }
    }

    fn write(&mut self, frame: &[u8]) -> Option<u32> {
        let slot = self.free.pop().or_else(|| (self.next < self.kind.slots_max).then_some(self.next))?;
        self.next = self.next.max(slot.saturating_add(1));
        let written = self.put(slot, frame);
        if let Err(error) = &written {
            self.free.push(slot);
            if !self.is_failing {
                tracing::error!(
                    "cannot note running exchanges; killing the process would lose their usage: {error}"
                );
            }
        }
        self.is_failing = written.is_err();
        written.is_ok().then_some(slot)
    }

    fn strike(&mut self, slot: u32) {
        if let Err(error) = self.put(slot, &STRUCK) {
            tracing::warn!("cannot delete a note in {}: {error}", self.stem.display());
        }
        self.free.push(slot);
    }

    fn put(&mut self, slot: u32, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.kind.slot_bytes {
            return Err(io::Error::other("it is longer than a slot"));
        }
        let slot = usize::try_from(slot).map_err(io::Error::other)?;
        let in_file = FILE_BYTES / self.kind.slot_bytes;
        let (number, at) = (slot / in_file, slot % in_file * self.kind.slot_bytes);
        while self.files.len() <= number {
            self.files.push(create_allocated(&self.path(self.files.len()), FILE_BYTES as u64)?);
        }
        let file = self.files.get(number).ok_or(io::ErrorKind::NotFound)?;
        file.write_all_at(bytes, at as u64)
    }

    fn path(&self, number: usize) -> PathBuf {
        let mut path = self.stem.clone().into_os_string();
        path.push(format!("-{number:03}{}", self.kind.extension));
        path.into()
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if u32::try_from(self.free.len()) != Ok(self.next) {
            return;
        }
        for number in 0..self.files.len() {
            let path = self.path(number);
            if let Err(error) = fs::remove_file(&path) {
                tracing::debug!("cannot delete {}: {error}", path.display());
            }
        }
    }
}

/// True if a file in the journal's directory contains notes.
pub(in crate::usage) fn is_notes(path: &Path) -> bool {
    slot_bytes(path).is_some()
}

/// Reads the note file `path`, up to the size that the gateway writes.
pub(in crate::usage) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the records in the note file `path`, whose contents are `bytes`.
pub(in crate::usage) fn records<'a>(
    path: &Path,
    bytes: &'a [u8],
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let slot_bytes = slot_bytes(path).unwrap_or(SHORT.slot_bytes);
    bytes.chunks(slot_bytes).filter_map(|slot| match frame::first(slot, None) {
        Frame::Whole(record, _) => Some(record),
        Frame::Garbage(_) | Frame::Blank(_) | Frame::Part(_) => None,
    })
}

fn slot_bytes(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    KINDS.iter().find(|(extension, _)| name.ends_with(extension)).map(|(_, slot_bytes)| *slot_bytes)
}

/// The slots for most records.
const SHORT: SlotKind = SlotKind { slot_bytes: 512, slots_max: 16_384, extension: ".short-notes" };
/// The slots for all longer records: ids have at most 128 bytes, a selector 256, and a trace that does not fit is
/// omitted.
const LONG: SlotKind = SlotKind { slot_bytes: 4 << 10, slots_max: 2_048, extension: ".long-notes" };
/// File extensions and slot sizes; the last is that of earlier versions.
const KINDS: [(&str, usize); 3] =
    [(SHORT.extension, SHORT.slot_bytes), (LONG.extension, LONG.slot_bytes), (".notes", 1_024)];
/// Marks a slot of [`LONG`] in a [`Note`].
const IS_LONG: u32 = 1 << 31;
/// Size of a note file.
const FILE_BYTES: usize = 256 << 10;
/// Overwrites the marker at the start of a frame.
const STRUCK: [u8; 4] = [0; 4];

#[cfg(test)]
mod tests {
    use shared::id::{KeyId, ModelId, ProviderId};
    use shared::usage::{Lost, StepResult, TokenCounts, TraceStep, UsageLog as _};
    use tempfile::TempDir;

    use super::*;
    use crate::usage::tests::{Process, event};
    use records::{Record, RecordName, Texts};

    fn all_records(dir: &Path) -> usize {
        let paths =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| is_notes(path));
        paths.map(|path| records(&path, &fs::read(&path).unwrap()).count()).sum()
    }

    fn notes_in(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().filter(|entry| is_notes(&entry.as_ref().unwrap().path())).count()
    }

    const INTERRUPTED: &str =
        "SELECT CAST(coalesce(sum(requests), 0) AS BIGINT) FROM usage_hour WHERE outcome = 'interrupted'";
    const ALL: &str = "SELECT CAST(coalesce(sum(requests), 0) AS BIGINT) FROM usage_hour";

    #[test]
    fn an_unrecorded_note_is_recorded_once_by_the_next_process() {
        let home = TempDir::new().unwrap();
        let process = Process::start(home.path());
        let mut log = process.journal.log().unwrap();
        let notes: Vec<Note> = (0..4).map(|n| log.note(&event(n)).unwrap()).collect();
        let mut notes = notes.into_iter();
        log.append(&event(0));
        log.strike(notes.next().unwrap());
        // The process is killed between recording the exchange and striking its note.
        log.append(&event(1));
        // Like a kill, this skips the orderly drop of the log.
        let dir = home.path().join("journal");
        std::mem::forget(log);
        drop(process);
        assert_eq!(notes_in(&dir), 1);
        for start in 0..3 {
            let mut next = Process::start(home.path());
            next.meter.begin();
            assert_eq!((next.sql(INTERRUPTED), next.sql(ALL)), (2, 4), "start {start}");
            assert_eq!(notes_in(&dir), 0);
        }
    }

    #[test]
    fn stored_notes_are_not_stored_again_if_their_file_reappears() {
        let home = TempDir::new().unwrap();
        let dir = home.path().join("journal");
        let mut process = Process::start(home.path());
        let mut notes = Notes::new(&dir, 7);
        let _kept: Vec<_> = (0..3).map(|n| notes.write(&event(n)).unwrap()).collect();
        let mut bytes = fs::read(notes.short.path(0)).unwrap();
        bytes.extend_from_slice(b"and what a broken disk has put behind");
        drop(notes);
        for _ in 0..2 {
            fs::write(dir.join(format!("again{}", SHORT.extension)), &bytes).unwrap();
            process = {
                drop(process);
                Process::start(home.path())
            };
            process.meter.begin();
            assert_eq!(process.sql(ALL), 3);
        }
    }

    #[test]
    fn note_slots_are_reused_and_bounded() {
        let home = TempDir::new().unwrap();
        let mut notes = Notes::new(home.path(), 1);
        let first = notes.write(&event(0)).unwrap();
        notes.strike(first);
        let all: Vec<Note> = (0..SHORT.slots_max).map(|n| notes.write(&event(n.into())).unwrap()).collect();
        assert_eq!(notes.write(&event(0)), None, "one past the bound");
        let files = SHORT.slots_max as usize / (FILE_BYTES / SHORT.slot_bytes);
        assert_eq!((notes_in(home.path()), all_records(home.path())), (files, SHORT.slots_max as usize));
        all.into_iter().for_each(|note| notes.strike(note));
        assert_eq!(all_records(home.path()), 0);
        drop(notes);
        assert_eq!(notes_in(home.path()), 0, "nothing is left of an end in good order");
    }

    #[test]
    fn the_longest_record_fits_a_note_without_its_trace() {
        let home = TempDir::new().unwrap();
        let lost = Lost { tokens: TokenCounts { input: 7, ..TokenCounts::ZERO }, ..Lost::default() };
        let (provider, model) = (ProviderId::new("p".repeat(64)), ModelId::new("m".repeat(128)));
        let step = TraceStep::new(provider, model, StepResult::Status);
        let step = |lost| TraceStep { status: Some(500), lost, ..step.clone() };
        let long = |steps: usize, selector: usize| UsageEvent {
            request_id: "r".repeat(128).into(),
            selector: "s".repeat(selector).into(),
            key: KeyId::new("k".repeat(64)),
            tags: Some("t".repeat(1_024).into()),
            trace: std::iter::repeat_n(step(Some(Box::new(lost.clone()))), steps).collect(),
            ..event(0)
        };
        for (steps, selector, kept) in [(1, 256, 1), (100, 256, 0)] {
            let mut notes = Notes::new(home.path(), 1);
            let note = notes.write(&long(steps, selector)).unwrap();
            let bytes = fs::read(notes.long.path(0)).unwrap();
            let (record, trace) =
                Record::take(records(&notes.long.path(0), &bytes).next().unwrap(), Texts::Inline).unwrap();
            assert_eq!(
                (record.name(RecordName::Outcome), record.name(RecordName::Error)),
                ("interrupted", "internal")
            );
            assert_eq!((trace.count(), record.lost.is_empty()), (kept, kept == 0));
            notes.strike(note);
            assert_eq!(all_records(home.path()), 0);
        }
    }

    #[test]
    fn notes_of_an_earlier_version_are_read() {
        let home = TempDir::new().unwrap();
        let mut frame = Vec::new();
        frame::put_interrupted(&mut frame, &event(0), LONG.slot_bytes);
        frame::close(&mut frame, None);
        let path = home.path().join("0000000000000007.notes");
        let mut bytes = vec![0; 1_024];
        bytes.extend_from_slice(&frame);
        fs::write(&path, bytes).unwrap();
        assert!(is_notes(&path));
        assert_eq!(all_records(home.path()), 1);
    }
}
