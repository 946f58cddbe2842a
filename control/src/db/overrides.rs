//! The table `catalog_overrides`: facts about models that administrators set, with the time from which they apply. Rows
//! are never changed, so the facts that applied at any earlier moment remain known.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use serde::Serialize;
use shared::prices::Prices;

use crate::common::model_facts::Facts;

/// An override, as stored and as the API shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CatalogOverride"))]
pub(crate) struct Override {
    pub(crate) id: String,
    /// The ID of the provider.
    pub(crate) provider: String,
    /// The provider's name of the model.
    pub(crate) model: String,
    /// The time from which they hold, in milliseconds since the Unix epoch.
    pub(crate) effective_from_ms: u64,
    pub(crate) facts: Facts,
    /// In milliseconds since the Unix epoch.
    pub(crate) created_at_ms: u64,
}

/// A filter for overrides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Which {
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    /// Only overrides with ids after this one.
    pub(crate) after: String,
}

impl Override {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let facts: String = row.get("facts")?;
        let mut facts: Facts = serde_json::from_str(&facts).map_err(|error| unreadable(row, error))?;
        facts.prices = facts.prices.map(Prices::by_operator);
        Ok(Self {
            id: row.get("id")?,
            provider: row.get("provider")?,
            model: row.get("model")?,
            effective_from_ms: row.get("effective_from_ms")?,
            facts,
            created_at_ms: row.get("created_at_ms")?,
        })
    }
}

fn unreadable(row: &Row<'_>, error: serde_json::Error) -> rusqlite::Error {
    let column = row.as_ref().column_index("facts").unwrap_or_default();
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
}

/// Returns every override, in the order in which they take effect.
pub(crate) fn all(db: &Connection) -> rusqlite::Result<Vec<Override>> {
    db.prepare_cached(ALL)?.query_map([], Override::of)?.collect()
}

/// Returns up to `rows` overrides.
pub(crate) fn page(db: &Connection, which: &Which, rows: i64) -> rusqlite::Result<Vec<Override>> {
    let mut statement = db.prepare_cached(PAGE)?;
    let parameters = named_params! {
        ":provider": which.provider,
        ":model": which.model,
        ":after": which.after,
        ":rows": rows,
    };
    statement.query_map(parameters, Override::of)?.collect()
}

pub(crate) fn find(db: &Connection, id: &str) -> rusqlite::Result<Option<Override>> {
    db.prepare_cached(FIND)?.query_row([id], Override::of).optional()
}

/// True if another override of the same model takes effect at the same moment.
pub(crate) fn is_taken(db: &Connection, new: &Override) -> rusqlite::Result<bool> {
    db.prepare_cached(TAKEN)?.exists(named_params! {
        ":provider": new.provider,
        ":model": new.model,
        ":from": new.effective_from_ms,
    })
}

pub(crate) fn count(db: &Connection) -> rusqlite::Result<u64> {
    db.prepare_cached(COUNT)?.query_row([], |row| row.get("overrides"))
}

/// Inserts a new row.
pub(crate) fn put(tx: &Connection, new: &Override) -> rusqlite::Result<()> {
    let facts = serde_json::to_string(&new.facts)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    tx.prepare_cached(PUT)?.execute(named_params! {
        ":id": new.id,
        ":provider": new.provider,
        ":model": new.model,
        ":from": new.effective_from_ms,
        ":facts": facts,
        ":created": new.created_at_ms,
    })?;
    Ok(())
}

pub(crate) fn delete(tx: &Connection, id: &str) -> rusqlite::Result<()> {
    tx.prepare_cached(DELETE)?.execute([id])?;
    Ok(())
}

const ALL: &str = "SELECT * FROM catalog_overrides ORDER BY effective_from_ms, id";
const PAGE: &str = "SELECT * FROM catalog_overrides WHERE id > :after \
     AND (:provider IS NULL OR provider = :provider) AND (:model IS NULL OR model = :model) \
     ORDER BY id LIMIT :rows";
const FIND: &str = "SELECT * FROM catalog_overrides WHERE id = ?";
const TAKEN: &str = "SELECT 1 FROM catalog_overrides \
     WHERE provider = :provider AND model = :model AND effective_from_ms = :from";
const COUNT: &str = "SELECT count(*) AS overrides FROM catalog_overrides";
const PUT: &str = "INSERT INTO catalog_overrides (id, provider, model, effective_from_ms, facts, created_at_ms) \
     VALUES (:id, :provider, :model, :from, :facts, :created)";
const DELETE: &str = "DELETE FROM catalog_overrides WHERE id = ?";
