//! One file of the usage journal: written by one data-plane thread, read by the writer thread, deleted when it
//! is sealed and all of it is stored.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mapped::Mapped;

use super::written::Written;
use crate::store::marks::FileId;

/// How a file is appended to.
#[derive(Debug)]
pub(super) enum Place {
    /// By copying to memory. It has [`SEGMENT_BYTES`], zeros after the last frame.
    Mapped(Mapped),
    /// By write(2).
    Written(Written),
}

/// One journal file, as its writer and its reader share it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    /// Nothing is appended any more.
    sealed: AtomicBool,
    /// Bytes of whole frames in the file. Only its writer changes it.
    bytes: AtomicU64,
    /// How many frames that is; of a file that an earlier process left, 0.
    events: AtomicU64,
}

impl Segment {
    /// A file that a data-plane thread is going to write.
    pub(crate) fn fresh(path: PathBuf, id: FileId) -> Self {
        let (bytes, events) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { path, id, sealed: AtomicBool::new(false), bytes, events }
    }

    /// A file that an earlier process left.
    pub(crate) fn left_over(path: PathBuf, id: FileId, bytes: u64) -> Self {
        let segment = Self::fresh(path, id);
        segment.bytes.store(bytes, Ordering::Release);
        segment.seal();
        segment
    }

    /// There are so many bytes of events in the file now.
    pub(crate) fn written(&self, bytes: u64, events: u64) {
        self.events.store(events, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Release);
    }

    /// What is in the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Nothing is appended from now on.
    pub(crate) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Whether an earlier process has left it, as far as there is anything in it.
    pub(crate) fn is_left_over(&self) -> bool {
        self.is_sealed() && self.events() == 0
    }
}

/// Makes a file: one that is mapped, if the file system holds that and has room for all of it.
pub(super) fn create(dir: &Path, id: FileId) -> io::Result<(Place, Arc<Segment>)> {
    let (file, segment) = create_file(dir, id)?;
    match Mapped::new(&file, SEGMENT_BYTES) {
        Ok(map) => Ok((Place::Mapped(map), segment)),
        Err(error) => {
            tracing::debug!("{} is written to, not mapped: {error}", segment.path.display());
            file.set_len(0)?;
            Ok((Place::Written(Written::new(file)), segment))
        }
    }
}

/// Makes a file that grows as it is written.
pub(super) fn create_written(dir: &Path, id: FileId) -> io::Result<(Place, Arc<Segment>)> {
    let (file, segment) = create_file(dir, id)?;
    Ok((Place::Written(Written::new(file)), segment))
}

fn create_file(dir: &Path, id: FileId) -> io::Result<(fs::File, Arc<Segment>)> {
    let path = dir.join(file_name(id));
    let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path)?;
    Ok((file, Arc::new(Segment::fresh(path, id))))
}

/// The file's name.
pub(crate) fn file_name(id: FileId) -> String {
    format!("{:016x}-{:06}{EXTENSION}", id.origin, id.number)
}

/// Which file it is, if its name is one of ours.
pub(crate) fn file_id(path: &Path) -> Option<FileId> {
    let name = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?;
    let (origin, number) = name.split_once('-')?;
    let digits = origin.len() == 16 && !origin.starts_with('+') && !number.starts_with('+');
    let origin = digits.then(|| u64::from_str_radix(origin, 16).ok()).flatten()?;
    Some(FileId { origin, number: number.parse().ok()? })
}

const EXTENSION: &str = ".usage";
/// A file of the journal is left for a new one at this size. Its pages are memory of the process while it is mapped.
pub(super) const SEGMENT_BYTES: usize = 1 << 20;
