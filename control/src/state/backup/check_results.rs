//! The results of full checks of archives, stored in a file beside the archives. With them, a list shows damage
//! anywhere in an archive without reading it. A result is valid for one version of a file, identified by name, length
//! and time of the last change.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::archive::check;
use super::{BackupError, at};
use crate::common::{private_file, regular_file};

/// The result of reading an archive to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict {
    bytes: u64,
    /// The file's change time, in seconds and nanoseconds since the Unix epoch.
    changed_at: (i64, i64),
    pub(super) checked_at_ms: u64,
    /// A description of the damage, if the archive is damaged.
    pub(super) fault: Option<String>,
}

impl Verdict {
    /// True if the check is so old at `now_ms` that the disk may have damaged the file since.
    fn is_old(&self, now_ms: u64) -> bool {
        self.checked_at_ms.saturating_add(AGE_MS_MAX) < now_ms
    }
}

/// The check results by archive name.
#[derive(Debug, Default)]
pub(super) struct Verdicts(BTreeMap<String, Verdict>);

impl Verdicts {
    /// Reads the results for the archives in `dir`. Returns no results if their file is missing or cannot be read.
    pub(super) fn read(dir: &Path) -> Self {
        let text = regular_file::read_now(&dir.join(FILE), BYTES_MAX).unwrap_or_default();
        Self(serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Returns the result for an archive, if the archive has not changed since the check.
    pub(super) fn of(&self, name: &str, archive: &Metadata) -> Option<&Verdict> {
        self.0.get(name).filter(|verdict| {
            verdict.bytes == archive.len() && verdict.changed_at == (archive.ctime(), archive.ctime_nsec())
        })
    }

    /// True if the archive was not checked since its last change, or the check is too old.
    pub(super) fn lacks(&self, name: &str, archive: &Metadata) -> bool {
        self.of(name, archive).is_none_or(|verdict| verdict.is_old(shared::clock::unix_ms()))
    }

    /// Replaces the results file, without archives that no longer exist. Results that another process writes at the
    /// same time may be lost; those archives are checked again.
    fn write(mut self, dir: &Path) -> io::Result<()> {
        self.0.retain(|name, _| dir.join(name).exists());
        let new = dir.join(format!("{FILE}.{}", std::process::id()));
        let mut file = private_file::create_fresh(&new)?;
        file.write_all(&serde_json::to_vec(&self.0)?)?;
        fs::rename(&new, dir.join(FILE))
    }
}

/// Reads the archive `name` in `dir` to its end and stores the result.
pub(super) fn check_and_keep(dir: &Path, name: &str) -> Result<(), BackupError> {
    let path = dir.join(name);
    let before = fs::metadata(&path).map_err(at(&path))?;
    let checked = check(&path);
    let fault = checked.as_ref().err().map(BackupError::what);
    keep(dir, name, &before, fault);
    checked.map(drop)
}

/// Stores a check result. `archive` is the file's metadata from before the check.
pub(super) fn keep(dir: &Path, name: &str, archive: &Metadata, fault: Option<String>) {
    let mut verdicts = Verdicts::read(dir);
    let checked_at_ms = shared::clock::unix_ms();
    let changed_at = (archive.ctime(), archive.ctime_nsec());
    let verdict = Verdict { bytes: archive.len(), changed_at, checked_at_ms, fault };
    verdicts.0.insert(name.to_owned(), verdict);
    if let Err(error) = verdicts.write(dir) {
        let path: PathBuf = dir.join(FILE);
        tracing::warn!("{}: {error}; {name} will be checked again", path.display());
    }
}

const FILE: &str = "checks.json";
/// Limit on the size of the results file: three times the size of results for as many archives as are listed.
const BYTES_MAX: u64 = 16 << 20;
/// The age at which a check expires, one week: a disk may damage a file without changing its times.
const AGE_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1_000;
