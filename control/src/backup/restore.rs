//! Restoring: into a directory with nothing in it, and nothing is in its place before all of it was checked. The
//! database comes last: until then no gateway takes the directory for a state.

use std::fs::{self, File};
use std::path::Path;

use shared::secret::Secret;

use super::archive::{inspect, unpack};
use super::manifest::{DATABASE, Manifest};
use super::scratch::Scratch;
use super::{BackupError, at};
use crate::regular_file;
use crate::store::lock::{self, StateLock};
use crate::store::open::{make_directory, opens_with};

/// What [`restore`] needs.
#[derive(Clone, Copy, Debug)]
pub struct RestoreParams<'a> {
    /// The archive.
    pub archive: &'a Path,
    /// Where it goes.
    pub dir: &'a Path,
    /// What it may unpack to.
    pub bytes_max: u64,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`, if it is set.
    pub encryption_key: Option<&'a Secret<[u8; 32]>>,
}

/// A state that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// What was in the archive.
    pub manifest: Manifest,
    /// Whether the encryption key opens it, if there was one.
    pub opens: Option<bool>,
}

/// Makes a state directory of an archive.
pub fn restore(params: RestoreParams<'_>) -> Result<Restored, BackupError> {
    let RestoreParams { archive, dir, bytes_max, encryption_key } = params;
    // An archive that is not there must not leave a directory behind.
    regular_file::open(archive).map_err(at(archive))?;
    make_directory(dir)?;
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let name = entry.map_err(at(dir))?.file_name();
        if name != DRAFT && name != lock::FILE {
            return Err(BackupError::NotEmpty(dir.into()));
        }
    }
    let _lock = StateLock::take(dir)?;
    let draft = Scratch::at(dir.join(DRAFT)).map_err(at(dir))?;
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

const DRAFT: &str = ".restoring";
