//! Metrics of what is in memory: the process, running exchanges, circuits, the usage store, jobs, and the disk.

use shared::clock::monotonic_ms;
use shared::health::{CircuitState, ShownRest};
use shared::routing::ProviderInstance;
use shared::running::RunningExchanges;
use shared::snapshot::Snapshot;

use super::text::MetricsText;
use crate::admin::App;
use crate::common::background::Jobs;
use crate::common::bounds::{Bounds, METRIC_PROVIDERS};
use crate::state::log_lines::LogLines;
use crate::usage::gauge::{Gauge, read};
use crate::usage::metrics::BOUNDS_REACHED;

pub(super) fn write(app: &App, text: &mut MetricsText) {
    process(app, text);
    log_lines(&app.log_lines, text);
    usage_store(app.journal.gauge(), text);
    circuits(&app.snapshot.load(), text);
    rests(&app.snapshot.load(), text);
    jobs(&app.jobs, text);
    disk(app, text);
    telemetry(app, text);
}

/// Writes how often each bound was reached. Every bound has its line, so that a query finds a 0.
pub(super) fn bounds(bounds: &Bounds, text: &mut MetricsText) {
    let name = BOUNDS_REACHED.prometheus() + "_total";
    text.begin(&name, "counter", BOUNDS_REACHED.help);
    for bound in bounds.all() {
        text.value(&name, &[(BOUNDS_REACHED.label, bound.name)], bound.count());
    }
}

/// Writes the numbers of running exchanges and attempts.
pub(super) fn running(running: &RunningExchanges, text: &mut MetricsText) {
    text.single("llmgw_running_requests", "gauge", "Requests that are being served.", running.total);
    text.begin("llmgw_running_attempts", "gauge", "Attempts in flight at a provider.");
    METRIC_PROVIDERS.excess(running.attempts.len());
    for (provider, count) in running.attempts.iter().take(METRIC_PROVIDERS.max()) {
        text.value("llmgw_running_attempts", &[("provider", provider.as_str())], count);
    }
}

fn process(app: &App, text: &mut MetricsText) {
    text.begin("llmgw_build_info", "gauge", "Always 1; the labels identify the build.");
    let labels = [("version", app.build.version), ("commit", app.build.commit)];
    text.value("llmgw_build_info", &labels, 1);
    text.single(
        "process_start_time_seconds",
        "gauge",
        "The start of the process, in seconds since the Unix epoch.",
        seconds(app.started_at_ms),
    );
    if let Some(bytes) = resident_bytes() {
        text.single("process_resident_memory_bytes", "gauge", "Memory of the process.", bytes);
    }
}

fn log_lines(log: &LogLines, text: &mut MetricsText) {
    let name = "llmgw_log_lines_dropped_total";
    text.begin(name, "counter", "Log lines that are missing at a destination because it took no more.");
    for (destination, count) in log.dropped() {
        text.value(name, &[("destination", destination)], count);
    }
}

fn usage_store(gauge: &Gauge, text: &mut MetricsText) {
    for (name, kind, help, value) in [
        ("llmgw_usage_stored_total", "counter", "Usage records stored.", read(&gauge.stored)),
        (
            "llmgw_usage_lost_total",
            "counter",
            "Usage records that no file accepted; their clients got no complete answer.",
            read(&gauge.lost),
        ),
        ("llmgw_usage_waiting", "gauge", "Usage records that wait to be stored.", read(&gauge.waiting)),
        (
            "llmgw_usage_storing_fails",
            "gauge",
            "1 while usage records cannot be stored.",
            u64::from(gauge.failing().is_some()),
        ),
        (
            "llmgw_retention_backlog_rows",
            "gauge",
            "Expired rows of usage that are still to be deleted.",
            read(&gauge.pruning.backlog_rows),
        ),
    ] {
        text.single(name, kind, help, value);
    }
}

fn circuits(snapshot: &Snapshot, text: &mut MetricsText) {
    text.begin("llmgw_open_circuits", "gauge", "Circuits of a provider and its models that are not closed.");
    METRIC_PROVIDERS.excess(snapshot.providers.len());
    for provider in snapshot.providers.iter().take(METRIC_PROVIDERS.max()) {
        text.value("llmgw_open_circuits", &[("provider", provider.id.as_str())], open_circuits(provider));
    }
}

fn rests(snapshot: &Snapshot, text: &mut MetricsText) {
    text.begin("llmgw_rest_seconds", "gauge", "Time for which a model still rests because of a rate limit.");
    let now_ms = monotonic_ms();
    for provider in snapshot.providers.iter() {
        for ShownRest { model, wait_ms, .. } in rests_of(provider, now_ms) {
            let labels = [("provider", provider.id.as_str()), ("model", model.as_str())];
            text.value("llmgw_rest_seconds", &labels, wait_ms.div_ceil(1_000));
        }
    }
}

/// Returns the models that rest, with each of the provider's keys. The first rest to end counts.
fn rests_of(provider: &ProviderInstance, now_ms: u64) -> Vec<ShownRest> {
    let mut lanes = provider.each_lane().map(|lane| lane.circuits.rests().all(now_ms));
    let mut rests = lanes.next().unwrap_or_default();
    for others in lanes {
        rests.retain_mut(|rest| {
            let other = others.iter().find(|other| other.model == rest.model);
            rest.wait_ms = rest.wait_ms.min(other.map_or(u64::MAX, |other| other.wait_ms));
            other.is_some()
        });
    }
    rests
}

fn open_circuits(provider: &ProviderInstance) -> usize {
    let (now_ms, policy) = (monotonic_ms(), &provider.circuit_policy);
    let of_lane = |lane: &ProviderInstance| {
        let of_models = lane.circuits.models(now_ms, policy);
        let circuits = of_models.iter().map(|(_, circuit)| &**circuit).chain([lane.circuits.instance()]);
        circuits.filter(|circuit| circuit.state(now_ms, policy) != CircuitState::Closed).count()
    };
    provider.each_lane().map(of_lane).sum()
}

fn jobs(jobs: &Jobs, text: &mut MetricsText) {
    let table = jobs.table();
    text.begin("llmgw_job_failed", "gauge", "1 if the last run of a periodic job failed.");
    for job in &table {
        text.value("llmgw_job_failed", &[("name", job.name)], u8::from(job.last_error.is_some()));
    }
    let name = "llmgw_job_last_end_timestamp_seconds";
    text.begin(name, "gauge", "The end of the last run of a periodic job; absent before the first.");
    for job in &table {
        if let Some(at_ms) = job.last_ended_at_ms {
            text.value(name, &[("name", job.name)], seconds(at_ms));
        }
    }
}

fn disk(app: &App, text: &mut MetricsText) {
    let Ok(disk) = rustix::fs::statvfs(app.config.state_dir.as_path()) else { return };
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    let (free, size) = (bytes(disk.f_bavail), bytes(disk.f_blocks));
    text.single("llmgw_disk_free_bytes", "gauge", "Free space on the disk of the state directory.", free);
    text.single("llmgw_disk_size_bytes", "gauge", "Size of the disk of the state directory.", size);
}

/// Writes what became of exported telemetry.
fn telemetry(app: &App, text: &mut MetricsText) {
    if let Some(traces) = &app.traces {
        let name = "llmgw_otlp_spans_total";
        text.begin(name, "counter", "Spans of requests by what became of them.");
        for (result, count) in app.otlp.span_results(traces) {
            text.value(name, &[("result", result)], count);
        }
    }
    if app.config.otlp.metrics.is_some() {
        let name = "llmgw_otlp_metric_exports_total";
        text.begin(name, "counter", "Exports of metrics by what became of them.");
        for (result, count) in app.otlp.metrics.results() {
            text.value(name, &[("result", result)], count);
        }
    }
}

/// Returns the resident memory of the process; `None` on systems without `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(resident.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of years are far below 2^52")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use shared::id::ProviderId;

    use super::*;
    use crate::common::bounds::tests::passes;

    #[test]
    fn providers_beyond_the_maximum_are_left_out_and_counted() {
        let mut attempts: Vec<(ProviderId, u32)> = Vec::new();
        attempts.extend((0..=METRIC_PROVIDERS.max()).map(|n| (ProviderId::new(format!("p{n:03}")), 1)));
        let running_exchanges =
            RunningExchanges { attempts: attempts.into_iter().collect(), ..RunningExchanges::default() };
        let mut text = MetricsText::default();
        passes(&METRIC_PROVIDERS, || running(&running_exchanges, &mut text));
        bounds(&Bounds::with(&[]), &mut text);
        let text = String::from_utf8(text.into_bytes().to_vec()).unwrap();
        assert_eq!(text.matches("llmgw_running_attempts{").count(), METRIC_PROVIDERS.max());
        let line = text.lines().find(|line| line.contains("bound=\"metric_providers\"")).unwrap();
        let (name, count) = line.split_once(' ').unwrap();
        assert_eq!(name, "llmgw_bound_reached_total{bound=\"metric_providers\"}");
        assert!(count.parse::<u64>().unwrap() > 0, "{line}");
        assert!(
            text.contains("llmgw_bound_reached_total{bound=\"running_listed\"} "),
            "those of other crates"
        );
    }
}
