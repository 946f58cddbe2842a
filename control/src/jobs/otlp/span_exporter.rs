//! Exports the finished requests of a queue in batches. A batch that cannot be delivered is tried again, while the queue
//! fills and then drops.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use shared::backoff::Backoff;
use shared::request_traces::{EncodedSpans, RequestTraces};
use tokio::time::Instant;

use super::fields::Fields;
use super::post::{PostFailure, post};
use super::{Exporting, scope};
use crate::routing::config::OtlpTraces;

/// Exports the finished requests of a queue.
#[derive(Debug)]
pub(super) struct SpanExporter {
    exporting: Exporting,
    settings: OtlpTraces,
    queue: Arc<RequestTraces>,
    /// The encoded resource and scope of every batch.
    source: (Vec<u8>, Vec<u8>),
    /// The spans of the next batch.
    gathered: EncodedSpans,
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
        let source = (exporting.resource.encode_to_vec(), scope(&exporting.build).encode_to_vec());
        Self {
            exporting,
            settings,
            queue,
            source,
            gathered: EncodedSpans::default(),
            sending: None,
            failures: 0,
        }
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

    /// Takes requests from the queue. Returns true if there are enough for a batch.
    fn gather(&mut self) -> bool {
        while self.gathered.count < self.settings.batch_max {
            let Some(spans) = self.queue.take() else { return false };
            self.gathered.bytes.extend_from_slice(&spans.bytes);
            self.gathered.count += spans.count;
        }
        true
    }

    /// Builds the batch of the gathered spans.
    fn batch(&mut self) -> Option<Batch> {
        let gathered = std::mem::take(&mut self.gathered);
        let (resource, scope) = &self.source;
        (gathered.count > 0).then(|| Batch {
            body: message(&gathered.bytes, resource, scope),
            spans: gathered.count,
            tries: 0,
        })
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

/// Returns the message `ExportTraceServiceRequest` with encoded spans, for the encoded resource and scope.
fn message(spans: &[u8], resource: &[u8], scope: &[u8]) -> Bytes {
    let mut head = Vec::new();
    let mut fields = Fields::new(&mut head);
    fields.bytes(1, resource);
    let mut scope_field = Vec::new();
    Fields::new(&mut scope_field).bytes(1, scope);
    fields.begin_message(2, scope_field.len() + spans.len());
    head.extend(scope_field);
    let mut body = Vec::with_capacity(head.len() + spans.len() + HEAD_BYTES_MAX);
    Fields::new(&mut body).begin_message(1, head.len() + spans.len());
    body.extend(head);
    body.extend_from_slice(spans);
    body.into()
}

/// Returns the pause after a number of failures: with full jitter, and at least what the collector asked for.
fn pause(failures: u32, asked_ms: u64) -> Duration {
    RETRY.pause(failures).max(Duration::from_millis(asked_ms))
}

/// The interval at which the queue is read.
const LOOK: Duration = Duration::from_millis(200);
/// A batch is given up after this many tries.
const TRIES_MAX: u32 = 8;
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(16));
/// The maximum length of the key and the length of a message.
const HEAD_BYTES_MAX: usize = 11;
