//! The columns `models`, `endpoints` and `routes` of the tables `projects` and `keys`. Each is a JSON array, or NULL if
//! that list does not restrict anything.

use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::access::Allowlist;

use crate::db::engine::{DbError, DbResult, Row};

/// Reads the allowlist from a row, finding the columns by name.
pub(crate) fn of(row: Row<'_>) -> DbResult<Allowlist> {
    at(row, &places(|column| row.position(column))?)
}

/// Returns the positions of the three columns, for reading many rows.
pub(crate) fn places(place: impl Fn(&str) -> DbResult<usize>) -> DbResult<[usize; 3]> {
    Ok([place("models")?, place("endpoints")?, place("routes")?])
}

/// Reads the allowlist from a row of a statement with these column positions.
pub(crate) fn at(row: Row<'_>, places: &[usize; 3]) -> DbResult<Allowlist> {
    let [models, endpoints, routes] = *places;
    Ok(Allowlist { models: list(row, models)?, endpoints: list(row, endpoints)?, routes: list(row, routes)? })
}

/// Returns the values of the three columns, in this order.
pub(crate) fn columns(allowlist: &Allowlist) -> DbResult<[Option<String>; 3]> {
    Ok([
        text(allowlist.models.as_ref())?,
        text(allowlist.endpoints.as_ref())?,
        text(allowlist.routes.as_ref())?,
    ])
}

fn list<T: DeserializeOwned>(row: Row<'_>, place: usize) -> DbResult<Option<T>> {
    let Some(text) = row.get::<Option<&str>>(place)? else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(DbError::bad_value)
}

fn text(list: Option<&impl Serialize>) -> DbResult<Option<String>> {
    list.map(|list| serde_json::to_string(list).map_err(DbError::bad_value)).transpose()
}
