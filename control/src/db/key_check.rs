//! The keys of the database: created once, sealed, and opened at every start. Opening them proves that the key from the
//! environment is correct.

use ring::digest;
use shared::secret::Secret;
use thiserror::Error;

use super::vault as rows;
use crate::common::vault::{SealError, SealPlace, VaultKeys, open, random, seal};
use crate::db::engine::{Db, DbError};

/// Creates the keys of a new database and stores them sealed. Runs inside the caller's transaction.
pub(crate) fn make_keys(db: &Db, encryption_key: &Secret<[u8; 32]>) -> Result<(), KeysError> {
    let data_key = Secret::new(random::<32>().map_err(|_| KeysError::NoRandom)?);
    let key_hash_key = Secret::new(random::<32>().map_err(|_| KeysError::NoRandom)?);
    for (name, by, key) in
        [(rows::DATA_KEY, encryption_key, &data_key), (rows::KEY_HASH_KEY, &data_key, &key_hash_key)]
    {
        let sealed = seal(by, &place(name), key.expose()).map_err(KeysError::Seal)?;
        rows::insert(db, name, &sealed, shared::clock::unix_ms()).map_err(KeysError::Sql)?;
    }
    Ok(())
}

/// Opens the keys of an existing database, without changing anything.
pub(crate) fn open_keys(db: &Db, encryption_key: &Secret<[u8; 32]>) -> Result<VaultKeys, KeysError> {
    Ok(open_sealed_keys(db, encryption_key)?.keys)
}

/// The opened keys, and the seal of the data key that the key of the environment has opened.
#[derive(Debug)]
pub(crate) struct OpenedKeys {
    pub(crate) keys: VaultKeys,
    pub(crate) seal: KeySeal,
}

/// Does the same, and returns the seal too.
pub(crate) fn open_sealed_keys(db: &Db, encryption_key: &Secret<[u8; 32]>) -> Result<OpenedKeys, KeysError> {
    let (data_key, name) = match open_key(db, rows::DATA_KEY, encryption_key, KeysError::WrongKey) {
        Err(KeysError::WrongKey) if seal_in(db, rows::NEXT_DATA_KEY)?.is_some() => {
            (open_key(db, rows::NEXT_DATA_KEY, encryption_key, KeysError::WrongKey)?, rows::NEXT_DATA_KEY)
        }
        opened => (opened?, rows::DATA_KEY),
    };
    let seal = seal_in(db, name)?.ok_or(KeysError::Unreadable(name))?;
    let key_hash_key =
        open_key(db, rows::KEY_HASH_KEY, &data_key, KeysError::Unreadable(rows::KEY_HASH_KEY))?;
    Ok(OpenedKeys { keys: VaultKeys { key_hash_key, data_key }, seal })
}

/// A seal of the data key, by the first hexadecimal digits of its SHA-256. It stays the same when the seal becomes the only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySeal(String);

impl KeySeal {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the seal in a row of the vault; `None` if there is no such row.
pub(crate) fn seal_in(db: &Db, name: &'static str) -> Result<Option<KeySeal>, KeysError> {
    let sealed = rows::sealed(db, name).map_err(KeysError::Sql)?;
    Ok(sealed.map(|sealed| {
        let digest = digest::digest(&digest::SHA256, &sealed);
        KeySeal(shared::hex::encode(digest.as_ref().get(..8).unwrap_or_default()))
    }))
}

/// Adds a second seal of the data key, by `new`, or replaces the second one. Runs inside the caller's transaction.
pub(crate) fn add_seal(db: &Db, old: &Secret<[u8; 32]>, new: &Secret<[u8; 32]>) -> Result<(), KeysError> {
    let data_key = open_key(db, rows::DATA_KEY, old, KeysError::WrongKey)?;
    let sealed = seal(new, &place(rows::DATA_KEY), data_key.expose()).map_err(KeysError::Seal)?;
    rows::remove(db, rows::NEXT_DATA_KEY).map_err(KeysError::Sql)?;
    rows::insert(db, rows::NEXT_DATA_KEY, &sealed, shared::clock::unix_ms()).map_err(KeysError::Sql)
}

/// Makes the second seal of the data key the only one. Runs inside the caller's transaction.
pub(crate) fn keep_second_seal(db: &Db) -> Result<(), KeysError> {
    let sealed = rows::sealed(db, rows::NEXT_DATA_KEY).map_err(KeysError::Sql)?;
    let sealed = sealed.ok_or(KeysError::Unreadable(rows::NEXT_DATA_KEY))?;
    rows::replace(db, rows::DATA_KEY, &sealed).map_err(KeysError::Sql)?;
    rows::remove(db, rows::NEXT_DATA_KEY).map_err(KeysError::Sql)
}

/// Reseals the data key: opens it with `old` and seals it with `new`. Runs inside the caller's transaction.
pub(crate) fn reseal_data_key(
    db: &Db,
    old: &Secret<[u8; 32]>,
    new: &Secret<[u8; 32]>,
) -> Result<(), KeysError> {
    let data_key = open_key(db, rows::DATA_KEY, old, KeysError::WrongKey)?;
    let sealed = seal(new, &place(rows::DATA_KEY), data_key.expose()).map_err(KeysError::Seal)?;
    rows::replace(db, rows::DATA_KEY, &sealed).map_err(KeysError::Sql)
}

fn open_key(
    db: &Db,
    name: &'static str,
    by: &Secret<[u8; 32]>,
    unopened: KeysError,
) -> Result<Secret<[u8; 32]>, KeysError> {
    let sealed = rows::sealed(db, name).map_err(KeysError::Sql)?.ok_or(KeysError::Unreadable(name))?;
    let plain = open(by, &place(name), &sealed).map_err(|_| unopened)?;
    let key: [u8; 32] = plain.expose().as_slice().try_into().map_err(|_| KeysError::Unreadable(name))?;
    Ok(Secret::new(key))
}

/// Returns the place at which a row is sealed. Both seals of the data key have that of the first, whose row the second takes.
fn place(name: &str) -> SealPlace<'_> {
    let id = if name == rows::NEXT_DATA_KEY { rows::DATA_KEY } else { name };
    SealPlace { table: "vault", column: "sealed", id }
}

/// An error from creating or opening the keys of a database.
#[derive(Debug, Error)]
pub(crate) enum KeysError {
    /// The key from the environment does not open the data key.
    #[error("another encryption key")]
    WrongKey,
    /// The row with this name is missing, or does not open with the data key.
    #[error("its {0} is missing or unreadable")]
    Unreadable(&'static str),
    #[error("the operating system returned no random bytes")]
    NoRandom,
    #[error("{0}")]
    Seal(SealError),
    #[error("{0}")]
    Sql(DbError),
}
