//! Migrations of a filled database, as the preview before partitions left it.

use std::thread;
use std::time::{Duration, Instant};

use postgres_server::{Database, installed, shared};
use records::block::Block;
use shared::secret::Secret;

use super::open::upgrade_unless_running;
use super::*;
use crate::db::chain;
use crate::db::cluster::fences::{self, Lane, Resynchronized};
use crate::db::cluster::nodes::{NodeStart, register};
use crate::db::engine::Db;
use crate::db::engine::postgres::{DatabaseAddress, schema};
use crate::db::engine::table::{Table, TableSum};
use crate::db::key_check::{make_keys, open_keys};
use crate::db::packed_row::put;
use crate::db::record_id::{NodeId, RecordId};
use crate::db::sqlite_state::migrate::{MIGRATIONS, newest, oldest_beside};
use crate::db::testing::{connect, process_of, without_partitions};
use crate::usage::sums::columns;

/// The last version without partitions.
const PREVIEW: i64 = 39;
const DAY_MS: u64 = 24 * 3_600_000;
const ROWS: &str = "
    INSERT INTO projects VALUES ('prj', 'p', 0, NULL, NULL, NULL, 1, 0, 0, NULL);
    INSERT INTO keys (id, name, project, hash, prefix, state, version, created_at_ms, updated_at_ms)
        VALUES ('key', 'k', 'prj', '\\x00', 'p', 'active', 1, 0, 0);
    INSERT INTO quotas VALUES ('quo', 'gateway', '', NULL, NULL, 'requests', 'total', 9, 1, 1, 1, 1);
    INSERT INTO quota_window (quota, start_ms, granted) VALUES ('quo', 0, 7);
    INSERT INTO quota_share VALUES ('quo', 0, 0, 5, 5), ('quo', 0, 1, 2, 1);
    INSERT INTO key_use VALUES ('key', 0, 7), ('key', 1, 9);
    INSERT INTO usage_journal (origin, number, bytes, node) VALUES (7, 1, 100, 0), (8, 1, 5, 1);
    INSERT INTO usage_period (grain, section, start, node, name, model, cost_nano_usd, unpriced, figures)
        VALUES (60, 1, 28000020, 1, '', '', 5, 0, '\\x00'), (60, 1, 28000020, 2, '', '', 6, 0, '\\x00');
    INSERT INTO usage_followed (node, place, exchanges, from_ms) VALUES (1, 1099511627777, 1, 0);
    INSERT INTO nodes (node, identity, alive_until_ms, seen_version, release, file_digest, name, left_at_ms)
        VALUES (1, 'a', 0, 3, '0.1', '', 'n1', 5), (2, 'b', 0, 3, '0.1', '', 'n2', NULL);
    INSERT INTO fences (node, lane, incarnation, seq) VALUES (1, 'shares', 3, 8), (1, 'shipping', 3, 9);
";

fn key() -> Secret<[u8; 32]> {
    Secret::new([1; 32])
}

fn at(database: &Database<'_>) -> DatabaseAddress {
    DatabaseAddress::parse(&database.url()).unwrap()
}

/// Returns the tables of the preview.
fn preview_model() -> Db {
    let model = Db::in_memory().unwrap();
    MIGRATIONS.iter().take(usize::try_from(PREVIEW).unwrap()).for_each(|(_, sql)| model.batch(sql).unwrap());
    model.set_pragma(None, "user_version", PREVIEW).unwrap();
    model
}

/// Returns a database of the preview with rows of two nodes; `None` if PostgreSQL is not installed.
fn preview() -> Option<Database<'static>> {
    if !installed() {
        return None;
    }
    let database = shared().create_database();
    let mut db = connect(&database.url());
    let tx = db.transaction().unwrap();
    schema::claim(&tx).unwrap();
    schema::create(&preview_model(), &tx).unwrap();
    without_partitions(&tx);
    tx.batch("ALTER TABLE schema_version DROP COLUMN oldest").unwrap();
    make_keys(&tx, &key()).unwrap();
    chain::begin(&tx, &open_keys(&tx, &key()).unwrap(), 1).unwrap();
    tx.batch(ROWS).unwrap();
    let sums: Vec<&str> = columns().collect();
    for table in ["usage_hour", "usage_day"] {
        let values = vec!["3"; sums.len()].join(", ");
        tx.batch(&format!(
            "INSERT INTO {table} (hour, node, project, key, principal, provider, model, endpoint, operation, outcome, {})
             SELECT 480000, node, 'prj', 'key', '', 'p', 'm', '', 'o', 'c', {values} FROM nodes",
            sums.join(", ")
        ))
        .unwrap();
    }
    for (node, days) in [(0, 2), (1, 5)] {
        for day in 0..days {
            let time_ms = 1_700_000_000_000 + day * DAY_MS;
            let mut block = Block::default();
            (block.first_ms, block.last_ms, block.exchanges) = (time_ms, time_ms, 1);
            let id = RecordId::before(NodeId::new(node)).later(u32::try_from(day + 1).unwrap());
            put(&tx, id, &block).unwrap();
        }
    }
    tx.commit().unwrap();
    Some(database)
}

/// Returns the sum of each table of the preview, over the columns that it had there, except two: a migration adds alert rules, and
/// raises the fences of nodes that it excludes.
fn sums(database: &Database<'_>) -> Vec<(String, TableSum)> {
    let (model, db) = (preview_model(), connect(&database.url()));
    let tables = schema::tables(&model).unwrap();
    let kept = tables.into_iter().filter(|table| !["alert_rules", "fences"].contains(&table.name.as_str()));
    kept.map(|table: Table| (table.name.clone(), table.sum(&db).unwrap())).collect()
}

fn count(db: &Db, sql: &str) -> i64 {
    db.row(sql, (), |row| row.get(0)).unwrap()
}

#[test]
fn a_filled_database_keeps_every_row_of_every_table() {
    let Some(database) = preview() else { return };
    let (before, address, db) = (sums(&database), at(&database), connect(&database.url()));
    let empty: Vec<&str> =
        before.iter().filter(|(_, sum)| sum.rows == 0).map(|(name, _)| name.as_str()).collect();
    assert!(before.len() - empty.len() >= 15, "these have no rows: {empty:?}");
    let rules = count(&db, "SELECT count(*) FROM alert_rules");
    for _ in 0..2 {
        open(&address, &key(), (true, &|| ())).unwrap();
        assert_eq!(sums(&database), before);
        assert_eq!(version(&address).unwrap(), Some(newest()));
    }
    assert_eq!(count(&db, "SELECT count(*) FROM alert_rules"), rules + 4);
    let (_, last) = MIGRATIONS.last().unwrap();
    assert_eq!(schema::oldest(&db).unwrap(), oldest_beside(newest(), last));
    assert_eq!(count(&db, "SELECT count(*) FROM usage_rest"), 7, "rows stay where they are");
    let ahead = "SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('usage')";
    assert_eq!(count(&db, ahead), 5, "usage_rest, today and three days");
}

#[test]
fn processes_that_migrate_at_the_same_time_migrate_once() {
    let Some(database) = preview() else { return };
    let (before, address) = (sums(&database), at(&database));
    thread::scope(|scope| {
        let nodes = [(); 4].map(|()| scope.spawn(|| open(&address, &key(), (true, &|| ())).map(drop)));
        nodes.into_iter().for_each(|node| node.join().unwrap().unwrap());
    });
    assert_eq!((sums(&database), version(&address).unwrap()), (before, Some(newest())));
}

#[test]
fn a_migration_that_ends_in_the_middle_changes_nothing() {
    let Some(database) = preview() else { return };
    let (before, address) = (sums(&database), at(&database));
    let mut other = connect(&database.url());
    let lock = other.transaction().unwrap();
    // The last migration adds rows to it.
    lock.batch("LOCK TABLE alert_rules IN SHARE MODE").unwrap();
    let ended = thread::scope(|scope| {
        let migrating = scope.spawn(|| open(&address, &key(), (true, &|| ())).map(drop));
        let until = Instant::now() + Duration::from_secs(30);
        let end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted AND relation = 'alert_rules'::regclass";
        while database.query(end).is_empty() {
            assert!(Instant::now() < until, "the migration does not reach the table");
            thread::park_timeout(Duration::from_millis(5));
        }
        migrating.join().unwrap()
    });
    ended.unwrap_err();
    drop(lock);
    assert_eq!((sums(&database), version(&address).unwrap()), (before.clone(), Some(PREVIEW)));
    open(&address, &key(), (true, &|| ())).unwrap();
    assert_eq!((sums(&database), version(&address).unwrap()), (before, Some(newest())));
}

#[test]
fn live_nodes_of_an_excluded_release_stop_a_migration_and_others_are_ended_by_it() {
    let Some(database) = preview() else { return };
    let mut db = connect(&database.url());
    let fence = process_of(&mut db, 2);
    db.batch("UPDATE nodes SET alive_until_ms = now_ms() + 600000 WHERE node = 2").unwrap();
    assert_eq!(upgrade_unless_running(&mut db).unwrap(), ["n2 (release 0.1)"]);
    assert_eq!(version(&at(&database)).unwrap(), Some(PREVIEW));
    // It is cut off, and goes on afterwards.
    db.batch("UPDATE nodes SET alive_until_ms = 0").unwrap();
    assert!(upgrade_unless_running(&mut db).unwrap().is_empty());
    let tx = db.transaction().unwrap();
    for lane in [Lane::Shares, Lane::Shipping] {
        assert_eq!(fences::resynchronize(&tx, lane, &fence).unwrap(), Resynchronized::Superseded);
    }
    drop(tx);
    // The same node starts with this release.
    let start = NodeStart {
        identity: "b",
        number: Some(NodeId::new(2)),
        release: "0.2",
        file_digest: "",
        name: "n2",
        schema_version: newest(),
        key_seal: "",
    };
    assert_eq!(register(&mut db, &start).unwrap().node, NodeId::new(2));
}
