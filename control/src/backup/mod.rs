//! Backups: one archive holds the state as it was at one moment (STATE-3).
//!
//! ```text
//!  create:   databases --SQLite's backup--> copies -> manifest -> tar.zst -> read back whole -> its name -> prune
//!  restore:  tar.zst -> every entry checked against the manifest -> opened and checked -> into an empty directory
//! ```
//!
//! An archive has its name only after it was read back and found whole. Secrets inside are sealed as they are in
//! the state; the key that opens them, administrator keys, the configuration file and `secrets.json` are in none.

pub(crate) mod archive;
mod create;
pub(crate) mod manifest;
mod restore;
pub(crate) mod scratch;
mod shelf;
mod verdicts;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use archive::{BYTES_MAX, verify};
pub use create::create;
pub use manifest::{Manifest, ManifestFile};
pub use restore::{RestoreParams, Restored, restore};
pub(crate) use shelf::list_beside;
pub use shelf::{Archive, check_unchecked, list};

use crate::store::error::OpenError;

/// Why there is no backup, or why one was not restored.
#[derive(Debug)]
pub enum BackupError {
    /// Another process is making one.
    Busy(PathBuf),
    /// A file cannot be read or written.
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// SQLite cannot work on a file.
    Sql {
        /// Which.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The archive is not what a backup is.
    Unsound {
        /// The archive.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A restore goes into an empty directory only.
    NotEmpty(PathBuf),
    /// The state cannot be opened.
    Open(OpenError),
}

impl BackupError {
    /// The exit code of a process that ends for this reason.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unsound { .. } => 1,
            Self::Busy(_) => 75,
            Self::Io { .. } | Self::Sql { .. } | Self::NotEmpty(_) => 74,
            Self::Open(error) => error.exit_code(),
        }
    }

    /// Returns what is wrong, without the name of an archive that is not sound.
    fn what(&self) -> String {
        if let Self::Unsound { what, .. } = self { what.clone() } else { self.to_string() }
    }

    fn unsound(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsound { path: path.into(), what: what.into() }
    }
}

/// Says of which file an error is.
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
            Self::Unsound { path, what } => write!(f, "{} is not a good backup: {what}", path.display()),
            Self::NotEmpty(dir) => write!(
                f,
                "{} is not empty; a backup is restored into an empty directory, or one that is not there yet",
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
