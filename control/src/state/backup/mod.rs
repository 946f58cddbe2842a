//! Backups: one archive holds the state as of one moment (STATE-3).
//!
//! ```text
//!  create:   databases --SQLite's backup--> copies -> manifest -> tar.zst -> read back and verify -> rename -> prune
//!  restore:  tar.zst -> check every entry against the manifest -> open and check -> move into an empty directory
//! ```
//!
//! An archive gets its final name only after it was read back and verified. Secrets inside are sealed as they are in
//! the state; no archive contains the key that opens them, administrator keys, the configuration file or
//! `secrets.json`.

pub(crate) mod archive;
mod check_results;
mod create;
mod directory;
pub(crate) mod manifest;
mod rehearsal;
mod restore;
pub(crate) mod temporary_directory;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use archive::check;
pub use archive::{BYTES_MAX, verify};
pub use create::create;
pub use directory::{Archive, check_unchecked, list};
pub(crate) use directory::{FOLDER, check_one, find_beside, list_beside, open_beside, remove_beside};
pub use manifest::{Manifest, ManifestFile};
pub(crate) use rehearsal::rehearse;
pub use restore::{RestoreParams, Restored, restore};
pub use temporary_directory::remove_all as remove_temporary;
pub(crate) use temporary_directory::remove_left;

use crate::db::engine::DbError;
use crate::db::error::OpenError;

/// An error from creating, checking or restoring a backup.
#[derive(Debug)]
pub enum BackupError {
    /// Another process is making a backup in this directory.
    Busy(PathBuf),
    /// A file cannot be read or written.
    Io {
        /// The file.
        path: PathBuf,
        /// The error that the operating system returned.
        source: io::Error,
    },
    /// SQLite failed on a file.
    Sql {
        /// The database file.
        path: PathBuf,
        /// The error that SQLite returned.
        source: DbError,
    },
    /// The archive is damaged or is not a backup.
    Unsound {
        /// The archive.
        path: PathBuf,
        /// A description of the fault.
        what: String,
    },
    /// The target directory of a restore is not empty.
    NotEmpty(PathBuf),
    /// The state cannot be opened.
    Open(OpenError),
}

impl BackupError {
    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unsound { .. } => 1,
            Self::Busy(_) => 75,
            Self::Io { .. } | Self::Sql { .. } | Self::NotEmpty(_) => 74,
            Self::Open(error) => error.exit_code(),
        }
    }

    /// Returns the error text; for an archive that is not sound, without the archive's path.
    fn what(&self) -> String {
        if let Self::Unsound { what, .. } = self { what.clone() } else { self.to_string() }
    }

    fn unsound(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsound { path: path.into(), what: what.into() }
    }
}

/// Returns a function that attaches `path` to an I/O error.
fn at(path: &Path) -> impl Fn(io::Error) -> BackupError + '_ {
    |source| BackupError::Io { path: path.into(), source }
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(dir) => {
                write!(f, "another process is making a backup in {}; try again", dir.display())
            }
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Sql { path, source } => write!(f, "database {}: {source}", path.display()),
            Self::Unsound { path, what } => write!(f, "{} is not a valid backup: {what}", path.display()),
            Self::NotEmpty(dir) => write!(
                f,
                "{} is not empty; restore a backup into an empty directory, or one that does not exist yet",
                dir.display()
            ),
            Self::Open(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<OpenError> for BackupError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

#[cfg(test)]
mod tests;
