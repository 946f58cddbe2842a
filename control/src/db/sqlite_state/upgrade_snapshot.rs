//! The snapshot that a start makes before it migrates a state: a copy of every file of the state, byte for byte, from which
//! `llmgw rollback` puts the state back for the older release.
//!
//! ```text
//!  before-upgrade.new/  being written  -- rename -->  before-upgrade/  complete, with a manifest and digests
//!  rollback:  before-upgrade/  -- rename -->  rolling-back/  : from here on it is completed, never undone
//! ```
//!
//! The caller holds the lock of the state, and no connection is open. One snapshot is kept, that of the last upgrade.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

use super::files::USAGE;
use super::migrate;
use super::open::{DATABASE, JOURNAL};
use crate::common::{digest, private_file, regular_file};
use crate::db::error::OpenError;

/// The description of a snapshot, in the file `manifest.json` inside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snapshot {
    /// The layout of the snapshot.
    format: u32,
    /// The schema version of the state in it.
    pub(crate) from: i64,
    /// The schema version to which the state was migrated.
    pub(crate) to: i64,
    /// The time when it was made, in RFC 3339 format.
    pub(crate) made_at: String,
    /// The release that made it and migrated the state.
    pub(crate) made_by: String,
    /// The files in it.
    pub(crate) files: Vec<SnapshotFile>,
}

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotFile {
    /// The path within the state directory.
    pub(crate) name: String,
    bytes: u64,
    sha256: String,
}

/// Makes a snapshot of the state in `dir`, whose database has the version `from`, if the start is about to migrate it. A
/// snapshot of the same upgrade is kept if that upgrade was interrupted after its first step.
pub(crate) fn make(dir: &Path, from: i64) -> Result<(), OpenError> {
    let to = migrate::newest();
    if from >= to {
        return Ok(());
    }
    let place = dir.join(SNAPSHOT);
    let (draft, old) = (dir.join(DRAFT), dir.join(OLD));
    for left in [&draft, &old] {
        remove(left).map_err(at(left))?;
    }
    if read(&place).is_ok_and(|made| made.is_some_and(|made| made.to == to && made.from < from)) {
        return Ok(());
    }
    let names = state_files(dir).map_err(at(dir))?;
    let names: Vec<String> = names.into_iter().filter(|name| !name.ends_with(INDEX)).collect();
    expect_room(dir, &names)?;
    tracing::info!(
        "the state has version {from}; it is copied to {} before its migration to version {to}",
        place.display()
    );
    create_folders(&draft).map_err(at(&draft))?;
    let mut files = Vec::new();
    for name in names {
        let copied = copy(&dir.join(&name), &draft.join(&name));
        let (bytes, sha256) = copied.map_err(at(&draft.join(&name)))?;
        files.push(SnapshotFile { name, bytes, sha256 });
    }
    let now = i64::try_from(shared::clock::unix_ms()).unwrap_or_default();
    let made_at = jiff::Timestamp::from_millisecond(now).unwrap_or_default().to_string();
    let snapshot =
        Snapshot { format: FORMAT, from, to, made_at, made_by: env!("CARGO_PKG_VERSION").to_owned(), files };
    write_manifest(&draft, &snapshot).map_err(at(&draft))?;
    put_in_place(dir, &place, &draft, &old).map_err(at(&place))
}

/// Returns the snapshot in `folder`; `None` if there is no such folder.
pub(crate) fn read(folder: &Path) -> io::Result<Option<Snapshot>> {
    let text = match regular_file::read_now(&folder.join(MANIFEST), MANIFEST_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let snapshot: Snapshot = serde_json::from_slice(&text).map_err(io::Error::other)?;
    if snapshot.format != FORMAT || !snapshot.files.iter().all(|file| is_state_file(&file.name)) {
        return Err(io::Error::other("its manifest is not one of this release"));
    }
    Ok(Some(snapshot))
}

impl Snapshot {
    /// Compares the files in `folder` with the manifest. Returns a description of the first difference.
    pub(crate) fn fault(&self, folder: &Path) -> Option<String> {
        self.files.iter().find_map(|file| match digest_of(&folder.join(&file.name)) {
            Ok((bytes, sha256)) if bytes == file.bytes && sha256 == file.sha256 => None,
            Ok(_) => Some(format!("{} does not match its checksum", file.name)),
            Err(error) => Some(format!("{}: {error}", file.name)),
        })
    }
}

/// Returns the paths of the files of the state in `dir`, relative to it.
pub(crate) fn state_files(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for (folder, prefix) in [(dir.to_owned(), String::new()), (dir.join(JOURNAL), format!("{JOURNAL}/"))] {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let is_file = entry.file_type()?.is_file();
            let name = entry.file_name().into_string().ok().map(|name| format!("{prefix}{name}"));
            names.extend(name.filter(|name| is_file && is_state_file(name)));
        }
    }
    names.sort();
    Ok(names)
}

/// True for the paths of the databases, SQLite's files beside them, the catalog, and the files of the journal.
fn is_state_file(name: &str) -> bool {
    match name.strip_prefix(JOURNAL).and_then(|rest| rest.strip_prefix('/')) {
        Some(inside) => !inside.is_empty() && !inside.contains('/') && inside != "..",
        None => {
            let is_database = [DATABASE, USAGE].iter().any(|own| {
                name.strip_prefix(own).is_some_and(|end| end.is_empty() || end.starts_with(['-', '.']))
            });
            (is_database || name == CATALOG) && !name.contains('/')
        }
    }
}

/// Creates the folder of a snapshot, or of replaced files, with that of a journal in it.
pub(crate) fn create_folders(folder: &Path) -> io::Result<()> {
    private_file::create_directories(&folder.join(JOURNAL))
}

/// Removes a folder, if it exists.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes the names in a folder, and in its journal's, to the disk.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    let journal = folder.join(JOURNAL);
    if journal.exists() {
        File::open(journal)?.sync_all()?;
    }
    File::open(folder)?.sync_all()
}

fn expect_room(dir: &Path, names: &[String]) -> Result<(), OpenError> {
    let needed =
        names.iter().filter_map(|name| fs::metadata(dir.join(name)).ok()).map(|meta| meta.len()).sum::<u64>();
    let space = statvfs(dir).map_err(|error| at(dir)(error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < needed.saturating_add(ROOM_BYTES) {
        return Err(OpenError::NoRoomForSnapshot { dir: dir.into(), free, needed });
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<(u64, String)> {
    let mut out = private_file::create_new(to)?;
    let copied = digest::copy(File::open(from)?, &mut out)?;
    out.sync_all()?;
    Ok(copied)
}

fn digest_of(path: &Path) -> io::Result<(u64, String)> {
    digest::copy(regular_file::open(path)?, &mut io::sink())
}

fn write_manifest(draft: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let path = draft.join(MANIFEST);
    let mut out = private_file::create_new(&path)?;
    out.write_all(&serde_json::to_vec_pretty(snapshot)?)?;
    out.sync_all()?;
    sync(draft)
}

/// Replaces the snapshot of an earlier upgrade. Killed between its steps, the next start makes the snapshot again.
fn put_in_place(dir: &Path, place: &Path, draft: &Path, old: &Path) -> io::Result<()> {
    if place.exists() {
        fs::rename(place, old)?;
    }
    fs::rename(draft, place)?;
    File::open(dir)?.sync_all()?;
    remove(old)
}

fn at(path: &Path) -> impl Fn(io::Error) -> OpenError {
    let path = PathBuf::from(path);
    move |source| OpenError::Io { path: path.clone(), source }
}

/// The name of the complete snapshot in the state directory.
pub(crate) const SNAPSHOT: &str = "before-upgrade";
/// The name of a snapshot whose files a rollback is moving back.
pub(crate) const ROLLING_BACK: &str = "rolling-back";
const DRAFT: &str = "before-upgrade.new";
const OLD: &str = "before-upgrade.old";
const MANIFEST: &str = "manifest.json";
const CATALOG: &str = "catalog.json";
/// SQLite's index of a write-ahead log, which it computes again.
const INDEX: &str = "-shm";
const FORMAT: u32 = 1;
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Free space that must remain beside the snapshot.
const ROOM_BYTES: u64 = 16 << 20;
