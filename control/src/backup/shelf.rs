//! The default directory of backups, `backups` in the state directory. One process at a time makes one there.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use super::archive::manifest;
use super::manifest::Manifest;
use super::scratch::Scratch;
use super::verdicts::{self, Verdicts, check_and_keep};
use super::{BackupError, at};
use crate::regular_file;

/// An archive in the default directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Archive {
    /// Its file name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// What it holds; none if that cannot be read.
    pub manifest: Option<Manifest>,
    /// When all of it was last read, as far as it has not changed since.
    pub checked_at_ms: Option<u64>,
    /// What is wrong with it, as far as is known.
    pub fault: Option<String>,
    /// It has not been read to its end as it is now, or not of late.
    #[serde(skip)]
    pub(crate) is_unchecked: bool,
}

/// The archives of the state in `dir`, newest first. An error where their file system does not answer in time.
pub fn list(dir: &Path) -> Result<Vec<Archive>, BackupError> {
    let folder = dir.join(FOLDER);
    let path = folder.clone();
    regular_file::in_time(move || list_now(&path)).map_err(at(&folder))?
}

/// As [`list`], of the archives in `dir` itself and beside the caller's task.
pub(crate) async fn list_beside(dir: PathBuf) -> Result<Vec<Archive>, BackupError> {
    let folder = dir.join(FOLDER);
    let path = folder.clone();
    regular_file::beside(move || list_now(&path)).await.map_err(at(&folder))?
}

/// Reads the archives of the state in `dir` to their ends that were not checked as they are now, the newest first, and keeps
/// what is found for [`list`]. It takes as long as reading them does.
pub fn check_unchecked(dir: &Path) -> Result<(), BackupError> {
    let folder = dir.join(FOLDER);
    for archive in list(dir)?.into_iter().filter(|archive| archive.is_unchecked) {
        if let Err(error) = check_and_keep(&folder, &archive.name) {
            tracing::warn!("{error}");
        }
    }
    Ok(())
}

fn list_now(dir: &Path) -> Result<Vec<Archive>, BackupError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(at(dir))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(at(dir))?.file_name();
        names.extend(name.into_string().ok().filter(|name| is_archive(name)));
    }
    names.sort_unstable_by(|one, other| other.cmp(one));
    names.truncate(LISTED_MAX);
    let verdicts = Verdicts::read(dir);
    names.into_iter().map(|name| look_at(dir, name, &verdicts)).collect()
}

fn look_at(dir: &Path, name: String, verdicts: &Verdicts) -> Result<Archive, BackupError> {
    let path = dir.join(&name);
    let metadata = fs::metadata(&path).map_err(at(&path))?;
    let verdict = verdicts.of(&name, &metadata);
    let manifest = manifest(&path);
    let unreadable = manifest.as_ref().err().map(BackupError::what);
    Ok(Archive {
        bytes: metadata.len(),
        checked_at_ms: verdict.map(|verdict| verdict.checked_at_ms),
        fault: unreadable.or_else(|| verdict.and_then(|verdict| verdict.fault.clone())),
        is_unchecked: verdicts.lacks(&name, &metadata),
        manifest: manifest.ok(),
        name,
    })
}

/// The directory, held by this process.
#[derive(Debug)]
pub(super) struct BackupDirectory {
    state: PathBuf,
    dir: PathBuf,
    _lock: File,
}

impl BackupDirectory {
    /// Takes the directory of the state in `state`, and makes it where there is none.
    pub(super) fn take(state: &Path) -> Result<Self, BackupError> {
        let dir = state.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(at(&dir))?;
        let path = dir.join(LOCK);
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(at(&path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { state: state.into(), dir, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(BackupError::Busy(dir)),
            Err(TryLockError::Error(source)) => Err(BackupError::Io { path, source }),
        }
    }

    /// A directory for a backup in the making.
    pub(super) fn draft(&self) -> Result<Scratch, BackupError> {
        Scratch::at(self.dir.join(DRAFT)).map_err(at(&self.dir))
    }

    /// Gives a verified archive its name.
    pub(super) fn keep(&self, packed: &Path, name: &str) -> Result<Archive, BackupError> {
        let path = self.dir.join(name);
        fs::rename(packed, &path).map_err(at(&path))?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(at(&self.dir))?;
        verdicts::keep(&self.dir, name, &fs::metadata(&path).map_err(at(&path))?, None);
        look_at(&self.dir, name.to_owned(), &Verdicts::read(&self.dir))
    }

    /// Removes the archives that are older than the newest `kept` whole ones. Each is read to its end before it counts: one
    /// that was damaged since it got its name takes the place of none, and is left for the operator to look at.
    pub(super) fn prune(&self, kept: u32) {
        let mut whole = 0;
        for old in list(&self.state).unwrap_or_default() {
            let path = self.dir.join(&old.name);
            if whole < kept {
                match check_and_keep(&self.dir, &old.name) {
                    Ok(()) => whole += 1,
                    Err(error) => {
                        tracing::warn!("{error}; it does not count as one of the {kept} that are kept")
                    }
                }
            } else if old.manifest.is_some() {
                match fs::remove_file(&path) {
                    Ok(()) => tracing::info!("backup {} was removed; {kept} are kept", old.name),
                    Err(error) => tracing::warn!("backup {} cannot be removed: {error}", path.display()),
                }
            }
        }
    }
}

/// `llmgw-backup-20261121T072100.123Z.tar.zst`: names in order are backups in order.
pub(super) fn archive_name(now: Timestamp) -> String {
    let millisecond = now.as_millisecond().rem_euclid(1_000);
    format!("{PREFIX}{}.{millisecond:03}Z{SUFFIX}", now.strftime("%Y%m%dT%H%M%S"))
}

/// True for the names that [`archive_name`] gives. A file of another name, which would sort before all of them, is no
/// backup of this directory.
fn is_archive(name: &str) -> bool {
    let moment = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)).map(str::as_bytes);
    let pattern = b"00000000T000000.000Z";
    let fits = |(byte, like): (&u8, &u8)| if *like == b'0' { byte.is_ascii_digit() } else { byte == like };
    moment.is_some_and(|moment| moment.len() == pattern.len() && moment.iter().zip(pattern).all(fits))
}

const FOLDER: &str = "backups";
const DRAFT: &str = ".draft";
const LOCK: &str = "lock";
const PREFIX: &str = "llmgw-backup-";
const SUFFIX: &str = ".tar.zst";
/// More than may be kept.
const LISTED_MAX: usize = 20_000;
