//! The export of telemetry by OTLP, which OpenTelemetry's own variables configure.

use std::str::FromStr;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use shared::request_traces::Sampler;
use shared::secret::Secret;

use super::layer::Layers;

/// The export of telemetry by OTLP.
#[derive(Clone, Debug)]
pub struct Otlp {
    /// The export of traces; `None` if it is off.
    pub traces: Option<OtlpTraces>,
    /// The export of metrics; `None` if it is off.
    pub metrics: Option<OtlpMetrics>,
    /// The collector's address for logs, which the gateway itself does not export.
    pub(crate) logs: Option<Uri>,
    /// Headers of every export, marked as sensitive.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The time that one export may take.
    pub(crate) timeout: Duration,
    /// The attributes of `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`.
    pub(crate) resource: Vec<(String, String)>,
}

/// The export of traces.
#[derive(Clone, Debug)]
pub struct OtlpTraces {
    /// Decides which requests are traced.
    pub sampler: Sampler,
    /// True if the trace context of clients is continued, and upstreams may receive it.
    pub propagates: bool,
    /// Finished exchanges that may wait.
    pub exchanges_max: usize,
    /// The sampler in words.
    pub(crate) sampler_name: String,
    pub(crate) endpoint: Uri,
    /// Spans of one export.
    pub(crate) batch_max: u64,
    /// The time after which fewer spans are exported.
    pub(crate) delay: Duration,
}

/// The export of metrics.
#[derive(Clone, Debug)]
pub struct OtlpMetrics {
    pub(crate) endpoint: Uri,
    pub(crate) interval: Duration,
}

/// Reads the variables. They have no effect without an endpoint, or if OpenTelemetry is disabled.
pub(super) fn otlp(layers: &mut Layers<'_>) -> Otlp {
    let is_off = layers.flag("OTEL_SDK_DISABLED", None);
    let base = layers.optional("OTEL_EXPORTER_OTLP_ENDPOINT", None);
    let traces = endpoint(layers, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", (base.as_deref(), "v1/traces"));
    let metrics = endpoint(layers, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", (base.as_deref(), "v1/metrics"));
    let exports_traces = exports(layers, "OTEL_TRACES_EXPORTER") && !is_off;
    let exports_metrics = exports(layers, "OTEL_METRICS_EXPORTER") && !is_off;
    let protocol = layers.environment.text("OTEL_EXPORTER_OTLP_PROTOCOL");
    layers.take("OTEL_EXPORTER_OTLP_PROTOCOL", protocol, None, "http/protobuf".to_owned());
    let pairs = layers.environment.secret("OTEL_EXPORTER_OTLP_HEADERS");
    let pairs = layers.secret("OTEL_EXPORTER_OTLP_HEADERS", pairs);
    let timeout = Duration::from_millis(layers.count("OTEL_EXPORTER_OTLP_TIMEOUT", None, 10_000));
    let (headers, resource) = (headers(layers, pairs.as_ref()), resource(layers));
    let traces = settings_of_traces(layers, traces).filter(|_| exports_traces);
    let interval = Duration::from_millis(layers.count("OTEL_METRIC_EXPORT_INTERVAL", None, 60_000));
    let metrics = metrics.filter(|_| exports_metrics).map(|endpoint| OtlpMetrics { endpoint, interval });
    let logs = base.as_deref().filter(|_| !is_off).and_then(|base| joined(base, "v1/logs").parse().ok());
    Otlp { traces, metrics, logs, headers, timeout, resource }
}

/// Returns the address of one signal: its own, or the common address with the path of the signal.
fn endpoint(layers: &mut Layers<'_>, name: &str, (base, path): (Option<&str>, &str)) -> Option<Uri> {
    let own = layers.optional(name, None);
    let common = base.map(|base| joined(base, path));
    own.or(common)?.parse().ok()
}

fn joined(base: &str, path: &str) -> String {
    format!("{}/{path}", base.trim_end_matches('/'))
}

/// Returns true unless a signal is switched off.
fn exports(layers: &mut Layers<'_>, name: &str) -> bool {
    let exporter = layers.environment.text(name);
    layers.take(name, exporter, None, "otlp".to_owned()) == "otlp"
}

fn settings_of_traces(layers: &mut Layers<'_>, endpoint: Option<Uri>) -> Option<OtlpTraces> {
    let (sampler, sampler_name) = sampler(layers);
    let propagators = layers.environment.text("OTEL_PROPAGATORS");
    let propagators = layers.take("OTEL_PROPAGATORS", propagators, None, "tracecontext".to_owned());
    let mut propagators = propagators.split(',').map(str::trim);
    if !propagators.clone().all(|name| ["tracecontext", "baggage", "none"].contains(&name)) {
        layers.fault("OTEL_PROPAGATORS", "must be tracecontext or none; baggage is accepted and ignored");
    }
    let exchanges_max = layers.count("OTEL_BSP_MAX_QUEUE_SIZE", None, 2_048);
    let batch_max = layers.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", None, 512);
    let delay = Duration::from_millis(layers.count("OTEL_BSP_SCHEDULE_DELAY", None, 5_000));
    let propagates = propagators.any(|name| name == "tracecontext");
    Some(OtlpTraces {
        sampler,
        propagates,
        exchanges_max: usize::try_from(exchanges_max).unwrap_or(usize::MAX),
        sampler_name,
        endpoint: endpoint?,
        batch_max,
        delay,
    })
}

fn sampler(layers: &mut Layers<'_>) -> (Sampler, String) {
    let name = layers.environment.text("OTEL_TRACES_SAMPLER");
    let name = layers.take("OTEL_TRACES_SAMPLER", name, None, "parentbased_always_on".to_owned());
    let share = layers.environment.text(SAMPLER_ARG);
    let share = layers.take(SAMPLER_ARG, share, None, "1".to_owned());
    let follows_client = name.starts_with("parentbased_");
    let billionths = match name.trim_start_matches("parentbased_") {
        "always_off" => 0,
        "always_on" => ALL,
        _ => billionths(&share).unwrap_or_else(|| {
            layers.fault(SAMPLER_ARG, "must be a share of the requests from 0 to 1, such as 0.1");
            0
        }),
    };
    let shown = if name.ends_with("ratio") { format!("{name} {share}") } else { name };
    (Sampler::new(billionths, follows_client), shown)
}

/// Parses a share from 0 to 1.
fn billionths(text: &str) -> Option<u32> {
    let share = f64::from_str(text).ok().filter(|share| (0.0..=1.0).contains(share))?;
    // A duration in seconds is a number of billionths.
    u32::try_from(Duration::try_from_secs_f64(share).ok()?.as_nanos()).ok()
}

fn headers(layers: &mut Layers<'_>, text: Option<&Secret<String>>) -> Vec<(HeaderName, HeaderValue)> {
    let pairs = text.map(|text| pairs(text.expose())).unwrap_or_default();
    let headers = pairs.into_iter().map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let mut value = HeaderValue::try_from(value).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    let headers: Option<Vec<_>> = headers.collect();
    headers.unwrap_or_else(|| {
        layers.fault("OTEL_EXPORTER_OTLP_HEADERS", "must be pairs such as api-key=VALUE,tenant=VALUE");
        Vec::new()
    })
}

/// Returns the resource's attributes; the name of the service comes first.
fn resource(layers: &mut Layers<'_>) -> Vec<(String, String)> {
    let text = layers.optional(RESOURCE, None).unwrap_or_default();
    let mut attributes = pairs(&text);
    if attributes.iter().any(|(name, _)| name.is_empty()) || attributes.len() > ATTRIBUTES_MAX {
        layers.fault(RESOURCE, "must be at most 64 pairs such as deployment.environment.name=production");
    }
    let named = attributes.iter().position(|(name, _)| name == SERVICE_NAME);
    let named = named.map(|at| attributes.remove(at).1);
    let own = layers.environment.text("OTEL_SERVICE_NAME");
    let name = layers.take("OTEL_SERVICE_NAME", own, named, "llmgw".to_owned());
    attributes.insert(0, (SERVICE_NAME.to_owned(), name));
    attributes
}

/// Splits `name=value,name=value`; values are percent-encoded. A part that is no pair gets an empty name.
fn pairs(text: &str) -> Vec<(String, String)> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        Some((name.trim().to_owned(), value.into_owned()))
    };
    parts.map(|part| pair(part).unwrap_or_default()).collect()
}

const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SERVICE_NAME: &str = "service.name";
const ATTRIBUTES_MAX: usize = 64;
/// All requests, in billionths.
const ALL: u32 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_exactly_and_only_from_0_to_1() {
        for (text, want) in [
            ("0.1", Some(100_000_000)),
            ("1", Some(ALL)),
            ("1.0", Some(ALL)),
            ("0", Some(0)),
            ("1e-3", Some(1_000_000)),
            ("1.01", None),
            ("-0.1", None),
            ("NaN", None),
            ("10%", None),
            ("", None),
        ] {
            assert_eq!(billionths(text), want, "{text}");
        }
    }

    #[test]
    fn pairs_are_percent_decoded_and_parts_without_a_name_are_found() {
        let read = |text| pairs(text);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read(" api-key = a%20b ,,tenant=x=y,"), [pair("api-key", "a b"), pair("tenant", "x=y")]);
        for text in ["word", "=value", "a=%ff"] {
            assert!(read(text).iter().any(|(name, _)| name.is_empty()), "{text}");
        }
    }
}
