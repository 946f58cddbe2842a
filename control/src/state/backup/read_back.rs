//! Reads an archive back while it is written: what another thread has written of it is read from the file, decompressed and
//! hashed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::sync::{Condvar, Mutex, PoisonError};

use super::create::{END_BYTES, header, padding};
use super::manifest::ManifestFile;
use crate::common::digest::Hasher;
use crate::db::sqlite_state::moment_file::MomentFile;

/// How much of a file is written.
#[derive(Debug)]
pub(super) struct Progress {
    state: Mutex<ProgressState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct ProgressState {
    /// The end of what is written.
    end: u64,
    is_done: bool,
}

/// Writes to a file behind a place, and reports the progress. The end of this value ends the writing.
#[derive(Debug)]
pub(super) struct ReportingWriter<'a>(pub(super) &'a File, pub(super) &'a Progress);

/// Reads what is written of a file from a place on, and waits for more.
struct FollowingReader<'a> {
    file: &'a File,
    at: u64,
    progress: &'a Progress,
}

impl Progress {
    /// Returns the progress of a writing that begins at a place.
    pub(super) fn from(start: u64) -> Self {
        let state = ProgressState { end: start, is_done: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn change(&self, change: impl FnOnce(&mut ProgressState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    fn end(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).end
    }

    /// Waits until more than what is before `at` is written, or all. Returns the end of it.
    fn beyond(&self, at: u64) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |state: &mut ProgressState| state.end <= at && !state.is_done;
        self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner).end
    }
}

impl Write for ReportingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write_at(bytes, self.1.end())?;
        self.1.change(|state| state.end += written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ReportingWriter<'_> {
    fn drop(&mut self) {
        self.1.change(|state| state.is_done = true);
    }
}

impl Read for FollowingReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let written = self.progress.beyond(self.at).saturating_sub(self.at);
        let length = usize::try_from(written).unwrap_or(usize::MAX).min(bytes.len());
        let read = self.file.read_at(bytes.split_at_mut(length).0, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Reads the entries of `files` from the place `at` of an archive, to its end. Returns what the manifest must contain for them.
pub(super) fn read_back(
    archive: &File,
    (at, progress): (u64, &Progress),
    files: &[MomentFile],
    made_at: jiff::Timestamp,
) -> io::Result<Vec<ManifestFile>> {
    let mut decoder = zstd::Decoder::new(FollowingReader { file: archive, at, progress })?;
    let mut entries = Vec::new();
    for file in files {
        let (name, bytes) = (file.name(), file.bytes());
        expect(&mut decoder, header(&name, bytes, made_at)?.as_bytes())?;
        let sha256 = hashed(&mut (&mut decoder).take(bytes))?;
        expect(&mut decoder, padding(bytes))?;
        entries.push(ManifestFile { name, bytes, sha256 });
    }
    expect(&mut decoder, &[0; END_BYTES])?;
    // The last reading also verifies the checksum of the compressed stream.
    if decoder.read(&mut [0])? > 0 {
        return Err(changed());
    }
    Ok(entries)
}

fn expect(from: &mut impl Read, wanted: &[u8]) -> io::Result<()> {
    let mut found = vec![0; wanted.len()];
    from.read_exact(&mut found)?;
    if found == wanted { Ok(()) } else { Err(changed()) }
}

fn hashed(from: &mut impl Read) -> io::Result<String> {
    let (mut hasher, mut buffer) = (Hasher::default(), vec![0; BUFFER_BYTES]);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.hex());
        }
        hasher.update(buffer.split_at(read).0);
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "reading it back returns different data")
}

const BUFFER_BYTES: usize = 256 << 10;
