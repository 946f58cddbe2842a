//! The table `catalog_overrides`: facts about models that administrators set, with the time from which they apply. Rows
//! are never changed, so the facts that applied at any earlier moment remain known.

use serde::Serialize;
use shared::prices::Prices;

use crate::common::model_facts::Facts;
use crate::db::engine::{Db, DbError, DbResult, Row, named_params};

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
    fn of(row: Row<'_>) -> DbResult<Self> {
        let facts: String = row.get("facts")?;
        let mut facts: Facts = serde_json::from_str(&facts).map_err(DbError::bad_value)?;
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

/// Returns every override, in the order in which they take effect.
pub(crate) fn all(db: &Db) -> DbResult<Vec<Override>> {
    db.rows(ALL, (), Override::of)
}

/// Returns up to `rows` overrides.
pub(crate) fn page(db: &Db, which: &Which, rows: i64) -> DbResult<Vec<Override>> {
    let mut statement = db.prepare(PAGE)?;
    let parameters = named_params! {
        ":provider": which.provider,
        ":model": which.model,
        ":after": which.after,
        ":rows": rows,
    };
    statement.rows(parameters, Override::of)
}

pub(crate) fn find(db: &Db, id: &str) -> DbResult<Option<Override>> {
    db.optional_row(FIND, [id], Override::of)
}

/// True if another override of the same model takes effect at the same moment.
pub(crate) fn is_taken(db: &Db, new: &Override) -> DbResult<bool> {
    db.exists(
        TAKEN,
        named_params! {
            ":provider": new.provider,
            ":model": new.model,
            ":from": new.effective_from_ms,
        },
    )
}

pub(crate) fn count(db: &Db) -> DbResult<u64> {
    db.row(COUNT, (), |row| row.get("overrides"))
}

/// Inserts a new row.
pub(crate) fn put(tx: &Db, new: &Override) -> DbResult<()> {
    let facts = serde_json::to_string(&new.facts).map_err(DbError::bad_value)?;
    tx.execute(
        PUT,
        named_params! {
            ":id": new.id,
            ":provider": new.provider,
            ":model": new.model,
            ":from": new.effective_from_ms,
            ":facts": facts,
            ":created": new.created_at_ms,
        },
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &Db, id: &str) -> DbResult<()> {
    tx.execute(DELETE, [id])?;
    Ok(())
}

const ALL: &str = "SELECT * FROM catalog_overrides ORDER BY effective_from_ms, id";
const PAGE: &str = "SELECT * FROM catalog_overrides WHERE id > :after \
     AND (:provider IS NULL OR provider = :provider) AND (:model IS NULL OR model = :model) \
     ORDER BY id LIMIT :rows";
const FIND: &str = "SELECT * FROM catalog_overrides WHERE id = :id";
const TAKEN: &str = "SELECT 1 FROM catalog_overrides \
     WHERE provider = :provider AND model = :model AND effective_from_ms = :from";
const COUNT: &str = "SELECT count(*) AS overrides FROM catalog_overrides";
const PUT: &str = "INSERT INTO catalog_overrides (id, provider, model, effective_from_ms, facts, created_at_ms) \
     VALUES (:id, :provider, :model, :from, :facts, :created)";
const DELETE: &str = "DELETE FROM catalog_overrides WHERE id = :id";
