//! The table `credentials`: API keys of the provider instances in the configuration file.

use std::collections::HashMap;

use shared::secret::Secret;

use crate::common::vault::{SealError, SealPlace, VaultKeys};
use crate::db::engine::{Db, DbError, DbResult, named_params};

/// The seal place of the key of `provider`.
fn place(provider: &str) -> SealPlace<'_> {
    SealPlace { table: "credentials", column: "sealed", id: provider }
}

/// Returns all keys by provider instance. Skips and logs a key that does not open.
pub(crate) fn all(db: &Db, keys: &VaultKeys) -> DbResult<HashMap<String, Secret<String>>> {
    let mut found = HashMap::new();
    let mut statement = db.prepare(ALL)?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let provider: String = row.get("provider")?;
        match opened(keys, &provider, row.get::<&[u8]>("sealed").unwrap_or_default()) {
            Ok(key) => _ = found.insert(provider, key),
            Err(_) => tracing::error!(
                provider.id = provider,
                "its stored key cannot be decrypted; write api_key in the configuration file"
            ),
        }
    }
    Ok(found)
}

/// Returns the key of `provider`; `None` also if it does not open.
pub(crate) fn find(db: &Db, keys: &VaultKeys, provider: &str) -> DbResult<Option<Secret<String>>> {
    let sealed: Option<Vec<u8>> = db.optional_row(FIND, [provider], |row| row.get("sealed"))?;
    Ok(sealed.and_then(|sealed| opened(keys, provider, &sealed).ok()))
}

/// Seals and stores `key` as the key of `provider`, replacing an earlier one.
pub(crate) fn put(
    db: &Db,
    keys: &VaultKeys,
    (provider, key): (&str, &Secret<String>),
    now_ms: u64,
) -> DbResult<()> {
    let sealed = keys.seal(&place(provider), key.expose().as_bytes()).map_err(DbError::bad_value)?;
    db.execute(PUT, named_params! {":provider": provider, ":sealed": sealed, ":now": now_ms})?;
    Ok(())
}

fn opened(keys: &VaultKeys, provider: &str, sealed: &[u8]) -> Result<Secret<String>, SealError> {
    let plain = keys.open(&place(provider), sealed)?;
    std::str::from_utf8(plain.expose()).map(|key| Secret::new(key.to_owned())).map_err(|_| SealError)
}

const ALL: &str = "SELECT provider, sealed FROM credentials";
const FIND: &str = "SELECT sealed FROM credentials WHERE provider = :provider";
const PUT: &str = "INSERT INTO credentials (provider, sealed, updated_at_ms) VALUES (:provider, :sealed, :now) \
     ON CONFLICT (provider) DO UPDATE SET sealed = excluded.sealed, updated_at_ms = excluded.updated_at_ms";
