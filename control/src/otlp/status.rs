//! The state of the export of traces: its counts, its current failure, and its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shared::clock::unix_ms;
use shared::request_traces::RequestTraces;
use tokio::sync::Notify;

/// The state of the export, for `GET state` and `GET /metrics`.
#[derive(Debug, Default)]
pub(crate) struct OtlpStatus {
    /// Spans that the collector accepted.
    pub(crate) exported: AtomicU64,
    /// Spans that could not be delivered.
    pub(crate) failed: AtomicU64,
    /// Spans that the collector rejected.
    pub(crate) rejected: AtomicU64,
    failing: Mutex<Option<ExportFailing>>,
    end: Notify,
    ended: Notify,
}

/// The state while exports fail.
#[derive(Clone, Debug)]
pub(crate) struct ExportFailing {
    /// In milliseconds since the Unix epoch.
    pub(crate) since_ms: u64,
    pub(crate) error: String,
}

impl OtlpStatus {
    /// Returns the state while exports fail.
    pub(crate) fn failing(&self) -> Option<ExportFailing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the export: what waits is exported now, for at most [`END_TIME_MAX`].
    pub(crate) async fn end(&self) {
        self.end.notify_one();
        // The exporter has the same limit; the second one covers a control thread that is busy.
        tokio::time::timeout(2 * END_TIME_MAX, self.ended.notified()).await.ok();
    }

    /// Waits until the export is to end.
    pub(super) async fn until_end(&self) {
        self.end.notified().await;
    }

    /// Reports that the export has ended.
    pub(super) fn ended(&self) {
        self.ended.notify_one();
    }

    /// Records the outcome of an export: the error, or `None` for a success.
    pub(super) fn set_failing(&self, error: Option<String>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match (error, &mut *failing) {
            (Some(error), None) => {
                tracing::warn!("cannot export traces: {error}");
                *failing = Some(ExportFailing { since_ms: unix_ms(), error });
            }
            (Some(error), Some(failing)) => failing.error = error,
            (None, Some(ended)) => {
                let seconds = unix_ms().saturating_sub(ended.since_ms) / 1_000;
                tracing::info!("traces are exported again after {seconds} s");
                *failing = None;
            }
            (None, None) => {}
        }
    }

    /// Returns the counts of spans by result.
    pub(crate) fn span_results(&self, traces: &RequestTraces) -> [(&'static str, u64); 4] {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("exported", read(&self.exported)),
            ("dropped", traces.dropped()),
            ("failed", read(&self.failed)),
            ("rejected", read(&self.rejected)),
        ]
    }
}

/// The time for the last exports when the gateway stops.
pub(super) const END_TIME_MAX: Duration = Duration::from_secs(3);
