//! The bounds of the control plane at which something gives way: it is left out, dropped, or counted together with others.
//! Each is counted where it is reached ([`Bound::reach`] and its companions); `GET state`, the metrics and the log show it.
//! Bounds that refuse a request with an error that names them are not here, except for those of the whole gateway.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use shared::bound::Bound;
use shared::bound_table;

bound_table! {
    /// All bounds of this crate.
    pub(crate) TABLE;
    // Lists and figures of the admin API, and metrics.
    METRIC_PROVIDERS("metric_providers", 200, "Further providers are left out of the metrics by provider.",
        "Read them with GET health.");
    METRIC_LABEL_SETS("metric_label_sets", 100, "Further models are counted together as `other` in the metrics.",
        "None needed; usage reports have all models.");
    METRIC_PROVIDER_SETS("metric_provider_sets", 128, "Further providers are counted together as `other` in the metrics.",
        "None needed; usage reports have all providers.");
    METRIC_VARIANTS("metric_variants", 48, "Further errors or results are counted together as `other` in the metrics.",
        "None needed; records have all of them.");
    UNUSABLE_PROVIDERS("unusable_providers", 100, "Further unusable providers are left out of GET state.",
        "Read them with GET providers.");
    VERDICT_REASONS("verdict_reasons", 20, "Further findings are left out of the verdict.",
        "See to the findings that are shown.");
    SUGGESTED_NAMES("suggested_names", 5_000, "Less frequent names are not suggested.", "Write the whole name.");
    COUNTED_NAMES("counted_names", 10_000, "Further clients or errors are not suggested.", "Write the whole name.");
    REPORT_GROUPS("report_groups", 100_000, "Further groups are left out of the figures.",
        "Ask for a shorter time, or filter.");
    SEARCHED_NAMES("searched_names", 100_000, "The search of requests ignores further keys, projects and humans.",
        "Search for a longer part of the name, or filter by `key`.");
    TELEMETRY_TARGETS("telemetry_targets", 100, "Targets with fewer requests are left out of the answer.",
        "Filter by `provider` or `model`; `targets_omitted` has their number.");
    TELEMETRY_CHANGES("telemetry_changes", 500, "Earlier changes of circuits are left out of the answer.",
        "Ask for a shorter time.");
    TELEMETRY_COUNTED("telemetry_counted_targets", 10_000, "Further targets are counted together as `other`.",
        "Ask for a shorter time.");
    PREVIEWED_KEYS("previewed_keys", 2_000, "A dry run leaves out the effects on further keys; `complete` is false.",
        "None needed; the change itself reaches all keys.");
    EFFECT_WARNINGS("effect_warnings", 20, "Further warnings of a kind are left out of a dry run.",
        "See to the warnings that are shown.");
    LISTED_BACKUPS("listed_backups", 20_000, "Older backups are not listed.", "Delete backups.");
    DETECTED_MODELS("detected_models", 200, "Further models of a local server are not shown by detection.",
        "None needed; the catalog has all models once the provider exists.");

    // Alerts.
    EXPIRING_KEYS("expiring_keys", 500, "Keys that expire later open no alert yet.", "Rotate or extend keys.");
    ALERT_CONDITIONS("alert_conditions", 2_000, "Further conditions open no alert until others end.",
        "Resolve the causes, or narrow the rules.");
    ALERT_CHANGES("alert_changes", 50, "Further alerts open or resolve with the next evaluation, 2 s later.",
        "None needed.");
    OUTBOX_EVENTS("outbox_events", 100_000, "The oldest delivered events are deleted before their time.",
        "Narrow the alert rules, or read the events sooner.");

    // Catalog.
    LISTED_MODELS("listed_models", 5_000, "Further models of a provider are not in the catalog.",
        "Name them in the provider's `models`.");
    LISTING_PAGES("listing_pages", 20, "Further pages of a provider's list of models are not read.",
        "Name the missing models in the provider's `models`.");
    TESTED_MODELS("tested_models", 1_000, "The oldest results of tests of a provider's models are forgotten.",
        "None needed.");

    // Callers.
    ENDED_SESSIONS("ended_sessions", 256, "All earlier sessions of the holder that signs out so often end.",
        "Sign in again where a session ended.");
    REFUSAL_SOURCES("refusal_sources", 32, "The audit counts refusals of further addresses together.",
        "Block the addresses that the audit shows.");
    REFUSALS_QUEUED("refusals_queued", 256, "The audit counts further refusals without their address.",
        "Block the addresses that the audit shows.");
    ADMIN_REQUESTS("admin_requests", 96, "Further requests to the admin API fail with 503.",
        "Find the callers that keep requests running.");
    ADMIN_RUNS("admin_runs", 16, "Further runs from the console fail with 503.", "Wait for runs to answer.");
    ADMIN_BODIES("admin_bodies", 96, "Further requests to the admin API with bodies fail with 503.",
        "Find the callers that send bodies slowly.");
    LIVE_STREAMS("live_streams", 40, "Further live pages fail with 503.", "Close pages of the console.");
    SIGN_INS("sign_ins", 64, "The oldest sign-in to a vendor that is under way ends.", "Finish sign-ins before you begin others.");
    DEVICE_SIGN_INS("device_sign_ins", 1_024, "Further sign-ins of clients are refused with 429 until others end.",
        "Find the addresses that begin so many; each ends after 10 minutes.");
    RECORDINGS("recordings", 16, "The oldest recording of a run ends, of the caller with the most.", "Close runs of the console.");
    LIVE_AUDIT_ROWS("live_audit_rows", 100, "Live pages leave out older changes of the same second.", "Read them with GET audit.");
    EXPORTS("exports", 4, "Further exports fail with 503.", "Run exports one after another.");
    PUBLIC_REQUESTS("public_requests", 32, "Further requests for files of the console fail with 503.",
        "Find the clients that load them so often.");
    KEY_HOLDERS("key_holders", 1, "GET /v1/key fails with 503 after 5 s.", "Query keys less often.");
    CLIENT_TELEMETRY("client_telemetry", 4, "Further telemetry of Claude Code is refused with 503; clients send it again.",
        "Let Claude Code export less often, or name a collector in its settings.");
    SCRAPES("scrapes", 4, "Further requests for /metrics fail with 503.", "Scrape less often.");
    QUESTIONS_WAITING("questions_waiting", 64, "Further reads of the admin API fail with 503.",
        "Find the callers that read so much.");
    WRITER_JOBS("writer_jobs", 256, "Further changes fail with 503.",
        "Send fewer changes and dry runs at the same time; see `usage.failing_error` of GET state.");

    // Records and what is kept of them.
    JOURNAL_BYTES("journal_bytes", 1 << 30, "Requests of clients fail with 503, because their usage cannot be recorded.",
        "See why usage cannot be stored: `usage.failing_error` of GET state.");
    RECENT_NAMES("recent_names", 256, "Further names are counted together as `other` in the last hour's figures.",
        "None needed; usage reports have all names.");
    PERIOD_NAMES("period_names", 128, "Further names of a day are counted together as `other` in charts.",
        "None needed; usage reports have all names.");
    CHANGES_WAITING("circuit_changes_waiting", 1_000, "The earliest changes of circuits are lost to telemetry.",
        "See why telemetry.db cannot be written; the log says it.");
    LAST_ANSWERS("last_answers", 4_096, "The time of the last answer of the target that answered longest ago is forgotten.",
        "None needed.");
    STORED_CHANGES("stored_circuit_changes", 100_000, "The oldest changes of circuits are deleted before their 14 days.",
        "See which circuit opens so often.");
    TELEMETRY_ORDERS("telemetry_orders", 1_024, "Captured requests are dropped.", "Capture fewer requests.");
    CAPTURED_BYTES("captured_bytes", 256 << 20, "The oldest captured requests are deleted before their 24 hours.",
        "Capture fewer requests.");
    RECORDED_SIDES("recorded_sides", 64, "Further attempts of a recorded request are not recorded.",
        "None needed; the route trace has all attempts.");
    RECALLED_ANSWERS("recalled_answers", 4_096, "A start does not know when targets answered last of which it has only older rows.",
        "None needed; the next answer counts.");
    LOG_LINES("log_lines_queued", 4_096, "Log lines are dropped.",
        "See why the destination of the log takes no more, or log less.");
}

/// All bounds of the process.
#[derive(Clone, Debug)]
pub(crate) struct Bounds(Arc<[&'static Bound]>);

/// A bound that was reached since the start.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReachedBound {
    /// The name, as in the metric `llmgw_bound_reached_total`.
    bound: &'static str,
    /// The bound itself; null if the configuration sets it.
    max: Option<usize>,
    /// The number of times since the start.
    reached: u64,
    /// The last time, in milliseconds since the Unix epoch.
    last_at_ms: u64,
    /// The effect of reaching the bound.
    gives_way: &'static str,
    /// The action to take.
    remedy: &'static str,
}

impl Bounds {
    /// Returns the bounds of this crate, of the shared one, and those of the data plane.
    pub(crate) fn with(of_plane: &[&'static Bound]) -> Self {
        Self([TABLE, shared::bounds::TABLE, of_plane].concat().into())
    }

    /// Returns all bounds.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Bound> + '_ {
        self.0.iter().copied()
    }

    /// Returns the bounds that were reached since the start, the latest first.
    pub(crate) fn reached(&self) -> Vec<ReachedBound> {
        let mut reached: Vec<_> = self.all().filter_map(ReachedBound::of).collect();
        reached.sort_by_key(|bound| std::cmp::Reverse(bound.last_at_ms));
        reached
    }

    /// Logs each bound that was reached once a minute at most, for as long as the future is polled.
    pub(crate) async fn log(self) {
        let mut log = BoundLog::new(&self);
        loop {
            tokio::time::sleep(LOG_EVERY).await;
            for (bound, times) in log.due() {
                tracing::warn!(
                    bound = bound.name,
                    max = bound.max(),
                    times,
                    "a bound was reached; {} {}",
                    bound.gives_way,
                    bound.remedy
                );
            }
        }
    }
}

impl ReachedBound {
    fn of(bound: &'static Bound) -> Option<Self> {
        Some(Self {
            bound: bound.name,
            max: Some(bound.max()).filter(|max| *max > 0),
            reached: bound.count(),
            last_at_ms: bound.last_at_ms()?,
            gives_way: bound.gives_way,
            remedy: bound.remedy,
        })
    }
}

/// The counts of the bounds that were logged.
struct BoundLog(Vec<(&'static Bound, u64)>);

impl BoundLog {
    fn new(bounds: &Bounds) -> Self {
        Self(bounds.all().map(|bound| (bound, 0)).collect())
    }

    /// Returns the bounds that were reached since the last call, and how often.
    fn due(&mut self) -> Vec<(&'static Bound, u64)> {
        let new = |(bound, logged): &mut (&'static Bound, u64)| {
            let count = bound.count();
            let times = count - std::mem::replace(logged, count);
            (times > 0).then_some((*bound, times))
        };
        self.0.iter_mut().filter_map(new).collect()
    }
}

const LOG_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
pub(crate) mod tests;
