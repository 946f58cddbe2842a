//! Writes usage events into a state directory's journal, as a gateway that was killed leaves them. The next gateway that
//! starts on the state stores them.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use records::frame::{self, FileId, JournalSpot};
use shared::usage::UsageEvent;

/// Writes the events into files of the journal in `folder`.
pub(crate) fn fill(folder: &Path, events: impl Iterator<Item = UsageEvent>) {
    fs::create_dir_all(folder).unwrap();
    // Any writer that no gateway is, and another one for each folder: nodes tell their files apart by it.
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    let mut file = JournalFile::new(FileId { origin: hasher.finish() >> 1, number: 0 });
    for event in events {
        if file.add(&event) {
            file = file.write(folder);
        }
    }
    file.write(folder);
}

/// A file of the journal that is being filled.
struct JournalFile {
    id: FileId,
    bytes: Vec<u8>,
    frame: Vec<u8>,
}

impl JournalFile {
    fn new(id: FileId) -> Self {
        Self { id, bytes: Vec::new(), frame: Vec::new() }
    }

    /// Appends an event. Returns true if the file is full.
    fn add(&mut self, event: &UsageEvent) -> bool {
        frame::put(&mut self.frame, event);
        let at = u64::try_from(self.bytes.len()).unwrap();
        frame::close(&mut self.frame, Some(JournalSpot { file: self.id, at }));
        self.bytes.extend_from_slice(&self.frame);
        self.bytes.len() > FILE_BYTES
    }

    /// Writes the file and returns the next one.
    fn write(self, folder: &Path) -> Self {
        let name = format!("{:016x}-{:06}.usage", self.id.origin, self.id.number);
        fs::write(folder.join(name), self.bytes).unwrap();
        Self::new(FileId { number: self.id.number + 1, ..self.id })
    }
}

/// The gateway's own files have 1 MiB at most.
const FILE_BYTES: usize = 1_000_000;
