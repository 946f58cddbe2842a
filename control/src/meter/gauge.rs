//! What metering says about itself in `GET /admin/api/state`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shared::clock::unix_ms;

/// Counts since the start, written by whoever does the work.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    /// Rows stored.
    pub(crate) stored: AtomicU64,
    /// Events that wait in the journal, when the writer thread last looked.
    pub(crate) waiting: AtomicU64,
    /// Events that no file took. Their clients got no complete answer.
    pub(crate) lost: AtomicU64,
    /// Logs without a reserve. While there is one, no exchanges begin.
    pub(crate) logs_stuck: AtomicU64,
    /// Events whose sums no table takes.
    pub(crate) rejected: AtomicU64,
    /// Runs of bytes in the journal that are no events.
    pub(crate) garbage_lines: AtomicU64,
    /// Journal writes that failed.
    pub(crate) journal_failures: AtomicU64,
    /// Journal files that still hold something to store, or are being written.
    pub(crate) segments: AtomicU64,
    /// Bytes of journal files that are no longer being written.
    pub(crate) sealed_bytes: AtomicU64,
    /// When rows were last stored, in milliseconds since the Unix epoch.
    pub(crate) stored_at_ms: AtomicU64,
    pub(crate) pruning: Arc<Pruning>,
    failing: Mutex<Option<Failing>>,
}

/// What has been deleted because it had been kept long enough, since the start.
#[derive(Debug, Default)]
pub(crate) struct Pruning {
    /// Rows of usage, of many exchanges each, that are still to be deleted.
    pub(crate) backlog_rows: AtomicU64,
    /// Exchanges.
    pub(crate) usage_records: AtomicU64,
    pub(crate) audit_records: AtomicU64,
    /// The longest that a step held the writer, in microseconds.
    pub(crate) held_us_max: AtomicU64,
    /// When everything was looked through last, in milliseconds since the Unix epoch; 0 before that.
    pub(crate) pass_ended_at_ms: AtomicU64,
}

/// Storing fails since then, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) since_ms: u64,
    pub(crate) error: String,
}

impl Gauge {
    /// Storing fails. True if it did not fail before.
    pub(crate) fn fail(&self, error: String) -> bool {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = failing.is_none();
        let since_ms = failing.take().map_or_else(unix_ms, |before| before.since_ms);
        *failing = Some(Failing { since_ms, error });
        is_new
    }

    /// Storing works. Gives what failed before, if anything did.
    pub(crate) fn recover(&self) -> Option<Failing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether and why storing fails.
    pub(crate) fn failing(&self) -> Option<Failing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Adds to a counter that nobody orders anything by.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Reads such a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
