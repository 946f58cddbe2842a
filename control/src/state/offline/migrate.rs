//! `llmgw migrate`: creates the tables of a database of PostgreSQL, or migrates those of an earlier release, for operators whose
//! nodes do not (`LLMGW_MIGRATE=false`).

use shared::secret::Secret;

use crate::db::engine::postgres::DatabaseAddress;
use crate::db::error::OpenError;
use crate::db::postgres_state::{open, version};
use crate::db::sqlite_state::migrate::newest;

/// The versions of the tables before and after a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; `None` if there were no tables.
    pub from: Option<i64>,
    /// The version of this release, or that of a newer one.
    pub to: i64,
}

/// Migrates the database, beside running nodes if their releases can go on. Waits for a server that cannot be reached.
pub fn migrate_database(
    address: &DatabaseAddress,
    encryption_key: &Secret<[u8; 32]>,
) -> Result<Migrated, OpenError> {
    let from = version(address)?;
    open(address, encryption_key, (true, &|| ()))?;
    Ok(Migrated { from, to: from.unwrap_or(0).max(newest()) })
}
