//! The pages of a search together contain every match, however little each page may search.

use std::time::Duration;

use shared::usage::{UsageEvent, UsageLog as _};

use super::*;
use crate::usage::tests::{Process, event};

#[test]
fn a_search_without_a_time_range_pages_through_every_record() {
    let home = tempfile::TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    for block in 0..20 {
        for n in 0..50 {
            // The times of each row overlap those of the two rows before, and some times repeat.
            let started_at_ms = 1_000 + block * 10 + n % 7 - if n % 5 == 0 { 20 } else { 0 };
            let status = if (block * 50 + n) % 97 == 0 { 503 } else { 200 };
            log.append(&UsageEvent { started_at_ms, status, ..event(block * 50 + n) });
        }
        process.settle();
        process.meter.usage_mut();
    }
    let db = process.meter.db_mut();
    let far = Instant::now() + Duration::from_secs(60);
    for filter in [RequestFilter { status: Some(503), ..RequestFilter::default() }, RequestFilter::default()]
    {
        let whole = page(db, &filter, None, Bounds { rows: 2_000, until: far }).unwrap();
        assert!(whole.next.is_none());
        let want: Vec<String> = whole.rows.into_iter().map(|row| row.request_id).collect();
        let (mut got, mut cursor, mut pages, mut empty) = (Vec::new(), None, 0, 0);
        loop {
            let found = page(db, &filter, cursor, Bounds { rows: 30, until: Instant::now() }).unwrap();
            pages += 1;
            empty += u32::from(found.rows.is_empty());
            got.extend(found.rows.into_iter().map(|row| row.request_id));
            let Some(next) = found.next else { break };
            assert!(cursor.is_none_or(|cursor| next < cursor), "{next:?} goes on from {cursor:?}");
            cursor = Some(next);
        }
        assert_eq!(got, want, "{filter:?}");
        assert!(pages > 10, "{pages}");
        assert!(filter.status.is_none() || empty > 0, "a page may be empty and not the last");
    }
}
