//! The state of the exports: their counts, their current failure, and their end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shared::clock::unix_ms;
use shared::request_traces::RequestTraces;
use tokio::sync::Notify;

/// The state of the exports, for `GET state` and `GET /metrics`.
#[derive(Debug)]
pub(crate) struct OtlpStatus {
    /// Counts spans.
    pub(crate) spans: SignalStatus,
    /// Counts exports.
    pub(crate) metrics: SignalStatus,
    end: Notify,
    ended: Notify,
}

/// The state of the exports of one signal.
#[derive(Debug)]
pub(crate) struct SignalStatus {
    signal: &'static str,
    /// The spans, or exports of metrics, that the collector accepted.
    pub(crate) exported: AtomicU64,
    /// Those that could not be delivered.
    pub(crate) failed: AtomicU64,
    /// Those that the collector rejected.
    pub(crate) rejected: AtomicU64,
    failing: Mutex<Option<ExportFailing>>,
}

/// The state while exports fail.
#[derive(Clone, Debug)]
pub(crate) struct ExportFailing {
    /// In milliseconds since the Unix epoch.
    pub(crate) since_ms: u64,
    pub(crate) error: String,
}

impl Default for OtlpStatus {
    fn default() -> Self {
        let (spans, metrics) = (SignalStatus::new("traces"), SignalStatus::new("metrics"));
        Self { spans, metrics, end: Notify::new(), ended: Notify::new() }
    }
}

impl OtlpStatus {
    /// Ends the exports: what waits is exported now, for at most [`END_TIME_MAX`].
    pub(crate) async fn end(&self) {
        self.end.notify_one();
        // The exporter has the same limit; the second one covers a control thread that is busy.
        tokio::time::timeout(2 * END_TIME_MAX, self.ended.notified()).await.ok();
    }

    /// Waits until the exports are to end.
    pub(super) async fn until_end(&self) {
        self.end.notified().await;
    }

    /// Reports that the exports have ended.
    pub(super) fn ended(&self) {
        self.ended.notify_one();
    }

    /// Returns the counts of spans by result.
    pub(crate) fn span_results(&self, traces: &RequestTraces) -> [(&'static str, u64); 4] {
        let [exported, failed, rejected] = self.spans.results();
        [exported, ("dropped", traces.dropped()), failed, rejected]
    }
}

impl SignalStatus {
    fn new(signal: &'static str) -> Self {
        Self {
            signal,
            exported: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            failing: Mutex::new(None),
        }
    }

    /// Returns the counts by result.
    pub(crate) fn results(&self) -> [(&'static str, u64); 3] {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("exported", read(&self.exported)),
            ("failed", read(&self.failed)),
            ("rejected", read(&self.rejected)),
        ]
    }

    /// Returns the state while exports fail.
    pub(crate) fn failing(&self) -> Option<ExportFailing> {
        self.lock().clone()
    }

    /// Records that the collector accepted an export, of which it rejected a part.
    pub(super) fn succeeded(&self, count: u64, rejected: u64) {
        let rejected = rejected.min(count);
        self.rejected.fetch_add(rejected, Ordering::Relaxed);
        self.exported.fetch_add(count - rejected, Ordering::Relaxed);
        if let Some(ended) = self.lock().take() {
            let seconds = unix_ms().saturating_sub(ended.since_ms) / 1_000;
            tracing::info!("{} are exported again after {seconds} s", self.signal);
        }
    }

    /// Records the error of an export, of which `lost` is not tried again.
    pub(super) fn failed(&self, error: String, lost: u64) {
        self.failed.fetch_add(lost, Ordering::Relaxed);
        let mut failing = self.lock();
        if failing.is_none() {
            tracing::warn!("cannot export {}: {error}", self.signal);
        }
        let since_ms = failing.as_ref().map_or_else(unix_ms, |failing| failing.since_ms);
        *failing = Some(ExportFailing { since_ms, error });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ExportFailing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time for the last exports when the gateway stops.
pub(super) const END_TIME_MAX: Duration = Duration::from_secs(3);
