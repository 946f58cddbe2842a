//! Temporary directories that only this user can access. They are deleted on drop, by [`remove_all`] when a signal ends the
//! process, and after a kill by the next process that creates one in the same place. A lock on the directory itself, which
//! ends with its process, tells one in use from one that was left.

use std::fs::{self, File};
use std::io;
use std::mem;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::private_file;
use crate::common::vault::random;

/// A temporary directory.
#[derive(Debug)]
pub(crate) struct TemporaryDirectory {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl TemporaryDirectory {
    /// Creates the directory `path`. Deletes it first if an earlier process left it there.
    pub(crate) fn at(path: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // `remove_all` finds it in the list from the moment that it exists.
        let mut in_use = in_use();
        private_file::create_directory(&path)?;
        in_use.push(path.clone());
        drop(in_use);
        let lock = File::open(&path)
            .and_then(|lock| lock.try_lock().map(|()| lock).map_err(io::Error::from))
            .inspect_err(|_| release(&path))?;
        Ok(Self { path, _lock: lock })
    }

    /// Creates a directory with a random name in the system's directory for temporary files, and deletes those that killed
    /// processes of this user left there.
    pub(crate) fn somewhere() -> io::Result<Self> {
        remove_left();
        let mut left = ATTEMPTS_MAX;
        loop {
            let name: [u8; 8] = random().map_err(io::Error::other)?;
            let created =
                Self::at(std::env::temp_dir().join(format!("{PREFIX}{:016x}", u64::from_be_bytes(name))));
            left -= 1;
            match created {
                // Another process took it for one that was left, before it was locked.
                Err(error) if left > 0 && is_taken(&error) => {}
                Ok(created) if left > 0 && !created.path.is_dir() => {}
                created => return created,
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        release(&self.path);
    }
}

/// Deletes the directories of this process, which ends. No thread of it creates another one from then on: one that tries to
/// waits for the end.
pub fn remove_all() {
    let paths = in_use();
    for path in paths.iter() {
        // Other threads may still create files in it until it is gone.
        let removes = |_| fs::remove_dir_all(path).is_ok() || !path.exists();
        (0..REMOVALS_MAX).any(removes);
    }
    mem::forget(paths);
}

/// Deletes the directories that killed processes of this user left in the directory for temporary files.
pub(crate) fn remove_left() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    let names = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    for path in names.map(|entry| entry.path()) {
        let is_own = |meta: &fs::Metadata| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
        if fs::symlink_metadata(&path).is_ok_and(|meta| is_own(&meta))
            && let Ok(lock) = File::open(&path)
            && lock.try_lock().is_ok()
        {
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!("deleted {}, which a killed process had left", path.display()),
                Err(error) => tracing::warn!("cannot delete {}: {error}", path.display()),
            }
        }
    }
}

fn is_ours(name: &str) -> bool {
    let number = name.strip_prefix(PREFIX).unwrap_or_default();
    number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock)
}

/// The directories of this process.
fn in_use() -> MutexGuard<'static, Vec<PathBuf>> {
    static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn release(path: &Path) {
    in_use().retain(|used| used != path);
}

const PREFIX: &str = "llmgw-";
const ATTEMPTS_MAX: u32 = 3;
const REMOVALS_MAX: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_a_killed_process_left_is_deleted_and_one_in_use_is_not() {
        let kept = TemporaryDirectory::somewhere().unwrap();
        fs::write(kept.path().join("gateway.db"), "in use").unwrap();
        let left = std::env::temp_dir().join(format!("{PREFIX}{:016x}", std::process::id()));
        private_file::create_directory(&left).unwrap();
        fs::write(left.join("gateway.db"), "left").unwrap();
        let other = std::env::temp_dir().join(format!("{PREFIX}of-a-test-{}", std::process::id()));
        fs::create_dir(&other).unwrap();
        remove_left();
        assert!(kept.path().join("gateway.db").exists() && other.exists());
        assert!(!left.exists());
        fs::remove_dir(&other).unwrap();
        let path = kept.path().to_owned();
        drop(kept);
        assert!(!path.exists());
    }
}
