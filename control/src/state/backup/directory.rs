//! The default directory for backups, `backups` in the state directory. Only one process at a time creates a backup
//! there.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use super::archive::manifest;
use super::check_results::{self, Verdicts, check_and_keep};
use super::manifest::Manifest;
use super::temporary_directory::TemporaryDirectory;
use super::{BackupError, at};
use crate::common::bounds::LISTED_BACKUPS;
use crate::common::{private_file, regular_file};

/// An archive in the default directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Backup"))]
pub struct Archive {
    /// The file name.
    pub name: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The manifest; null if it cannot be read.
    pub manifest: Option<Manifest>,
    /// The time of the last full read, in milliseconds since the Unix epoch; null if there was none since the file
    /// changed.
    pub checked_at_ms: Option<u64>,
    /// A description of the damage; null if none is known.
    pub fault: Option<String>,
    /// True if the archive was not read to its end since its last change, or not recently.
    #[serde(skip)]
    pub(crate) is_unchecked: bool,
}

impl Archive {
    /// True if the archive was read to its end and found intact.
    pub(crate) fn is_good(&self) -> bool {
        self.checked_at_ms.is_some() && self.fault.is_none()
    }

    /// Returns the time of the archive's state, in milliseconds since the Unix epoch; `None` if it cannot be read.
    pub(crate) fn made_at_ms(&self) -> Option<u64> {
        let created_at: Timestamp = self.manifest.as_ref()?.created_at.parse().ok()?;
        u64::try_from(created_at.as_millisecond()).ok()
    }
}

/// Returns the archives of the state in `dir`, newest first. Fails if the file system does not respond in time.
pub fn list(dir: &Path) -> Result<Vec<Archive>, BackupError> {
    let folder = dir.join(FOLDER);
    let path = folder.clone();
    regular_file::in_time(move || list_now(&path)).map_err(at(&folder))?
}

/// Async version of [`list`] that does not block the caller's task.
pub(crate) async fn list_beside(dir: PathBuf) -> Result<Vec<Archive>, BackupError> {
    let folder = dir.join(FOLDER);
    let path = folder.clone();
    regular_file::beside(move || list_now(&path)).await.map_err(at(&folder))?
}

/// Returns the archive `name` of the state in `dir`; `None` if there is none. Does not block the caller's task.
pub(crate) async fn find_beside(dir: PathBuf, name: String) -> Result<Option<Archive>, BackupError> {
    let folder = dir.join(FOLDER);
    let path = folder.clone();
    regular_file::beside(move || find_now(&path, name)).await.map_err(at(&folder))?
}

/// Opens the archive `name` of the state in `dir`, which [`find_beside`] has found. Returns the file and its length in
/// bytes.
pub(crate) async fn open_beside(dir: PathBuf, name: &str) -> Result<(File, u64), BackupError> {
    let path = dir.join(FOLDER).join(name);
    let opened = path.clone();
    let open = move || {
        let file = regular_file::open(&opened)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    };
    regular_file::beside(open).await.and_then(|opened| opened).map_err(at(&path))
}

/// Deletes the archive `name` of the state in `dir`, which [`find_beside`] has found.
pub(crate) async fn remove_beside(dir: PathBuf, name: &str) -> Result<(), BackupError> {
    let path = dir.join(FOLDER).join(name);
    let removed = path.clone();
    regular_file::beside(move || fs::remove_file(removed))
        .await
        .and_then(|removed| removed)
        .map_err(at(&path))
}

/// Reads the archive `name` of the state in `dir` to its end, and saves the result for [`list`].
pub(crate) fn check_one(dir: &Path, name: &str) -> Result<(), BackupError> {
    check_and_keep(&dir.join(FOLDER), name)
}

/// Reads to their ends the archives of the state in `dir` that have no current check, newest first, and saves the
/// results for [`list`]. Takes as long as reading the archives does.
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
    LISTED_BACKUPS.cut(&mut names);
    let verdicts = Verdicts::read(dir);
    names.into_iter().map(|name| look_at(dir, name, &verdicts)).collect()
}

fn find_now(dir: &Path, name: String) -> Result<Option<Archive>, BackupError> {
    let is_there = is_archive(&name) && fs::exists(dir.join(&name)).map_err(at(dir))?;
    is_there.then(|| look_at(dir, name, &Verdicts::read(dir))).transpose()
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

/// The backup directory, locked by this process.
#[derive(Debug)]
pub(super) struct BackupDirectory {
    state: PathBuf,
    dir: PathBuf,
    _lock: File,
}

impl BackupDirectory {
    /// Locks the backup directory of the state in `state`. Creates it if it does not exist.
    pub(super) fn take(state: &Path) -> Result<Self, BackupError> {
        let dir = state.join(FOLDER);
        private_file::create_directories(&dir).map_err(at(&dir))?;
        let path = dir.join(LOCK);
        let lock = private_file::open_or_create(&path).map_err(at(&path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { state: state.into(), dir, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(BackupError::Busy(dir)),
            Err(TryLockError::Error(source)) => Err(BackupError::Io { path, source }),
        }
    }

    /// Creates a directory for a backup in progress.
    pub(super) fn draft(&self) -> Result<TemporaryDirectory, BackupError> {
        TemporaryDirectory::at(self.dir.join(DRAFT)).map_err(at(&self.dir))
    }

    /// Moves a verified archive to its final name.
    pub(super) fn keep(&self, packed: &Path, name: &str) -> Result<Archive, BackupError> {
        let path = self.dir.join(name);
        fs::rename(packed, &path).map_err(at(&path))?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(at(&self.dir))?;
        check_results::keep(&self.dir, name, &fs::metadata(&path).map_err(at(&path))?, None);
        look_at(&self.dir, name.to_owned(), &Verdicts::read(&self.dir))
    }

    /// Removes the archives that are older than the newest `kept` intact ones. An archive counts if it was read to its end
    /// within the last week and has not changed since; any other one is read first. One that was damaged after it was
    /// created does not count, and is left for the operator to inspect.
    pub(super) fn prune(&self, kept: u32) {
        let mut whole = 0;
        for old in list(&self.state).unwrap_or_default() {
            let path = self.dir.join(&old.name);
            if whole < kept {
                let is_known = old.is_good() && !old.is_unchecked;
                let checked = if is_known { Ok(()) } else { check_and_keep(&self.dir, &old.name) };
                match checked {
                    Ok(()) => whole += 1,
                    Err(error) => {
                        tracing::warn!("{error}; it is not counted as one of the {kept} kept archives")
                    }
                }
            } else if old.manifest.is_some() {
                match fs::remove_file(&path) {
                    Ok(()) => tracing::info!("old backup {} removed; {kept} are kept", old.name),
                    Err(error) => tracing::warn!("backup {} cannot be removed: {error}", path.display()),
                }
            }
        }
    }
}

/// Returns a file name such as `llmgw-backup-20261121T072100.123Z.tar.zst`. Names sort by time.
pub(super) fn archive_name(now: Timestamp) -> String {
    let millisecond = now.as_millisecond().rem_euclid(1_000);
    format!("{PREFIX}{}.{millisecond:03}Z{SUFFIX}", now.strftime("%Y%m%dT%H%M%S"))
}

/// True for names in the format of [`archive_name`]. Other files, which might sort before all archives, are ignored.
fn is_archive(name: &str) -> bool {
    let moment = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)).map(str::as_bytes);
    let pattern = b"00000000T000000.000Z";
    let fits = |(byte, like): (&u8, &u8)| if *like == b'0' { byte.is_ascii_digit() } else { byte == like };
    moment.is_some_and(|moment| moment.len() == pattern.len() && moment.iter().zip(pattern).all(fits))
}

/// The name of the default directory for backups in the state directory.
pub(crate) const FOLDER: &str = "backups";
const DRAFT: &str = ".draft";
const LOCK: &str = "lock";
const PREFIX: &str = "llmgw-backup-";
const SUFFIX: &str = ".tar.zst";
