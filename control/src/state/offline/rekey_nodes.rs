//! `credentials rekey` of a database that nodes use: the next key of the environment seals the data key a second time, nodes restart
//! with it one after the other, and then the first seal is removed (STATE-4).
//!
//! At any moment each key that a node may start with opens the database: the old one until the end, the new one from the
//! beginning.

use shared::secret::Secret;

use super::rekey::RekeyError;
use crate::db::cluster::{changes, nodes};
use crate::db::engine::postgres::DatabaseAddress;
use crate::db::engine::{Db, DbError};
use crate::db::error::OpenError;
use crate::db::key_check::{KeysError, add_seal, keep_second_seal, open_sealed_keys, seal_in};
use crate::db::postgres_state::{database_error, open_to_read};
use crate::db::sealed::survey;
use crate::db::vault::{DATA_KEY, NEXT_DATA_KEY};

/// The database, the current key and the new one.
#[derive(Clone, Copy, Debug)]
pub struct NodesRekeyParams<'a> {
    /// The database of PostgreSQL.
    pub address: &'a DatabaseAddress,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`: the key that opens the database now.
    pub old: Option<&'a Secret<[u8; 32]>>,
    /// `LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY`: its replacement.
    pub new: &'a Secret<[u8; 32]>,
}

/// The state of a rekey of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodesRekeyed {
    /// Both keys open the database; holds the number of sealed values. Nodes restart with the new one.
    Begun(u64),
    /// Both keys opened the database already.
    AlreadyBegun,
    /// Only the new key opens the database; holds the number of sealed values.
    Finished(u64),
    /// Only the new key opened the database already.
    AlreadyFinished,
}

/// Adds a seal of the data key by the new key. A second seal that no node uses is replaced.
pub fn begin_rekey(params: NodesRekeyParams<'_>) -> Result<NodesRekeyed, RekeyError> {
    let NodesRekeyParams { address, old, new } = params;
    if let Some(found) = opened_with(address, new)? {
        return Ok(match found {
            DATA_KEY => NodesRekeyed::AlreadyFinished,
            _ => NodesRekeyed::AlreadyBegun,
        });
    }
    let old = old.ok_or(RekeyError::NoOldKey)?;
    let (mut db, _) = open_to_read(address, old)?;
    in_transaction(address, &mut db, |tx| {
        if let Some(second) = seal_in(tx, NEXT_DATA_KEY).map_err(keys_error)? {
            let users = nodes::live_with_seal(tx, second.as_str()).map_err(sql(address))?;
            if !users.is_empty() {
                return Err(RekeyError::AnotherKey(users.join(", ")));
            }
        }
        let before = opened(tx, old, address)?;
        add_seal(tx, old, new).map_err(keys_error)?;
        match opened(tx, new, address)? {
            after if after == before => Ok(NodesRekeyed::Begun(after)),
            _ => Err(RekeyError::Keys("a secret does not open with the new key".to_owned())),
        }
    })
}

/// Removes the first seal of the data key, if each live node has opened the second one, which is that of `new`.
pub fn finish_rekey(params: NodesRekeyParams<'_>) -> Result<NodesRekeyed, RekeyError> {
    let NodesRekeyParams { address, new, .. } = params;
    match opened_with(address, new)? {
        None => return Err(RekeyError::NotBegun),
        Some(NEXT_DATA_KEY) => {}
        Some(_) => {
            let (db, _) = open_to_read(address, new)?;
            return match seal_in(&db, NEXT_DATA_KEY).map_err(keys_error)? {
                Some(_) => Err(RekeyError::OldKeyGiven),
                None => Ok(NodesRekeyed::AlreadyFinished),
            };
        }
    }
    let (mut db, _) = open_to_read(address, new)?;
    in_transaction(address, &mut db, |tx| {
        let second = seal_in(tx, NEXT_DATA_KEY).map_err(keys_error)?;
        let second = second.ok_or_else(|| RekeyError::Keys("another process has finished it".to_owned()))?;
        let late = nodes::live_without_seal(tx, second.as_str()).map_err(sql(address))?;
        if !late.is_empty() {
            return Err(RekeyError::NodesWithOldKey(late.join(", ")));
        }
        keep_second_seal(tx).map_err(keys_error)?;
        opened(tx, new, address).map(NodesRekeyed::Finished)
    })
}

/// Returns the row of the vault whose seal a key opens; `None` if there is none.
fn opened_with(
    address: &DatabaseAddress,
    key: &Secret<[u8; 32]>,
) -> Result<Option<&'static str>, RekeyError> {
    let db = match open_to_read(address, key) {
        Err(OpenError::WrongKey { .. }) => return Ok(None),
        opened => opened?.0,
    };
    let seal = open_sealed_keys(&db, key).map_err(keys_error)?.seal;
    let is_first = seal_in(&db, DATA_KEY).map_err(keys_error)?.is_some_and(|first| first == seal);
    Ok(Some(if is_first { DATA_KEY } else { NEXT_DATA_KEY }))
}

/// Runs work while no node registers and no other rekey runs.
fn in_transaction(
    address: &DatabaseAddress,
    db: &mut Db,
    work: impl FnOnce(&Db) -> Result<NodesRekeyed, RekeyError>,
) -> Result<NodesRekeyed, RekeyError> {
    let tx = db.transaction().map_err(sql(address))?;
    changes::lock(&tx).map_err(sql(address))?;
    let worked = work(&tx)?;
    tx.commit().map_err(sql(address))?;
    Ok(worked)
}

/// Opens every sealed value with the keys that `key` opens, and returns their number.
fn opened(tx: &Db, key: &Secret<[u8; 32]>, address: &DatabaseAddress) -> Result<u64, RekeyError> {
    let keys = open_sealed_keys(tx, key).map_err(keys_error)?.keys;
    let found = survey(tx, &keys).map_err(sql(address))?;
    match found.unopened_count {
        0 => Ok(found.opened),
        unopened => Err(RekeyError::Unopened(unopened)),
    }
}

fn sql(address: &DatabaseAddress) -> impl Fn(DbError) -> RekeyError + '_ {
    move |source| RekeyError::Open(database_error(address, &source))
}

#[expect(clippy::needless_pass_by_value, reason = "it is the function that maps an error")]
fn keys_error(error: KeysError) -> RekeyError {
    RekeyError::Keys(error.to_string())
}
