//! Series over a real database: their time, and percentiles.

use std::time::{Duration, Instant};

use shared::usage::{UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::*;
use crate::usage::tests::{Process, event};

const FROM: u64 = 1_700_000_000_000;

fn question(step_ms: u64) -> SeriesQuestion {
    let to_ms = FROM + 100 * step_ms;
    SeriesQuestion { from_ms: FROM, to_ms, step_ms, group_by: Vec::new(), filter: RequestFilter::default() }
}

/// Returns a database with `count` exchanges, one a second.
fn filled(home: &TempDir, count: u64) -> Process {
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    for n in 0..count {
        assert!(log.append(&UsageEvent { started_at_ms: FROM + n * 1_000, ..event(n) }));
    }
    drop(log);
    process.settle();
    process
}

#[test]
fn a_series_that_timed_out_names_the_start_of_its_complete_part() {
    let home = TempDir::new().unwrap();
    let process = filled(&home, 300);
    let db = process.meter.db();
    let question = question(3_000);
    let whole = series(db, &question, Instant::now() + Duration::from_secs(600)).unwrap().unwrap();
    let requests =
        |found: &Series| found.groups[0].points.iter().map(|point| point.requests).collect::<Vec<_>>();
    assert_eq!((whole.complete_from_ms, requests(&whole)), (FROM, vec![3; 100]));
    let cut = series(db, &question, Instant::now()).unwrap().unwrap();
    assert!(cut.complete_from_ms > FROM + 200_000, "{}", cut.complete_from_ms);
    assert_eq!(requests(&cut), vec![0; 100], "nothing was read");
}

#[test]
fn a_cut_series_is_complete_after_the_time_that_it_names() {
    let home = TempDir::new().unwrap();
    let process = filled(&home, 6_000);
    let question = question(60_000);
    for budget_us in (0..24).map(|power| 1 << power) {
        let until = Instant::now() + Duration::from_micros(budget_us);
        let found = series(process.meter.db(), &question, until).unwrap().unwrap();
        let whole = (found.complete_from_ms - FROM).div_ceil(60_000);
        for (number, point) in (0..).zip(&found.groups[0].points) {
            assert!(point.requests == 60 || number < whole, "point {number} of a reading of {budget_us} us");
        }
    }
}

#[test]
fn a_point_has_the_percentiles_of_its_exchanges_and_null_without_any() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    for n in 1..=100 {
        let first_content_us = (n > 50).then_some(n * 1_000);
        let started_at_ms = FROM + n;
        assert!(log.append(&UsageEvent { started_at_ms, duration_us: n * 10, first_content_us, ..event(n) }));
    }
    drop(log);
    process.settle();
    let until = Instant::now() + Duration::from_secs(600);
    let found = series(process.meter.db(), &question(1_000), until).unwrap().unwrap();
    let [first, second, ..] = found.groups[0].points.as_slice() else { panic!("{found:?}") };
    let near = |value: Option<u64>, want: u64| value.unwrap().abs_diff(want) <= want / 250;
    assert!(near(first.duration.percentile(50), 500) && near(first.duration.percentile(99), 990));
    assert!(near(first.first_content.percentile(50), 75_000));
    assert_eq!((second.requests, second.duration.percentile(50)), (0, None));
}
