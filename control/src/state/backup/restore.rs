//! Restores an archive into an empty directory. No file is moved into place before the whole archive was checked. The
//! database is moved last: without it no gateway accepts the directory as a state.

use std::fs::{self, File};
use std::path::Path;

use shared::secret::Secret;

use super::archive::{inspect, manifest, unpack};
use super::manifest::{DATABASE, Manifest};
use super::temporary_directory::TemporaryDirectory;
use super::{BackupError, at};
use crate::common::regular_file;
use crate::db::sqlite_state::lock::{self, StateLock};
use crate::db::sqlite_state::open::{make_directory, opens_with};

/// The parameters of [`restore`].
#[derive(Clone, Copy, Debug)]
pub struct RestoreParams<'a> {
    /// The archive to restore.
    pub archive: &'a Path,
    /// The target directory, which must be empty or not exist.
    pub dir: &'a Path,
    /// Limit on the unpacked size, in bytes.
    pub bytes_max: u64,
    /// The value of `LLMGW_CREDENTIAL_ENCRYPTION_KEY`, if it is set.
    pub encryption_key: Option<&'a Secret<[u8; 32]>>,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The manifest of the archive.
    pub manifest: Manifest,
    /// True if the encryption key opens the restored secrets; `None` without a key.
    pub opens: Option<bool>,
}

/// Creates a state directory from an archive.
pub fn restore(params: RestoreParams<'_>) -> Result<Restored, BackupError> {
    let RestoreParams { archive, dir, bytes_max, encryption_key } = params;
    // A missing archive must not leave an empty directory behind.
    regular_file::open(archive).map_err(at(archive))?;
    make_directory(dir)?;
    expect_empty(archive, dir)?;
    let _lock = StateLock::take(dir)?;
    let draft = TemporaryDirectory::at(dir.join(DRAFT)).map_err(at(dir))?;
    let manifest = unpack(archive, draft.path(), bytes_max)?;
    inspect(archive, draft.path(), &manifest)?;
    let opens = encryption_key.map(|key| opens_with(&draft.path().join(DATABASE), key));
    let (last, first): (Vec<_>, Vec<_>) = manifest.files.iter().partition(|file| file.name == DATABASE);
    for file in first.into_iter().chain(last) {
        let to = dir.join(&file.name);
        fs::rename(draft.path().join(&file.name), &to).map_err(at(&to))?;
    }
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))?;
    Ok(Restored { manifest, opens })
}

/// Accepts a directory that contains nothing, or only what an interrupted restore of this archive has left: its draft, and
/// files that it had moved before the database.
fn expect_empty(archive: &Path, dir: &Path) -> Result<(), BackupError> {
    let has = |name| fs::symlink_metadata(dir.join(name)).is_ok();
    let is_interrupted = has(DRAFT) && !has(DATABASE);
    let moved = if is_interrupted { manifest(archive)?.files } else { Vec::new() };
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let name = entry.map_err(at(dir))?.file_name();
        let is_left = moved.iter().any(|file| name == file.name.as_str());
        if name != DRAFT && name != lock::FILE && !is_left {
            return Err(BackupError::NotEmpty(dir.into()));
        }
    }
    Ok(())
}

const DRAFT: &str = ".restoring";
