//! Tests of a start whose journal contains records of an earlier process.

use std::sync::Arc;
use std::time::Instant;

use shared::id::ProjectId;
use shared::quota::Counter;
use shared::usage::{UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::*;
use crate::usage::tests::{Process, event};

fn of_project(n: u64) -> UsageEvent {
    UsageEvent { project: Some(ProjectId::new("prj")), ..event(n) }
}

/// Publishes a limit of the gateway now, and returns its counter.
fn limited(process: &mut Process) -> Arc<Counter> {
    let counter = process.limit_gateway();
    process.counters.published(unix_ms());
    counter
}

/// A start with many waiting records does not store them all first, and no limit forgets them.
#[test]
fn a_start_counts_what_waits_in_limits_and_stores_it_behind() {
    const RECORDS: u64 = 5_000;
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    (0..RECORDS).for_each(|n| assert!(log.append(&of_project(n))));
    // Exchange 0 has a record and a note, the last one a note alone.
    for n in [0, RECORDS] {
        log.note(&of_project(n)).unwrap();
    }
    std::mem::forget(log);
    drop(process);

    let mut next = Process::start(home.path());
    next.meter.begin_until(Instant::now());
    let counter = limited(&mut next);
    assert_eq!(next.sql("SELECT count(*) FROM usage"), 0, "nothing was stored before the gateway serves");
    next.meter.count_rest().unwrap();
    let used = || counter.read(unix_ms()).used;
    assert_eq!(used(), RECORDS + 1, "each exchange once");
    assert_eq!(next.meter.unstored(), RECORDS, "what waits is known");
    next.settle();
    assert_eq!((used(), next.meter.unstored()), (RECORDS + 1, 0), "storing counts nothing again");
    assert_eq!(next.sql("SELECT used FROM quota_share"), i64::try_from(RECORDS + 1).unwrap());
    let interrupted = "SELECT CAST(sum(requests) AS BIGINT) FROM usage_hour WHERE outcome = 'interrupted'";
    assert_eq!(next.sql(interrupted), 1);
}

#[test]
fn a_limit_that_is_made_while_earlier_records_are_stored_counts_them_too() {
    const RECORDS: u64 = 5_000;
    let home = TempDir::new().unwrap();
    let process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    (0..RECORDS).for_each(|n| assert!(log.append(&of_project(n))));
    std::mem::forget(log);
    drop(process);

    let mut next = Process::start(home.path());
    next.meter.round();
    next.meter.count_rest().unwrap();
    let stored = u64::try_from(next.sql("SELECT CAST(sum(exchanges) AS BIGINT) FROM usage")).unwrap();
    let (counter, counted_at_ms) = (next.limit_gateway(), next.meter.counted_at_ms.unwrap());
    // Published in a later millisecond than that in which the waiting records were counted.
    next.counters.published(counted_at_ms + 1);
    next.meter.access_changed(&crate::routing::publish::TouchedAccess::All);
    next.settle();
    assert_eq!(counter.read(unix_ms()).used, RECORDS - stored);
}
