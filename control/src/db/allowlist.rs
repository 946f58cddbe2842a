//! The columns `models`, `endpoints` and `routes` of the tables `projects` and `keys`. Each is a JSON array, or NULL if
//! that list does not restrict anything.

use rusqlite::types::Type;
use rusqlite::{Row, Statement};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::access::Allowlist;

/// Reads the allowlist from a row, finding the columns by name.
pub(crate) fn of(row: &Row<'_>) -> rusqlite::Result<Allowlist> {
    at(row, &places(row.as_ref())?)
}

/// Returns the positions of the three columns in a statement, for reading many rows.
pub(crate) fn places(statement: &Statement<'_>) -> rusqlite::Result<[usize; 3]> {
    let place = |column| statement.column_index(column);
    Ok([place("models")?, place("endpoints")?, place("routes")?])
}

/// Reads the allowlist from a row of a statement with these column positions.
pub(crate) fn at(row: &Row<'_>, places: &[usize; 3]) -> rusqlite::Result<Allowlist> {
    let [models, endpoints, routes] = *places;
    Ok(Allowlist { models: list(row, models)?, endpoints: list(row, endpoints)?, routes: list(row, routes)? })
}

/// Returns the values of the three columns, in this order.
pub(crate) fn columns(allowlist: &Allowlist) -> rusqlite::Result<[Option<String>; 3]> {
    Ok([
        text(allowlist.models.as_ref())?,
        text(allowlist.endpoints.as_ref())?,
        text(allowlist.routes.as_ref())?,
    ])
}

fn list<T: DeserializeOwned>(row: &Row<'_>, place: usize) -> rusqlite::Result<Option<T>> {
    let Some(text) = row.get_ref(place)?.as_str_or_null()? else { return Ok(None) };
    serde_json::from_str(text)
        .map(Some)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(place, Type::Text, Box::new(error)))
}

fn text(list: Option<&impl Serialize>) -> rusqlite::Result<Option<String>> {
    let failed = |error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
    list.map(|list| serde_json::to_string(list).map_err(failed)).transpose()
}
