//! The cost of a report, in steps of SQLite's virtual machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::tz::TimeZone;
use shared::id::{KeyId, ModelId};
use shared::usage::{UsageEvent, UsageLog as _};

use super::calendar::BucketLength;
use super::*;
use crate::db::engine::DbError;
use crate::usage::scope::UsageScope;
use crate::usage::tests::{Process, event};

const HOURS: u64 = 240;
const KEYS: u64 = 10;

/// Creates ten days of usage, with a row for each hour and key.
fn ten_days(home: &std::path::Path) -> Process {
    let mut process = Process::start(home);
    let mut log = process.journal.log().unwrap();
    for n in 0..HOURS * KEYS {
        log.append(&UsageEvent {
            started_at_ms: n / KEYS * HOUR_MS,
            key: KeyId::new(format!("key_{}", n % KEYS)),
            model: Some(ModelId::new(format!("m{}", n % 3))),
            ..event(n)
        });
    }
    process.settle();
    process
}

/// Returns the groups of a query with the buckets of `calendar`, and the number of steps of SQLite's virtual machine.
fn steps(db: &mut Db, calendar: Calendar) -> (Vec<ReportGroup>, u64) {
    let counted = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&counted);
    let each = move || {
        count.fetch_add(1, Ordering::Relaxed);
        false
    };
    db.on_each_step(each);
    let question = ReportQuestion {
        from_ms: 0,
        to_ms: HOURS * HOUR_MS,
        calendar,
        group_by: vec![Dimension::Column(Column::Model)],
        filters: Vec::new(),
        marks: Marks::default(),
        scope: UsageScope::default(),
    };
    let (groups, is_complete) = sums(db, &question, Instant::now() + Duration::from_secs(60)).unwrap();
    assert!(is_complete);
    (groups, counted.load(Ordering::Relaxed))
}

#[test]
fn sums_are_given_up_when_their_time_is_over() {
    let home = tempfile::TempDir::new().unwrap();
    let mut process = ten_days(home.path());
    let question = ReportQuestion {
        from_ms: 0,
        to_ms: HOURS * HOUR_MS,
        calendar: Calendar::whole(),
        group_by: vec![Dimension::Column(Column::Key)],
        filters: Vec::new(),
        marks: Marks::default(),
        scope: UsageScope::default(),
    };
    let db = process.meter.db_mut();
    let late = sums(db, &question, Instant::now());
    assert_eq!(late, Err(DbError::too_slow()));
    assert_eq!(in_time(late).unwrap(), None);
    let (whole, _) = sums(db, &question, Instant::now() + Duration::from_secs(60)).unwrap();
    assert_eq!(whole.iter().map(|group| group.sums.requests).collect::<Vec<_>>(), [HOURS; 10]);
}

#[test]
fn a_report_reads_each_sum_once_for_any_number_of_buckets() {
    let home = tempfile::TempDir::new().unwrap();
    let mut process = ten_days(home.path());
    let db = process.meter.db_mut();
    let columns = u64::try_from(UsageSums::COUNT).unwrap() + 2;
    let utc = |bucket| Calendar { bucket: Some(bucket), zone: TimeZone::UTC };
    let abroad = |bucket| Calendar { bucket: Some(bucket), zone: TimeZone::get("Europe/Berlin").unwrap() };
    for (calendar, rows, buckets) in [
        (utc(BucketLength::Hour), HOURS * KEYS, HOURS),
        (abroad(BucketLength::Hour), HOURS * KEYS, HOURS),
        (abroad(BucketLength::Day), HOURS * KEYS, 11),
        (utc(BucketLength::Day), HOURS / 24 * KEYS * 3, 10),
    ] {
        let (groups, steps) = steps(db, calendar.clone());
        assert_eq!(groups.len() as u64, buckets * 3, "{calendar:?}");
        assert_eq!(groups.iter().map(|group| group.sums.requests).sum::<u64>(), HOURS * KEYS);
        // Steps per row: its columns, the rare ones twice, and those to move to the next row.
        let most = rows * (2 * columns + 6) + 1_000;
        assert!(steps < most, "{calendar:?}: {steps} steps for {rows} rows");
    }
}
