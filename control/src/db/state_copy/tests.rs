//! Copies between real files and a real PostgreSQL.

use postgres_server::{Database, installed, shared};
use records::block::Block;
use serde_json::json;
use shared::usage::UsageLog as _;
use tempfile::TempDir;

use super::*;
use crate::common::actor::{Actor, Who};
use crate::db::audit::{AuditEntry, append};
use crate::db::engine::Value;
use crate::db::record_id::{NodeId, RecordId};
use crate::db::sqlite_state::open::{Opened, open};
use crate::db::sqlite_state::relocate::settle;
use crate::db::testing::{connect, in_memory};
use crate::usage::tests::{Process, event};

/// Rows with absent values, large numbers, references within a table against the order of its rows, and the numbers of rows that
/// were deleted.
const ROWS: &str = "
    INSERT INTO principals VALUES ('prn', 'Ada \u{1f980} ''x''', NULL, 0, 1, 0, 9223372036854775807, NULL);
    INSERT INTO projects VALUES ('prj', '', 0, '[]', NULL, NULL, 1, 0, -9223372036854775808, NULL);
    INSERT INTO keys (id, name, project, acts_as, hash, prefix, state, rotated_from, family, version, created_at_ms, updated_at_ms)
        VALUES ('b', '', 'prj', 'prn', x'00ff', '', 'active', NULL, 'b', 1, 0, 0),
               ('a', '', 'prj', NULL, x'', '', 'active', 'b', 'b', 1, 0, 0);
    INSERT INTO quotas (id, kind, subject, metric, period, amount, hard, version, created_at_ms, updated_at_ms)
        VALUES ('quo', 'key', 'b', 'requests', 'total', 9, 1, 1, 0, 0);
    INSERT INTO quota_window (quota, start_ms, granted) VALUES ('quo', 0, 7);
    INSERT INTO quota_share VALUES ('quo', 0, 0, 5, 5), ('quo', 0, 3, 2, 1);
    INSERT INTO key_use VALUES ('a', 0, 7), ('a', 3, 9);
    INSERT INTO usage_journal (origin, number, bytes, node) VALUES (7, 1, 100, 0), (8, 1, 5, 3);
    UPDATE alert_rules SET threshold = 0.1 WHERE id = 'rule_quota_warning';
    DELETE FROM alert_rules WHERE id = 'rule_disk_low';
    INSERT INTO events (id, name, kind, data, created_at_ms) VALUES (4, 'four', 'k', '{}', 0), (9, 'nine', 'k', '{}', 0);
    DELETE FROM events WHERE id = 9;
    INSERT INTO outbox (id, event, state, tries, next_at_ms, created_at_ms, updated_at_ms) VALUES (2, 4, 'pending', 0, 1, 0, 0);
";

fn key() -> Secret<[u8; 32]> {
    Secret::new([1; 32])
}

fn address(database: &Database<'_>) -> DatabaseAddress {
    DatabaseAddress::parse(&database.url()).unwrap()
}

/// Creates a state with rows of many kinds, of several nodes.
fn filled(apart: bool) -> TempDir {
    let dir = TempDir::new().unwrap();
    let Opened { mut writer, keys, .. } = open(dir.path(), &key()).unwrap();
    writer.batch(ROWS).unwrap();
    let actor = Actor { who: Who::admin(), address: None, request_id: None };
    for number in 1..=1_500_u64 {
        let entry = AuditEntry::done("key.create", "key", "a").after(json!({"number": number}));
        append(&writer, &keys, &actor, number, &entry).unwrap();
    }
    for id in [RecordId::here(1), RecordId::before(NodeId::new(3)).next()] {
        packed_row::put(&writer, id, &Block::default()).unwrap();
    }
    settle(dir.path(), &mut writer, apart).unwrap();
    dir
}

/// Returns all rows of the tables that are copied, in no particular order.
fn contents(db: &Db) -> Vec<(String, Vec<String>)> {
    let tables = schema::tables(&in_memory()).unwrap();
    let copied = tables.iter().filter(|table| !is_of_files(table));
    let rows_of = |table: &Table| {
        let columns: Vec<String> = in_memory()
            .rows("SELECT name FROM pragma_table_info(:table) ORDER BY cid", [&table.name], |row| row.get(0))
            .unwrap();
        let sql = format!("SELECT \"{}\" FROM {}", columns.join("\", \""), table.quoted());
        let mut rows: Vec<String> = db
            .rows(&sql, (), |row| {
                let values: Vec<Value<'_>> = (0..columns.len()).map(|at| row.get(at).unwrap()).collect();
                Ok(format!("{values:?}"))
            })
            .unwrap();
        rows.sort();
        (table.name.clone(), rows)
    };
    copied.map(rows_of).collect()
}

fn contents_of(dir: &TempDir) -> Vec<(String, Vec<String>)> {
    contents(&Files::of(dir.path()).unwrap().reader().unwrap())
}

fn copy_to(dir: &TempDir, database: &Database<'_>) -> Result<StateCopied, StateCopyError> {
    to_postgres(dir.path(), &address(database), &key(), &mut |_| {})
}

#[test]
fn a_state_in_postgresql_and_the_one_that_comes_back_have_the_same_rows() {
    if !installed() {
        return;
    }
    for apart in [false, true] {
        let (dir, database) = (filled(apart), shared().create_database());
        let before = contents_of(&dir);
        let count: usize = before.iter().map(|(_, rows)| rows.len()).sum();
        let mut shown = 0;
        let copied = to_postgres(dir.path(), &address(&database), &key(), &mut |news| match news {
            CopyNews::Table { rows, .. } => shown += rows,
            CopyNews::Warning(text) => assert!(text.contains("synchronous_commit"), "{text}"),
        });
        let copied = copied.unwrap();
        assert_eq!((copied.rows, shown, copied.audit.rows), (count as u64, count as u64, 1_500));
        let (db, _) = postgres_state::open_to_read(&address(&database), &key()).unwrap();
        assert_eq!(contents(&db), before);
        // New rows get numbers that no row ever had.
        let inserted =
            "INSERT INTO events (name, kind, data, created_at_ms) VALUES ('new', 'k', '{}', 0) RETURNING id";
        assert_eq!(db.row(inserted, (), |row| row.get::<i64>(0)), Ok(10));
        db.batch("DELETE FROM events WHERE name = 'new'").unwrap();
        let back = TempDir::new().unwrap();
        let mut warnings = Vec::new();
        let again = from_postgres(back.path(), &address(&database), &key(), &mut |news| match news {
            CopyNews::Table { .. } => {}
            CopyNews::Warning(text) => warnings.push(text.to_owned()),
        });
        assert_eq!(again.unwrap(), copied);
        assert!(warnings.len() == 1 && warnings[0].starts_with("1 other sessions"), "{warnings:?}");
        assert_eq!(contents_of(&back), before);
        let writer = open(back.path(), &key()).unwrap().writer;
        assert_eq!(writer.row(inserted, (), |row| row.get::<i64>(0)), Ok(11));
    }
}

#[test]
fn a_copy_into_a_database_that_is_not_empty_and_one_of_another_version_or_key_are_refused() {
    if !installed() {
        return;
    }
    let (dir, database) = (filled(false), shared().create_database());
    let refused = |expected: &str| {
        let error = copy_to(&dir, &database).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let wrong = to_postgres(dir.path(), &address(&database), &Secret::new([2; 32]), &mut |_| {}).unwrap_err();
    assert!(matches!(wrong, StateCopyError::Open(OpenError::WrongKey { .. })), "{wrong}");
    let nothing = from_postgres(TempDir::new().unwrap().path(), &address(&database), &key(), &mut |_| {});
    assert!(matches!(nothing, Err(StateCopyError::NoState(_))), "{nothing:?}");
    let db = connect(&database.url());
    db.batch("CREATE TABLE mine (a BIGINT)").unwrap();
    refused("it has the table mine; name an empty database");
    db.batch("DROP TABLE mine").unwrap();
    copy_to(&dir, &database).unwrap();
    refused("it holds a state; name an empty database");
    let back = TempDir::new().unwrap();
    let wrong = from_postgres(back.path(), &address(&database), &Secret::new([2; 32]), &mut |_| {});
    assert!(matches!(wrong, Err(StateCopyError::Open(OpenError::WrongKey { .. }))), "{wrong:?}");
    db.execute("UPDATE schema_version SET version = :version", [newest() - 1]).unwrap();
    let older = from_postgres(back.path(), &address(&database), &key(), &mut |_| {});
    assert!(matches!(older, Err(StateCopyError::Open(OpenError::Older { .. }))), "{older:?}");
    assert_eq!(std::fs::read_dir(back.path()).unwrap().count(), 0);
    let files = Db::create(dir.path().join(DATABASE)).unwrap();
    files.batch("DELETE FROM row_sums").unwrap();
    files.set_pragma(None, "user_version", newest() - 1).unwrap();
    drop(files);
    refused("'llmgw serve' of this release migrates it");
}

#[test]
fn a_row_that_was_tampered_with_or_does_not_fit_is_named_and_nothing_is_copied() {
    if !installed() {
        return;
    }
    let database = shared().create_database();
    for (change, reason) in [
        (
            "UPDATE audit SET actor = 'Eve' WHERE id = 1200",
            "the audit log was tampered with: row 1200 was changed",
        ),
        ("UPDATE usage SET exchanges = 5 WHERE id = 1", "row 1 of the table usage is damaged"),
        ("UPDATE projects SET name = char(65, 0, 66)", "the table projects cannot be copied"),
    ] {
        let dir = filled(false);
        let files = Db::create(dir.path().join(DATABASE)).unwrap();
        files.batch(change).unwrap();
        files.batch("DELETE FROM row_sums").unwrap();
        drop(files);
        let error = copy_to(&dir, &database).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("nothing was copied"), "{error}");
        assert!(schema::version(&connect(&database.url())).unwrap().is_none(), "{change}");
    }
    let dir = filled(true);
    copy_to(&dir, &database).unwrap();
    connect(&database.url()).batch("UPDATE audit SET actor = 'Eve' WHERE id = 1200").unwrap();
    let back = TempDir::new().unwrap();
    let error = from_postgres(back.path(), &address(&database), &key(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, StateCopyError::Audit(_)), "{error}");
    assert_eq!(std::fs::read_dir(back.path()).unwrap().count(), 0, "the draft is deleted");
}

#[test]
fn a_copied_table_that_differs_from_its_source_is_named() {
    let dir = filled(false);
    let source = Files::of(dir.path()).unwrap().reader().unwrap();
    let Opened { keys, .. } = open(dir.path(), &key()).unwrap();
    for (change, detail) in [
        ("UPDATE key_use SET hour = 8 WHERE node = 0", "the digests of the rows are not the same"),
        ("DELETE FROM key_use WHERE node = 0", "it has 1 rows instead of 2"),
        ("UPDATE key_use SET hour = 16 - hour", "the digests of the rows are not the same"),
    ] {
        let copy = in_memory();
        copy.set_pragma(None, "foreign_keys", false).unwrap();
        let mut copying = Copying { from: &source, to: &copy, report: &mut |_| {}, done: Vec::new() };
        copying.table(&Table::of_sqlite(&copy, "key_use").unwrap()).unwrap();
        copy.batch(change).unwrap();
        let error = copying.verified(&keys).unwrap_err().to_string();
        assert!(
            error.contains("the copied table key_use differs") && error.contains(detail),
            "{change}: {error}"
        );
    }
}

#[test]
fn usage_that_gateway_db_has_not_counted_yet_must_be_counted_first() {
    if !installed() {
        return;
    }
    let (dir, database) = (filled(true), shared().create_database());
    let Opened { mut writer, lock, .. } = open(dir.path(), &key()).unwrap();
    settle(dir.path(), &mut writer, true).unwrap();
    usage_effects::quotas_used(&writer, &[(("quo".into(), 0), 2)]).unwrap();
    drop((writer, lock));
    let error = copy_to(&dir, &database).unwrap_err();
    assert!(matches!(error, StateCopyError::Unstored { .. }), "{error}");
}

/// Prints the time of a copy: `cargo test --release -p control --lib -- --ignored --nocapture the_cost_of_copies`.
#[test]
#[ignore = "a measurement"]
fn the_cost_of_copies() {
    const RECORDS: u64 = 1_000_000;
    let (home, dir) = (TempDir::new().unwrap(), filled(false));
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    for begin in (0..RECORDS).step_by(64) {
        (begin..begin + 64).for_each(|n| assert!(log.append(&event(n))));
        process.settle();
        // The next records get a row of their own.
        process.meter.usage_mut();
        process.meter.index_requests();
    }
    drop(process);
    let state = Db::create(dir.path().join(DATABASE)).unwrap();
    let from = Db::create(home.path().join("test.db")).unwrap();
    for table in schema::tables(&in_memory()).unwrap().iter().filter(|table| table.name.starts_with("usage"))
    {
        if !is_of_files(table) {
            state.batch(&format!("DELETE FROM {}", table.name)).unwrap();
            table.copy(&from, &state).unwrap();
        }
    }
    state.batch("DELETE FROM row_sums").unwrap();
    drop(state);
    let bytes = std::fs::metadata(dir.path().join(DATABASE)).unwrap().len();
    let server = postgres_server::PostgresServer::start();
    let database = server.create_database();
    let print = |what: &str, began: Instant, copied: StateCopied| {
        println!("{what}: {copied:?} of a file with {bytes} bytes in {:?}", began.elapsed());
    };
    let began = Instant::now();
    let mut tables = Vec::new();
    let copied = to_postgres(dir.path(), &address(&database), &key(), &mut |news| {
        if let CopyNews::Table { name, rows, time } = news {
            tables.push((time, rows, name.to_owned()));
        }
    });
    print("to", began, copied.unwrap());
    tables.sort();
    println!("{:?}", tables.iter().rev().take(4).collect::<Vec<_>>());
    let (back, began) = (TempDir::new().unwrap(), Instant::now());
    print("from", began, from_postgres(back.path(), &address(&database), &key(), &mut |_| {}).unwrap());
}

#[test]
fn recent_days_of_a_copied_state_have_partitions_and_other_records_are_in_the_rest() {
    if !installed() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let Opened { mut writer, .. } = open(dir.path(), &key()).unwrap();
    let (now_ms, wrong_clock_ms) = (unix_ms(), 400_000_000_000_000);
    let recent = [DAY_MS, DAY_MS, 2 * DAY_MS].map(|age| now_ms - age);
    for (n, last_ms) in (1..).zip(recent.into_iter().chain([0, now_ms - 500 * DAY_MS, wrong_clock_ms])) {
        let mut block = Block::default();
        block.last_ms = last_ms;
        packed_row::put(&writer, RecordId::here(n), &block).unwrap();
    }
    settle(dir.path(), &mut writer, false).unwrap();
    drop(writer);
    let database = shared().create_database();
    copy_to(&dir, &database).unwrap();
    let db = connect(&database.url());
    let count = |sql: &str| -> u64 { db.row(sql, (), |row| row.get(0)).unwrap() };
    let parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('usage')";
    let rows = ["SELECT count(*) FROM usage_rest", "SELECT count(*) FROM usage", parts].map(count);
    assert_eq!(rows, [3, 6, 3]);
}
