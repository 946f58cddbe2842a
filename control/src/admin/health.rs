//! `GET /admin/api/health/providers`: the circuit of each provider instance, its last failure, the models that rest because
//! of a rate limit, its running and recent requests, and the limits that its upstream reports. Circuits and rests are local
//! to this process and are lost at a restart.

use std::collections::HashMap;

use http::{Method, Response};
use serde::Serialize;
use shared::clock::{monotonic_ms, unix_ms};
use shared::health::{self, CircuitState, ReportedLimit, ShownRest, Trouble};
use shared::id::CredentialNumber;
use shared::policy::CircuitPolicy;
use shared::port::Body;
use shared::routing::ProviderInstance;
use shared::usage::StepResult;

use super::spend::sums_since;
use super::{ApiError, Call, Route, json, route_of};
use crate::cluster::board::NodeBoard;
use crate::db::cluster::nodes::NodeLabel;
use crate::db::engine::Db;
use crate::usage::requests::Column;
use crate::usage::scope::UsageScope;
use crate::usage::sums::UsageSums;
use crate::writer::FLUSH_TIME_MAX;

pub(super) static ROUTES: &[Route] =
    &[route_of(Method::GET, "health/providers", |call| Box::pin(providers(call))).answers::<HealthPage<'_>>(
        "Shows the circuits of all providers and how they have answered recently.",
    )];

async fn providers(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let since_ms = recent_since_ms();
    let mut served = served_since(&call, since_ms).await?;
    let running = call.app.exchanges.running().await;
    let snapshot = call.app.snapshot.load();
    let now_ms = monotonic_ms();
    let data = snapshot.providers.iter().map(|provider| {
        let recent = served.remove(provider.id.as_str()).unwrap_or_default();
        let running = running.attempts.get(&provider.id).copied().unwrap_or_default();
        Health::of(provider, now_ms, (running, RecentRequests::of(since_ms, &recent)))
    });
    let node = call.app.board().map(NodeBoard::me);
    json(&HealthPage { data: data.collect(), next_cursor: None, node })
}

/// Returns the start of the previous hour.
pub(super) fn recent_since_ms() -> u64 {
    (unix_ms() / HOUR_MS).saturating_sub(1).saturating_mul(HOUR_MS)
}

/// Sums by provider of the requests that started since `since_ms`.
pub(super) async fn served_since(
    call: &Call<'_>,
    since_ms: u64,
) -> Result<HashMap<String, UsageSums>, ApiError> {
    call.app.writer.flush(FLUSH_TIME_MAX).await;
    let sum = move |db: &Db| sums_since(db, Column::Provider, since_ms, UsageScope::default());
    Ok(call.app.readers.ask(sum).await?)
}

/// The health of all providers.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ProviderHealthPage"))]
struct HealthPage<'a> {
    data: Vec<Health<'a>>,
    /// Always null: the list has one page.
    next_cursor: Option<String>,
    /// The node that answers: all but `recent` is of it. Absent for a gateway with its own database.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a NodeLabel>,
}

/// The health of a provider.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ProviderHealth"))]
struct Health<'a> {
    /// The ID of the provider.
    provider: &'a str,
    /// The kind of provider.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Attempts in flight.
    running: u32,
    circuit: ShownCircuit,
    /// Null if there was none since the start.
    last_failure: Option<ShownFailure>,
    /// Models with a circuit that is not closed because the upstream does not serve them.
    models: Vec<FailingModel>,
    /// Models that rest because the upstream limits the rate of requests.
    rests: Vec<RestingModel>,
    recent: RecentRequests,
    /// The limits that the upstream reported last, read at most once a second; empty if it reports none.
    limits: Vec<ShownLimit>,
    /// The health of each key. Absent if the provider has one or none; otherwise the members beside this are those of the
    /// key that works best.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keys: Vec<KeyHealth>,
}

/// The health of one of several keys.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KeyHealth {
    /// `c1`, `c2` and so on.
    #[cfg_attr(test, schemars(with = "String"))]
    id: CredentialNumber,
    /// Attempts in flight.
    running: u32,
    circuit: ShownCircuit,
    /// Null if there was none since the start.
    last_failure: Option<ShownFailure>,
    /// Models with a circuit that is not closed.
    models: Vec<FailingModel>,
    /// Models that rest because the upstream limits the rate of requests.
    rests: Vec<RestingModel>,
    /// The limits that the upstream reported last for the key.
    limits: Vec<ShownLimit>,
}

impl KeyHealth {
    fn of(lane: &ProviderInstance, now_ms: u64) -> Option<Self> {
        let circuit = lane.circuits.instance();
        Some(Self {
            id: lane.lane.as_ref()?.number,
            running: lane.circuits.load().in_flight(),
            circuit: ShownCircuit::of(circuit, now_ms, &lane.circuit_policy),
            last_failure: circuit.trouble().map(ShownFailure::of),
            models: failing_models(lane, now_ms),
            rests: resting_models(lane, now_ms),
            limits: reported_limits(lane),
        })
    }
}

fn failing_models(lane: &ProviderInstance, now_ms: u64) -> Vec<FailingModel> {
    let policy = &lane.circuit_policy;
    let models = lane.circuits.models(now_ms, policy);
    let shown = models.iter().map(|(model, circuit)| FailingModel {
        model: model.to_string(),
        circuit: ShownCircuit::of(circuit, now_ms, policy),
        last_failure: circuit.trouble().map(ShownFailure::of),
    });
    shown.collect()
}

fn resting_models(lane: &ProviderInstance, now_ms: u64) -> Vec<RestingModel> {
    lane.circuits.rests().all(now_ms).into_iter().map(RestingModel::from).collect()
}

fn reported_limits(lane: &ProviderInstance) -> Vec<ShownLimit> {
    lane.circuits.limits().load(unix_ms()).into_iter().map(ShownLimit::from).collect()
}

/// The failure memory of a provider or model. It is lost at a restart.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Circuit"))]
pub(super) struct ShownCircuit {
    /// `closed`, `open`, or `half_open`, in which the next request is the probe.
    #[cfg_attr(test, schemars(extend("enum" = ["closed", "open", "half_open"])))]
    state: &'static str,
    /// The time at which the circuit left the closed state, in milliseconds since the Unix epoch; null if it is closed.
    open_since_ms: Option<u64>,
    /// The time until the probe is allowed, in milliseconds; null if it is closed.
    retry_in_ms: Option<u64>,
    /// Consecutive failures.
    failures: u32,
    /// Consecutive failures that open the circuit; 0 disables it.
    failures_max: u32,
}

/// A failed attempt.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CircuitFailure"))]
struct ShownFailure {
    /// In milliseconds since the Unix epoch.
    at_ms: u64,
    /// As in the trace of a request.
    #[cfg_attr(test, schemars(with = "String"))]
    result: StepResult,
    /// The status of the upstream's answer; null if there was none.
    status: Option<u16>,
}

impl ShownFailure {
    fn of(Trouble { at_ms, result, status, .. }: Trouble) -> Self {
        Self { at_ms, result, status }
    }
}

/// A limit as the upstream reports it in its headers.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "UpstreamLimit"))]
struct ShownLimit {
    /// The limited unit, such as `requests` or `input-tokens`; `retry-after` for a wait before any request.
    name: Box<str>,
    /// Null if the upstream does not name it.
    limit: Option<u64>,
    /// Null if the upstream does not name it.
    remaining: Option<u64>,
    /// The time at which the limit is full again, or the wait ends; null if the upstream does not name it.
    resets_at_ms: Option<u64>,
    /// The time of the answer that named the limit.
    seen_at_ms: u64,
}

impl From<ReportedLimit> for ShownLimit {
    fn from(reported: ReportedLimit) -> Self {
        let ReportedLimit { name, limit, remaining, resets_at_ms, seen_at_ms } = reported;
        Self { name, limit, remaining, resets_at_ms, seen_at_ms }
    }
}

/// A model that the upstream does not serve.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FailingModel {
    model: String,
    circuit: ShownCircuit,
    last_failure: Option<ShownFailure>,
}

/// A model that receives no requests which another target can serve.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RestingModel {
    model: String,
    /// The beginning of the rest, in milliseconds since the Unix epoch.
    since_ms: u64,
    /// The end of the rest, in milliseconds since the Unix epoch.
    ends_at_ms: u64,
    /// The time until then, in milliseconds.
    wait_ms: u64,
    /// The status of the last refusal; null if an answer reported that nothing is left of a limit.
    status: Option<u16>,
}

impl From<ShownRest> for RestingModel {
    fn from(rest: ShownRest) -> Self {
        let ShownRest { model, wait_ms, since_ms, status } = rest;
        let ends_at_ms = unix_ms().saturating_add(wait_ms);
        Self { model: model.to_string(), since_ms, ends_at_ms, wait_ms, status }
    }
}

/// Requests that this instance answered in the current and the previous hour.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RecentRequests {
    /// The start of the previous hour, in milliseconds since the Unix epoch.
    since_ms: u64,
    requests: u64,
    /// In microseconds; null without requests.
    duration_us_avg: Option<u64>,
    /// The time to the first content, in microseconds; null if no request had content.
    first_content_us_avg: Option<u64>,
}

impl<'a> Health<'a> {
    fn of(provider: &'a ProviderInstance, now_ms: u64, (running, recent): (u32, RecentRequests)) -> Self {
        let lane = provider.best_lane(now_ms);
        let circuit = lane.circuits.instance();
        Self {
            provider: provider.id.as_str(),
            kind: provider.kind.name,
            running,
            circuit: ShownCircuit::of(circuit, now_ms, &provider.circuit_policy),
            last_failure: circuit.trouble().map(ShownFailure::of),
            models: failing_models(lane, now_ms),
            rests: resting_models(lane, now_ms),
            recent,
            limits: reported_limits(lane),
            keys: provider.each_lane().filter_map(|lane| KeyHealth::of(lane, now_ms)).collect(),
        }
    }
}

impl ShownCircuit {
    pub(super) fn of(circuit: &health::Circuit, now_ms: u64, policy: &CircuitPolicy) -> Self {
        let trouble = circuit.trouble();
        let (state, retry_in_ms) = match circuit.state(now_ms, policy) {
            CircuitState::Closed => ("closed", None),
            CircuitState::Open { wait_ms } => ("open", Some(wait_ms)),
            CircuitState::HalfOpen => ("half_open", Some(0)),
        };
        Self {
            state,
            open_since_ms: retry_in_ms.and(trouble).and_then(|trouble| trouble.opened_at_ms),
            retry_in_ms,
            failures: circuit.failures(),
            failures_max: policy.failure_threshold,
        }
    }
}

impl RecentRequests {
    fn of(since_ms: u64, sums: &UsageSums) -> Self {
        Self {
            since_ms,
            requests: sums.requests,
            duration_us_avg: sums.duration_us.checked_div(sums.requests),
            first_content_us_avg: sums.first_content_us.checked_div(sums.first_contents),
        }
    }
}

const HOUR_MS: u64 = 3_600_000;
