//! The schema of the state for PostgreSQL, from the text of SQLite's: the same tables with other names of types. The table
//! `schema_version` has the number of the last migration.

use super::partitions;
use crate::db::engine::table::Table;
use crate::db::engine::{Db, DbError, DbResult};

/// Tables that belong to files of SQLite, such as the sums that reveal changes from outside.
const ONLY_SQLITE: &[&str] = &["row_sums", "usage_row_sums", "sqlite_sequence"];

/// Functions that SQLite has and portable statements call; and for the statements about nodes, the clock in milliseconds and the
/// start of the server in microseconds since the Unix epoch.
const FUNCTIONS: &str = "
CREATE FUNCTION instr(text, text) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT strpos($1, $2)::BIGINT';
CREATE FUNCTION json_each(list TEXT) RETURNS TABLE (value TEXT) LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT json_array_elements_text(list::json)';
CREATE FUNCTION now_ms() RETURNS BIGINT LANGUAGE sql VOLATILE
    AS 'SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)';
CREATE FUNCTION server_start() RETURNS BIGINT LANGUAGE sql STABLE
    AS 'SELECT CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT)';
";

/// Creates the tables, indexes and functions in an empty database, as those of `model`, an SQLite database, with the rows
/// that it has: those of a new state.
pub(crate) fn create(model: &Db, tx: &Db) -> DbResult<()> {
    create_with(model, tx, |table| table.copy(model, tx).map(drop))
}

/// Creates the same; `fill` writes the rows of each table, before it gets its indexes.
pub(crate) fn create_with<E: From<DbError>>(
    model: &Db,
    tx: &Db,
    mut fill: impl FnMut(&Table) -> Result<(), E>,
) -> Result<(), E> {
    let sql = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
    let objects: Vec<(String, String)> = model.rows(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let is_common = |(name, _): &(String, String)| !ONLY_SQLITE.contains(&name.as_str());
    let objects: Vec<(String, String)> = objects.into_iter().filter(is_common).collect();
    let (tables, indexes): (Vec<_>, Vec<_>) =
        objects.iter().partition(|(_, sql)| sql.starts_with("CREATE TABLE"));
    tx.batch(FUNCTIONS)?;
    for (name, sql) in tables {
        let create = translated(sql);
        if name == "usage" {
            tx.batch(&partitions::partitioned(&create))?;
            partitions::complete(tx)?;
        } else {
            tx.batch(&create)?;
        }
        fill(&Table::of_sqlite(model, name)?)?;
    }
    for (_, sql) in indexes {
        tx.batch(&translated(sql))?;
    }
    let version: i64 = model.pragma(None, "user_version")?;
    tx.execute("INSERT INTO schema_version (id, version) VALUES (1, :version)", [version])?;
    Ok(())
}

/// Returns the tables that both engines have, in an order in which a table comes after those that it refers to.
pub(crate) fn tables(model: &Db) -> DbResult<Vec<Table>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid";
    let names: Vec<String> = model.rows(sql, (), |row| row.get(0))?;
    let common = names.iter().filter(|name| !ONLY_SQLITE.contains(&name.as_str()));
    common.map(|name| Table::of_sqlite(model, name)).collect()
}

/// Returns the last number that each identity column has given, or has had set, with the name of its table.
pub(crate) fn last_numbers(db: &Db) -> DbResult<Vec<(String, i64)>> {
    let mut numbers = Vec::new();
    for Identity { table, sequence, .. } in identities(db)? {
        let sql = format!("SELECT last_value FROM {sequence} WHERE is_called");
        if let Some(last) = db.optional_row(&sql, (), |row| row.get(0))? {
            numbers.push((table, last));
        }
    }
    Ok(numbers)
}

/// Lets each identity column go on behind its highest value, and behind the number that `last` has for its table.
pub(crate) fn go_on_behind(tx: &Db, last: &[(String, i64)]) -> DbResult<()> {
    for Identity { table, column, sequence } in identities(tx)? {
        let highest = format!("SELECT max(\"{column}\") FROM \"{table}\"");
        let highest: Option<i64> = tx.row(&highest, (), |row| row.get(0))?;
        let known = last.iter().filter(|(name, _)| *name == table).map(|(_, number)| *number);
        if let Some(number) = known.chain(highest).max().filter(|number| *number > 0) {
            let set = format!("SELECT setval('{sequence}', :number)");
            tx.row(&set, [number], |_| Ok(()))?;
        }
    }
    Ok(())
}

/// A column whose values the server gives.
struct Identity {
    table: String,
    column: String,
    /// The quoted name of what has its last value.
    sequence: String,
}

fn identities(db: &Db) -> DbResult<Vec<Identity>> {
    db.rows(IDENTITIES, (), |row| {
        Ok(Identity { table: row.get("name")?, column: row.get("of")?, sequence: row.get("sequence")? })
    })
}

const IDENTITIES: &str = "SELECT table_name AS name, column_name AS of, \
     pg_get_serial_sequence(quote_ident(table_name), column_name) AS sequence \
     FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES' ORDER BY 1";

/// Creates the table of the version. Of several processes that call this at the same time for an empty database, all but one
/// wait until that one has committed, and then fail.
pub(crate) fn claim(tx: &Db) -> DbResult<()> {
    tx.batch(
        "CREATE TABLE schema_version (id BIGINT PRIMARY KEY CHECK (id = 1), version BIGINT NOT NULL, \
         oldest BIGINT NOT NULL DEFAULT 0)",
    )
}

/// Returns the number of the last migration; `None` for a database without the tables of the state.
pub(crate) fn version(db: &Db) -> DbResult<Option<i64>> {
    if !db.has_table("schema_version")? {
        return Ok(None);
    }
    db.optional_row("SELECT version FROM schema_version", (), |row| row.get("version"))
}

/// Returns the oldest version whose releases may run on this database; 0 for any.
pub(crate) fn oldest(db: &Db) -> DbResult<i64> {
    // Earlier releases let no other run beside them, and have no such column.
    if !has_column(db, "schema_version", "oldest")? {
        return db.row("SELECT version FROM schema_version", (), |row| row.get("version"));
    }
    db.row("SELECT oldest FROM schema_version", (), |row| row.get("oldest"))
}

/// Raises the oldest version whose releases may run on this database.
pub(crate) fn raise_oldest(tx: &Db, oldest: i64) -> DbResult<()> {
    tx.batch("ALTER TABLE schema_version ADD COLUMN IF NOT EXISTS oldest BIGINT NOT NULL DEFAULT 0")?;
    tx.execute("UPDATE schema_version SET oldest = :oldest WHERE oldest < :oldest", [oldest]).map(drop)
}

/// True if a table has a column.
pub(crate) fn has_column(db: &Db, table: &str, column: &str) -> DbResult<bool> {
    db.exists(HAS_COLUMN, [table, column])
}

const HAS_COLUMN: &str = "SELECT 1 FROM information_schema.columns \
     WHERE table_schema = current_schema() AND table_name = :table AND column_name = :column";

/// Returns the number of the last migration, and lets no other transaction change it until this one ends.
pub(crate) fn lock_version(tx: &Db) -> DbResult<i64> {
    tx.row("SELECT version FROM schema_version FOR UPDATE", (), |row| row.get("version"))
}

/// Runs one migration, which is the text for SQLite.
pub(crate) fn migrate(tx: &Db, number: i64, sql: &str) -> DbResult<()> {
    for statement in statements(sql) {
        tx.batch(&translated(&statement))?;
    }
    if number == partitions::MIGRATION {
        partitions::convert(tx)?;
    }
    tx.execute("UPDATE schema_version SET version = :version", [number])?;
    Ok(())
}

/// Splits the text of a migration into its statements, without comments.
fn statements(sql: &str) -> Vec<String> {
    let text = without_comments(sql);
    let mut found = vec![String::new()];
    let mut is_quoted = false;
    for letter in text.chars() {
        is_quoted ^= letter == '\'';
        match found.last_mut() {
            Some(_) if letter == ';' && !is_quoted => found.push(String::new()),
            Some(last) => last.push(letter),
            None => {}
        }
    }
    found.retain(|statement| !statement.trim().is_empty());
    found.iter_mut().for_each(|statement| *statement = statement.trim().to_owned());
    found
}

fn without_comments(sql: &str) -> String {
    let lines: Vec<&str> =
        sql.lines().map(|line| line.split_once("--").map_or(line, |(before, _)| before)).collect();
    lines.join("\n")
}

/// Returns a statement of a migration as PostgreSQL takes it. Texts are compared by their bytes, as SQLite
/// does; a number that SQLite gives to a new row is an identity.
pub(crate) fn translated(sql: &str) -> String {
    let body = without_comments(sql);
    let body = body.trim_end();
    let body =
        ["WITHOUT ROWID", ",", "STRICT"].iter().fold(body, |rest, end| rest.trim_end_matches(end).trim_end());
    REPLACEMENTS.iter().fold(body.to_owned(), |text, (from, to)| replace_word(&text, from, to))
}

/// Replaces each occurrence of a text that is not a part of a longer word.
fn replace_word(text: &str, from: &str, to: &str) -> String {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, found) = rest.split_at(at);
        let behind = found.get(from.len()..).unwrap_or_default();
        let is_word = !before.ends_with(is_letter) && !behind.starts_with(is_letter);
        out.push_str(before);
        out.push_str(if is_word { to } else { from });
        rest = behind;
    }
    out + rest
}

/// Words of SQLite and what they are in PostgreSQL, longer texts first.
const REPLACEMENTS: &[(&str, &str)] = &[
    ("INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
    ("INTEGER PRIMARY KEY", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
    ("INTEGER", "BIGINT"),
    ("BLOB", "BYTEA"),
    ("REAL", "DOUBLE PRECISION"),
    ("TEXT", "TEXT COLLATE \"C\""),
    // A reserved word.
    ("only", "\"only\""),
    // Rows that need not survive a crash.
    ("CREATE TABLE board", "CREATE UNLOGGED TABLE board"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_is_split_at_the_ends_of_its_statements() {
        let sql =
            "-- A comment; with a semicolon.\nCREATE TABLE t (a TEXT); -- behind it\nUPDATE t SET a = ';';\n";
        assert_eq!(statements(sql), ["CREATE TABLE t (a TEXT)", "UPDATE t SET a = ';'"]);
    }

    #[test]
    fn types_and_options_of_a_table_are_translated() {
        let sql = "CREATE TABLE t (\n    id INTEGER PRIMARY KEY AUTOINCREMENT, -- a REAL one\n    INTEGERS TEXT NOT NULL,\n    \
                   b BLOB, r REAL\n) STRICT, WITHOUT ROWID";
        assert_eq!(
            translated(sql),
            "CREATE TABLE t (\n    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, \n    INTEGERS TEXT COLLATE \"C\" \
             NOT NULL,\n    b BYTEA, r DOUBLE PRECISION\n)"
        );
    }
}
