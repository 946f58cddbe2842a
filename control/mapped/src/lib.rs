//! A file that is appended to through memory: a copy instead of a system call, and what is copied is as safe from the
//! end of the process as what write(2) took, for the pages are those of the page cache.
//!
//! Writing to memory cannot be refused: where the system has no block for a page it ends the process (SIGBUS). So a
//! file is mapped only when all of it is allocated, and only on file systems that then ask for nothing more.

use std::fs::File;
use std::io;
use std::ptr;
use std::sync::atomic::{Ordering, compiler_fence};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};

/// A file of a fixed size, empty as far as nothing was appended.
#[derive(Debug)]
pub struct Mapped {
    map: MmapRaw,
    /// Bytes that were appended, or the end of what was put.
    length: usize,
}

impl Mapped {
    /// Makes the empty `file` as long as `size`, all of it allocated, and maps it. It must be open for reading and
    /// writing, and may be closed afterwards. After an error it may have any length.
    pub fn new(file: &File, size: usize) -> io::Result<Self> {
        if !HOLDS.contains(&u64::try_from(fstatfs(file)?.f_type).unwrap_or(u64::MAX)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Self::allocate(file, size)
    }

    fn allocate(file: &File, size: usize) -> io::Result<Self> {
        let bytes = u64::try_from(size).map_err(io::Error::other)?;
        fallocate(file, FallocateFlags::empty(), 0, bytes)?;
        let map = MmapOptions::new().len(size).map_raw(file)?;
        Ok(Self { map, length: 0 })
    }

    /// Bytes that can still be appended.
    #[must_use]
    pub fn room(&self) -> usize {
        self.map.len().saturating_sub(self.length)
    }

    /// Appends all of `bytes`; false if there is no room, and then nothing is written.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.room() {
            return false;
        }
        // SAFETY: `length + bytes.len()` is at most the length of the map, which is mapped for writing as long as it
        // lives. Nobody has a reference into it, as it never gives any, so `bytes` lies elsewhere. Others read the
        // file through the system alone, and no value of a byte is invalid to them.
        #[expect(unsafe_code, reason = "memory that a file lies behind can be written in no other way")]
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_mut_ptr().add(self.length), bytes.len());
        }
        self.length += bytes.len();
        true
    }

    /// Writes all of `bytes` at `at`, over what is there; false if they do not fit, and then nothing is written. What was
    /// written before this call is in the file before these bytes are.
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> bool {
        let Some(end) = at.checked_add(bytes.len()).filter(|end| *end <= self.map.len()) else {
            return false;
        };
        compiler_fence(Ordering::SeqCst);
        // SAFETY: `end` is at most the length of the map; otherwise as in `append`.
        #[expect(unsafe_code, reason = "memory that a file lies behind can be written in no other way")]
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_mut_ptr().add(at), bytes.len());
        }
        self.length = self.length.max(end);
        true
    }

    /// Takes away all that was appended: the file is zeros again.
    pub fn clear(&mut self) {
        // SAFETY: as in `append`; `length` never exceeds the length of the map.
        #[expect(unsafe_code, reason = "memory that a file lies behind can be written in no other way")]
        unsafe {
            ptr::write_bytes(self.map.as_mut_ptr(), 0, self.length);
        }
        self.length = 0;
    }
}

/// File systems (statfs(2), `linux/magic.h`) where an allocated page can always be written. Tried on Linux 6.18: ext4
/// takes it when the disk is full, when its log was aborted and when it was shut down. XFS ends the process in the last
/// case, and where `cp` has made the blocks common to two files it needs new ones; btrfs, ZFS and overlays always do.
const HOLDS: [u64; 2] = [
    // ext4. ext2 and ext3 have the same number, and do not allocate ahead.
    0xef53,
    // tmpfs
    0x0102_1994,
];

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Read as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use super::*;

    const SIZE: usize = 64 << 10;

    fn create(path: &Path) -> File {
        OpenOptions::new().read(true).append(true).create_new(true).open(path).unwrap()
    }

    #[test]
    fn what_is_appended_is_in_the_file_at_once_and_the_rest_is_zeros() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        let mut mapped = Mapped::allocate(&create(&path), SIZE).unwrap();
        assert!(mapped.append(b"one") && mapped.append(b"") && mapped.append(b"two"));
        let read = std::fs::read(&path).unwrap();
        assert_eq!((read.len(), &read[..6]), (SIZE, &b"onetwo"[..]));
        assert!(read[6..].iter().all(|byte| *byte == 0));
        mapped.clear();
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        assert!(mapped.append(b"three"));
        drop(mapped);
        assert_eq!(std::fs::read(&path).unwrap()[..5], *b"three");
    }

    #[test]
    fn all_of_it_is_allocated_before_anything_is_written() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        let _mapped = Mapped::allocate(&create(&path), SIZE).unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= 64 << 10);
    }

    #[test]
    fn one_byte_too_many_is_refused_whole() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        let mut mapped = Mapped::allocate(&create(&path), SIZE).unwrap();
        assert!(mapped.append(&vec![7; SIZE - 3]));
        assert_eq!((mapped.append(b"four"), mapped.room()), (false, 3));
        assert!(mapped.append(b"two") && !mapped.append(b"1") && mapped.append(b""));
        let mut read = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut read).unwrap();
        assert_eq!((read.len(), &read[SIZE - 4..]), (SIZE, &b"\x07two"[..]));
    }

    #[test]
    fn what_is_put_stands_where_it_was_put_and_nothing_stands_past_the_end() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        let mut mapped = Mapped::allocate(&create(&path), SIZE).unwrap();
        assert!(mapped.put(SIZE - 3, b"end") && mapped.put(4, b"five") && mapped.put(4, b"4"));
        for (at, bytes) in [(SIZE - 3, &b"four"[..]), (SIZE + 1, b""), (usize::MAX, b"one")] {
            assert!(!mapped.put(at, bytes), "{at}");
        }
        let read = std::fs::read(&path).unwrap();
        assert_eq!((read.len(), &read[4..8], &read[SIZE - 3..]), (SIZE, &b"4ive"[..], &b"end"[..]));
        mapped.clear();
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_file_system_that_is_not_known_to_hold_is_refused() {
        let device = OpenOptions::new().read(true).write(true).open("/proc/self/comm").unwrap();
        assert_eq!(Mapped::new(&device, SIZE).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
