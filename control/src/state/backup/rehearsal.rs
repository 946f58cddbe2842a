//! Rehearses a restore: unpacks the newest archive into a temporary directory, opens its databases and their keys, and
//! compares the rows with the manifest.

use std::path::Path;

use rustix::fs::statvfs;
use shared::secret::Secret;

use super::archive::{BYTES_MAX, inspect, manifest, unpack};
use super::directory::{FOLDER, list};
use super::manifest::{DATABASE, Manifest};
use super::temporary_directory::TemporaryDirectory;
use super::{BackupError, at};
use crate::db::sqlite_state::copy::describe;
use crate::db::sqlite_state::open::opens_with;

/// Rehearses the restore of the newest archive of the state in `dir`. Returns its name, or `None` if there is no archive.
pub(crate) fn rehearse(dir: &Path, encryption_key: &Secret<[u8; 32]>) -> Result<Option<String>, BackupError> {
    let Some(newest) = list(dir)?.into_iter().next() else { return Ok(None) };
    let folder = dir.join(FOLDER);
    let archive = folder.join(&newest.name);
    expect_room(&folder, &archive)?;
    let scratch = TemporaryDirectory::at(folder.join(DRAFT)).map_err(at(&folder))?;
    let manifest = unpack(&archive, scratch.path(), BYTES_MAX)?;
    inspect(&archive, scratch.path(), &manifest)?;
    compare_rows(&archive, scratch.path(), &manifest)?;
    if !opens_with(&scratch.path().join(DATABASE), encryption_key) {
        let what = "LLMGW_CREDENTIAL_ENCRYPTION_KEY does not open it; after a rekey, make a new backup";
        return Err(BackupError::unsound(&archive, what));
    }
    Ok(Some(newest.name))
}

fn compare_rows(archive: &Path, dir: &Path, manifest: &Manifest) -> Result<(), BackupError> {
    let mut rows = std::collections::BTreeMap::new();
    for file in manifest.files.iter().filter(|file| file.name.ends_with(".db")) {
        let path = dir.join(&file.name);
        let (_, found) = describe(&path).map_err(|source| BackupError::Sql { path, source })?;
        rows.extend(found);
    }
    if rows != manifest.rows {
        return Err(BackupError::unsound(archive, "its tables have other numbers of rows than its manifest"));
    }
    Ok(())
}

fn expect_room(folder: &Path, archive: &Path) -> Result<(), BackupError> {
    let manifest = manifest(archive)?;
    let needed = manifest.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
    let space = statvfs(folder).map_err(|error| at(folder)(error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < needed.saturating_add(ROOM_BYTES) {
        let what =
            format!("a rehearsal needs {} MiB, and {} MiB are free", needed.div_ceil(1 << 20), free >> 20);
        return Err(at(folder)(std::io::Error::new(std::io::ErrorKind::StorageFull, what)));
    }
    Ok(())
}

const DRAFT: &str = ".rehearsal";
/// Free space that must remain beside the unpacked archive.
const ROOM_BYTES: u64 = 64 << 20;
