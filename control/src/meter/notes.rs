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
        self.buffer.clear();
        frame::put(&mut self.buffer, pending);
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

/// Whether a file of the journal's folder holds notes.
pub(super) fn is_notes(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(EXTENSION))
}

/// The records in a file of notes.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(SLOT_BYTES).filter_map(|slot| match frame::first(slot) {
        Frame::Whole(record, _) => Some(record),
        Frame::Garbage(_) | Frame::Part(_) => None,
    })
}

fn offset(slot: u32) -> u64 {
    u64::from(slot).saturating_mul(SLOT_BYTES as u64)
}

const EXTENSION: &str = ".notes";
/// Longer than any record without its trace: ids are at most 128 bytes, a selector 256.
const SLOT_BYTES: usize = 1_024;
/// Exchanges of one thread that can be on their way under hard quotas.
const SLOTS_MAX: u32 = 16_384;
/// As long as the marker that a frame begins with.
const STRUCK: [u8; 4] = [0; 4];
