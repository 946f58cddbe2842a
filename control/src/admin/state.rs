//! `GET /admin/api/state`: the status of the gateway. It works when the database fails: then the verdict is about the
//! exchanges that are known.

use http::{HeaderName, Method, Response};
use serde::Serialize;
use shared::build::BuildIdentity;
use shared::port::Body;
use shared::snapshot::Snapshot;

use super::backups::BackupState;
use super::{ApiError, App, Call, Route, json, route_of};
use crate::admin::verdict::ExplainedVerdict;
use crate::cluster::board::NodeBoard;
use crate::common::background::JobStatus;
use crate::common::bounds::{ReachedBound, UNUSABLE_PROVIDERS};
use crate::db::alerts::OpenAlerts;
use crate::db::cluster::nodes::NodeLabel;
use crate::db::packed_row::damaged_reads;
use crate::jobs::otlp::SignalStatus;
use crate::routing::config::Config;
use crate::routing::config::Sso;
use crate::routing::connection::{ProviderConnection, ProviderStanding};
use crate::state::UsageStore;
use crate::usage::gauge::read;

pub(super) static ROUTES: &[Route] = &[route_of(Method::GET, "state", |call| Box::pin(show(call)))
    .answers::<ShownState<'_>>("Shows the state of the gateway.")];

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let app = call.app;
    let verdict = app.observer.verdict().await;
    let snapshot = app.snapshot.load();
    let mut unusable = unusable(app, &snapshot);
    let unusable_omitted = UNUSABLE_PROVIDERS.cut(&mut unusable);
    json(&ShownState {
        auth_required: true,
        node: app.board().map(NodeBoard::me),
        verdict,
        build: app.build,
        started_at_ms: app.started_at_ms,
        uptime_seconds: app.started.elapsed().as_secs(),
        generation: snapshot.generation,
        snapshot_created_at_ms: snapshot.created.saturating_mul(1_000),
        counts: Counts::of(&snapshot),
        prices_as_of: app.catalog.list().as_of.clone(),
        reload: Reload::of(app),
        usage: ShownUsage::of(app),
        retention: ShownRetention::of(app),
        backup: app.backups.state(),
        jobs: app.jobs.table(),
        alerts: app.observer.open_alerts().await,
        oauth: ShownOauth::of(&app.config),
        sso: app.gate.sso().map(ShownSsoState::of),
        traces: ShownTraces::of(app),
        metrics_export: ShownMetricsExport::of(app),
        captures_bodies: app.config.logging.bodies,
        unusable,
        unusable_omitted,
        bounds_reached: app.bounds.reached(),
        warnings: &app.warnings,
    })
}

/// The state of the gateway. Only `alerts` needs the database, so that it works when the database fails.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "GatewayState"))]
struct ShownState<'a> {
    /// Always true: the admin API requires authentication.
    auth_required: bool,
    /// The node that answers: all else is of it, except `alerts`. Absent for a gateway with its own database.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a NodeLabel>,
    /// How the gateway is doing, since when, and why.
    verdict: ExplainedVerdict,
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Build"))]
    build: BuildIdentity,
    /// In milliseconds since the Unix epoch.
    started_at_ms: u64,
    /// In seconds.
    uptime_seconds: u64,
    /// The number of the routing view in use; it grows with each change that affects requests.
    generation: u64,
    /// The time at which that view was made, in milliseconds since the Unix epoch.
    snapshot_created_at_ms: u64,
    counts: Counts,
    /// The date of the price list in use.
    prices_as_of: String,
    reload: Reload,
    usage: ShownUsage,
    retention: ShownRetention,
    backup: BackupState,
    /// The periodic jobs.
    jobs: Vec<JobStatus>,
    /// Null if the database does not answer.
    alerts: Option<OpenAlerts>,
    oauth: ShownOauth,
    /// The settings of single sign-on; null if it is off.
    sso: Option<ShownSsoState<'a>>,
    /// The export of traces; null if it is off.
    traces: Option<ShownTraces>,
    /// The export of metrics; null if it is off.
    metrics_export: Option<ShownMetricsExport>,
    /// True if the bodies of requests and answers are captured.
    captures_bodies: bool,
    /// Providers that are configured but receive no requests, other than disabled ones; at most 100.
    unusable: Vec<UnusableProvider>,
    /// The number of further ones.
    unusable_omitted: usize,
    /// The bounds of the gateway that were reached since the start, the latest first.
    bounds_reached: Vec<ReachedBound>,
    /// The warnings of the start.
    warnings: &'a [String],
}

/// The settings of OAuth sign-ins.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "OauthState"))]
struct ShownOauth {
    /// True if `LLMGW_PARTNER_CLIENT_ID` is set.
    client_id_set: bool,
    /// The address to register with vendors as redirect URI; null if `LLMGW_OAUTH_PUBLIC_BASE_URL` is not set.
    redirect_uri: Option<String>,
    /// The settings that are missing for a sign-in in a browser; null if it is possible.
    lacks: Option<&'static str>,
}

impl ShownOauth {
    fn of(config: &Config) -> Self {
        let partner = &config.partner;
        Self {
            client_id_set: partner.client_id.is_some(),
            redirect_uri: config.redirect_uri(),
            lacks: match (&partner.client_id, &partner.public_base_url) {
                (None, _) => Some("LLMGW_PARTNER_CLIENT_ID is not set."),
                (Some(_), None) => Some("LLMGW_OAUTH_PUBLIC_BASE_URL is not set."),
                (Some(_), Some(_)) => None,
            },
        }
    }
}

/// The settings of single sign-on, without its secret.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SsoState"))]
struct ShownSsoState<'a> {
    /// The proxy whose headers are the defaults.
    preset: &'a str,
    /// The CIDR blocks from which the proxy connects.
    trusted_proxies: Vec<String>,
    /// The group whose members administer.
    admin_group: &'a str,
    /// True if unknown humans get an entry at their first sign-in.
    auto_provision: bool,
    user_header: &'a str,
    /// Null if the proxy sends none.
    email_header: Option<&'a str>,
    /// Null if the proxy sends none.
    name_header: Option<&'a str>,
    /// Null if the proxy sends none.
    groups_header: Option<&'a str>,
    /// Where a browser ends its session with the proxy; null if it is not configured.
    sign_out_url: Option<&'a str>,
    /// One sentence for each setting that has no effect or is dangerous.
    problems: Vec<String>,
}

impl<'a> ShownSsoState<'a> {
    fn of(sso: &'a Sso) -> Self {
        let blocks = sso.trusted_proxies.iter().map(|(address, bits)| format!("{address}/{bits}"));
        Self {
            preset: sso.preset,
            trusted_proxies: blocks.collect(),
            admin_group: &sso.admin_group,
            auto_provision: sso.auto_provision,
            user_header: sso.user_header.as_str(),
            email_header: sso.email_header.as_ref().map(HeaderName::as_str),
            name_header: sso.name_header.as_ref().map(HeaderName::as_str),
            groups_header: sso.groups_header.as_ref().map(HeaderName::as_str),
            sign_out_url: sso.sign_out_url.as_deref(),
            problems: sso.problems(),
        }
    }
}

/// The export of traces by OTLP.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TracesState"))]
struct ShownTraces {
    /// The address of the collector.
    endpoint: String,
    /// The sampler, with its share of the requests if it has one.
    sampler: String,
    /// Spans that the collector accepted since the start.
    exported_spans: u64,
    /// Spans that were dropped because the queue was full.
    dropped_spans: u64,
    /// Spans that could not be delivered.
    failed_spans: u64,
    /// Spans that the collector rejected.
    rejected_spans: u64,
    /// The time since which exports have been failing, in milliseconds since the Unix epoch; null if they work.
    failing_since_ms: Option<u64>,
    /// The error of the last export; null if it worked.
    failing_error: Option<String>,
}

/// The export of metrics by OTLP.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "MetricsExportState"))]
struct ShownMetricsExport {
    /// The address of the collector.
    endpoint: String,
    /// The interval of the exports, in seconds.
    interval_seconds: f64,
    /// Exports that the collector accepted since the start.
    exports: u64,
    /// Exports that failed.
    failed_exports: u64,
    /// Exports of which the collector rejected a part.
    rejected_exports: u64,
    /// The time since which exports have been failing, in milliseconds since the Unix epoch; null if they work.
    failing_since_ms: Option<u64>,
    /// The error of the last export; null if it worked.
    failing_error: Option<String>,
}

impl ShownTraces {
    fn of(app: &App) -> Option<Self> {
        let (traces, status) = (app.traces.as_ref()?, &app.otlp.spans);
        let settings = app.config.otlp.traces.as_ref()?;
        let (failing_since_ms, failing_error) = failing(status);
        Some(Self {
            endpoint: settings.endpoint.to_string(),
            sampler: settings.sampler_name.clone(),
            exported_spans: read(&status.exported),
            dropped_spans: traces.dropped(),
            failed_spans: read(&status.failed),
            rejected_spans: read(&status.rejected),
            failing_since_ms,
            failing_error,
        })
    }
}

impl ShownMetricsExport {
    fn of(app: &App) -> Option<Self> {
        let (settings, status) = (app.config.otlp.metrics.as_ref()?, &app.otlp.metrics);
        let (failing_since_ms, failing_error) = failing(status);
        Some(Self {
            endpoint: settings.endpoint.to_string(),
            interval_seconds: settings.interval.as_secs_f64(),
            exports: read(&status.exported),
            failed_exports: read(&status.failed),
            rejected_exports: read(&status.rejected),
            failing_since_ms,
            failing_error,
        })
    }
}

/// Returns the time since which exports have been failing, and the last error.
fn failing(status: &SignalStatus) -> (Option<u64>, Option<String>) {
    status.failing().map(|failing| (failing.since_ms, failing.error)).unzip()
}

/// A provider that is configured but receives no requests.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UnusableProvider {
    /// The ID of the provider.
    provider: String,
    /// The fault and its remedy.
    reason: String,
}

fn unusable(app: &App, snapshot: &Snapshot) -> Vec<UnusableProvider> {
    let view = app.view.read();
    let fault = |connection: &ProviderConnection| match &connection.standing {
        ProviderStanding::Disabled => None,
        ProviderStanding::Ready => {
            let id = connection.id.as_str();
            let instance = snapshot.providers.iter().find(|instance| instance.id.as_str() == id)?;
            instance.unready.map(|why| format!("The provider cannot be used: {why}."))
        }
        standing => standing.reason(),
    };
    let named = |connection: &ProviderConnection| {
        Some(UnusableProvider { provider: connection.id.clone(), reason: fault(connection)? })
    };
    view.providers.iter().filter_map(named).collect()
}

/// The numbers of objects that requests can use.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "StateCounts"))]
struct Counts {
    providers: usize,
    endpoints: usize,
    models: usize,
    /// Keys that can be used, administrators' keys included.
    keys: usize,
}

impl Counts {
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            providers: snapshot.providers.len(),
            endpoints: snapshot.endpoints.len(),
            models: snapshot.providers.iter().map(|provider| provider.models.len()).sum(),
            keys: snapshot.access.keys.len(),
        }
    }
}

/// The reload of the configuration file.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Reload"))]
struct Reload {
    /// Reloads since the start.
    reloads: u64,
    /// The time of the last one that succeeded, or of the start, in milliseconds since the Unix epoch.
    last_ok_at_ms: u64,
    /// The time of the last failure since then, in milliseconds since the Unix epoch; null if there was none.
    last_error_at_ms: Option<u64>,
    /// The error of that failure; null if there was none.
    last_error: Option<String>,
}

impl Reload {
    fn of(app: &App) -> Self {
        let status = app.reload.read();
        let (last_error_at_ms, last_error) = status.last_error.unzip();
        Self { reloads: status.reloads, last_ok_at_ms: status.last_ok_at_ms, last_error_at_ms, last_error }
    }
}

/// Records deleted since the start because their retention period had ended.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RetentionState"))]
struct ShownRetention {
    /// Usage rows, each of many exchanges, that are still to be deleted.
    backlog_rows: u64,
    /// Exchanges deleted.
    usage_records_deleted: u64,
    /// Audit records deleted.
    audit_records_deleted: u64,
    /// The longest time that one step blocked the writer, in microseconds.
    writer_held_us_max: u64,
    /// The end of the last pass, in milliseconds since the Unix epoch; null before the first one.
    last_pass_at_ms: Option<u64>,
}

impl ShownRetention {
    fn of(app: &App) -> Self {
        let pruning = &app.journal.gauge().pruning;
        Self {
            backlog_rows: read(&pruning.backlog_rows),
            usage_records_deleted: read(&pruning.usage_records),
            audit_records_deleted: read(&pruning.audit_records),
            writer_held_us_max: read(&pruning.held_us_max),
            last_pass_at_ms: Some(read(&pruning.pass_ended_at_ms)).filter(|at| *at > 0),
        }
    }
}

/// The way of usage records into the database.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "UsageState"))]
struct ShownUsage {
    /// The file or the database that contains them.
    store: UsageStore,
    /// Queued events at the writer thread's last poll.
    queued: usize,
    /// Exchanges stored since the start.
    stored: u64,
    /// The time of the last storing, in milliseconds since the Unix epoch; 0 before the first one.
    stored_at_ms: u64,
    /// Events that could not be written to any journal file; their clients received an incomplete response.
    lost: u64,
    /// False while requests are rejected with 503 because the journal has no space to record their usage.
    has_room: bool,
    /// Exchanges rejected because their sums exceed the range of the table.
    rejected: u64,
    /// Files of the journal.
    journal_segments: u64,
    /// Bytes of the journal files that are waiting to be stored or deleted.
    journal_waiting_bytes: u64,
    /// Failures to read or write files of the journal.
    journal_failures: u64,
    /// Parts of journal files that contained no valid record.
    journal_garbage_lines: u64,
    /// Reads of rows that a failing disk has changed. The log names each row.
    damaged_reads: u64,
    /// The time since which storing has been failing, in milliseconds since the Unix epoch; null if it works.
    failing_since_ms: Option<u64>,
    /// The error of storing; null if it works.
    failing_error: Option<String>,
}

impl ShownUsage {
    fn of(app: &App) -> Self {
        let gauge = app.journal.gauge();
        let failing = gauge.failing().map(|failing| (failing.since_ms, failing.error));
        let (failing_since_ms, failing_error) = failing.unzip();
        Self {
            store: UsageStore::of(&app.exports.storage),
            queued: app.journal.queued(),
            stored: read(&gauge.stored),
            stored_at_ms: read(&gauge.stored_at_ms),
            lost: read(&gauge.lost),
            has_room: read(&gauge.logs_stuck) == 0,
            rejected: read(&gauge.rejected),
            journal_segments: read(&gauge.segments),
            journal_waiting_bytes: read(&gauge.sealed_bytes),
            journal_failures: read(&gauge.journal_failures),
            journal_garbage_lines: read(&gauge.garbage_lines),
            damaged_reads: damaged_reads(),
            failing_since_ms,
            failing_error,
        }
    }
}
