//! Directories for files that are on their way, for this user only. They go when they are dropped.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::vault::random;

/// A directory of our own.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes `path` anew; what an earlier process has left there goes.
    pub(crate) fn at(path: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    /// One that nobody else knows, where the system keeps such things.
    pub(crate) fn somewhere() -> io::Result<Self> {
        let name: [u8; 8] = random().map_err(io::Error::other)?;
        Self::at(std::env::temp_dir().join(format!("llmgw-{:016x}", u64::from_be_bytes(name))))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
