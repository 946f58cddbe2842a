//! One file of the usage journal. A data-plane thread writes it, the writer thread reads it, and it is deleted or
//! reused when it is sealed and completely stored.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use records::frame::FileId;
use rustix::fs::{FallocateFlags, fallocate};

use crate::common::private_file;

/// An empty file, passed from the thread that creates it to the thread that appends to it.
#[derive(Debug)]
pub(in crate::usage) struct Spare {
    pub(in crate::usage) file: File,
    /// Allocated bytes in the file.
    pub(in crate::usage) bytes_max: u64,
    pub(in crate::usage) segment: Arc<Segment>,
}

impl Spare {
    /// Deletes the file, to which nothing was appended.
    pub(in crate::usage) fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.segment.path) {
            tracing::debug!("cannot delete {}: {error}", self.segment.path.display());
        }
    }
}

/// A journal file, as shared by its writer and its reader.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) id: FileId,
    /// True if nothing more is appended.
    sealed: AtomicBool,
    /// Bytes of complete frames in the file. Only the writer changes this.
    bytes: AtomicU64,
    /// Number of complete frames; 0 for a file of an earlier process.
    events: AtomicU64,
}

impl Segment {
    /// Creates the segment of a file that a data-plane thread is going to write.
    pub(crate) fn fresh(path: PathBuf, id: FileId) -> Self {
        let (bytes, events) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { path, id, sealed: AtomicBool::new(false), bytes, events }
    }

    /// Creates the segment of a file that an earlier process left.
    pub(crate) fn left_over(path: PathBuf, id: FileId, bytes: u64) -> Self {
        let segment = Self::fresh(path, id);
        segment.bytes.store(bytes, Ordering::Release);
        segment.seal();
        segment
    }

    /// Sets the numbers of bytes and events in the file.
    pub(crate) fn written(&self, bytes: u64, events: u64) {
        self.events.store(events, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Release);
    }

    /// Bytes of complete frames in the file; for a file of an earlier process, all bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Marks the file as complete: nothing more is appended.
    pub(crate) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// True if an earlier process left the file. Also true for a sealed file without events.
    pub(crate) fn is_left_over(&self) -> bool {
        self.is_sealed() && self.events() == 0
    }
}

/// Creates a file of `bytes_max` zeros, all of them allocated. On failure, for example on a full disk, no file is left.
pub(in crate::usage) fn create(dir: &Path, id: FileId, bytes_max: u64) -> io::Result<Spare> {
    let path = dir.join(file_name(id));
    let file = create_allocated(&path, bytes_max)?;
    Ok(Spare { file, bytes_max, segment: Arc::new(Segment::fresh(path, id)) })
}

/// Creates the file `path` of `bytes` zeros. Overwriting them needs no more room on the disk, except on copy-on-write
/// file systems (btrfs, ZFS).
pub(in crate::usage) fn create_allocated(path: &Path, bytes: u64) -> io::Result<File> {
    let file = private_file::create_new(path)?;
    let allocated = match fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => write_zeros(&file, bytes),
        // A file system may allocate room and then refuse the writes.
        Ok(()) => write_zeros(&file, bytes.min(PROBE_BYTES)),
        failed => failed,
    };
    if let Err(error) = allocated {
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// Overwrites the first `bytes` bytes of `file` with zeros.
pub(in crate::usage) fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    let mut at = 0;
    while at < bytes {
        let zeros = usize::try_from(bytes - at).ok().and_then(|left| ZEROS.get(..left)).unwrap_or(&ZEROS);
        file.write_all_at(zeros, at)?;
        at += zeros.len() as u64;
    }
    Ok(())
}

/// True if the error means that the disk or a disk quota is full.
pub(in crate::usage) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the file's name.
pub(crate) fn file_name(id: FileId) -> String {
    format!("{:016x}-{:06}{EXTENSION}", id.origin, id.number)
}

/// Parses a journal file's name. Returns `None` for other names.
pub(crate) fn file_id(path: &Path) -> Option<FileId> {
    let name = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?;
    let (origin, number) = name.split_once('-')?;
    let digits = origin.len() == 16 && !origin.starts_with('+') && !number.starts_with('+');
    let origin = digits.then(|| u64::from_str_radix(origin, 16).ok()).flatten()?;
    Some(FileId { origin, number: number.parse().ok()? })
}

const EXTENSION: &str = ".usage";
/// Bytes of a new file that are written as a test.
const PROBE_BYTES: u64 = 4 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Size at which a journal file is replaced by a new one.
pub(in crate::usage) const SEGMENT_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_new_journal_file_is_zeroed_and_fully_allocated() {
        let home = TempDir::new().unwrap();
        let spare = create(home.path(), FileId { origin: 1, number: 1 }, SEGMENT_BYTES).unwrap();
        let path = &spare.segment.path;
        assert!(fs::metadata(path).unwrap().blocks() * 512 >= SEGMENT_BYTES);
        assert_eq!(fs::read(path).unwrap(), vec![0; SEGMENT_BYTES as usize]);
    }

    #[test]
    fn a_file_that_cannot_be_allocated_is_removed() {
        let home = TempDir::new().unwrap();
        let id = FileId { origin: 1, number: 1 };
        create(home.path(), id, 1 << 62).unwrap_err();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        create(home.path(), id, SEGMENT_BYTES).unwrap();
    }

    #[test]
    fn write_zeros_writes_exactly_the_given_length() {
        let home = TempDir::new().unwrap();
        let path = home.path().join("file");
        for bytes in [0, 1, 64 << 10, (64 << 10) + 1, 200_000] {
            fs::write(&path, vec![7; 200_001]).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            write_zeros(&file, bytes).unwrap();
            let read = fs::read(&path).unwrap();
            assert_eq!(read.iter().position(|byte| *byte != 0), Some(bytes as usize));
            assert_eq!(read.len(), 200_001);
        }
    }
}
