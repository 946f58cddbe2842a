//! Temporary directories that only this user can access. They are deleted on drop.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::private_file;
use crate::vault::random;

/// A temporary directory.
#[derive(Debug)]
pub(crate) struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    /// Creates the directory `path`. Deletes it first if an earlier process left it there.
    pub(crate) fn at(path: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        private_file::create_directory(&path)?;
        Ok(Self { path })
    }

    /// Creates a directory with a random name in the system's directory for temporary files.
    pub(crate) fn somewhere() -> io::Result<Self> {
        let name: [u8; 8] = random().map_err(io::Error::other)?;
        Self::at(std::env::temp_dir().join(format!("llmgw-{:016x}", u64::from_be_bytes(name))))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
