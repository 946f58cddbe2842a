//! `llmgw state copy`: moves a state between the files of a directory and a database of PostgreSQL (`db/state_copy`).

use std::fs;
use std::path::Path;

use shared::secret::Secret;

use crate::db::engine::postgres::DatabaseAddress;
use crate::db::error::OpenError;
use crate::db::sqlite_state::files::USAGE;
use crate::db::sqlite_state::lock::StateLock;
use crate::db::sqlite_state::open::{DATABASE, JOURNAL, expect_no_rollback, make_directory, remove};
use crate::db::state_copy::{CopyNews, StateCopied, StateCopyError, from_postgres, to_postgres};
use crate::usage::journal::examine::unstored;

/// The two places of a copy.
#[derive(Clone, Copy, Debug)]
pub struct StateCopyParams<'a> {
    /// The state directory.
    pub dir: &'a Path,
    /// The database of PostgreSQL.
    pub address: &'a DatabaseAddress,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`.
    pub encryption_key: &'a Secret<[u8; 32]>,
}

/// Copies the state of the directory into the database, which must be empty.
pub fn copy_state_to(
    params: StateCopyParams<'_>,
    report: &mut dyn FnMut(CopyNews<'_>),
) -> Result<StateCopied, StateCopyError> {
    let path = params.dir.join(DATABASE);
    if !path.exists() {
        return Err(OpenError::Absent { path }.into());
    }
    let _lock = StateLock::take(params.dir)?;
    expect_stored(params.dir)?;
    to_postgres(params.dir, params.address, params.encryption_key, report)
}

/// Copies the state of the database into the directory, which must have none.
pub fn copy_state_from(
    params: StateCopyParams<'_>,
    report: &mut dyn FnMut(CopyNews<'_>),
) -> Result<StateCopied, StateCopyError> {
    make_directory(params.dir)?;
    let _lock = StateLock::take(params.dir)?;
    expect_no_rollback(params.dir)?;
    for path in [params.dir.join(DATABASE), params.dir.join(USAGE)] {
        // A gateway that has ended leaves an empty write-ahead log.
        let log = path.with_extension("db-wal");
        let used = [path.clone(), log].into_iter().find(|file| match fs::metadata(file) {
            Ok(found) => *file == path || found.len() > 0,
            Err(_) => false,
        });
        match used {
            Some(file) => return Err(StateCopyError::DirectoryInUse(file)),
            None => remove(&path).map_err(|source| OpenError::Io { path, source })?,
        }
    }
    // The directory may be that of a node, which has stored its journal.
    expect_stored(params.dir)?;
    from_postgres(params.dir, params.address, params.encryption_key, report)
}

/// Fails if the journal has records that a start would store.
fn expect_stored(dir: &Path) -> Result<(), StateCopyError> {
    let journal = dir.join(JOURNAL);
    match unstored(&journal) {
        Ok(0) => Ok(()),
        Ok(records) => Err(StateCopyError::Unstored { dir: dir.into(), records }),
        Err(source) => Err(OpenError::Io { path: journal, source }.into()),
    }
}
