//! Exports the finished exchanges of a queue in batches. A batch that cannot be delivered is tried again, while the queue
//! fills and then drops.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use shared::request_traces::{RequestTraces, TracedExchange};
use tokio::time::Instant;

use super::message::{ExportTraces, ResourceSpans, ScopeSpans};
use super::post::{PostFailure, post};
use super::{Exporting, scope, spans};
use crate::config::OtlpTraces;
use crate::vault::random;
use crate::webhook::Backoff;

/// Exports the finished exchanges of a queue.
#[derive(Debug)]
pub(super) struct SpanExporter {
    exporting: Exporting,
    settings: OtlpTraces,
    queue: Arc<RequestTraces>,
    /// Exchanges of the next batch, and the number of their spans.
    gathered: (Vec<TracedExchange>, u64),
    /// The batch that is being delivered.
    sending: Option<Batch>,
    /// Failures since the last success.
    failures: u32,
}

#[derive(Clone, Debug)]
struct Batch {
    body: Bytes,
    spans: u64,
    tries: u32,
}

impl SpanExporter {
    pub(super) fn new(exporting: Exporting, settings: OtlpTraces, queue: Arc<RequestTraces>) -> Self {
        Self { exporting, settings, queue, gathered: (Vec::new(), 0), sending: None, failures: 0 }
    }

    /// Exports for as long as the future is polled.
    pub(super) async fn export(&mut self) {
        let delay = self.settings.delay;
        let mut due = Instant::now() + delay;
        loop {
            self.deliver().await;
            let is_full = self.gather();
            let is_due = Instant::now() >= due;
            if is_due {
                due = Instant::now() + delay;
            }
            if is_full || is_due {
                self.sending = self.batch();
            }
            if !is_full {
                tokio::time::sleep(LOOK.min(delay)).await;
            }
        }
    }

    /// Exports what waits, and tries each batch once.
    pub(super) async fn export_rest(&mut self) {
        loop {
            if let Some(batch) = self.sending.take() {
                self.attempt(batch).await;
                if self.sending.is_some() {
                    return;
                }
            }
            self.gather();
            self.sending = self.batch();
            if self.sending.is_none() {
                return;
            }
        }
    }

    /// Takes exchanges from the queue. Returns true if there are enough for a batch.
    fn gather(&mut self) -> bool {
        let (exchanges, spans) = &mut self.gathered;
        while *spans < self.settings.batch_max {
            let Some(exchange) = self.queue.take() else { return false };
            *spans += exchange.spans();
            exchanges.push(exchange);
        }
        true
    }

    /// Builds the batch of the gathered exchanges.
    fn batch(&mut self) -> Option<Batch> {
        let (exchanges, _) = std::mem::take(&mut self.gathered);
        let Exporting { snapshot, build, resource, .. } = &self.exporting;
        let snapshot = snapshot.load();
        let mut spans = Vec::new();
        exchanges.iter().for_each(|exchange| spans::add_spans(exchange, &snapshot, &mut spans));
        let count = u64::try_from(spans.len()).ok().filter(|count| *count > 0)?;
        let scope_spans = vec![ScopeSpans { scope: Some(scope(build)), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }];
        let body = ExportTraces { resource_spans }.encode_to_vec().into();
        Some(Batch { body, spans: count, tries: 0 })
    }

    /// Delivers the current batch, or gives it up.
    async fn deliver(&mut self) {
        while let Some(batch) = self.sending.clone() {
            let pause = self.attempt(batch).await;
            if self.sending.is_some() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Tries to deliver a batch. Keeps it in `sending` if another try makes sense, and returns the pause before that.
    async fn attempt(&mut self, batch: Batch) -> Duration {
        let Exporting { settings, http, status, .. } = &self.exporting;
        // The batch is not lost if this future is dropped.
        self.sending = Some(batch.clone());
        let posted = post(http, settings, &self.settings.endpoint, batch.body.clone()).await;
        self.sending = None;
        match posted {
            Ok(rejected) => {
                self.failures = 0;
                status.spans.succeeded(batch.spans, rejected);
                Duration::ZERO
            }
            Err(PostFailure { error, retry_after_ms }) => {
                self.failures = self.failures.saturating_add(1);
                let tries = batch.tries + 1;
                let retry_after_ms = retry_after_ms.filter(|_| tries < TRIES_MAX);
                status.spans.failed(error, if retry_after_ms.is_some() { 0 } else { batch.spans });
                let Some(asked_ms) = retry_after_ms else { return Duration::ZERO };
                self.sending = Some(Batch { tries, ..batch });
                pause(self.failures, asked_ms)
            }
        }
    }
}

/// Returns the pause after a number of failures: with full jitter, and at least what the collector asked for.
fn pause(failures: u32, asked_ms: u64) -> Duration {
    let bytes: [u8; 2] = random().unwrap_or([u8::MAX; 2]);
    let fraction = f64::from(u16::from_be_bytes(bytes)) / f64::from(u16::MAX);
    let backoff = Backoff { first_ms: PAUSE_MS_FIRST };
    let pause_ms = backoff.next_at_ms(0, failures.min(DOUBLINGS_MAX), asked_ms, fraction);
    Duration::from_millis(pause_ms.unwrap_or(PAUSE_MS_FIRST))
}

/// The interval at which the queue is read.
const LOOK: Duration = Duration::from_millis(200);
/// A batch is given up after this many tries.
const TRIES_MAX: u32 = 8;
const PAUSE_MS_FIRST: u64 = 1_000;
/// The longest pause of our own is 16 s.
const DOUBLINGS_MAX: u32 = 5;
