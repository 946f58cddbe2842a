//! The two files that a connection may see at once, by the names that statements have for them.

use crate::db::engine::Db;

/// True if this connection has attached `usage.db`.
pub(crate) fn has_usage_apart(db: &Db) -> bool {
    db.has_schema(SCHEMA)
}

/// Returns the schema in which a writing connection has, or would have, the tables of usage.
pub(crate) fn schema_of_usage(db: &Db) -> &'static str {
    if has_usage_apart(db) { SCHEMA } else { MAIN }
}

/// The schema name of `gateway.db`.
pub(crate) const MAIN: &str = "main";
/// The schema name of `usage.db`.
pub(crate) const SCHEMA: &str = "usage_db";
