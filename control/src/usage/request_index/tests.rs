//! Every stored request id is found, and rows that are in a run are not scanned for it.

use std::path::Path;

use records::block::Block;
use records::{Record, Texts};
use shared::secret::Secret;
use shared::usage::UsageLog as _;
use tempfile::TempDir;

use super::*;
use crate::db::engine::{Db, DbResult};
use crate::db::packed_row::put;
use crate::db::sqlite_state::migrate::{MIGRATIONS, migrate};
use crate::db::sqlite_state::open::open;
use crate::db::sqlite_state::relocate::settle;
use crate::db::testing::migrated;
use crate::usage::requests::{self, NamedRequest};
use crate::usage::retention::tables;
use crate::usage::tests::{Process, event};

/// Returns a row of `usage` with these requests.
fn row(ids: impl IntoIterator<Item = String>) -> Block {
    let mut block = Block::default();
    for request_id in ids {
        let mut bytes = Vec::new();
        let record = Record { request_id: &request_id, started_at_ms: 1_000, ..Record::default() };
        record.put(&mut bytes, |out, _, text| records::varint::put_text(out, text));
        let (record, trace) = Record::take(&bytes, Texts::Inline).unwrap();
        block.push(&record, trace);
    }
    block
}

fn name(row: u64, place: u32) -> String {
    format!("req-{row}-{place}")
}

/// Writes rows with 50 requests each.
fn fill(db: &Db, rows: std::ops::RangeInclusive<u64>) {
    for id in rows {
        put(db, RecordId::here(id), &row((0..50).map(|place| name(id, place)))).unwrap();
    }
}

/// Creates a run of at least `exchanges_min` exchanges.
fn make_run(db: &mut Db, end: RecordId, exchanges_min: u64) -> DbResult<RunStep> {
    let mut draft = RunDraft::new(NodeId::FIRST, exchanges_min);
    loop {
        let step = draft.step(db, end)?;
        if step != RunStep::More {
            return Ok(step);
        }
    }
}

/// No entries: a row that would have to be read is not found.
const NONE: &[u8] = &[];
const END: RecordId = RecordId::end_of(NodeId::FIRST);

fn runs(db: &Db) -> i64 {
    db.row("SELECT count(*) FROM usage_requests WHERE bucket = 7", (), |row| row.get(0)).unwrap()
}

/// Returns the number of rows that all runs have.
fn entries(db: &Db) -> usize {
    db.row("SELECT count(*) FROM usage_requests", (), |row| row.get(0)).unwrap()
}

fn assert_found(db: &Db, rows: std::ops::RangeInclusive<u64>) {
    for id in rows {
        for place in [0, 17, 49] {
            assert_eq!(rows_with(db, &name(id, place)).unwrap(), [RecordId::here(id)]);
            let found =
                requests::row(db, &NamedRequest::newest(name(id, place))).unwrap().expect("it is stored");
            assert_eq!(found.request_id, name(id, place));
        }
    }
    assert!(requests::row(db, &NamedRequest::newest("unknown")).unwrap().is_none());
}

#[test]
fn rows_covered_by_a_run_are_found_without_scanning() {
    let mut db = migrated();
    fill(&db, 1..=20);
    assert_found(&db, 1..=20);
    assert_eq!(make_run(&mut db, RecordId::here(15), 1_000).unwrap(), RunStep::TooFew { waiting: 700 });
    for _ in 0..3 {
        assert_eq!(make_run(&mut db, END, 300).unwrap(), RunStep::Complete);
    }
    assert_eq!(make_run(&mut db, END, 300).unwrap(), RunStep::TooFew { waiting: 100 });
    assert_eq!((covered(&db, NodeId::FIRST).unwrap(), runs(&db)), (RecordId::here(18), 3));
    // Repricing rewrites rows.
    fill(&db, 5..=7);
    db.execute("UPDATE usage SET requests = :none, digest = NULL WHERE id <= 18", [NONE]).unwrap();
    assert_found(&db, 1..=20);
    fill(&db, 21..=25);
    assert_found(&db, 1..=25);
}

#[test]
fn rows_of_other_nodes_are_found_and_are_in_no_run_of_this_one() {
    let mut db = migrated();
    fill(&db, 1..=10);
    let other = |n: u32| RecordId::before(NodeId::new(1)).later(n);
    for n in 1..=10 {
        put(&db, other(n), &row((0..50).map(|place| format!("other-{n}-{place}")))).unwrap();
    }
    put(&db, other(11), &row([name(3, 0)])).unwrap();
    assert_eq!(make_run(&mut db, END, 400).unwrap(), RunStep::Complete);
    assert_eq!(make_run(&mut db, END, 400).unwrap(), RunStep::TooFew { waiting: 100 });
    // As if that node had written a run of its own rows.
    let of_node_1 = 1_u64 << 40;
    let runs =
        "INSERT INTO usage_requests SELECT bucket, day, last + :of, first + :of, :none FROM usage_requests";
    db.execute(runs, named_params! {":of": of_node_1, ":none": NONE}).unwrap();
    db.execute("INSERT INTO usage_indexed (node, last) SELECT 1, last + :of FROM usage_indexed", [of_node_1])
        .unwrap();
    assert_eq!(covered(&db, NodeId::FIRST).unwrap(), RecordId::here(8));
    assert_eq!(covered(&db, NodeId::new(1)).unwrap(), other(8));
    let found = |request_id: &str| rows_with(&db, request_id).unwrap();
    assert_eq!(found("other-9-7"), [other(9)], "in no run");
    assert_eq!(found(&name(3, 0)), [other(11), RecordId::here(3)]);
    assert_eq!(found("other-2-7"), [], "that run has no entries");
    db.execute("DELETE FROM usage WHERE id <= 8", ()).unwrap();
    assert!(forget_run(&db).unwrap());
    assert!(!forget_run(&db).unwrap(), "the rows of the other node are left");
}

#[test]
fn a_look_up_ends_with_the_newest_day_that_has_the_request() {
    let mut db = migrated();
    let days = 30;
    for day in 1..=days {
        put(&db, RecordId::here(day), &row([name(day, 0), "repeated".to_owned()])).unwrap();
        let sql = "UPDATE usage SET first_ms = :ms, last_ms = :ms, digest = NULL WHERE id = :id";
        db.execute(sql, named_params! {":ms": day * DAY_MS, ":id": day}).unwrap();
        assert_eq!(make_run(&mut db, END, 2).unwrap(), RunStep::Complete);
    }
    let read = |request_id: &str, newest_ms: u64| {
        let mut found = Vec::new();
        let is_over = |before_ms| before_ms <= newest_ms;
        each_row_with(&db, request_id, is_over, |id| {
            found.push(id);
            Ok(())
        })
        .unwrap();
        found
    };
    assert_eq!(read("repeated", 28 * DAY_MS), [30, 29, 28].map(RecordId::here));
    assert_eq!(read("repeated", 0).len(), 30);
    let (first, last) = (read(&name(1, 0), 0), read(&name(days, 0), 0));
    assert_eq!((first, last), (vec![RecordId::here(1)], vec![RecordId::here(days)]));
}

#[test]
fn a_row_that_may_still_change_is_not_covered_by_a_run() {
    let mut db = migrated();
    fill(&db, 1..=10);
    assert_eq!(make_run(&mut db, RecordId::here(10), 450).unwrap(), RunStep::Complete);
    put(&db, RecordId::here(10), &row((0..60).map(|place| name(10, place)))).unwrap();
    assert_eq!(covered(&db, NodeId::FIRST).unwrap(), RecordId::here(9));
    assert_eq!(rows_with(&db, &name(10, 59)).unwrap(), [RecordId::here(10)]);
}

#[test]
fn rows_with_a_repeated_request_id_are_found_newest_first() {
    let mut db = migrated();
    for id in 1..=40 {
        put(&db, RecordId::here(id), &row((0..50).map(|_| "same".to_owned()))).unwrap();
        db.execute("UPDATE usage SET last_ms = :last_ms, digest = NULL WHERE id = :last_ms", [id]).unwrap();
    }
    while make_run(&mut db, END, 500).unwrap() == RunStep::Complete {}
    assert_eq!(rows_with(&db, "same").unwrap(), (1..=40).rev().map(RecordId::here).collect::<Vec<_>>());
    let bytes = "SELECT max(length(entries)) FROM usage_requests";
    let longest: usize = db.row(bytes, (), |row| row.get(0)).unwrap();
    assert_eq!(longest, 10 * ENTRY_BYTES, "one entry for each row");
}

#[test]
fn rows_with_distant_ids_are_in_different_runs() {
    let mut db = migrated();
    let far = 1 + (1 << 24);
    fill(&db, 1..=3);
    fill(&db, far..=far + 4);
    while make_run(&mut db, END, 250).unwrap() == RunStep::Complete {}
    assert_eq!((runs(&db), covered(&db, NodeId::FIRST).unwrap()), (2, RecordId::here(far + 4)));
    db.execute("UPDATE usage SET requests = :none, digest = NULL", [NONE]).unwrap();
    assert_found(&db, 1..=3);
    assert_found(&db, far..=far + 4);
}

#[test]
fn runs_are_deleted_with_their_rows_and_row_ids_are_never_reused() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut store = |numbers: std::ops::Range<u64>| {
        let mut log = process.journal.log().unwrap();
        numbers.for_each(|n| assert!(log.append(&event(n))));
        process.settle();
        process.meter.usage_mut();
        Db::create(home.path().join("test.db")).unwrap()
    };
    let mut db = store(0..500);
    while make_run(&mut db, END, 100).unwrap() == RunStep::Complete {}
    assert!(runs(&db) > 0);
    let last = covered(&db, NodeId::FIRST).unwrap();
    drop(store(500..600));
    let long = Instant::now() + Duration::from_secs(60);
    tables::usage(&db, event(499).started_at_ms + 1, long).unwrap();
    assert_eq!(runs(&db), 0, "their rows are gone");
    assert!(requests::row(&db, &NamedRequest::newest("req-3")).unwrap().is_none());
    assert!(requests::row(&db, &NamedRequest::newest("req-550")).unwrap().is_some());
    while make_run(&mut db, END, 10).unwrap() == RunStep::Complete {}
    let covered_now = covered(&db, NodeId::FIRST).unwrap();
    assert!(covered_now > last);
    // The state after a kill between the two deletions.
    db.execute("DELETE FROM usage", ()).unwrap();
    drop(process);
    process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    log.append(&event(700));
    process.settle();
    assert!(process.sql("SELECT min(id) FROM usage") > covered_now.stored().unwrap());
    assert!(requests::row(&db, &NamedRequest::newest("req-700")).unwrap().is_some());
    tables::usage(&db, u64::MAX, long).unwrap();
    assert_eq!(runs(&db), 0);
}

#[test]
fn a_database_without_a_request_index_gets_one_in_steps() {
    let mut db = Db::in_memory().unwrap();
    let before = 16;
    MIGRATIONS[..before].iter().for_each(|(_, sql)| db.batch(sql).unwrap());
    db.set_pragma(None, "user_version", i64::try_from(before).unwrap()).unwrap();
    let rows = 5 * RUN / 100;
    for id in 1..=rows {
        let block = row((0..50).map(|place| name(id, place)));
        let insert = "INSERT INTO usage (id, first_ms, last_ms, exchanges, requests, names, rows) \
                      VALUES (:id, 1000, 1000, 50, :requests, :names, :rows)";
        db.execute(insert, (id, &block.requests, &block.names().packed, &block.rows)).unwrap();
    }
    migrate(&mut db).unwrap();
    assert_found(&db, 1..=3);
    let mut index = RequestIndex::new();
    let mut steps = 0;
    while index.is_due() {
        let before = entries(&db);
        index.step(&mut db, END);
        assert!(entries(&db) <= before + WRITTEN_AT_ONCE, "a step writes few buckets");
        assert_found(&db, rows / 2..=rows / 2);
        steps += 1;
        assert!(steps < 30);
    }
    // Two runs, each of four reads and eight writes, and two reads of the half run that is left.
    assert_eq!((runs(&db), steps), (2, 26));
    index.stored(RUN / 4);
    assert!(!index.is_due());
    index.stored(RUN / 2);
    assert!(index.is_due(), "half a run was left");
    db.execute(
        "UPDATE usage SET requests = :none, digest = NULL WHERE id <= (SELECT max(last) FROM usage_requests)",
        [NONE],
    )
    .unwrap();
    assert_found(&db, 1..=3);
    assert_found(&db, rows - 2..=rows);
}

#[test]
fn runs_without_a_day_are_taken_over_as_they_are() {
    let mut new = migrated();
    fill(&new, 1..=20);
    new.execute("UPDATE usage SET last_ms = id * 50000000, digest = NULL", ()).unwrap();
    for _ in 0..3 {
        assert_eq!(make_run(&mut new, END, 300).unwrap(), RunStep::Complete);
    }
    let mut old = Db::in_memory().unwrap();
    let before = 35;
    MIGRATIONS[..before].iter().for_each(|(_, sql)| old.batch(sql).unwrap());
    old.set_pragma(None, "user_version", i64::try_from(before).unwrap()).unwrap();
    fill(&old, 1..=20);
    old.execute("UPDATE usage SET last_ms = id * 50000000, digest = NULL", ()).unwrap();
    type Run = (i64, i64, i64, Vec<u8>);
    let runs_of = |db: &Db| -> Vec<(Run, i64)> {
        let sql = "SELECT bucket, last, first, entries, day FROM usage_requests ORDER BY bucket, last";
        db.rows(sql, (), |row| Ok(((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?), row.get(4)?)))
            .unwrap()
    };
    let want = runs_of(&new);
    let insert =
        "INSERT INTO usage_requests (bucket, last, first, entries) VALUES (:bucket, :last, :first, :entries)";
    for ((bucket, last, first, entries), _) in &want {
        old.execute(insert, (bucket, last, first, entries)).unwrap();
    }
    // What a killed process has left of a run, which is in no bucket 0.
    old.execute(insert, (7, 20, 19, b"entries".as_slice())).unwrap();
    migrate(&mut old).unwrap();
    assert_eq!((want.len(), runs_of(&old) == want), (3 * BUCKETS, true));
    assert_eq!(covered(&old, NodeId::FIRST).unwrap(), RecordId::here(18));
    assert_found(&old, 1..=20);
    assert_eq!(make_run(&mut old, END, 50).unwrap(), RunStep::Complete);
    assert_found(&old, 1..=20);
}

#[test]
fn the_request_index_moves_with_the_usage_tables() {
    let dir = TempDir::new().unwrap();
    let key = Secret::new([1; 32]);
    let moved = |apart: bool, work: &dyn Fn(&mut Db, &Path)| {
        let mut opened = open(dir.path(), &key).unwrap();
        settle(dir.path(), &mut opened.writer, apart).unwrap();
        work(&mut opened.writer, dir.path());
    };
    moved(false, &|db, _| {
        fill(db, 1..=20);
        while make_run(db, END, 300).unwrap() == RunStep::Complete {}
    });
    for apart in [true, false, true] {
        moved(apart, &|db, dir| {
            assert_eq!(
                (runs(db), covered(db, NodeId::FIRST).unwrap()),
                (3, RecordId::here(18)),
                "apart: {apart}"
            );
            assert_found(db, 1..=20);
            assert_eq!(dir.join("usage.db").exists(), apart);
        });
    }
    // Opening compares the sums of the table's rows, which detects the change.
    let usage = Db::create(dir.path().join("usage.db")).unwrap();
    usage.execute("UPDATE usage_requests SET last = last + 1000", ()).unwrap();
    drop(usage);
    let refused = open(dir.path(), &key).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("usage_requests"), "{refused}");
}

#[test]
fn an_interrupted_run_is_rebuilt_without_leftovers() {
    for writes in 1..BUCKETS / WRITTEN_AT_ONCE {
        let mut db = migrated();
        fill(&db, 1..=10);
        let mut draft = RunDraft::new(NodeId::FIRST, 400);
        assert_eq!(draft.step(&mut db, END).unwrap(), RunStep::More);
        for _ in 0..writes {
            assert_eq!(draft.step(&mut db, END).unwrap(), RunStep::More);
        }
        assert_eq!(
            (entries(&db), covered(&db, NodeId::FIRST).unwrap()),
            (writes * WRITTEN_AT_ONCE, RecordId::default())
        );
        assert_found(&db, 1..=10);
        assert_eq!(make_run(&mut db, END, 300).unwrap(), RunStep::Complete);
        assert_eq!((entries(&db), covered(&db, NodeId::FIRST).unwrap()), (BUCKETS, RecordId::here(6)));
        assert_found(&db, 1..=10);
    }
}

#[test]
fn a_run_whose_rows_were_deleted_covers_no_rows() {
    let mut db = migrated();
    fill(&db, 1..=10);
    let mut draft = RunDraft::new(NodeId::FIRST, 400);
    assert_eq!(draft.step(&mut db, END).unwrap(), RunStep::More);
    db.execute("DELETE FROM usage", ()).unwrap();
    assert_eq!(draft.step(&mut db, END).unwrap(), RunStep::Complete);
    assert_eq!(covered(&db, NodeId::FIRST).unwrap(), RecordId::default());
}
