//! One file of the usage journal: written by one data-plane thread, read by the writer thread, deleted when it
//! is sealed and all of it is stored.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mapped::Mapped;
use rustix::fs::{FallocateFlags, fallocate};

use crate::store::marks::FileId;

/// A file to append to.
#[derive(Debug)]
pub(super) enum Place {
    /// By copying to memory. It has [`SEGMENT_BYTES`], zeros after the last frame.
    Mapped(Mapped),
    /// By write(2).
    Written(File),
}

impl Place {
    /// Appends all of `frame`. After an error the file may end in a part of it, and nothing may be appended any more.
    pub(super) fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        match self {
            Self::Mapped(map) => {
                map.append(frame).then_some(()).ok_or_else(|| io::ErrorKind::StorageFull.into())
            }
            Self::Written(file) => file.write_all(frame),
        }
    }
}

/// An empty file, as it is handed from the thread that made it to the one that appends to it.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) place: Place,
    pub(super) segment: Arc<Segment>,
}

impl Spare {
    /// Deletes the file, to which nothing was appended.
    pub(super) fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.segment.path) {
            tracing::debug!("{} stays: {error}", self.segment.path.display());
        }
    }
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

/// Makes a file with room for [`SEGMENT_BYTES`], mapped if the file system holds that. Fails, and leaves no file, if there
/// is no room or nothing can be written.
pub(super) fn create(dir: &Path, id: FileId) -> io::Result<Spare> {
    let (file, segment) = create_file(dir, id)?;
    match place(file) {
        Ok(place) => Ok(Spare { place, segment }),
        Err(error) => {
            let _ = fs::remove_file(&segment.path);
            Err(error)
        }
    }
}

/// Makes a file for a frame that is longer than others have room for.
pub(super) fn create_long(dir: &Path, id: FileId) -> io::Result<Spare> {
    let (file, segment) = create_file(dir, id)?;
    Ok(Spare { place: Place::Written(file), segment })
}

fn place(file: File) -> io::Result<Place> {
    match Mapped::new(&file, SEGMENT_BYTES) {
        Ok(map) => Ok(Place::Mapped(map)),
        Err(error) if is_full(&error) => Err(error),
        Err(error) => {
            tracing::debug!("a file of the usage journal is written to, not mapped: {error}");
            reserve(&file)?;
            Ok(Place::Written(file))
        }
    }
}

/// Finds out whether the empty `file` can be written, and reserves room for [`SEGMENT_BYTES`] where the file system can.
fn reserve(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(&[0; PROBE_BYTES])?;
    file.set_len(0)?;
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, SEGMENT_BYTES as u64).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        reserved => reserved,
    }
}

/// Returns true if there was no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn create_file(dir: &Path, id: FileId) -> io::Result<(File, Arc<Segment>)> {
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
/// Written to a file to find out whether it can be.
const PROBE_BYTES: usize = 4 << 10;
/// A file of the journal is left for a new one at this size. Its pages are memory of the process while it is mapped.
pub(super) const SEGMENT_BYTES: usize = 1 << 20;
