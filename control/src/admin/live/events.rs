//! The events of the live stream.

use serde::Serialize;
use serde_json::value::RawValue;
use shared::activity::WatchedRequest;

use crate::admin::health::ShownCircuit;
use crate::admin::verdict::ExplainedVerdict;
use crate::common::money::MicroUsd;
use crate::db::alerts::OpenAlerts;
use crate::usage::metrics::Scale;
use crate::usage::periods::PeriodFigures;

/// The events of the stream, by name.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LiveEvents {
    hello: Hello,
    figures: LiveFigures,
    alive: Alive,
    providers: Vec<LiveProvider<'static>>,
    running: LiveRunning<'static>,
    change: LiveChange,
    seen: SeenRequest<'static>,
    bye: Bye,
}

/// `alive`: once a second in a stream without `figures`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "LiveAlive"))]
pub(super) struct Alive {}

/// `hello`: the first event.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "LiveHello"))]
pub(super) struct Hello {
    /// In milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
    /// The version of the gateway. A page of another version should be loaded again.
    pub(super) version: &'static str,
    /// The generation of the routing snapshot.
    pub(super) generation: u64,
}

/// `figures`: the gateway at one moment, and the exchanges that ended in the time before it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LiveFigures {
    /// In milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
    /// The length of the time in which the exchanges ended, in milliseconds.
    pub(super) span_ms: u64,
    /// Exchanges that have not ended.
    pub(super) running: usize,
    /// Client connections.
    pub(super) connections: u64,
    pub(super) verdict: ExplainedVerdict,
    /// Null if the database does not answer.
    pub(super) alerts: Option<OpenAlerts>,
    #[serde(flatten)]
    pub(super) exchanges: ShownFigures,
}

/// The figures of a set of exchanges, as in `series`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ExchangeFigures"))]
pub(super) struct ShownFigures {
    /// The sum of `completed`, `failed`, `cut`, `cancelled` and `refused`.
    requests: u64,
    completed: u64,
    /// The completed ones whose first target did not serve them.
    failed_over: u64,
    /// Failed for no fault of the client.
    failed: u64,
    /// The answer broke off after output had started.
    cut: u64,
    /// The client left.
    cancelled: u64,
    /// Failed because of the request, or rejected with 4xx before any target was tried.
    refused: u64,
    /// Requests to upstreams.
    attempts: u64,
    /// The attempts that failed for no fault of the client, and those whose answer broke off.
    attempt_failures: u64,
    /// Tokens by disjoint classes.
    input: u64,
    cache_read: u64,
    output: u64,
    /// The known cost, including failed attempts.
    cost_micro_usd: MicroUsd,
    /// Attempts whose cost is unknown and not in the sum.
    requests_unpriced: u64,
    /// The time from the request to the first content, in microseconds with two digits; null if there was none.
    first_content_us_p50: Option<u64>,
    first_content_us_p99: Option<u64>,
    /// The duration of completed exchanges, in microseconds with two digits; null if there was none.
    duration_us_p50: Option<u64>,
    duration_us_p99: Option<u64>,
}

impl ShownFigures {
    pub(super) fn of(figures: &PeriodFigures) -> Self {
        Self {
            requests: figures.requests,
            completed: figures.completed,
            failed_over: figures.failed_over,
            failed: figures.failed,
            cut: figures.cut,
            cancelled: figures.cancelled,
            refused: figures.refused,
            attempts: figures.attempts,
            attempt_failures: figures.attempt_failures,
            input: figures.input,
            cache_read: figures.cache_read,
            output: figures.output,
            cost_micro_usd: MicroUsd(figures.cost_nano_usd),
            requests_unpriced: figures.unpriced,
            first_content_us_p50: figures.first_content.percentile(Scale::Fine, 50),
            first_content_us_p99: figures.first_content.percentile(Scale::Fine, 99),
            duration_us_p50: figures.duration.percentile(Scale::Fine, 50),
            duration_us_p99: figures.duration.percentile(Scale::Fine, 99),
        }
    }
}

/// An item of `providers`: a provider instance that has changed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LiveProvider<'a> {
    pub(super) provider: &'a str,
    pub(super) circuit: ShownCircuit,
    /// Attempts in flight.
    pub(super) running: u32,
    /// The attempts of the last five minutes.
    pub(super) attempts: u64,
    /// Those of them that failed.
    pub(super) failures: u64,
    /// The names of the nodes at which the circuit of the instance is not closed; absent if there are none, and for a gateway
    /// with its own database. `circuit` is that of the node that answers.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) open_at: &'a [String],
}

/// `running`: the running exchanges that have begun or changed, and those that have ended.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LiveRunning<'a> {
    /// The exchanges, as in `GET running`. At most 200 are listed, those that have been silent longest.
    #[cfg_attr(test, schemars(with = "Vec<crate::admin::running::Running>"))]
    pub(super) begun_or_changed: Vec<&'a RawValue>,
    /// The ids of those that have ended or are no longer listed.
    pub(super) ended: Vec<&'a str>,
    /// The number of running exchanges that are not listed.
    pub(super) more: usize,
}

/// `change`: an action of an administrator, a publication, a reload, or a circuit that opened or closed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LiveChange {
    /// In milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
    /// The audit record of the change; null if the gateway made it by itself.
    pub(super) audit_id: Option<i64>,
    /// The action of the audit, such as `endpoint.update`, or `publication`, `reload`, `reload_failed`,
    /// `circuit_open` or `circuit_closed`.
    pub(super) kind: String,
    /// The object as `kind/id`, such as `endpoint/line`.
    pub(super) object: String,
    /// One sentence.
    pub(super) text: String,
}

/// `seen`: a request with the watched key, or one that was rejected and left no record.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SeenRequest<'a> {
    /// In milliseconds since the Unix epoch.
    at_ms: u64,
    address: String,
    /// The family and version of the client's software, out of its `User-Agent`; may be empty.
    client: &'a str,
    method: &'a str,
    /// The path without the query, at most 256 characters.
    path: &'a str,
    status: u16,
    /// The error code; null if the answer is not an error.
    code: Option<&'static str>,
    /// The field of the request that causes the error, at most 128 characters; null if no field does.
    param: Option<&'a str>,
    /// The part of the presented key that may be shown; null without a key.
    key_prefix: Option<&'a str>,
    /// The `model` of the request; null if the request was rejected before it was read.
    model: Option<&'a str>,
    request_id: &'a str,
}

impl<'a> SeenRequest<'a> {
    pub(super) fn of(request: &'a WatchedRequest) -> Self {
        Self {
            at_ms: request.at_ms,
            address: request.address.to_string(),
            client: &request.client,
            method: &request.method,
            path: &request.path,
            status: request.status,
            code: request.code,
            param: request.param.as_deref(),
            key_prefix: request.key_prefix.as_deref(),
            model: request.model.as_deref(),
            request_id: &request.request_id,
        }
    }
}

/// `bye`: the last event.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "LiveBye"))]
pub(super) struct Bye {
    pub(super) reason: ByeReason,
}

/// The reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum ByeReason {
    /// The session has ended, or the key is no longer valid.
    SignedOut,
    /// The process is ending.
    Draining,
    /// As many streams as permitted are open.
    TooMany,
}

/// Appends an event to `out`.
pub(super) fn put(out: &mut Vec<u8>, name: &str, data: &impl Serialize) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    // Writing into memory cannot fail. JSON contains no line breaks.
    let _ = serde_json::to_writer(&mut *out, data);
    out.extend_from_slice(b"\n\n");
}
