//! Sessions, the schema and every statement of the state on a real server.

use std::time::{Duration, Instant};

use postgres_server::{PostgresServer, ServerOptions, installed, shared};

use super::{DatabaseAddress, schema};
use crate::common::bounds::tests::sources;
use crate::db::engine::{Db, DbErrorKind, DbResult, named_params};
use crate::db::testing::{connect, in_memory};

#[test]
fn every_type_of_value_is_read_as_it_was_stored() {
    if !installed() {
        return;
    }
    let database = shared().create_database();
    let db = connect(&database.url());
    db.batch("CREATE TABLE t (a BIGINT, b DOUBLE PRECISION, c TEXT, d BYTEA)").unwrap();
    let insert = "INSERT INTO t (a, b, c, d) VALUES (:a, :b, :c, :d)";
    let texts = ["", "'\"\\ü\u{1f980}", ":a"];
    for (number, text) in [(i64::MIN, texts[0]), (0, texts[1]), (i64::MAX, texts[2])] {
        let values = named_params! {":a": number, ":b": 0.5, ":c": text, ":d": text.as_bytes()};
        assert_eq!(db.execute(insert, values), Ok(1));
    }
    let absent =
        named_params! {":a": None::<i64>, ":b": None::<f64>, ":c": None::<&str>, ":d": None::<Vec<u8>>};
    assert_eq!(db.execute(insert, absent), Ok(1));
    let rows: Vec<(i64, f64, String, Vec<u8>)> = db
        .rows("SELECT * FROM t WHERE a IS NOT NULL ORDER BY a", (), |row| {
            Ok((row.get("a")?, row.get("b")?, row.get("c")?, row.get("d")?))
        })
        .unwrap();
    let expected = [i64::MIN, 0, i64::MAX].into_iter().zip(texts);
    assert!(
        rows.iter().map(|(a, b, c, d)| (*a, *b, c.as_str(), d.as_slice())).eq(expected.map(|(a, text)| (
            a,
            0.5,
            text,
            text.as_bytes()
        )))
    );
    assert!(
        db.exists("SELECT 1 FROM t WHERE a IS NULL AND d IS NOT DISTINCT FROM :d", [None::<&str>]).unwrap()
    );
    let is_null: bool = db.row("SELECT b IS NULL FROM t WHERE a = 0", (), |row| row.get(0)).unwrap();
    assert!(!is_null);
    assert_eq!(db.row("SELECT 1", (), |row| row.get::<String>(0)).unwrap_err().kind(), DbErrorKind::BadValue);
    assert_eq!(db.row("SELECT 1", (), |row| row.get::<i64>("b")).unwrap_err().kind(), DbErrorKind::BadValue);
    assert_eq!(db.execute(insert, [1]).unwrap_err().kind(), DbErrorKind::BadValue);
    let with_nul = named_params! {":a": 1, ":b": 0.5, ":c": "a\0b", ":d": "".as_bytes()};
    assert_eq!(db.execute(insert, with_nul).unwrap_err().kind(), DbErrorKind::BadValue);
    assert_eq!(
        db.row("SELECT a FROM t WHERE a = 5", (), |row| row.get::<i64>(0)).unwrap_err().kind(),
        DbErrorKind::NoRow
    );
}

#[test]
fn many_statements_have_the_outcomes_that_each_would_have() {
    let mut dbs = vec![in_memory()];
    let database = installed().then(|| shared().create_database());
    dbs.extend(database.as_ref().map(|database| connect(&database.url())));
    let outcomes: Vec<_> = dbs.iter_mut().map(outcomes_of_many).collect();
    for (changed, found, refused) in outcomes {
        let even = |number: i64| number % 2 == 0;
        assert!(
            changed.iter().eq((0..600).map(|number| usize::from(even(number))).collect::<Vec<_>>().iter())
        );
        assert!(
            found
                .iter()
                .eq((0..600).map(|number| even(number).then_some(number + 1)).collect::<Vec<_>>().iter())
        );
        assert_eq!(refused, 3, "the first that fails ends them");
    }
}

/// Changes every second row of six hundred, reads each, and then puts rows of which the fourth is there already.
fn outcomes_of_many(db: &mut Db) -> (Vec<usize>, Vec<Option<i64>>, usize) {
    db.batch("CREATE TABLE many (a BIGINT PRIMARY KEY, b BIGINT)").unwrap();
    let tx = db.transaction().unwrap();
    let put = "INSERT INTO many (a, b) VALUES (:a, :b)";
    let rows = (0..600).filter(|number| number % 2 == 0).map(|number| (number, number));
    tx.prepare(put).unwrap().execute_each(rows, |put| put.map(drop)).unwrap();
    let mut changed = Vec::new();
    let mut change = tx.prepare("UPDATE many SET b = b + 1 WHERE a = :a").unwrap();
    change
        .execute_each((0..600).map(|number| [number]), |count| count.map(|count| changed.push(count)))
        .unwrap();
    let mut find = tx.prepare("SELECT b FROM many WHERE a = :a").unwrap();
    let found = find.optional_row_each((0..600).map(|number| [number]), |row| row.get(0)).unwrap();
    drop((change, find));
    tx.commit().unwrap();
    let (tx, mut put_before) = (db.transaction().unwrap(), 0);
    let rows = [1, 3, 5, 0, 7].map(|number| (number, number));
    let outcome = tx.prepare(put).unwrap().execute_each(rows, |count| count.map(|count| put_before += count));
    assert_eq!(outcome.unwrap_err().kind(), DbErrorKind::BadRow);
    tx.rollback().unwrap();
    assert_eq!(db.row("SELECT count(*) FROM many", (), |row| row.get::<i64>(0)), Ok(300));
    (changed, found, put_before)
}

#[test]
fn statements_whose_table_a_migration_changed_are_prepared_again() {
    if !installed() {
        return;
    }
    let database = shared().create_database();
    let (mut db, newer) = (connect(&database.url()), connect(&database.url()));
    newer.batch("CREATE TABLE t (a BIGINT); CREATE TABLE u (a BIGINT); INSERT INTO t VALUES (1); INSERT INTO u VALUES (2)").unwrap();
    let read = |db: &Db| -> DbResult<[i64; 2]> {
        let of = |sql: &str| db.row(sql, (), |row| row.get("a"));
        Ok([of("SELECT * FROM t")?, of("SELECT * FROM u")?])
    };
    let add = |name: &str| {
        let sql = format!("ALTER TABLE t ADD COLUMN {name} BIGINT; ALTER TABLE u ADD COLUMN {name} BIGINT");
        newer.batch(&sql).unwrap();
    };
    assert_eq!(read(&db), Ok([1, 2]));
    add("b");
    assert_eq!(read(&db), Ok([1, 2]), "nothing is lost outside of a transaction");
    add("c");
    let tx = db.transaction().unwrap();
    assert_eq!(read(&tx).unwrap_err().kind(), DbErrorKind::Busy);
    drop(tx);
    let tx = db.transaction().unwrap();
    assert_eq!(read(&tx), Ok([1, 2]), "a transaction is repeated once");
    tx.commit().unwrap();
}

#[test]
fn a_transaction_keeps_what_it_commits_and_parts_are_rolled_back_alone() {
    if !installed() {
        return;
    }
    let database = shared().create_database();
    let mut db = connect(&database.url());
    db.batch("CREATE TABLE t (a BIGINT PRIMARY KEY)").unwrap();
    let insert = "INSERT INTO t (a) VALUES (:a)";
    let mut tx = db.transaction().unwrap();
    tx.execute(insert, [1]).unwrap();
    let part = tx.savepoint().unwrap();
    part.execute(insert, [2]).unwrap();
    assert_eq!(part.execute(insert, [1]).unwrap_err().kind(), DbErrorKind::BadRow);
    drop(part);
    tx.execute(insert, [3]).unwrap();
    let part = tx.savepoint().unwrap();
    part.execute(insert, [4]).unwrap();
    part.commit().unwrap();
    tx.commit().unwrap();
    assert!(!db.is_in_transaction());
    assert_eq!(db.transaction().unwrap().execute(insert, [5]), Ok(1));
    let kept = || -> Vec<i64> { db.rows("SELECT a FROM t ORDER BY a", (), |row| row.get(0)).unwrap() };
    assert_eq!(kept(), [1, 3, 4]);
}

#[test]
fn a_commit_after_a_failed_statement_fails() {
    if !installed() {
        return;
    }
    let database = shared().create_database();
    let mut db = connect(&database.url());
    db.batch("CREATE TABLE t (a BIGINT PRIMARY KEY)").unwrap();
    let tx = db.transaction().unwrap();
    tx.execute("INSERT INTO t (a) VALUES (:a)", [1]).unwrap();
    assert!(tx.execute("INSERT INTO t (a) VALUES (:a)", [1]).is_err());
    assert!(tx.commit().is_err());
    assert!(!db.exists("SELECT 1 FROM t", ()).unwrap());
}

#[test]
fn a_statement_ends_at_the_time_limit_and_the_session_goes_on() {
    if !installed() {
        return;
    }
    let database = shared().create_database();
    let mut db = connect(&database.url());
    db.batch("SELECT 1").unwrap();
    db.limit_time(Instant::now() + Duration::from_millis(100)).unwrap();
    let error = db.row("SELECT CAST(pg_sleep(600) AS TEXT)", (), |row| row.get::<String>(0)).unwrap_err();
    assert_eq!(error.kind(), DbErrorKind::TooSlow);
    db.limit_time(Instant::now() + Duration::from_secs(60)).unwrap();
    assert_eq!(db.row("SELECT 7", (), |row| row.get::<i64>(0)), Ok(7));
}

#[test]
fn a_session_connects_again_after_its_server_was_killed_but_not_within_a_transaction() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start();
    let mut db = connect(&server.url());
    db.batch("CREATE TABLE t (a BIGINT)").unwrap();
    let tx = db.transaction().unwrap();
    tx.execute("INSERT INTO t (a) VALUES (:a)", [1]).unwrap();
    server.kill();
    assert_eq!(
        tx.execute("INSERT INTO t (a) VALUES (:a)", [2]).unwrap_err().kind(),
        DbErrorKind::Unreachable
    );
    server.restart();
    assert_eq!(
        tx.execute("INSERT INTO t (a) VALUES (:a)", [3]).unwrap_err().kind(),
        DbErrorKind::Unreachable
    );
    drop(tx);
    assert!(!db.exists("SELECT 1 FROM t", ()).unwrap());
}

#[test]
fn a_connection_is_encrypted_and_its_certificate_verified_as_the_url_asks() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start_with(ServerOptions::fast().with_tls());
    let base = server.url().split('?').next().unwrap().to_owned();
    let is_encrypted = |db: &Db| -> bool {
        db.row("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", (), |row| row.get(0)).unwrap()
    };
    let ca = server.ca_file();
    let ca = ca.to_str().unwrap();
    for (query, expected) in [
        ("", true),
        ("?sslmode=require", true),
        (&format!("?sslmode=verify-ca&sslrootcert={ca}"), true),
        (&format!("?sslmode=verify-full&sslrootcert={ca}&channel_binding=require"), true),
    ] {
        assert_eq!(is_encrypted(&connect(&format!("{base}{query}"))), expected, "{query}");
    }
    // The authorities of the system did not sign the certificate.
    let unknown = connect(&format!("{base}?sslmode=verify-full"));
    let error = unknown.batch("SELECT 1").unwrap_err();
    assert_eq!(error.kind(), DbErrorKind::Unreachable, "{error}");
    let missing = DatabaseAddress::parse(&format!("{base}?sslmode=verify-full&sslrootcert=/none.pem"));
    let error = missing.unwrap().connect(0).unwrap_err().to_string();
    assert!(error.contains("/none.pem"), "{error}");
}

#[test]
fn a_server_that_is_absent_or_refuses_is_named_and_the_password_is_not() {
    if !installed() {
        return;
    }
    let database = shared().create_database();
    let wrong = database.url().replace("llmgw:llmgw@", "llmgw:secret-word@");
    let error = connect(&wrong).batch("SELECT 1").unwrap_err();
    assert_eq!(error.kind(), DbErrorKind::Refused);
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    let absent = connect("postgres://u:secret-word@127.0.0.1:1/x").batch("SELECT 1").unwrap_err();
    assert_eq!(absent.kind(), DbErrorKind::Unreachable);
    assert!(absent.to_string().contains("refused"), "{absent}");
    assert!(!format!("{error}{absent}").contains("secret-word"));
}

/// Each statement in the sources of the product is understood by PostgreSQL: its tables, columns, functions and grammar.
/// The values are absent, so that only types of values are left to the tests of the modules.
#[test]
fn postgresql_understands_every_statement_of_the_product() {
    if !installed() {
        return;
    }
    let database = shared().create_database();
    let mut db = connect(&database.url());
    let tx = db.transaction().unwrap();
    schema::claim(&tx).unwrap();
    schema::create(&in_memory(), &tx).unwrap();
    tx.commit().unwrap();
    let statements = statements();
    assert!(statements.len() > 150, "only {} statements were found", statements.len());
    let refused: Vec<String> = statements
        .iter()
        .filter_map(|(place, sql)| {
            let text = super::text::Text::parse(sql);
            let (sql, ..) = text.with(&vec![pg::Field::Null; text.parameters()]);
            let error = db.batch(&format!("EXPLAIN {sql}")).err()?;
            Some(format!("{place}: {error}\n    {sql}"))
        })
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Returns the whole statements that stand as string literals in the sources, with their files. Texts that are parts of
/// statements, or are completed by `format!`, are left out, and so is what belongs to SQLite or to `telemetry.db` alone.
fn statements() -> Vec<(String, String)> {
    let is_whole = |literal: &String| {
        let is_part = literal.contains('{')
            || literal.ends_with(' ')
            || super::super::portable::is_only_sqlite(literal);
        !is_part && VERBS.iter().any(|verb| literal.starts_with(verb))
    };
    let is_of_the_state =
        |path: &str| path.starts_with("control/src/") && !ELSEWHERE.iter().any(|part| path.contains(part));
    sources()
        .into_iter()
        .filter(|source| is_of_the_state(&source.path))
        .flat_map(|source| {
            literals(&source.code).into_iter().filter(is_whole).map(move |sql| (source.path.clone(), sql))
        })
        .collect()
}

const VERBS: &[&str] = &["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", "WITH "];
/// Parts of the paths of sources whose statements are for files of SQLite, for `telemetry.db`, for `usage.db`, or for tests.
const ELSEWHERE: &[&str] = &[
    "/sqlite/",
    "/sqlite_state/",
    "/postgres/",
    "/telemetry",
    "/circuit_changes.rs",
    "/usage_effects.rs",
    "tests.rs",
];

/// Returns the string literals of a source, with their escapes undone.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for literal in source.split('"').skip(1).step_by(2) {
        let mut text = String::new();
        let mut letters = literal.chars().peekable();
        while let Some(letter) = letters.next() {
            match (letter, letters.peek()) {
                ('\\', Some('\n')) => while letters.next_if(|letter| letter.is_whitespace()).is_some() {},
                _ => text.push(letter),
            }
        }
        found.push(text);
    }
    found
}
