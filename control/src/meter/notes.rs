//! Notes of exchanges that are on their way under a hard quota: how each is to be recorded if the process ends
//! before it does. A crash therefore cannot be used to spend what was only reserved.
//!
//! ```text
//!  slot 0: frame of the record, zeros ..... | slot 1: zeros (struck) | slot 2: ...      SLOT_BYTES each
//! ```
//!
//! A note is written with one pwrite(2) before anything goes upstream, and struck with another one after the
//! record is in the journal. Between the two it may be there although the record is; whoever reads it looks.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use shared::usage::{Note, UsageEvent};

use super::frame::{self, Frame};

/// The notes of one data-plane thread.
#[derive(Debug)]
pub(super) struct Notes {
    path: PathBuf,
    /// Made with the first note.
    file: Option<File>,
    /// Struck slots, to be used again.
    free: Vec<u32>,
    /// The first slot that was never used.
    next: u32,
    buffer: Vec<u8>,
}

impl Notes {
    /// Notes in the folder `dir`, by the thread whose journal files are named after `origin`.
    pub(super) fn new(dir: &Path, origin: u64) -> Self {
        let path = dir.join(format!("{origin:016x}{EXTENSION}"));
        Self { path, file: None, free: Vec::new(), next: 0, buffer: Vec::new() }
    }

    /// Writes a note. None if all slots are taken, or it cannot be written.
    pub(super) fn write(&mut self, pending: &UsageEvent) -> Option<Note> {
        let slot = self.free.pop().or_else(|| (self.next < SLOTS_MAX).then_some(self.next))?;
        self.next = self.next.max(slot.saturating_add(1));
        match self.put(slot, pending) {
            Ok(()) => Some(Note(slot)),
            Err(error) => {
                tracing::error!("a request under a quota cannot be noted and is refused: {error}");
                self.free.push(slot);
                None
            }
        }
    }

    /// Writes another note in the place of one. False if it cannot be written.
    pub(super) fn replace(&mut self, Note(slot): &Note, pending: &UsageEvent) -> bool {
        let put = self.put(*slot, pending);
        put.inspect_err(|error| {
            tracing::error!("a note of a request under a quota cannot be replaced: {error}")
        })
        .is_ok()
    }

    /// Takes a note away. One that cannot be struck is found to be recorded when it is read.
    pub(super) fn strike(&mut self, Note(slot): Note) {
        if let Some(file) = &self.file
            && let Err(error) = file.write_all_at(&STRUCK, offset(slot))
        {
            tracing::warn!("a note in {} cannot be struck: {error}", self.path.display());
        }
        self.free.push(slot);
    }

    fn put(&mut self, slot: u32, pending: &UsageEvent) -> io::Result<()> {
        frame::put(&mut self.buffer, pending);
        frame::close(&mut self.buffer, None);
        if self.buffer.len() > SLOT_BYTES {
            return Err(io::Error::other("its record is longer than a slot"));
        }
        let file = match &self.file {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                self.file.insert(options.write(true).create_new(true).mode(0o600).open(&self.path)?)
            }
        };
        file.write_all_at(&self.buffer, offset(slot))
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let all_struck = u32::try_from(self.free.len()) == Ok(self.next);
        if self.file.take().is_some()
            && all_struck
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!("{} stays: {error}", self.path.display());
        }
    }
}

/// True if a file of the journal's folder holds notes.
pub(super) fn is_notes(path: &Path) -> bool {
    slot_bytes(path).is_some()
}

/// The length of the slots in a file of notes; none if it is another file.
fn slot_bytes(path: &Path) -> Option<usize> {
    let name = path.file_name().and_then(|name| name.to_str())?;
    let layouts = [(EXTENSION, SLOT_BYTES), (EXTENSION_BEFORE, SLOT_BYTES_BEFORE)];
    layouts.into_iter().find(|(extension, _)| name.ends_with(extension)).map(|(_, bytes)| bytes)
}

/// The records in the file of notes at `path`, which has these bytes.
pub(super) fn records<'a>(path: &Path, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    bytes.chunks(slot_bytes(path).unwrap_or(SLOT_BYTES)).filter_map(|slot| match frame::first(slot, None) {
        Frame::Whole(record, _) => Some(record),
        Frame::Garbage(_) | Frame::Blank(_) | Frame::Part(_) => None,
    })
}

fn offset(slot: u32) -> u64 {
    u64::from(slot).saturating_mul(SLOT_BYTES as u64)
}

const EXTENSION: &str = ".running";
/// Longer than any record without its trace: ids have at most 128 bytes, a selector and a model 256.
const SLOT_BYTES: usize = 4_096;
/// The files of the first release.
const EXTENSION_BEFORE: &str = ".notes";
const SLOT_BYTES_BEFORE: usize = 1_024;
/// Exchanges of one thread that can be on their way under hard quotas.
const SLOTS_MAX: u32 = 16_384;
/// As long as the marker that a frame begins with.
const STRUCK: [u8; 4] = [0; 4];

#[cfg(test)]
mod tests {
    use shared::usage::{Outcome, UsageLog as _};
    use tempfile::TempDir;

    use super::super::tests::{Process, event};
    use super::*;
    use crate::store::record::{Record, Texts};

    fn interrupted(n: u64) -> UsageEvent {
        UsageEvent { outcome: Outcome::Interrupted, ..event(n) }
    }

    fn notes_in(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().filter(|entry| is_notes(&entry.as_ref().unwrap().path())).count()
    }

    const INTERRUPTED: &str =
        "SELECT coalesce(sum(requests), 0) FROM usage_hour WHERE outcome = 'interrupted'";
    const ALL: &str = "SELECT coalesce(sum(requests), 0) FROM usage_hour";

    #[test]
    fn what_is_noted_and_not_recorded_is_recorded_once_by_the_next_process() {
        let home = TempDir::new().unwrap();
        let process = Process::start(home.path(), 100);
        let mut log = process.journal.log().unwrap();
        let notes: Vec<Note> = (0..4).map(|n| log.note(&interrupted(n)).unwrap()).collect();
        let mut notes = notes.into_iter();
        log.append(event(0));
        log.strike(notes.next().unwrap());
        // Killed between the record and the striking.
        log.append(event(1));
        // As a kill leaves it: nothing is dropped in good order.
        let dir = home.path().join("journal");
        std::mem::forget(log);
        drop(process);
        assert_eq!(notes_in(&dir), 1);
        for start in 0..3 {
            let mut next = Process::start(home.path(), 100);
            next.meter.begin();
            assert_eq!((next.sql(INTERRUPTED), next.sql(ALL)), (2, 4), "start {start}");
            assert_eq!(notes_in(&dir), 0);
        }
    }

    #[test]
    fn notes_that_were_stored_are_not_stored_again_when_their_file_comes_back() {
        let home = TempDir::new().unwrap();
        let dir = home.path().join("journal");
        let mut process = Process::start(home.path(), 100);
        let mut notes = Notes::new(&dir, 7);
        let _kept: Vec<_> = (0..3).map(|n| notes.write(&interrupted(n)).unwrap()).collect();
        let mut bytes = fs::read(&notes.path).unwrap();
        bytes.extend_from_slice(b"and what a broken disk has put behind");
        drop(notes);
        for _ in 0..2 {
            fs::write(dir.join(format!("again{EXTENSION}")), &bytes).unwrap();
            process = {
                drop(process);
                Process::start(home.path(), 100)
            };
            process.meter.begin();
            assert_eq!(process.sql(ALL), 3);
        }
    }

    #[test]
    fn a_note_is_replaced_in_its_place_also_by_a_shorter_one() {
        let home = TempDir::new().unwrap();
        let mut notes = Notes::new(home.path(), 1);
        let _first = notes.write(&interrupted(1)).unwrap();
        let long = UsageEvent { selector: "s".repeat(256).into(), ..interrupted(2) };
        let note = notes.write(&long).unwrap();
        for n in [20, 21] {
            assert!(notes.replace(&note, &interrupted(n)));
        }
        let bytes = fs::read(&notes.path).unwrap();
        let ids: Vec<_> = records(&notes.path, &bytes)
            .map(|bytes| Record::take(bytes, Texts::Inline).unwrap().0.request_id.to_owned())
            .collect();
        assert_eq!(ids, ["req-1", "req-21"]);
    }

    #[test]
    fn notes_of_the_first_release_are_read_in_its_slots() {
        let home = TempDir::new().unwrap();
        let mut notes = Notes::new(home.path(), 1);
        let mut bytes = Vec::new();
        for n in 0..3 {
            let note = notes.write(&interrupted(n)).unwrap();
            let slot = fs::read(&notes.path).unwrap();
            bytes.resize(usize::try_from(n).unwrap() * SLOT_BYTES_BEFORE, 0);
            bytes.extend_from_slice(&slot);
            notes.strike(note);
        }
        let old = home.path().join(format!("0{EXTENSION_BEFORE}"));
        assert!(is_notes(&old) && !is_notes(&home.path().join("0.journal")));
        assert_eq!(records(&old, &bytes).count(), 3);
    }

    #[test]
    fn slots_are_used_again_and_bounded() {
        let home = TempDir::new().unwrap();
        let mut notes = Notes::new(home.path(), 1);
        let first = notes.write(&event(0)).unwrap();
        notes.strike(first);
        let all: Vec<Note> = (0..SLOTS_MAX).map(|n| notes.write(&event(n.into())).unwrap()).collect();
        assert_eq!(notes.write(&event(0)), None, "one past the bound");
        assert_eq!(
            fs::metadata(&notes.path).unwrap().len().div_ceil(SLOT_BYTES as u64),
            u64::from(SLOTS_MAX)
        );
        all.into_iter().for_each(|note| notes.strike(note));
        assert_eq!(records(&notes.path, &fs::read(&notes.path).unwrap()).count(), 0);
        drop(notes);
        assert_eq!(notes_in(home.path()), 0, "nothing is left of an end in good order");
    }

    #[test]
    fn the_longest_record_fits_into_a_slot() {
        let home = TempDir::new().unwrap();
        let long = UsageEvent {
            request_id: "r".repeat(128).into(),
            selector: "s".repeat(256).into(),
            key: shared::id::KeyId::new("k".repeat(64)),
            project: Some(shared::id::ProjectId::new("p".repeat(64))),
            principal: Some(shared::id::PrincipalId::new("h".repeat(64))),
            endpoint: Some(shared::id::EndpointName::new("e".repeat(64))),
            provider: Some(shared::id::ProviderId::new("p".repeat(64))),
            model: Some(shared::id::ModelId::new("m".repeat(256))),
            ..interrupted(0)
        };
        assert!(Notes::new(home.path(), 1).write(&long).is_some());
    }
}
