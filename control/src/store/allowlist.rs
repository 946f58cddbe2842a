//! The columns `models`, `endpoints` and `routes` of the tables `projects` and `keys`: JSON arrays, NULL where
//! the list says nothing.

use rusqlite::Row;
use rusqlite::types::Type;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::access::Allowlist;

/// The allowlist in a row.
pub(crate) fn of(row: &Row<'_>) -> rusqlite::Result<Allowlist> {
    Ok(Allowlist {
        models: list(row, "models")?,
        endpoints: list(row, "endpoints")?,
        routes: list(row, "routes")?,
    })
}

/// The same for the three columns, in this order.
pub(crate) fn columns(allowlist: &Allowlist) -> rusqlite::Result<[Option<String>; 3]> {
    Ok([
        text(allowlist.models.as_ref())?,
        text(allowlist.endpoints.as_ref())?,
        text(allowlist.routes.as_ref())?,
    ])
}

fn list<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<T>> {
    let place = row.as_ref().column_index(column)?;
    let Some(text) = row.get_ref(place)?.as_str_or_null()? else { return Ok(None) };
    serde_json::from_str(text)
        .map(Some)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(place, Type::Text, Box::new(error)))
}

fn text(list: Option<&impl Serialize>) -> rusqlite::Result<Option<String>> {
    let failed = |error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
    list.map(|list| serde_json::to_string(list).map_err(failed)).transpose()
}
