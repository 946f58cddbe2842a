//! Two nodes on one PostgreSQL: what is shown of their usage stays the same while it is merged.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use shared::id::ModelId;
use shared::usage::{UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::*;
use crate::db::testing::{ClusterDatabase, add_node, shared_database};
use crate::usage::report::calendar::Calendar;
use crate::usage::report::{ReportQuestion, sums};
use crate::usage::requests::{self, NamedRequest};
use crate::usage::rollup::{Difference, correct};
use crate::usage::sums::UsageSums;
use crate::usage::tests::{Process, copy_last_row, event};

const DAY_MS: u64 = 24 * HOUR_MS;
/// Exchanges of a node in a time.
const EACH: u64 = 300;

fn node(database: &ClusterDatabase<'_>, number: u32, home: &Path) -> Process {
    let db = database.connect();
    add_node(&db, number.into());
    db.execute("UPDATE nodes SET alive_until_ms = now_ms() + 600000 WHERE node = :node", [number]).unwrap();
    Process::with(database.connect_as(number), home.join("none.db"), home.join(format!("journal-{number}")))
}

/// Stores exchanges of the last two days, and counts them for charts.
fn store(process: &mut Process, from: u64) {
    let since_ms = unix_ms() / HOUR_MS * HOUR_MS - 2 * DAY_MS;
    let mut log = process.journal.log().unwrap();
    for n in from..from + EACH {
        let model = Some(ModelId::new(format!("m{}", n % 3)));
        log.append(&UsageEvent { started_at_ms: since_ms + n * 60_000, model, ..event(n) });
    }
    process.settle();
    RecordCounting::new().all(process.meter.db_mut());
}

impl RecordCounting {
    fn all(mut self, db: &mut Db) {
        let node = NodeId::of(db);
        while !self.step(db, node, unix_ms()).unwrap().1 {}
    }
}

/// Returns the totals of a report over whole hours, those of a chart by day, and the largest use of a key.
fn shown(db: &Db) -> (UsageSums, u64, u64) {
    let question = ReportQuestion {
        from_ms: 0,
        to_ms: unix_ms() / HOUR_MS * HOUR_MS,
        calendar: Calendar::whole(),
        group_by: Vec::new(),
        filters: Vec::new(),
        marks: crate::usage::dimension::Marks::default(),
        scope: crate::usage::scope::UsageScope::default(),
    };
    let (groups, _) = sums(db, &question, Instant::now() + Duration::from_secs(60)).unwrap();
    let mut totals = UsageSums::default();
    groups.iter().for_each(|group| totals.add(&group.sums));
    let mut charted = 0;
    let span =
        periods::PeriodSpan { grain: Grain::Hour, section: periods::Section::All, time_ms: 0..u64::MAX >> 1 };
    periods::rows(db, &span, |row| {
        charted += row.figures().unwrap().requests;
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    let keys: u64 = db.row("SELECT max(hour) FROM key_use", (), |row| row.get(0)).unwrap();
    (totals, charted, keys)
}

/// Runs a whole pass.
fn pass(db: &mut Db) {
    let mut merging = UsageMerging::new();
    while !merging.work(db, unix_ms(), Instant::now()).unwrap() {}
}

fn count(db: &Db, sql: &str) -> u64 {
    db.row(sql, (), |row| row.get(0)).unwrap()
}

fn add_key(db: &Db) {
    db.batch(
        "INSERT INTO projects VALUES ('prj', 'p', 0, NULL, NULL, NULL, 1, 0, 0, NULL);
         INSERT INTO keys (id, name, project, hash, prefix, state, version, created_at_ms, updated_at_ms)
             VALUES ('admin', 'k', 'prj', '\\x00', 'p', 'active', 1, 0, 0)",
    )
    .unwrap();
}

#[test]
fn reports_and_charts_stay_exact_while_sums_are_merged_and_nodes_store() {
    let Some(database) = shared_database() else { return };
    let home = TempDir::new().unwrap();
    let db = database.connect();
    add_key(&db);
    let (mut one, mut two) = (node(&database, 1, home.path()), node(&database, 2, home.path()));
    store(&mut one, 0);
    store(&mut two, 100);
    let before = shown(&db);
    assert_eq!((before.0.requests, before.1), (2 * EACH, 2 * EACH));
    // A report at any moment of the merging is the same.
    let is_merged = AtomicBool::new(false);
    thread::scope(|scope| {
        let reports = scope.spawn(|| {
            let (db, mut reports) = (database.connect(), 0);
            while !is_merged.load(Ordering::Relaxed) || reports == 0 {
                assert_eq!(shown(&db), before);
                reports += 1;
            }
            reports
        });
        pass(&mut database.connect_as(1));
        is_merged.store(true, Ordering::Relaxed);
        assert!(reports.join().unwrap() > 0);
    });
    let nodes = "SELECT (SELECT count(*) FROM usage_hour WHERE node <> 0) + (SELECT count(*) FROM usage_day \
                 WHERE node <> 0 AND hour < (SELECT max(hour) FROM usage_day)) \
                 + (SELECT count(*) FROM usage_period WHERE node <> 0 AND grain < 1440)";
    assert_eq!(count(&db, nodes), 0, "nothing of the closed hours is left");
    let day_rows = "SELECT count(*) FROM usage_hour";
    assert!(count(&db, day_rows) <= 3 * 9, "one row for each hour and model");
    // A node stores late exchanges of the same hours meanwhile.
    thread::scope(|scope| {
        scope.spawn(|| (0..5).for_each(|_| pass(&mut database.connect_as(1))));
        store(&mut two, 10);
    });
    assert_eq!((shown(&db).0.requests, shown(&db).1), (3 * EACH, 3 * EACH));
    pass(&mut database.connect_as(2));
    assert_eq!((shown(&db).0.requests, shown(&db).1, count(&db, nodes)), (3 * EACH, 3 * EACH, 0));
}

#[test]
fn a_cost_is_corrected_by_more_than_the_unmerged_row_of_its_node_has() {
    let Some(database) = shared_database() else { return };
    let home = TempDir::new().unwrap();
    let mut one = node(&database, 1, home.path());
    add_key(one.meter.db());
    store(&mut one, 0);
    pass(one.meter.db_mut());
    store(&mut one, 3);
    let db = one.meter.db_mut();
    let before = shown(db).0.cost_nano_usd;
    let hour = count(db, "SELECT min(hour) FROM usage_hour WHERE node = 1");
    let names = ["", "admin", "", "p", "m0", "", "chat_completions", "completed"];
    let of_hour = format!(
        "SELECT CAST(sum(cost_nano_usd) AS BIGINT) FROM usage_hour WHERE hour = {hour} AND model = 'm0'"
    );
    let cost = count(db, &of_hour);
    let tx = db.transaction().unwrap();
    let all = Difference { cost_nano_usd: -i64::try_from(cost).unwrap(), ..Difference::default() };
    correct(&tx, hour, &names, all).unwrap();
    tx.commit().unwrap();
    assert_eq!((count(db, &of_hour), shown(db).0.cost_nano_usd), (0, before - cost));
}

#[test]
fn records_of_absent_nodes_and_of_a_copied_state_are_counted_indexed_and_found() {
    let Some(database) = shared_database() else { return };
    let home = TempDir::new().unwrap();
    let db = database.connect();
    add_key(&db);
    let mut gone = node(&database, 3, home.path());
    let since_ms = unix_ms() - DAY_MS;
    let mut log = gone.journal.log().unwrap();
    for n in 0..INDEXED_MIN + 200 {
        log.append(&UsageEvent { started_at_ms: since_ms + n, ..event(n) });
    }
    gone.settle();
    // As a copy of a state with files has them.
    for n in 1..=2 {
        copy_last_row(&db, NodeId::new(3), RecordId::here(n));
    }
    let mut one = database.connect_as(1);
    pass(&mut one);
    assert_eq!(count(&db, "SELECT count(*) FROM usage_indexed WHERE node = 3"), 0, "it is live");
    db.execute("UPDATE nodes SET left_at_ms = 1 WHERE node = 3", ()).unwrap();
    pass(&mut one);
    let all = count(&db, "SELECT CAST(sum(exchanges) AS BIGINT) FROM usage");
    assert_eq!(shown(&db).1, all, "charts have all records");
    let followed = "SELECT count(*) FROM usage_followed AS f WHERE place = \
                    (SELECT max(id) FROM usage WHERE usage.id >> 40 = f.node)";
    assert_eq!(count(&db, followed), 2);
    assert_eq!(count(&db, "SELECT count(*) FROM usage_requests WHERE bucket = 0"), 1);
    for n in [0, INDEXED_MIN / 2, INDEXED_MIN + 199] {
        let wanted = NamedRequest::newest(format!("req-{n}"));
        assert!(requests::row(&db, &wanted).unwrap().is_some(), "{n}");
    }
    // A process that goes on counts from the place that is reached.
    gone.meter.follow_records();
    assert_eq!(shown(&db).1, all);
}

#[test]
fn used_up_shares_of_a_node_that_has_left_become_those_of_node_0() {
    let Some(database) = shared_database() else { return };
    let home = TempDir::new().unwrap();
    let db = database.connect();
    (1..=2).for_each(|number| drop(node(&database, number, home.path())));
    for quota in ["all", "some"] {
        let sql = "INSERT INTO quotas VALUES (:quota, 'gateway', '', NULL, NULL, 'requests', 'total', 9, 1, 1, 1, 1, 0)";
        db.execute(sql, [quota]).unwrap();
    }
    db.batch(
        "INSERT INTO quota_window (quota, start_ms, granted) VALUES ('all', 0, 10), ('some', 0, 10);
         INSERT INTO quota_share VALUES ('all', 0, 1, 4, 2), ('all', 0, 2, 6, 6), ('some', 0, 2, 10, 9);
         UPDATE nodes SET left_at_ms = 1 WHERE node = 2",
    )
    .unwrap();
    pass(&mut database.connect_as(1));
    let shares: Vec<(String, i64, i64, i64)> = db
        .rows("SELECT quota, node, granted, used FROM quota_share ORDER BY quota, node", (), |row| {
            Ok((row.get("quota")?, row.get("node")?, row.get("granted")?, row.get("used")?))
        })
        .unwrap();
    let share = |quota: &str, node, granted, used| (quota.to_owned(), node, granted, used);
    let kept = share("some", 2, 10, 9);
    assert_eq!(shares, [share("all", 0, 6, 6), share("all", 1, 4, 2), kept], "what it may return for stays");
}
