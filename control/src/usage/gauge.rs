//! The state of metering, as `GET /admin/api/state` reports it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shared::clock::unix_ms;

/// Counters since the process started. Data-plane threads and the writer thread update them.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    /// Rows stored.
    pub(crate) stored: AtomicU64,
    /// Events waiting in the journal when the writer thread last looked.
    pub(crate) waiting: AtomicU64,
    /// Events that could not be written to any file. Their clients got no complete answer.
    pub(crate) lost: AtomicU64,
    /// The time of the last of them, in milliseconds since the Unix epoch.
    pub(crate) lost_at_ms: AtomicU64,
    /// Logs without a reserve file. While there is one, no exchanges start.
    pub(crate) logs_stuck: AtomicU64,
    /// Events rejected because no table can store their sums.
    pub(crate) rejected: AtomicU64,
    /// Runs of bytes in the journal that are not events.
    pub(crate) garbage_lines: AtomicU64,
    /// Journal writes that failed.
    pub(crate) journal_failures: AtomicU64,
    /// Journal files that are being written or contain unstored events.
    pub(crate) segments: AtomicU64,
    /// Bytes of the journal files that are no longer written.
    pub(crate) sealed_bytes: AtomicU64,
    /// The time when rows were last stored, in milliseconds since the Unix epoch.
    pub(crate) stored_at_ms: AtomicU64,
    /// True while records of earlier processes are stored behind the requests.
    pub(crate) is_behind: AtomicBool,
    pub(crate) pruning: Arc<Pruning>,
    failing: Mutex<Option<Failing>>,
}

/// Counters of the retention job since the process started.
#[derive(Debug, Default)]
pub(crate) struct Pruning {
    /// Usage rows, of many exchanges each, that are still to be deleted.
    pub(crate) backlog_rows: AtomicU64,
    /// Deleted exchanges.
    pub(crate) usage_records: AtomicU64,
    pub(crate) audit_records: AtomicU64,
    /// The longest time that a step occupied the writer thread, in microseconds.
    pub(crate) held_us_max: AtomicU64,
    /// The end of the last complete pass, in milliseconds since the Unix epoch; 0 if there was none.
    pub(crate) pass_ended_at_ms: AtomicU64,
}

/// The current failure to store events: its start and its latest error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) since_ms: u64,
    pub(crate) error: String,
}

impl Gauge {
    /// Records that storing fails. Returns true if it did not fail before.
    pub(crate) fn fail(&self, error: String) -> bool {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = failing.is_none();
        let since_ms = failing.take().map_or_else(unix_ms, |before| before.since_ms);
        *failing = Some(Failing { since_ms, error });
        is_new
    }

    /// Records that storing works. Returns the failure that this ends, if any.
    pub(crate) fn recover(&self) -> Option<Failing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the current failure, if any.
    pub(crate) fn failing(&self) -> Option<Failing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Adds to a counter. Relaxed: no other memory access is ordered by it.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Reads a counter, with relaxed ordering.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
