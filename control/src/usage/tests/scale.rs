//! Very many records: none is lost, reports stay complete, and what one question reads does not grow with the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shared::id::{KeyId, ModelId};
use shared::usage::{UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::{Process, event};
use crate::db::HOUR_MS;
use crate::usage::dimension::{Dimension, Marks};
use crate::usage::report::calendar::Calendar;
use crate::usage::report::{ReportQuestion, sums};
use crate::usage::requests::{Column, NamedRequest, row};
use crate::usage::scope::UsageScope;

/// The number of records. `LLMGW_SCALE_RECORDS=10000000` tests what a large installation has, in some minutes of a release
/// build.
fn records() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the variable is for those who run this test")]
    let asked = std::env::var("LLMGW_SCALE_RECORDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(60_000)
}

/// A record of one of 1,000 keys and 5 models; all together take 90 days.
fn record(n: u64, count: u64) -> UsageEvent {
    let started_at_ms = START_MS + n * (90 * 24 * HOUR_MS) / count;
    let (key, model) = (KeyId::new(format!("key_{}", n % 1_000)), ModelId::new(format!("m{}", n % 5)));
    UsageEvent { key, model: Some(model), started_at_ms, cost_nano_usd: Some(1_000), ..event(n) }
}

#[test]
fn every_one_of_very_many_records_is_in_the_reports_and_found_alone() {
    let count = records();
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let steps = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&steps);
    process.meter.db_mut().on_each_step(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        false
    });
    let mut log = process.journal.log().unwrap();
    let mut finding = Vec::new();
    for part in 0..PARTS {
        for n in count * part / PARTS..count * (part + 1) / PARTS {
            assert!(log.append(&record(n, count)));
        }
        process.settle();
        // Runs of the index are made between the turns of storing.
        (0..1_000).for_each(|_| process.meter.index_requests());
        let before = steps.load(Ordering::Relaxed);
        let found = row(process.meter.db_mut(), &NamedRequest::newest("req-77")).unwrap();
        assert!(found.is_some());
        finding.push(steps.load(Ordering::Relaxed) - before);
    }
    assert!(finding[3] <= 2 * finding[0] + 200, "finding one takes no more steps among more: {finding:?}");

    let by = |column| ReportQuestion {
        from_ms: 0,
        to_ms: START_MS * 2,
        calendar: Calendar::whole(),
        group_by: vec![Dimension::Column(column)],
        filters: Vec::new(),
        marks: Marks::default(),
        scope: UsageScope::default(),
    };
    for (column, groups) in [(Column::Key, 1_000), (Column::Model, 5)] {
        let until = Instant::now() + Duration::from_secs(600);
        let (found, is_complete) = sums(process.meter.db_mut(), &by(column), until).unwrap();
        assert_eq!((found.len(), is_complete), (groups, true));
        assert_eq!(found.iter().map(|group| group.sums.requests).sum::<u64>(), count);
    }
}

const PARTS: u64 = 4;
const START_MS: u64 = 1_700_000_000_000;
