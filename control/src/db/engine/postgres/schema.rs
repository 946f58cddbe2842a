//! The schema of the state for PostgreSQL, from the text of SQLite's: the same tables with other names of types. The table
//! `schema_version` has the number of the last migration.

use crate::db::engine::{Db, DbResult, Value};

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
    let sql = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
    let objects: Vec<(String, String)> = model.rows(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))?;
    tx.batch(FUNCTIONS)?;
    for (name, sql) in objects.iter().filter(|(name, _)| !ONLY_SQLITE.contains(&name.as_str())) {
        tx.batch(&translated(sql))?;
        if sql.starts_with("CREATE TABLE") {
            copy_rows(model, tx, name)?;
        }
    }
    let version: i64 = model.pragma(None, "user_version")?;
    tx.execute("INSERT INTO schema_version (id, version) VALUES (1, :version)", [version])?;
    Ok(())
}

/// Creates the table of the version. Of several processes that call this at the same time for an empty database, all but one
/// wait until that one has committed, and then fail.
pub(crate) fn claim(tx: &Db) -> DbResult<()> {
    tx.batch("CREATE TABLE schema_version (id BIGINT PRIMARY KEY CHECK (id = 1), version BIGINT NOT NULL)")
}

/// Returns the number of the last migration; `None` for a database without the tables of the state.
pub(crate) fn version(db: &Db) -> DbResult<Option<i64>> {
    if !db.has_table("schema_version")? {
        return Ok(None);
    }
    db.optional_row("SELECT version FROM schema_version", (), |row| row.get("version"))
}

/// Returns the number of the last migration, and lets no other transaction change it until this one ends.
pub(crate) fn lock_version(tx: &Db) -> DbResult<i64> {
    tx.row("SELECT version FROM schema_version FOR UPDATE", (), |row| row.get("version"))
}

/// Runs one migration, which is the text for SQLite.
pub(crate) fn migrate(tx: &Db, number: i64, sql: &str) -> DbResult<()> {
    for statement in statements(sql) {
        tx.batch(&translated(&statement))?;
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

/// Copies all rows of a table, which has the same columns in both databases.
fn copy_rows(from: &Db, to: &Db, table: &str) -> DbResult<()> {
    let sql = "SELECT name FROM pragma_table_info(:table) ORDER BY cid";
    let columns: Vec<String> = from.rows(sql, [table], |row| row.get(0))?;
    let quoted: Vec<String> = columns.iter().map(|name| format!("\"{name}\"")).collect();
    let values: Vec<String> = columns.iter().map(|name| format!(":{name}")).collect();
    let (quoted, values) = (quoted.join(", "), values.join(", "));
    let mut read = from.prepare(&format!("SELECT {quoted} FROM \"{table}\""))?;
    let mut write = to.prepare(&format!("INSERT INTO \"{table}\" ({quoted}) VALUES ({values})"))?;
    let mut rows = read.query(())?;
    while let Some(row) = rows.next()? {
        let values: Vec<Value<'_>> = (0..columns.len()).map(|at| row.get(at)).collect::<DbResult<_>>()?;
        write.execute(values.as_slice())?;
    }
    Ok(())
}

/// Returns a statement of a migration as PostgreSQL takes it. Texts are compared by their bytes, as SQLite
/// does; a number that SQLite gives to a new row is an identity.
fn translated(sql: &str) -> String {
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
