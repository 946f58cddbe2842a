//! The table `endpoints`: ordered failover lists created through the API.

use serde::{Deserialize, Serialize};

use crate::db::engine::{Db, DbError, DbResult, Row, named_params};

/// A stored endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointRow {
    pub(crate) name: String,
    pub(crate) failover: Vec<StoredMember>,
    pub(crate) preamble: Option<String>,
    pub(crate) version: u64,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

/// A provider instance and one of its models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Target"))]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredMember {
    pub(crate) provider: String,
    pub(crate) model: String,
}

impl EndpointRow {
    fn of(row: Row<'_>) -> DbResult<Self> {
        let failover: String = row.get("failover")?;
        let failover = serde_json::from_str(&failover).map_err(DbError::bad_value)?;
        Ok(Self {
            name: row.get("name")?,
            failover,
            preamble: row.get("preamble")?,
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }
}

/// Returns every endpoint, ordered by name.
pub(crate) fn all(db: &Db) -> DbResult<Vec<EndpointRow>> {
    db.rows(ALL, (), EndpointRow::of)
}

pub(crate) fn find(db: &Db, name: &str) -> DbResult<Option<EndpointRow>> {
    db.optional_row(FIND, [name], EndpointRow::of)
}

/// Returns the names of the endpoints that have a member of this provider instance.
pub(crate) fn with_provider(db: &Db, provider: &str) -> DbResult<Vec<String>> {
    let mut with_text: Vec<_> = db.rows(WITH_TEXT, [provider], EndpointRow::of)?;
    with_text.retain(|row| row.failover.iter().any(|member| member.provider == provider));
    Ok(with_text.into_iter().map(|row| row.name).collect())
}

/// Inserts a new row, or stores the next version of one.
pub(crate) fn put(tx: &Db, endpoint: &EndpointRow) -> DbResult<()> {
    let failover = serde_json::to_string(&endpoint.failover).map_err(DbError::bad_value)?;
    tx.execute(
        PUT,
        named_params! {
            ":name": endpoint.name,
            ":failover": failover,
            ":preamble": endpoint.preamble,
            ":version": endpoint.version,
            ":created": endpoint.created_at_ms,
            ":updated": endpoint.updated_at_ms,
        },
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &Db, name: &str) -> DbResult<()> {
    tx.execute(DELETE, [name])?;
    Ok(())
}

const ALL: &str = "SELECT * FROM endpoints ORDER BY name";
const FIND: &str = "SELECT * FROM endpoints WHERE name = :name";
const WITH_TEXT: &str = "SELECT * FROM endpoints WHERE instr(failover, :text) > 0 ORDER BY name";
const PUT: &str = "INSERT INTO endpoints (name, failover, preamble, version, created_at_ms, updated_at_ms) \
     VALUES (:name, :failover, :preamble, :version, :created, :updated) \
     ON CONFLICT (name) DO UPDATE SET failover = excluded.failover, preamble = excluded.preamble, \
     version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM endpoints WHERE name = :name";
