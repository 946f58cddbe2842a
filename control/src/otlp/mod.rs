//! Exports the spans of finished requests by OTLP over HTTP. Requests never wait for it: workers leave finished exchanges in
//! a bounded queue, and the exporter runs on the control thread.

mod message;
mod post;
mod spans;
mod status;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use shared::build::BuildIdentity;
use shared::port::HttpClient;
use shared::request_traces::{RequestTraces, TracedExchange};
use shared::snapshot::SnapshotReader;
use tokio::time::Instant;

pub(crate) use self::status::OtlpStatus;

use self::message::{Attribute, ExportTraces, Resource, ResourceSpans, Scope, ScopeSpans};
use self::post::{PostFailure, post};
use self::status::END_TIME_MAX;
use crate::config::{Otlp, OtlpTraces};
use crate::vault::random;
use crate::webhook::Backoff;

/// Parameters of [`SpanExporter::new`].
#[derive(Debug)]
pub(crate) struct ExporterParams {
    pub(crate) settings: Otlp,
    pub(crate) traces: OtlpTraces,
    pub(crate) queue: Arc<RequestTraces>,
    pub(crate) snapshot: SnapshotReader,
    pub(crate) http: Arc<dyn HttpClient>,
    pub(crate) status: Arc<OtlpStatus>,
    pub(crate) build: BuildIdentity,
}

/// Exports the finished exchanges of a queue.
#[derive(Debug)]
pub(crate) struct SpanExporter {
    params: ExporterParams,
    resource: Resource,
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
    pub(crate) fn new(params: ExporterParams) -> Self {
        let resource = resource(&params.settings, &params.build);
        Self { params, resource, gathered: (Vec::new(), 0), sending: None, failures: 0 }
    }

    /// Exports until [`OtlpStatus::end`].
    pub(crate) async fn run(mut self) {
        let status = Arc::clone(&self.params.status);
        tokio::select! {
            () = self.export() => {}
            () = status.until_end() => {}
        }
        if tokio::time::timeout(END_TIME_MAX, self.export_rest()).await.is_err() {
            tracing::warn!("the collector did not accept the last traces in time");
        }
        status.ended();
    }

    async fn export(&mut self) {
        let delay = self.params.traces.delay;
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
    async fn export_rest(&mut self) {
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
        while *spans < self.params.traces.batch_max {
            let Some(exchange) = self.params.queue.take() else { return false };
            *spans += exchange.spans();
            exchanges.push(exchange);
        }
        true
    }

    /// Builds the batch of the gathered exchanges.
    fn batch(&mut self) -> Option<Batch> {
        let (exchanges, _) = std::mem::take(&mut self.gathered);
        let snapshot = self.params.snapshot.load();
        let mut spans = Vec::new();
        exchanges.iter().for_each(|exchange| spans::add_spans(exchange, &snapshot, &mut spans));
        let count = u64::try_from(spans.len()).ok().filter(|count| *count > 0)?;
        let scope = Scope { name: "llmgw".to_owned(), version: self.params.build.version.to_owned() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(self.resource.clone()), scope_spans }];
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
        let ExporterParams { settings, traces, http, status, .. } = &self.params;
        // The batch is not lost if this future is dropped.
        self.sending = Some(batch.clone());
        let posted = post(http, settings, &traces.endpoint, batch.body.clone()).await;
        self.sending = None;
        match posted {
            Ok(rejected) => {
                let rejected = rejected.min(batch.spans);
                status.rejected.fetch_add(rejected, Ordering::Relaxed);
                status.exported.fetch_add(batch.spans - rejected, Ordering::Relaxed);
                self.failures = 0;
                status.set_failing(None);
                Duration::ZERO
            }
            Err(PostFailure { error, retry_after_ms }) => {
                status.set_failing(Some(error));
                self.failures = self.failures.saturating_add(1);
                let tries = batch.tries + 1;
                if let Some(asked_ms) = retry_after_ms.filter(|_| tries < TRIES_MAX) {
                    self.sending = Some(Batch { tries, ..batch });
                    return pause(self.failures, asked_ms);
                }
                status.failed.fetch_add(batch.spans, Ordering::Relaxed);
                Duration::ZERO
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

/// Returns the attributes of all telemetry of this process.
fn resource(settings: &Otlp, build: &BuildIdentity) -> Resource {
    let instance = u128::from_be_bytes(random().unwrap_or_default());
    let own = [
        Attribute::text("service.version", build.version),
        Attribute::text("service.instance.id", format!("{instance:032x}")),
        Attribute::text("telemetry.sdk.name", "llmgw"),
        Attribute::text("telemetry.sdk.language", "rust"),
        Attribute::text("telemetry.sdk.version", build.version),
    ];
    let given = settings.resource.iter().map(|(name, value)| Attribute::text(name, value.as_str()));
    let is_given = |own: &Attribute| settings.resource.iter().any(|(name, _)| *name == own.key);
    let own = own.into_iter().filter(|own| !is_given(own));
    Resource { attributes: given.chain(own).collect() }
}

/// The interval at which the queue is read.
const LOOK: Duration = Duration::from_millis(200);
/// A batch is given up after this many tries.
const TRIES_MAX: u32 = 8;
const PAUSE_MS_FIRST: u64 = 1_000;
/// The longest pause of our own is 16 s.
const DOUBLINGS_MAX: u32 = 5;
