//! The lock of a state directory, which one process at a time may hold: an exclusive lock on a file in it. The
//! operating system releases it when the process ends for any reason.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::common::private_file;
use crate::db::error::OpenError;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct StateLock {
    file: File,
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // A child process that has been forked, and has not run its program yet, has the open file too.
        let _ = self.file.unlock();
    }
}

impl StateLock {
    /// Takes the lock of `dir`. If another process holds it, the error contains that process's id.
    pub(crate) fn take(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(FILE);
        let io = |source| OpenError::Io { path: path.clone(), source };
        let mut file = private_file::open_or_create(&path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { dir: dir.into(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        // If the disk is full, the lock is held without the process id in the file.
        let _ = name_holder(&mut file);
        Ok(Self { file })
    }
}

/// The state of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockState {
    /// No process holds it.
    Free,
    /// A process holds it; with its id, if that is known.
    Held(Option<u32>),
}

/// Returns the state of the lock of `dir`, without creating its file. If the lock is free, it is shared for a moment.
pub(crate) fn look(dir: &Path) -> std::io::Result<LockState> {
    let mut file = match File::open(dir.join(FILE)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(LockState::Free),
        opened => opened?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(LockState::Free),
        Err(TryLockError::WouldBlock) => Ok(LockState::Held(holder(&mut file))),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn name_holder(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The file that is locked.
pub(crate) const FILE: &str = "lock";
