//! `llmgw rollback`: puts the state back as it was before the last upgrade migrated it. The replaced files are kept.
//!
//! ```text
//!  before-upgrade/ --rename--> rolling-back/     files of the state -> rolled-back/     mark
//!                                                files of rolling-back/ -> the state, gateway.db last     remove it
//! ```
//!
//! Each step may be repeated. Once the first rename is done, no gateway opens the state before the rollback is complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::db::error::OpenError;
use crate::db::sqlite_state::lock::StateLock;
use crate::db::sqlite_state::open::DATABASE;
use crate::db::sqlite_state::upgrade_snapshot::{
    ROLLING_BACK, SNAPSHOT, Snapshot, create_folders, read, remove, state_files, sync,
};

/// The result of a rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The schema version of the state now.
    pub version: i64,
    /// The schema version of the replaced state.
    pub replaced_version: i64,
    /// The time of the upgrade, in RFC 3339 format.
    pub upgraded_at: String,
    /// The release that had migrated the state.
    pub upgraded_by: String,
    /// The folder with the replaced files.
    pub replaced: PathBuf,
}

/// A rollback that failed.
#[derive(Debug, Error)]
pub enum RollbackError {
    /// The state directory cannot be locked or opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The directory has no snapshot of an upgrade.
    #[error(
        "{} has no snapshot of an upgrade: no start has migrated this state, or the snapshot was removed; \
         restore a backup instead",
        .0.display()
    )]
    NoSnapshot(PathBuf),
    /// The snapshot is damaged; nothing was changed.
    #[error(
        "the snapshot {} is damaged: {what}; nothing was changed: restore a backup instead",
        path.display()
    )]
    Damaged {
        /// The snapshot.
        path: PathBuf,
        /// A description of the damage.
        what: String,
    },
    /// A file cannot be moved; running the command again continues.
    #[error("{}: {source}; correct that, and run 'llmgw rollback' again", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The error that the operating system returned.
        source: io::Error,
    },
}

impl RollbackError {
    /// Returns the exit code of the process for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Open(error) => error.exit_code(),
            Self::Damaged { .. } => 1,
            Self::NoSnapshot(_) | Self::Io { .. } => 74,
        }
    }
}

/// Puts the state in `dir` back as it was before its last migration. Can be run again if it was killed at any point.
pub fn rollback(dir: &Path) -> Result<RolledBack, RollbackError> {
    if !dir.exists() {
        return Err(OpenError::Absent { path: dir.join(DATABASE) }.into());
    }
    let _lock = StateLock::take(dir)?;
    let io = |source| RollbackError::Io { path: dir.into(), source };
    let (rolling, replaced) = (dir.join(ROLLING_BACK), dir.join(REPLACED));
    if !rolling.exists() {
        let place = dir.join(SNAPSHOT);
        let damaged = |what: String| RollbackError::Damaged { path: place.clone(), what };
        let snapshot = read(&place).map_err(|error| damaged(error.to_string()))?;
        let snapshot = snapshot.ok_or_else(|| RollbackError::NoSnapshot(dir.into()))?;
        if let Some(what) = snapshot.fault(&place) {
            return Err(damaged(what));
        }
        remove(&replaced).map_err(io)?;
        fs::rename(&place, &rolling).and_then(|()| sync(dir)).map_err(io)?;
    }
    let snapshot = read(&rolling).map_err(io)?.ok_or_else(|| io(io::ErrorKind::NotFound.into()))?;
    finish(dir, &rolling, &replaced, &snapshot).map_err(io)?;
    Ok(RolledBack {
        version: snapshot.from,
        replaced_version: snapshot.to,
        upgraded_at: snapshot.made_at,
        upgraded_by: snapshot.made_by,
        replaced,
    })
}

fn finish(dir: &Path, rolling: &Path, replaced: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let moved = rolling.join(MOVED);
    if !moved.exists() {
        create_folders(replaced)?;
        for name in state_files(dir)? {
            fs::rename(dir.join(&name), replaced.join(&name))?;
        }
        sync(replaced)?;
        sync(dir)?;
        File::create(&moved)?.sync_all()?;
        sync(rolling)?;
    }
    create_folders(dir)?;
    let (last, first): (Vec<_>, Vec<_>) = snapshot.files.iter().partition(|file| file.name == DATABASE);
    for file in first.into_iter().chain(last) {
        let from = rolling.join(&file.name);
        if from.exists() {
            fs::rename(from, dir.join(&file.name))?;
        }
    }
    sync(dir)?;
    // A folder without its manifest would look like an interrupted rollback: it gets another name first.
    let done = dir.join(DONE);
    remove(&done)?;
    fs::rename(rolling, &done)?;
    sync(dir)?;
    remove(&done)
}

/// The name of the folder with the replaced files in the state directory.
const REPLACED: &str = "rolled-back";
/// The file in `rolling-back` that marks that all files of the replaced state were moved away.
const MOVED: &str = "moved";
const DONE: &str = "rolling-back.done";
