//! Exports telemetry by OTLP over HTTP: the spans of finished requests, and the metrics of exchanges. Requests never wait for
//! it: workers leave the encoded spans of finished requests in a bounded queue, and the exporter runs on the control thread.

mod fields;
mod message;
mod metric_exporter;
mod metrics;
mod post;
mod span_exporter;
mod spans;
mod status;

use std::sync::Arc;

use shared::build::BuildIdentity;
use shared::port::HttpClient;
use shared::request_traces::{RequestTraces, SpanEncoder};
use shared::snapshot::SnapshotReader;

pub(crate) use self::status::{OtlpStatus, SignalStatus};

use self::message::{Attribute, Resource, Scope};
use self::metric_exporter::MetricExporter;
use self::span_exporter::SpanExporter;
use self::status::END_TIME_MAX;
use crate::common::bounds::Bounds;
use crate::common::vault::random;
use crate::routing::config::Otlp;
use crate::usage::metrics::ExchangeMetrics;

/// Returns the encoder of the spans that are exported.
pub fn span_encoder(snapshot: SnapshotReader) -> Box<dyn SpanEncoder> {
    Box::new(spans::Encoder { snapshot })
}

/// Parameters of [`Exporter::new`].
#[derive(Debug)]
pub(crate) struct ExporterParams {
    pub(crate) settings: Otlp,
    pub(crate) queue: Option<Arc<RequestTraces>>,
    pub(crate) metrics: Arc<ExchangeMetrics>,
    pub(crate) bounds: Bounds,
    pub(crate) snapshot: SnapshotReader,
    pub(crate) http: Arc<dyn HttpClient>,
    pub(crate) status: Arc<OtlpStatus>,
    pub(crate) build: BuildIdentity,
}

/// Exports the telemetry that is configured.
#[derive(Debug)]
pub(crate) struct Exporter {
    spans: Option<SpanExporter>,
    metrics: Option<MetricExporter>,
    status: Arc<OtlpStatus>,
}

/// The common parts of the exporters.
#[derive(Clone, Debug)]
struct Exporting {
    settings: Otlp,
    snapshot: SnapshotReader,
    http: Arc<dyn HttpClient>,
    status: Arc<OtlpStatus>,
    build: BuildIdentity,
    resource: Resource,
}

impl Exporter {
    pub(crate) fn new(params: ExporterParams) -> Self {
        let ExporterParams { settings, queue, metrics, bounds, snapshot, http, status, build } = params;
        let resource = resource(&settings, &build);
        let exporting = Exporting { settings, snapshot, http, status: Arc::clone(&status), build, resource };
        let traces = exporting.settings.traces.clone().zip(queue);
        let spans = traces.map(|(traces, queue)| SpanExporter::new(exporting.clone(), traces, queue));
        let settings = exporting.settings.metrics.clone();
        let metrics = settings.map(|settings| MetricExporter::new(exporting, settings, (metrics, bounds)));
        Self { spans, metrics, status }
    }

    /// Exports until [`OtlpStatus::end`]; ends at once if nothing is configured.
    pub(crate) async fn run(mut self) {
        tokio::select! {
            () = export(&mut self.spans, &self.metrics) => {}
            () = self.status.until_end() => {}
        }
        let rest = export_rest(&mut self.spans, &self.metrics);
        if tokio::time::timeout(END_TIME_MAX, rest).await.is_err() {
            tracing::warn!("the collector did not accept the last telemetry in time");
        }
        self.status.ended();
    }
}

async fn export(spans: &mut Option<SpanExporter>, metrics: &Option<MetricExporter>) {
    let spans = async {
        if let Some(spans) = spans {
            spans.export().await;
        }
    };
    let metrics = async {
        if let Some(metrics) = metrics {
            metrics.export().await;
        }
    };
    tokio::join!(spans, metrics);
}

/// Exports what waits.
async fn export_rest(spans: &mut Option<SpanExporter>, metrics: &Option<MetricExporter>) {
    let spans = async {
        if let Some(spans) = spans {
            spans.export_rest().await;
        }
    };
    let metrics = async {
        if let Some(metrics) = metrics {
            metrics.export_once().await;
        }
    };
    tokio::join!(spans, metrics);
}

/// Returns the instrumentation that all telemetry comes from.
fn scope(build: &BuildIdentity) -> Scope {
    Scope { name: "llmgw".to_owned(), version: build.version.to_owned() }
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
