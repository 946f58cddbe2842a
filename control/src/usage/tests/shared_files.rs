//! Journal files that two processes read, and files whose events are stored.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shared::usage::UsageLog as _;
use tempfile::TempDir;

use super::shipping::stored_in;
use super::{Process, append, large, paths};
use crate::db::engine::Db;
use crate::db::testing::{add_node, shared_database};
use crate::usage::gauge::read;
use crate::usage::ingest::Round;
use crate::usage::journal::resting::RESTING_MAX;

/// Leaves files with 3,000 events in the journal of `home`, as a process that was killed does.
fn leave_journal(home: &Path) {
    let first = Process::start(home);
    let mut log = first.journal.log().unwrap();
    append(&mut log, 0..3_000);
    std::mem::forget(log);
}

/// Returns the folder of a copy of the journal in `home`.
fn copied_journal(home: &Path) -> PathBuf {
    let copy = home.join("copy");
    fs::create_dir(&copy).unwrap();
    for path in paths(&home.join("journal")) {
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// Returns a process on the database of `home` whose journal is a copy of that in `home`.
fn with_copied_journal(home: &Path) -> Process {
    let db = Db::create(home.join("test.db")).unwrap();
    Process::with(db, home.join("test.db"), copied_journal(home))
}

/// As of a node that was made from a copy of another one's directory without its number.
#[test]
fn a_file_that_another_node_ships_counts_once() {
    let Some(database) = shared_database() else { return };
    let home = TempDir::new().unwrap();
    leave_journal(home.path());
    let copy = copied_journal(home.path());
    let [mut one, mut two] = [(1, home.path().join("journal")), (2, copy)].map(|(node, dir)| {
        add_node(&database.connect(), node.into());
        Process::with(database.connect_as(node), PathBuf::new(), dir)
    });
    assert_eq!(one.meter.round(), Round::More);
    two.settle();
    one.settle();
    assert_eq!(stored_in(&database.connect()), [3_000; 3]);
    assert_eq!((one.meter.unstored(), two.meter.unstored()), (0, 0));
}

/// As of a volume that is restored from an old snapshot.
#[test]
fn a_copy_of_a_file_that_is_gone_counts_once() {
    let Some(database) = shared_database() else { return };
    let home = TempDir::new().unwrap();
    leave_journal(home.path());
    let copy = copied_journal(home.path());
    add_node(&database.connect(), 1);
    let start = |dir| Process::with(database.connect_as(1), PathBuf::new(), dir);
    for number in 3_000..3_002 {
        let mut process = start(home.path().join("journal"));
        let mut log = process.journal.log().unwrap();
        append(&mut log, number..number + 1);
        drop(log);
        process.settle();
    }
    let before = stored_in(&database.connect());
    start(copy).settle();
    assert_eq!(stored_in(&database.connect()), before);
}

#[test]
fn a_file_that_two_processes_ship_counts_once() {
    for half in [false, true] {
        let home = TempDir::new().unwrap();
        leave_journal(home.path());
        let (mut one, mut two) = (Process::start(home.path()), with_copied_journal(home.path()));
        one.limit_gateway();
        // Both know the same read positions before one of them stores anything.
        assert_eq!((one.meter.round(), two.meter.round()), (Round::More, Round::More));
        if half {
            assert_eq!(one.meter.round(), Round::More);
        }
        two.settle();
        one.settle();
        assert_eq!(one.stored(), [3_000; 3]);
        assert_eq!(one.sql("SELECT CAST(sum(requests) AS BIGINT) FROM usage_day"), 3_000);
        assert_eq!((one.meter.unstored(), two.meter.unstored()), (0, 0));
        assert_eq!((one.files(), two.files()), (0, 0));
    }
}

#[test]
fn a_stored_file_rests_for_a_minute_before_it_is_reused() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    process.meter.rest_files_for(Duration::from_secs(60));
    let mut log = process.journal.log().unwrap();
    for n in 0..40 {
        log.append(&large(n));
    }
    process.settle();
    let now = Instant::now();
    assert_eq!((process.stored(), process.files()), ([40; 3], 3));
    assert_eq!(read(&process.gauge().sealed_bytes), 0, "stored files count as no waiting bytes");
    process.meter.sweep(now + Duration::from_secs(59));
    assert_eq!(process.files(), 3);
    process.meter.sweep(now + Duration::from_secs(61));
    assert_eq!(process.files(), 1, "only the file that is being written");
    // What rests counts as stored for the next process.
    for n in 40..80 {
        log.append(&large(n));
    }
    process.settle();
    std::mem::forget(log);
    drop(process);
    let mut process = Process::start(home.path());
    process.settle();
    assert_eq!((process.stored(), process.files()), ([80; 3], 0));
}

#[test]
fn resting_files_need_bounded_room_and_give_it_to_a_full_database() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    process.meter.rest_files_for(Duration::from_secs(60));
    let mut log = process.journal.log().unwrap();
    for n in 0..15 * (RESTING_MAX as u64 + 10) {
        log.append(&large(n));
        if n % 15 == 0 {
            process.settle();
        }
    }
    process.settle();
    assert_eq!(process.files(), RESTING_MAX + 1);
    // A database that finds no room gets that of the resting files.
    process.meter.db_mut().set_pragma(None, "max_page_count", 1).unwrap();
    for n in 0..45 {
        log.append(&large(n));
    }
    assert!(matches!(process.meter.round(), Round::Failing(_)));
    assert!(process.files() <= 5, "{}", process.files());
    process.meter.db_mut().set_pragma(None, "max_page_count", 1 << 30).unwrap();
    drop(log);
    process.settle();
    process.meter.end();
    assert_eq!(paths(&home.path().join("journal")).len(), 0, "nothing is left of an end in good order");
}
