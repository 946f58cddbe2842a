//! Backups: one archive holds the state as of one moment (STATE-3).
//!
//! ```text
//!  create:   databases of one moment --> tar.zst with room for the manifest -> manifest -> read back and compare -> rename -> prune
//!                              \--> check and count rows, digests, at the same time --^
//!  restore:  tar.zst -> check every entry against the manifest -> open and check -> move into an empty directory
//! ```
//!
//! An archive gets its final name only after it was read back and the databases in it were checked.
//! A read transaction keeps the database files as they are meanwhile; only if the write-ahead log cannot be moved into them, they are
//! copied first. Secrets inside are sealed as they are in
//! the state; no archive contains the key that opens them, administrator keys, the configuration file or
//! `secrets.json`.

pub(crate) mod archive;
mod check_results;
mod create;
mod directory;
pub(crate) mod manifest;
mod read_back;
mod rehearsal;
mod restore;
pub(crate) mod temporary_directory;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

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
#[derive(Debug, Error)]
pub enum BackupError {
    /// Another process is making a backup in this directory.
    #[error("another process is making a backup in {}; try again", .0.display())]
    Busy(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error that the operating system returned.
        source: io::Error,
    },
    /// SQLite failed on a file.
    #[error("database {}: {source}", path.display())]
    Sql {
        /// The database file.
        path: PathBuf,
        /// The error that SQLite returned.
        source: DbError,
    },
    /// This write-ahead log has grown by more than its database, because no checkpoint can shorten it during a backup.
    #[error(
        "the write-ahead log {} has grown by the length of its database while the backup was made; no archive was kept: make it \
         again when less is written",
        .0.display()
    )]
    LogTooLong(PathBuf),
    /// The archive is damaged or is not a backup.
    #[error("{} is not a valid backup: {what}", path.display())]
    Unsound {
        /// The archive.
        path: PathBuf,
        /// A description of the fault.
        what: String,
    },
    /// The target directory of a restore is not empty.
    #[error(
        "{} is not empty; restore a backup into an empty directory, or one that does not exist yet",
        .0.display()
    )]
    NotEmpty(PathBuf),
    /// The state cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl BackupError {
    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unsound { .. } => 1,
            Self::Busy(_) => 75,
            Self::Io { .. } | Self::Sql { .. } | Self::NotEmpty(_) | Self::LogTooLong(_) => 74,
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

#[cfg(test)]
mod tests;
