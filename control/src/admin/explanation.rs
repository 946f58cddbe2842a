//! The explanation of a request as the data plane returns it. The data plane defines the values; these types name their
//! members and units.

use serde::{Deserialize, Serialize};
use shared::usage::{ChosenBy, StepResult, TargetOrder};

use crate::db::cluster::nodes::NodeLabel;

/// The targets that would serve a request, and the reasons against the others. Members that are unknown because the request
/// would be refused before its plan is made are null or empty.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Explanation {
    /// The operation of the path; null if the path has none.
    operation: Option<String>,
    /// The value of `model`.
    selector: Option<String>,
    /// True if the client asks for a stream.
    stream: Option<bool>,
    /// The properties that a target needs: its protocol, and `vision`.
    needs: Vec<String>,
    /// The meaning of the selector; null if it has none.
    resolved: Option<ResolvedSelector>,
    /// The targets in the order of the attempts.
    candidates: Vec<ExplainedCandidate>,
    /// The targets that would not be tried, and those that would be tried after all others.
    passed_over: Vec<PassedOverTarget>,
    /// The time for all attempts, in milliseconds.
    budget_ms: Option<u64>,
    /// The choice of the first target; null unless the selector is an endpoint that is no plain list.
    choice: Option<ExplainedChoice>,
    /// The affinity of the request; null if it has none.
    affinity: Option<ExplainedAffinity>,
    /// The line of a quota in which the request would wait first; null if it would not wait.
    #[serde(default)]
    would_wait: Option<ExplainedWait>,
    /// The error that the client would get instead of an answer; null if the request would be tried.
    refusal: Option<ExplainedRefusal>,
    /// The attempts, in order, if faults are assumed; else null.
    path: Option<Vec<RehearsedTarget>>,
    /// The node by whose circuits and affinity it is planned. Absent for a gateway with its own database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<NodeLabel>,
}

/// A wait in the line of a quota.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainedWait {
    /// The ID of the quota.
    quota: String,
    /// The requests that wait in its line.
    waiting: u64,
    /// The expected wait in milliseconds; null if nothing is known about it.
    expected_ms: Option<u64>,
    /// The longest wait of this request in milliseconds.
    wait_ms: u64,
}

/// The meaning of a selector.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ResolvedSelector {
    kind: ResolvedKind,
    /// The endpoint, or the exact model ID; null if several models have the name.
    name: Option<String>,
}

/// The kind of a selector's meaning.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum ResolvedKind {
    Endpoint,
    /// `provider/model`.
    Model,
    /// The name of a model without its provider.
    Alias,
    /// A name that several models have.
    Ambiguous,
}

/// A target.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainedTarget {
    /// The ID of the provider.
    provider: String,
    /// The provider's name of the model.
    model: String,
}

/// One of several keys of a candidate.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainedKey {
    /// The ID of the key, as `c2`.
    credential: String,
    /// Attempts in flight.
    in_flight: u32,
    /// `resting` or `circuit_open`; null if it can serve.
    reason: Option<String>,
    /// The time until then, in milliseconds; null if it can serve.
    wait_ms: Option<u64>,
}

/// A target that would be tried.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainedCandidate {
    #[serde(flatten)]
    target: ExplainedTarget,
    /// The protocol to which the request would be adapted; absent if the target speaks the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adapted: Option<String>,
    /// The fields that would be left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<String>,
    /// The fields that the rules of the model would change, as `name=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changed: Vec<String>,
    /// The members that `body` of the provider or the model would change, as `temperature: set`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    body: Vec<String>,
    /// The keys that would be tried, in order; absent if the provider has one. Without a session, ties are broken at random.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    credentials: Vec<ExplainedKey>,
    /// The tier; absent for a plain list, like all members after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tier: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    /// The share of the draws among the candidates of the tier, from 0 to 1; for the order `weighted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    /// The attempts in flight; for the orders `least_busy` and `fastest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_flight: Option<u32>,
    /// The average time to the first content of streams in microseconds, for the order `fastest`; absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_content_us: Option<f64>,
    /// The probable cost of the request, for the order `cheapest`; absent if a price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_micro_usd: Option<f64>,
}

/// The choice of the first target.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainedChoice {
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::TargetOrder"))]
    order: TargetOrder,
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::ChosenBy"))]
    chosen_by: ChosenBy,
}

/// A target that would not be tried.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PassedOverTarget {
    #[serde(flatten)]
    target: ExplainedTarget,
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::StepResult"))]
    reason: StepResult,
    /// The remaining time of the cooldown or of the rest, in milliseconds; absent unless `reason` is `circuit_open` or
    /// `resting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    /// The field that the target's protocol cannot express; absent unless `reason` is `unsupported` because of a field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    param: Option<String>,
}

/// The affinity of a request.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainedAffinity {
    /// The affinity key.
    key: String,
    /// The candidate that its requests start at.
    starts_at: ExplainedTarget,
}

/// An error instead of an answer.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainedRefusal {
    /// The HTTP status.
    status: u16,
    code: String,
    message: String,
    /// The invalid field; null if the error concerns no single field.
    param: Option<String>,
}

/// The attempts at one candidate. Times are in milliseconds since the request.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RehearsedTarget {
    target: ExplainedTarget,
    /// The number of attempts, including retries; 0 for a candidate whose circuit has opened.
    attempts: u32,
    /// The result of the last attempt.
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::StepResult"))]
    result: StepResult,
    /// The assumed status; null if no status is assumed.
    status: Option<u16>,
    /// The rule of the provider that decided what follows, as `errors[0]: next`; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// The beginning of the first attempt.
    starts_at_ms: u64,
    /// The latest end of the last attempt.
    ends_at_ms: u64,
    /// The attempts one by one.
    tries: Vec<RehearsedAttempt>,
}

/// One attempt. Times are in milliseconds since the request.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RehearsedAttempt {
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::StepResult"))]
    result: StepResult,
    /// The key, as `c2`; absent if the provider has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential: Option<String>,
    starts_at_ms: u64,
    ends_at_ms: u64,
}
