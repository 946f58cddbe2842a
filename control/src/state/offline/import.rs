//! `credentials import`: moves the keys of `secrets.json` into the database (STATE-6).
//!
//! ```text
//!  lock -> read -> one transaction: seal, audit -> commit -> rename -> overwrite -> unlink
//! ```
//!
//! The file is renamed only after its keys are committed, so a file with the new name can always be removed. If the
//! process is killed at any point, a second run continues where the first one stopped.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;
use shared::secret::Secret;
use thiserror::Error;

use crate::common::actor::Actor;
use crate::common::vault::VaultKeys;
use crate::db::audit::{self, AuditEntry};
use crate::db::credentials;
use crate::db::engine::{Db, DbResult};
use crate::db::error::OpenError;
use crate::db::sqlite_state::open::{Opened, open, sql_error};
use crate::routing::config::{Plain, PlainReading};

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Ids of the providers whose key is new or differs from the stored one.
    pub stored: Vec<String>,
    /// Number of keys that were stored already.
    pub known: usize,
    /// The removed file, if there was one.
    pub removed: Option<PathBuf>,
}

/// An import that failed or did not complete.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The state directory cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file cannot be read.
    #[error("{} cannot be read: {}; nothing was changed", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// The file contains entries that cannot be imported.
    #[error("{}: {}; nothing was changed", .0.display(), .1.join("; "))]
    Unusable(PathBuf, Vec<String>),
    /// The keys are stored, but the file could not be removed.
    #[error("the keys are stored, but {} cannot be removed: {}; remove it yourself", .0.display(), .1)]
    Remains(PathBuf, io::Error),
}

impl ImportError {
    /// Returns the exit code of the process for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Open(error) => error.exit_code(),
            Self::Unreadable(..) | Self::Remains(..) => 74,
            Self::Unusable(..) => 78,
        }
    }
}

/// Imports the keys of the file in `dir`. Creates the state if it does not exist.
pub fn import_credentials(dir: &Path, encryption_key: &Secret<[u8; 32]>) -> Result<Imported, ImportError> {
    let plain = Plain::of(dir);
    let mut imported = Imported::default();
    if !is_there(&plain.file)? && !is_there(&plain.spent)? {
        return Ok(imported);
    }
    let mut opened = open(dir, encryption_key)?;
    let remains = |file: &PathBuf| {
        let file = file.clone();
        move |error| ImportError::Remains(file, error)
    };
    if is_there(&plain.spent)? {
        wipe(dir, &plain.spent).map_err(remains(&plain.spent))?;
        imported.removed = Some(plain.spent.clone());
    }
    if is_there(&plain.file)? {
        let reading = readable(&plain)?;
        let sql = |source| ImportError::Open(sql_error(&opened.path, source));
        store(&mut opened.writer, &opened.keys, &reading, &mut imported).map_err(sql)?;
        fs::rename(&plain.file, &plain.spent).map_err(remains(&plain.file))?;
        wipe(dir, &plain.spent).map_err(remains(&plain.spent))?;
        imported.removed = Some(plain.file);
    }
    let Opened { lock, .. } = opened;
    drop(lock);
    Ok(imported)
}

/// Reads the whole file. Fails if any part of it cannot be imported.
fn readable(plain: &Plain) -> Result<PlainReading, ImportError> {
    let failed = |error| ImportError::Unreadable(plain.file.clone(), error);
    let unusable = |faults| Err(ImportError::Unusable(plain.file.clone(), faults));
    if !fs::symlink_metadata(&plain.file).map_err(failed)?.is_file() {
        return unusable(vec![
            "must be a regular file and not a link; put the file itself there, and delete the target of the \
             link yourself"
                .to_owned(),
        ]);
    }
    match plain.read().map_err(failed)? {
        Some(reading) if reading.faults.is_empty() => Ok(reading),
        Some(reading) => unusable(reading.faults),
        None => unusable(vec!["is gone".to_owned()]),
    }
}

/// Seals new and changed keys in one transaction.
fn store(db: &mut Db, keys: &VaultKeys, reading: &PlainReading, imported: &mut Imported) -> DbResult<()> {
    let now_ms = shared::clock::unix_ms();
    let actor = Actor::gateway();
    let tx = db.transaction()?;
    for (provider, key) in &reading.keys {
        let before = credentials::find(&tx, keys, provider)?;
        if before.as_ref() == Some(key) {
            imported.known += 1;
            continue;
        }
        credentials::put(&tx, keys, (provider, key), now_ms)?;
        let shown = |set: bool| json!({"set": set});
        let entry = AuditEntry::done("credential.import", "credential", provider)
            .before(shown(before.is_some()))
            .after(shown(true));
        audit::append(&tx, keys, &actor, now_ms, &entry)?;
        imported.stored.push(provider.clone());
    }
    tx.commit()
}

/// Overwrites and removes a file; both are durable on return.
fn wipe(dir: &Path, file: &Path) -> io::Result<()> {
    // Make the new name durable before overwriting the content: otherwise a crash could restore the old name with
    // zeros.
    let folder = File::open(dir)?;
    folder.sync_all()?;
    let mut open = OpenOptions::new().write(true).open(file)?;
    let bytes = usize::try_from(open.metadata()?.len()).unwrap_or_default();
    open.write_all(&vec![0; bytes])?;
    open.sync_all()?;
    fs::remove_file(file)?;
    folder.sync_all()
}

fn is_there(file: &Path) -> Result<bool, ImportError> {
    match fs::symlink_metadata(file) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(ImportError::Unreadable(file.into(), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::sealed::survey;
    use crate::db::sqlite_state::open::open_to_read;

    const KEY: [u8; 32] = [7; 32];

    fn import(dir: &Path) -> Result<Imported, ImportError> {
        import_credentials(dir, &Secret::new(KEY))
    }

    fn stored(dir: &Path, provider: &str) -> Option<String> {
        let (db, keys) = open_to_read(dir, &Secret::new(KEY)).unwrap();
        assert_eq!(survey(&db, &keys).unwrap().unopened_count, 0);
        credentials::find(&db, &keys, provider).unwrap().map(|key| key.expose().clone())
    }

    fn events(dir: &Path) -> i64 {
        let (db, _) = open_to_read(dir, &Secret::new(KEY)).unwrap();
        let sql = "SELECT count(*) FROM audit WHERE action = 'credential.import'";
        db.row(sql, (), |row| row.get(0)).unwrap()
    }

    #[test]
    fn an_interrupted_import_resumes_at_any_point() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let plain = Plain::of(dir);
        assert_eq!(import(dir).unwrap(), Imported::default());
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "nothing is made for nothing");

        fs::write(&plain.file, r#"{"a": "sk-1", "b": "sk-2"}"#).unwrap();
        let imported = import(dir).unwrap();
        assert_eq!((imported.stored, imported.known), (vec!["a".to_owned(), "b".to_owned()], 0));
        assert!(!plain.file.exists() && !plain.spent.exists());
        assert_eq!((stored(dir, "a").as_deref(), events(dir)), (Some("sk-1"), 2));

        // Killed after the commit and before the rename.
        fs::write(&plain.file, r#"{"a": "sk-1", "b": "sk-3"}"#).unwrap();
        let imported = import(dir).unwrap();
        assert_eq!((imported.stored, imported.known), (vec!["b".to_owned()], 1));
        assert_eq!((stored(dir, "b").as_deref(), events(dir)), (Some("sk-3"), 3));

        // Killed while overwriting.
        fs::write(&plain.spent, [0; 9]).unwrap();
        assert_eq!(import(dir).unwrap().removed.as_ref(), Some(&plain.spent));
        assert!(!plain.spent.exists());
        assert_eq!((stored(dir, "b").as_deref(), events(dir)), (Some("sk-3"), 3));
    }

    #[test]
    fn a_secrets_file_with_a_fault_is_kept_and_not_imported() {
        let folder = tempfile::tempdir().unwrap();
        let plain = Plain::of(folder.path());
        let text = r#"{"a": "sk-planted", "b": 7}"#;
        fs::write(&plain.file, text).unwrap();
        let error = import(folder.path()).unwrap_err();
        assert!(error.to_string().contains("'b' must be text or"), "{error}");
        assert!(!error.to_string().contains("planted") && error.exit_code() == 78);
        assert_eq!(fs::read_to_string(&plain.file).unwrap(), text);
        assert_eq!(stored(folder.path(), "a"), None);

        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&plain.file, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &plain.file).unwrap();
        assert!(import(folder.path()).unwrap_err().to_string().contains("not a link"));
        assert!(elsewhere.exists());
    }
}
