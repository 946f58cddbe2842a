//! Sums of the rows of each table, updated with every change and compared at each start, so that changes to rows by a
//! failing disk are detected before the rows are served.
//!
//! The sum of a table is the sum of its rows' digests, independent of their order. Temporary triggers of the writing
//! connection update it in the statement that changes a row, so that each commit contains both. Tables have no sums in
//! a database of an earlier release, in a new one, or if they were just migrated or moved: [`keep`] then computes them.

use records::digest::long_digest;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;

use crate::db::engine::{Db, DbResult};

/// Computes the sums of a schema that has none, and updates them from now on with each change by this connection.
pub(crate) fn keep(db: &mut Db, schema: &str) -> DbResult<()> {
    let Some(sums) = sums_of(db, schema)? else { return Ok(()) };
    let tx = db.transaction()?;
    if known(&tx, schema)?.is_empty() {
        for (name, sum) in computed(&tx, schema, &[])? {
            tx.execute(
                &format!("INSERT INTO {schema}.{sums} (name, sum) VALUES (:name, :sum)"),
                (name, sum),
            )?;
        }
    }
    tx.commit()?;
    watch(db, schema, sums)
}

/// Deletes the sums of a schema whose tables are about to be created or moved.
pub(crate) fn forget(db: &Db, schema: &str) -> DbResult<()> {
    match sums_of(db, schema)? {
        Some(sums) => db.execute(&format!("DELETE FROM {schema}.{sums}"), ()).map(drop),
        None => Ok(()),
    }
}

/// Returns the first table whose rows differ from those that the gateway wrote. Tables in `skipped` are not read.
pub(crate) fn changed(db: &Db, schema: &str, skipped: &[&str]) -> DbResult<Option<String>> {
    let known = known(db, schema)?;
    if known.is_empty() {
        return Ok(None);
    }
    let is_read = |name: &str| !skipped.contains(&name);
    let found = computed(db, schema, skipped)?;
    let lost = known.iter().find(|one| is_read(&one.0) && !found.contains(one));
    let more = found.iter().find(|one| !known.contains(one));
    Ok(lost.or(more).map(|(name, _)| name.clone()))
}

/// The name of a table, and its sum.
type TableSum = (String, i64);

/// Returns the stored sums; empty if the schema is of an earlier release.
fn known(db: &Db, schema: &str) -> DbResult<Vec<TableSum>> {
    let Some(sums) = sums_of(db, schema)? else { return Ok(Vec::new()) };
    let sql = format!("SELECT name, sum FROM {schema}.{sums}");
    db.rows(&sql, (), |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Computes the sums of all tables except those in `skipped`, of the schema (`sqlite_schema`), and of the version.
fn computed(db: &Db, schema: &str, skipped: &[&str]) -> DbResult<Vec<TableSum>> {
    let mut sums = vec![
        (VERSION.to_owned(), db.pragma(Some(schema), VERSION)?),
        (SCHEMA_TABLE.to_owned(), sum(db, &format!("SELECT type, name, sql FROM {schema}.{SCHEMA_TABLE}"))?),
    ];
    for name in tables(db, schema)? {
        if !skipped.contains(&name.as_str()) {
            let rows = sum(db, &format!("SELECT {} FROM {schema}.{name}", columns(db, schema, &name, "")?))?;
            sums.push((name, rows));
        }
    }
    Ok(sums)
}

/// Returns the sum of the digests of the rows that a statement selects.
fn sum(db: &Db, sql: &str) -> DbResult<i64> {
    let mut statement = db.sqlite()?.0.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut sum = 0_i64;
    while let Some(row) = rows.next()? {
        sum = sum.wrapping_add(digest((0..columns).map(|column| row.get_ref(column)))?);
    }
    Ok(sum)
}

/// Returns the digest of a row, over the type and bytes of each value.
fn digest<'a>(values: impl Iterator<Item = rusqlite::Result<ValueRef<'a>>>) -> rusqlite::Result<i64> {
    let mut state = 0;
    for value in values {
        state = match value? {
            ValueRef::Null => long_digest(state ^ 1, &[]),
            ValueRef::Integer(number) => long_digest(state ^ 2, &number.to_le_bytes()),
            ValueRef::Real(number) => long_digest(state ^ 3, &number.to_bits().to_le_bytes()),
            ValueRef::Text(text) => long_digest(state ^ 4, text),
            ValueRef::Blob(blob) => long_digest(state ^ 5, blob),
        };
    }
    Ok(state.cast_signed())
}

/// Creates the triggers of each table that has none.
fn watch(db: &Db, schema: &str, sums: &str) -> DbResult<()> {
    for (name, sign) in [(PLUS, 1_i64), (MINUS, -1)] {
        db.sqlite()?.0.create_scalar_function(
            name,
            -1,
            FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS,
            {
                move |context| {
                    let sum: i64 = context.get(0)?;
                    let row = digest((1..context.len()).map(|at| Ok(context.get_raw(at))))?;
                    Ok(sum.wrapping_add(row.wrapping_mul(sign)))
                }
            },
        )?;
    }
    for table in tables(db, schema)? {
        let (new, old) = (columns(db, schema, &table, "NEW.")?, columns(db, schema, &table, "OLD.")?);
        for (event, sum) in [
            ("INSERT", format!("{PLUS}(sum, {new})")),
            ("DELETE", format!("{MINUS}(sum, {old})")),
            ("UPDATE", format!("{PLUS}({MINUS}(sum, {old}), {new})")),
        ] {
            db.batch(&format!(
                "CREATE TEMP TRIGGER IF NOT EXISTS {schema}_{table}_{event} AFTER {event} ON {schema}.{table} \
                 BEGIN UPDATE {sums} SET sum = {sum} WHERE name = '{table}'; END"
            ))?;
        }
    }
    Ok(())
}

/// Returns the tables of a schema, except those of sums.
fn tables(db: &Db, schema: &str) -> DbResult<Vec<String>> {
    let sql = format!(
        "SELECT name FROM {schema}.{SCHEMA_TABLE} WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
         AND name NOT IN ('{MAIN_SUMS}', '{USAGE_SUMS}') ORDER BY name"
    );
    db.rows(&sql, (), |row| row.get(0))
}

/// Returns the columns of a table as an SQL list, each prefixed with `prefix`.
fn columns(db: &Db, schema: &str, table: &str, prefix: &str) -> DbResult<String> {
    let columns: Vec<String> =
        db.rows("SELECT name FROM pragma_table_info(:table, :schema)", [table, schema], |row| {
            Ok(format!("{prefix}\"{}\"", row.get::<&str>(0)?))
        })?;
    Ok(columns.join(", "))
}

/// Returns the table of sums, if the schema has one. Triggers refer to it by its unqualified name, so `usage.db` uses
/// another name than `gateway.db`, which may contain both.
fn sums_of(db: &Db, schema: &str) -> DbResult<Option<&'static str>> {
    let mut statement = db.prepare(&format!("SELECT 1 FROM {schema}.{SCHEMA_TABLE} WHERE name = :name"))?;
    for sums in [MAIN_SUMS, USAGE_SUMS] {
        if statement.exists([sums])? {
            return Ok(Some(sums));
        }
    }
    Ok(None)
}

const MAIN_SUMS: &str = "row_sums";
const USAGE_SUMS: &str = "usage_row_sums";
const SCHEMA_TABLE: &str = "sqlite_schema";
const VERSION: &str = "user_version";
const PLUS: &str = "row_sum_plus";
const MINUS: &str = "row_sum_minus";

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use shared::secret::Secret;
    use shared::usage::UsageLog as _;
    use tempfile::TempDir;

    use super::*;
    use crate::db::engine::sqlite::schemas::{MAIN, SCHEMA};
    use crate::db::error::OpenError;
    use crate::db::sqlite_state::open::{Opened, open};
    use crate::db::sqlite_state::relocate::settle;
    use crate::usage::tests::{Process, event};

    const PROJECT: &str = "INSERT INTO projects VALUES (:id, :id, 0, NULL, NULL, NULL, 1, 0, 0, NULL)";
    const KEY: &str = "INSERT INTO keys (id, name, project, hash, prefix, state, version, created_at_ms, updated_at_ms) \
        VALUES (:id, 'k', :project, CAST(:id AS BLOB), 'p', 'active', 1, 0, 0)";
    const QUOTA: &str = "INSERT INTO quotas (id, kind, subject, metric, period, amount, hard, version, created_at_ms, \
        updated_at_ms) VALUES ('q', 'project', 'a', 'requests', 'total', 9, 1, 1, 0, 0)";
    const MARK: &str = "INSERT INTO usage_journal (origin, number, bytes) VALUES (1, 1, :bytes) \
        ON CONFLICT (origin, number) DO UPDATE SET bytes = excluded.bytes";

    fn opened(dir: &Path) -> Result<Opened, OpenError> {
        open(dir, &Secret::new([1; 32]))
    }

    /// Makes changes of every kind.
    fn change(db: &mut Db) {
        let tx = db.transaction().unwrap();
        for project in ["a", "b"] {
            tx.execute(PROJECT, [project]).unwrap();
            tx.execute(KEY, [&format!("key of {project}"), project]).unwrap();
        }
        for bytes in 0..3 {
            tx.execute(MARK, [bytes]).unwrap();
        }
        tx.commit().unwrap();
        db.execute("UPDATE projects SET name = name || id", ()).unwrap();
        db.execute(QUOTA, ()).unwrap();
        db.batch("INSERT INTO quota_window (quota, start_ms, granted) VALUES ('q', 0, 5); INSERT INTO quota_share VALUES ('q', 0, 0, 5, 5);")
            .unwrap();
        db.execute("DELETE FROM quotas", ()).unwrap();
        db.execute("DELETE FROM keys WHERE project = 'a'", ()).unwrap();
        let tx = db.transaction().unwrap();
        tx.execute("DELETE FROM usage_journal", ()).unwrap();
        tx.rollback().unwrap();
    }

    #[test]
    fn row_sums_follow_every_change() {
        let dir = TempDir::new().unwrap();
        let mut writer = opened(dir.path()).unwrap().writer;
        let before = known(&writer, MAIN).unwrap();
        change(&mut writer);
        assert_ne!(known(&writer, MAIN).unwrap(), before);
        assert_eq!(changed(&writer, MAIN, &[]).unwrap(), None);
        let used: i64 =
            writer.row("SELECT count(*) FROM quota_share, quota_window", (), |row| row.get(0)).unwrap();
        assert_eq!(used, 0, "it went with its quota");
    }

    #[test]
    fn a_row_that_the_gateway_did_not_write_is_found_by_the_next_start() {
        let dir = TempDir::new().unwrap();
        let Opened { mut writer, path, lock, .. } = opened(dir.path()).unwrap();
        change(&mut writer);
        drop((writer, lock));
        drop(opened(dir.path()).unwrap());
        for (table, sql) in [
            ("projects", "UPDATE projects SET name = name || 'q'"),
            ("usage_journal", "DELETE FROM usage_journal"),
            ("row_sums", "UPDATE row_sums SET sum = sum + 1 WHERE name = 'quotas'"),
            ("row_sums", "DELETE FROM row_sums WHERE name = 'quotas'"),
            ("sqlite_schema", "CREATE INDEX more ON projects (name)"),
        ] {
            let whole = std::fs::read(&path).unwrap();
            Db::create(&path).unwrap().batch(sql).unwrap();
            let refused = opened(dir.path()).err().map(|error| error.to_string()).unwrap_or_default();
            let named = if table == "row_sums" { "quotas" } else { table };
            assert!(refused.contains("gateway.db") && refused.contains(named), "{sql}: {refused}");
            std::fs::write(&path, whole).unwrap();
        }
        Db::create(&path).unwrap().batch("DELETE FROM quotas; DELETE FROM row_sums").unwrap();
        let writer = opened(dir.path()).unwrap().writer;
        assert!(!known(&writer, MAIN).unwrap().is_empty(), "without any, they are made of what is there");
    }

    #[test]
    fn usage_has_its_sums_in_either_file() {
        let dir = TempDir::new().unwrap();
        for apart in [true, true, false, false, true] {
            let Opened { mut writer, lock, .. } = opened(dir.path()).unwrap();
            let files = settle(dir.path(), &mut writer, apart).unwrap().files;
            for bytes in 0..3 {
                writer.execute(MARK, [bytes]).unwrap();
            }
            writer.execute(PROJECT, [projects(&writer).to_string()]).unwrap();
            for schema in [Some(MAIN), files.usage.as_ref().map(|_| SCHEMA)].into_iter().flatten() {
                assert!(!known(&writer, schema).unwrap().is_empty(), "{schema}, {apart}");
                assert_eq!(changed(&writer, schema, &[]).unwrap(), None, "{schema}, {apart}");
            }
            drop((writer, lock));
        }
    }

    /// Prints the cost of the sums for storing and for a start:
    /// `cargo test --release -p control --lib -- --ignored --nocapture the_cost_of_sums`.
    #[test]
    #[ignore = "a measurement"]
    fn the_cost_of_sums() {
        const RECORDS: u64 = 1_000_000;
        for is_kept in [false, true, false, true] {
            let home = TempDir::new().unwrap();
            let mut process = Process::start(home.path());
            if is_kept {
                keep(process.meter.db_mut(), MAIN).unwrap();
            }
            let mut log = process.journal.log().unwrap();
            let mut storing = Duration::ZERO;
            for begin in (0..RECORDS).step_by(10_000) {
                (begin..begin + 10_000).for_each(|n| assert!(log.append(&event(n))));
                let began = Instant::now();
                process.settle();
                storing += began.elapsed();
            }
            let db = Db::create(home.path().join("test.db")).unwrap();
            let bytes: i64 = db
                .row("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", (), |row| {
                    row.get(0)
                })
                .unwrap();
            let began = Instant::now();
            let ok: String = db.row("PRAGMA integrity_check(1)", (), |row| row.get(0)).unwrap();
            let integrity = began.elapsed();
            let began = Instant::now();
            assert_eq!((ok.as_str(), changed(&db, MAIN, &[]).unwrap()), ("ok", None));
            let sums = began.elapsed();
            println!(
                "sums {is_kept}: {RECORDS} records stored in {storing:?}; {bytes} bytes; at a start integrity_check \
                 {integrity:?}, sums {sums:?}"
            );
        }
    }

    fn projects(db: &Db) -> i64 {
        db.row("SELECT count(*) FROM projects", (), |row| row.get(0)).unwrap()
    }
}
