//! The table `idempotency`: sealed answers to earlier requests, by actor and idempotency key.

use crate::db::engine::{Db, DbResult, named_params};

/// A stored answer.
#[derive(Debug)]
pub(crate) struct StoredAnswer {
    /// SHA-256 digest of the request.
    pub(crate) fingerprint: Vec<u8>,
    /// The HTTP status.
    pub(crate) status: u16,
    /// The object's version after the change.
    pub(crate) version: Option<u64>,
    /// The sealed body.
    pub(crate) body: Vec<u8>,
}

/// Returns the stored answer of `actor` for `key`. Deletes answers older than [`KEPT_MS`] first.
pub(crate) fn find(db: &Db, actor: &str, key: &str, now_ms: u64) -> DbResult<Option<StoredAnswer>> {
    db.execute(FORGET, [now_ms.saturating_sub(KEPT_MS)])?;
    db.optional_row(FIND, named_params! {":actor": actor, ":key": key}, |row| {
        Ok(StoredAnswer {
            fingerprint: row.get("fingerprint")?,
            status: row.get("status")?,
            version: row.get("version")?,
            body: row.get("body")?,
        })
    })
}

/// Stores an answer.
pub(crate) fn keep(db: &Db, actor: &str, key: &str, kept: &StoredAnswer, now_ms: u64) -> DbResult<()> {
    db.execute(
        KEEP,
        named_params! {
            ":actor": actor,
            ":key": key,
            ":fingerprint": kept.fingerprint,
            ":status": kept.status,
            ":version": kept.version,
            ":body": kept.body,
            ":now": now_ms,
        },
    )?;
    Ok(())
}

/// The time for which an answer is kept: one day.
pub(crate) const KEPT_MS: u64 = 86_400_000;

const FORGET: &str = "DELETE FROM idempotency WHERE created_at_ms < :before";
const FIND: &str = "SELECT fingerprint, status, version, body FROM idempotency \
     WHERE actor = :actor AND key = :key";
const KEEP: &str = "INSERT INTO idempotency (actor, key, fingerprint, status, version, body, created_at_ms) \
     VALUES (:actor, :key, :fingerprint, :status, :version, :body, :now)";
