//! The table `oauth_connections`: sign-ins of humans at the vendors of provider instances.

use serde::{Deserialize, Serialize};
use shared::secret::Secret;

use crate::common::credential::oauth::{OauthConnection, OauthTokens};
use crate::common::vault::{SealError, SealPlace, VaultKeys};
use crate::db::engine::{Db, DbError, DbResult, Row, named_params};

/// The sealed value of the column `tokens`.
#[derive(Serialize, Deserialize)]
struct SealedTokens {
    access: String,
    refresh: Option<String>,
}

fn place(provider: &str) -> SealPlace<'_> {
    SealPlace { table: "oauth_connections", column: "tokens", id: provider }
}

fn of(row: Row<'_>, keys: &VaultKeys) -> DbResult<OauthConnection> {
    let provider: String = row.get("provider")?;
    let sealed: Option<Vec<u8>> = row.get("tokens")?;
    let tokens = sealed.map(|sealed| opened(keys, &provider, &sealed)).transpose().unwrap_or_else(|_| {
        tracing::error!(provider.id = provider, "its stored tokens cannot be decrypted; connect it again");
        None
    });
    let failure = row.get::<Option<u64>>("failed_at_ms")?.zip(row.get("failure")?);
    let scopes: String = row.get("scopes")?;
    Ok(OauthConnection {
        owner: row.get("owner")?,
        serial: row.get("serial")?,
        binding: row.get("binding")?,
        tokens,
        account: row.get("account")?,
        scopes: scopes.split_ascii_whitespace().map(str::to_owned).collect(),
        expires_at_ms: row.get("expires_at_ms")?,
        connected_at_ms: row.get("connected_at_ms")?,
        refreshed_at_ms: row.get("refreshed_at_ms")?,
        refresh_began_at_ms: row.get("refresh_began_at_ms")?,
        failure,
        provider,
    })
}

fn opened(keys: &VaultKeys, provider: &str, sealed: &[u8]) -> Result<OauthTokens, SealError> {
    let plain = keys.open(&place(provider), sealed)?;
    let SealedTokens { access, refresh } = serde_json::from_slice(plain.expose()).map_err(|_| SealError)?;
    Ok(OauthTokens { access: Secret::new(access), refresh: refresh.map(Secret::new) })
}

/// Returns all connections with their tokens.
pub(crate) fn all(db: &Db, keys: &VaultKeys) -> DbResult<Vec<OauthConnection>> {
    db.rows(ALL, (), |row| of(row, keys))
}

/// Returns the connection of a provider instance with its tokens.
pub(crate) fn find(db: &Db, keys: &VaultKeys, provider: &str) -> DbResult<Option<OauthConnection>> {
    db.optional_row(FIND, [provider], |row| of(row, keys))
}

/// Seals and stores a connection in place of an earlier one.
pub(crate) fn put(db: &Db, keys: &VaultKeys, connection: &OauthConnection) -> Result<(), PutError> {
    let sealed = connection.tokens.as_ref().map(|tokens| {
        let refresh = tokens.refresh.as_ref().map(|refresh| refresh.expose().clone());
        let plain = SealedTokens { access: tokens.access.expose().clone(), refresh };
        let plain = serde_json::to_vec(&plain).map(Secret::new).map_err(|_| SealError)?;
        keys.seal(&place(&connection.provider), plain.expose())
    });
    let (failed_at_ms, failure) = connection.failure.clone().unzip();
    db.execute(
        PUT,
        named_params! {
            ":provider": connection.provider,
            ":owner": connection.owner,
            ":serial": connection.serial,
            ":binding": connection.binding,
            ":tokens": sealed.transpose()?,
            ":account": connection.account,
            ":scopes": connection.scopes.join(" "),
            ":expires": connection.expires_at_ms,
            ":connected": connection.connected_at_ms,
            ":refreshed": connection.refreshed_at_ms,
            ":began": connection.refresh_began_at_ms,
            ":failed": failed_at_ms,
            ":failure": failure,
        },
    )?;
    Ok(())
}

/// The reason why a connection could not be stored.
#[derive(Debug)]
pub(crate) enum PutError {
    Seal(SealError),
    Sql(DbError),
}

impl From<SealError> for PutError {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}

impl From<DbError> for PutError {
    fn from(error: DbError) -> Self {
        Self::Sql(error)
    }
}

/// Deletes the connection of a provider instance. Returns false if there was none.
pub(crate) fn delete(db: &Db, provider: &str) -> DbResult<bool> {
    Ok(db.execute(DELETE, [provider])? > 0)
}

/// Returns the human who has signed in to a provider instance.
pub(crate) fn owner(db: &Db, provider: &str) -> DbResult<Option<String>> {
    db.optional_row(OWNER, [provider], |row| row.get("owner"))
}

/// Returns the IDs of the provider instances that this human has signed in to.
pub(crate) fn of_owner(db: &Db, principal: &str) -> DbResult<Vec<String>> {
    db.rows(OF_OWNER, [principal], |row| row.get("provider"))
}

const ALL: &str = "SELECT * FROM oauth_connections";
const FIND: &str = "SELECT * FROM oauth_connections WHERE provider = :provider";
const OWNER: &str = "SELECT owner FROM oauth_connections WHERE provider = :provider";
const PUT: &str = "INSERT INTO oauth_connections (provider, owner, serial, binding, tokens, account, scopes, \
     expires_at_ms, connected_at_ms, refreshed_at_ms, refresh_began_at_ms, failed_at_ms, failure) VALUES (:provider, \
     :owner, :serial, :binding, :tokens, :account, :scopes, :expires, :connected, :refreshed, :began, :failed, :failure) \
     ON CONFLICT (provider) DO UPDATE SET owner = excluded.owner, serial = excluded.serial, binding = excluded.binding, \
     tokens = excluded.tokens, account = excluded.account, scopes = excluded.scopes, \
     expires_at_ms = excluded.expires_at_ms, connected_at_ms = excluded.connected_at_ms, \
     refreshed_at_ms = excluded.refreshed_at_ms, refresh_began_at_ms = excluded.refresh_began_at_ms, \
     failed_at_ms = excluded.failed_at_ms, failure = excluded.failure";
const DELETE: &str = "DELETE FROM oauth_connections WHERE provider = :provider";
const OF_OWNER: &str = "SELECT provider FROM oauth_connections WHERE owner = :owner ORDER BY provider";
