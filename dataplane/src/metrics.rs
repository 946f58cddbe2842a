//! Counters of one worker. Only that worker writes them, so a plain load and store is sufficient; `/metrics` sums
//! over the workers.

use std::sync::atomic::{AtomicU64, Ordering};

use shared::usage::{Outcome, UsageEvent};

/// Upper bounds of the latency histograms, in microseconds.
pub(crate) const BOUNDS_US: [u64; 12] = [
    1_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    120_000_000,
];

/// Counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) unnoted: AtomicU64,
    pub(crate) attempts: AtomicU64,
    pub(crate) attempt_failures: AtomicU64,
    pub(crate) quota_warnings: AtomicU64,
    pub(crate) input_tokens: AtomicU64,
    pub(crate) output_tokens: AtomicU64,
    pub(crate) connections_moved: AtomicU64,
    pub(crate) first_content: Histogram,
    pub(crate) duration: Histogram,
    pub(crate) queue: Histogram,
}

/// A histogram: counts by upper bound, the total count and the sum.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    pub(crate) buckets: [AtomicU64; BOUNDS_US.len()],
    pub(crate) count: AtomicU64,
    pub(crate) sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, us: u64) {
        add(&self.count, 1);
        add(&self.sum_us, us);
        let bucket = BOUNDS_US.iter().position(|bound| us <= *bound);
        if let Some(bucket) = bucket.and_then(|index| self.buckets.get(index)) {
            add(bucket, 1);
        }
    }
}

/// Adds to a counter that only the current thread writes.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl Counters {
    /// Counts a finished exchange.
    pub(crate) fn observe(&self, event: &UsageEvent) {
        add(
            match event.outcome {
                Outcome::Completed => &self.completed,
                Outcome::Failed => &self.failed,
                Outcome::Cancelled => &self.cancelled,
                Outcome::Cut | Outcome::Interrupted => &self.cut,
            },
            1,
        );
        add(&self.input_tokens, event.tokens.input_total());
        add(&self.output_tokens, event.tokens.output_total());
        self.duration.observe(event.duration_us);
        if let Some(us) = event.first_content_us {
            self.first_content.observe(us);
        }
    }
}
