//! The table `endpoints`: ordered failover lists created through the API.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use serde::{Deserialize, Serialize};

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
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let failover: String = row.get("failover")?;
        let failover = serde_json::from_str(&failover)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))?;
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
pub(crate) fn all(db: &Connection) -> rusqlite::Result<Vec<EndpointRow>> {
    let mut statement = db.prepare_cached(ALL)?;
    let found = statement.query_map([], EndpointRow::of)?;
    found.collect()
}

pub(crate) fn find(db: &Connection, name: &str) -> rusqlite::Result<Option<EndpointRow>> {
    db.prepare_cached(FIND)?.query_row([name], EndpointRow::of).optional()
}

/// Returns the names of the endpoints that have a member of this provider instance.
pub(crate) fn with_provider(db: &Connection, provider: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare_cached(WITH_PROVIDER)?;
    let found = statement.query_map([provider], |row| row.get("name"))?;
    found.collect()
}

/// Inserts a new row, or stores the next version of one.
pub(crate) fn put(tx: &Connection, endpoint: &EndpointRow) -> rusqlite::Result<()> {
    let failover = serde_json::to_string(&endpoint.failover)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    tx.prepare_cached(PUT)?.execute(named_params! {
        ":name": endpoint.name,
        ":failover": failover,
        ":preamble": endpoint.preamble,
        ":version": endpoint.version,
        ":created": endpoint.created_at_ms,
        ":updated": endpoint.updated_at_ms,
    })?;
    Ok(())
}

pub(crate) fn delete(tx: &Connection, name: &str) -> rusqlite::Result<()> {
    tx.prepare_cached(DELETE)?.execute([name])?;
    Ok(())
}

const ALL: &str = "SELECT * FROM endpoints ORDER BY name";
const FIND: &str = "SELECT * FROM endpoints WHERE name = ?";
const WITH_PROVIDER: &str = "SELECT name FROM endpoints WHERE EXISTS \
     (SELECT 1 FROM json_each(failover) WHERE json_extract(value, '$.provider') = ?) ORDER BY name";
const PUT: &str = "INSERT INTO endpoints (name, failover, preamble, version, created_at_ms, updated_at_ms) \
     VALUES (:name, :failover, :preamble, :version, :created, :updated) \
     ON CONFLICT (name) DO UPDATE SET failover = excluded.failover, preamble = excluded.preamble, \
     version = excluded.version, updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM endpoints WHERE name = ?";
