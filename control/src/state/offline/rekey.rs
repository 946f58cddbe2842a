//! `credentials rekey`: replaces the encryption key of a state in files (STATE-4).
//!
//! The data key seals every secret; the key from the environment seals only the data key. So one row changes in one
//! transaction, and at any moment exactly one of the two keys opens the state.

use std::path::Path;

use shared::secret::Secret;
use thiserror::Error;

use crate::db::engine::sqlite::row_sums;
use crate::db::engine::sqlite::schemas::MAIN;
use crate::db::engine::{Db, DbError};
use crate::db::error::OpenError;
use crate::db::key_check::{KeysError, open_keys, reseal_data_key};
use crate::db::sealed::survey;
use crate::db::sqlite_state::lock::StateLock;
use crate::db::sqlite_state::open::{DATABASE, check, connect_writer, sql_error};
use crate::db::vault::{forget_pages, leave_nothing_behind};

/// The state directory, the current key and the new key.
#[derive(Clone, Copy, Debug)]
pub struct RekeyParams<'a> {
    /// The state directory.
    pub dir: &'a Path,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`: the key that opens the state now.
    pub old: Option<&'a Secret<[u8; 32]>>,
    /// `LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY`: its replacement.
    pub new: &'a Secret<[u8; 32]>,
}

/// The result of a rekey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rekeyed {
    /// The new key opens the state; holds the number of sealed values.
    Done(u64),
    /// The new key opened the state already.
    Already,
}

/// A rekey that failed and changed nothing.
#[derive(Debug, Error)]
pub enum RekeyError {
    /// The state directory cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The old key is required and missing.
    #[error(
        "LLMGW_CREDENTIAL_ENCRYPTION_KEY is required: the key that opens the state now (nothing was \
         changed)"
    )]
    NoOldKey,
    /// Holds the number of sealed values that do not open.
    #[error(
        "{0} stored secrets cannot be decrypted, and a new key would not change that; nothing was changed: \
         run 'llmgw credentials verify'"
    )]
    Unopened(u64),
    /// Holds the names of nodes that use another second key.
    #[error(
        "a change to another new key is in progress, with which these nodes run: {0}; complete it with \
         'llmgw credentials rekey --finish', or restart them with the old key"
    )]
    AnotherKey(String),
    /// Holds the names of nodes that run with the old key.
    #[error(
        "these nodes run with the old key: {0}; restart them with the new key, and run this again; nothing was \
         changed"
    )]
    NodesWithOldKey(String),
    /// The key that is to stay does not open the database.
    #[error(
        "the new key does not open the database yet; run 'llmgw credentials rekey' first, with both keys; nothing was changed"
    )]
    NotBegun,
    /// The key that is to stay is the old one.
    #[error(
        "the given key is the old one; set LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY, or \
         LLMGW_CREDENTIAL_ENCRYPTION_KEY, to the new one; nothing was changed"
    )]
    OldKeyGiven,
    /// A key could not be opened or sealed.
    #[error("the key cannot be changed: {0}; nothing was changed")]
    Keys(String),
}

impl RekeyError {
    /// Returns the exit code of the process for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Open(error) => error.exit_code(),
            Self::NoOldKey
            | Self::AnotherKey(_)
            | Self::NodesWithOldKey(_)
            | Self::NotBegun
            | Self::OldKeyGiven => 78,
            Self::Unopened(_) => 1,
            Self::Keys(_) => 70,
        }
    }
}

/// Makes `new` the key that opens the state. Can be run again if it was killed at any point.
pub fn rekey(params: RekeyParams<'_>) -> Result<Rekeyed, RekeyError> {
    let path = params.dir.join(DATABASE);
    if !path.exists() {
        return Err(OpenError::Absent { path }.into());
    }
    let _lock = StateLock::take(params.dir)?;
    let sql = |source| RekeyError::Open(sql_error(&path, source));
    match check(&path, params.new) {
        Ok(_) => {
            // An earlier run may have been killed before its cleanup.
            let db = connect_writer(&path).map_err(sql)?;
            forget_pages(&db).map_err(sql)?;
            return Ok(Rekeyed::Already);
        }
        Err(OpenError::WrongKey { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let old = params.old.ok_or(RekeyError::NoOldKey)?;
    check(&path, old)?;
    let mut db = connect_writer(&path).map_err(sql)?;
    row_sums::keep(&mut db, MAIN).and_then(|()| leave_nothing_behind(&db)).map_err(sql)?;
    let opened = replace(&mut db, old, params.new, sql)?;
    forget_pages(&db).map_err(sql)?;
    Ok(Rekeyed::Done(opened))
}

/// Reseals the data key in one transaction. Every sealed value must open before it, and with the new key inside it.
fn replace(
    db: &mut Db,
    old: &Secret<[u8; 32]>,
    new: &Secret<[u8; 32]>,
    sql: impl Fn(DbError) -> RekeyError,
) -> Result<u64, RekeyError> {
    let keys = |error: KeysError| RekeyError::Keys(error.to_string());
    let tx = db.transaction().map_err(&sql)?;
    let before = survey(&tx, &open_keys(&tx, old).map_err(keys)?).map_err(&sql)?;
    if before.unopened_count > 0 {
        return Err(RekeyError::Unopened(before.unopened_count));
    }
    reseal_data_key(&tx, old, new).map_err(keys)?;
    let after = survey(&tx, &open_keys(&tx, new).map_err(keys)?).map_err(&sql)?;
    if after != before {
        return Err(RekeyError::Keys(
            "a secret that the old key opens does not open with the new one".to_owned(),
        ));
    }
    tx.commit().map_err(sql)?;
    Ok(after.opened)
}
