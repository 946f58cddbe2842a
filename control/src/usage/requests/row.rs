//! One exchange, as the API shows it.

use std::collections::BTreeMap;

use records::{Record, RecordName, RecordStep, Trace, rare_fields};
use serde::{Serialize, Serializer};
use shared::operation::Operation;
use shared::tags;
use shared::usage::{Class, Lost, Outcome, StepResult, TargetChoice, TokenCounts, Units, Unpriced};

use super::attempts::{self, AttemptSummary};
use crate::common::money::MicroUsd;
use crate::db::cluster::nodes::NodeLabel;
use crate::db::names::OwnerNames;

/// One exchange, as the API shows it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RequestRecord"))]
pub(crate) struct RequestRow {
    pub(crate) request_id: String,
    /// In milliseconds since the Unix epoch.
    pub(crate) started_at_ms: u64,
    /// In microseconds.
    duration_us: u64,
    operation: String,
    /// The ID of the key.
    pub(super) key: String,
    /// The ID of the key's project; null if it has none.
    pub(crate) project: Option<String>,
    /// The ID of the human that the key acts as; null for none.
    pub(super) principal: Option<String>,
    #[serde(flatten)]
    pub(super) owners: OwnerNames,
    /// The `model` of the request.
    selector: String,
    /// The endpoint that was used; null for none.
    endpoint: Option<String>,
    /// The provider that served it, or was tried last; null if none was tried.
    provider: Option<String>,
    /// The model of that provider; null if none was tried.
    model: Option<String>,
    stream: bool,
    /// The status of the answer.
    status: u16,
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Outcome"))]
    outcome: String,
    /// The code of the error; null without one.
    error: Option<String>,
    /// Tokens by class.
    #[serde(serialize_with = "by_class")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, u64>"))]
    tokens: [u64; TokenCounts::COUNT],
    /// Other billed units by class.
    #[serde(serialize_with = "units_by_class")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, u64>"))]
    units: Units,
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Provenance"))]
    provenance: String,
    /// The service tier that the answer reports; null if it reports none.
    tier: Option<String>,
    /// The sort of generated picture that prices depend on; null if there is none.
    picture: Option<String>,
    /// The cost of the attempt that served; null if it is unknown.
    cost_micro_usd: Option<MicroUsd>,
    /// The sum of the known costs of failed attempts.
    lost_micro_usd: MicroUsd,
    /// The cost that the vendor reported; null if it reported none.
    vendor_cost_micro_usd: Option<MicroUsd>,
    /// The label of the prices that were used; null if they are unknown.
    price: Option<String>,
    /// The members of the model's `prices` that are missing for the cost, such as `audio_input`, `tiers.flex` or `above`;
    /// absent if the cost is known or the model has no prices, and in records of earlier releases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unpriced: Vec<String>,
    /// The upstream's ID of the request; null if it sent none.
    upstream_id: Option<String>,
    /// The tags by name.
    tags: BTreeMap<String, String>,
    /// The end user that the request names, as a pseudonym unless configured otherwise; null if it names none.
    end_user: Option<String>,
    /// Until the head of the answer, in microseconds; null if there was none.
    head_us: Option<u64>,
    /// Until the first content, in microseconds; null if there was none.
    first_content_us: Option<u64>,
    /// The time in the lines of quotas, in microseconds; null if the request did not wait for one.
    queue_us: Option<u64>,
    /// The dialect that the client spoke; null for operations without one.
    protocol: Option<&'static str>,
    /// Absent if the process ended before the exchange did.
    #[serde(flatten)]
    attempts: Option<AttemptSummary>,
    /// Absent in records of earlier releases.
    #[serde(flatten)]
    details: Option<RequestDetails>,
    /// The originator of a cancellation, `client` or `administrator`; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_by: Option<&'static str>,
    /// The targets that were considered, in order. Absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Vec<RequestStep>>,
    /// The node that answered it. Absent in lists, and for a gateway with its own database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<NodeLabel>,
}

/// The facts of [`Details`](shared::usage::Details), as the API shows them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RequestDetails {
    /// The client's product and version; null if it sent no `User-Agent`.
    client: Option<String>,
    /// The pseudonym of the session; null if the request belongs to none.
    session: Option<String>,
    /// The dialect of the target that was tried last; null if it was the client's, or no target was tried.
    adapted: Option<String>,
    /// The names of the fields that the adaptation left out, and the members that settings have changed, as `seed: default`.
    dropped: Vec<String>,
    /// The length of the request body in bytes.
    bytes_in: u64,
    /// The bytes of the answer's body that went to the client, be it an answer or an error; null if the client left before.
    bytes_out: Option<u64>,
    /// The gateway's own time until the first content, or until the end without content, in microseconds.
    gateway_us: Option<u64>,
    /// The longest silence of the answer after its first content, in microseconds; null if the answer was complete when
    /// it was sent.
    silence_us_max: Option<u64>,
    /// The reason for which the model ended its output; null if it did not, or no target reported one.
    finish: Option<String>,
    /// The ID of the quota that refused the exchange.
    refused_by: Option<String>,
    /// The order of the endpoint's targets; absent for a plain list.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<&'static str>,
    /// The reason for which the first target came first: `order`, `session`, `affinity` or `state`; absent for a plain list.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen_by: Option<&'static str>,
    /// The text of the error that the client got, sanitized and without what it quotes of the request, at most 512 bytes;
    /// null if the client got no error, and in records of earlier releases.
    message: Option<String>,
}

/// A target that was considered.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Step"))]
pub(crate) struct RequestStep {
    provider: String,
    model: String,
    /// `served`, or why the target did not serve.
    #[cfg_attr(test, schemars(with = "String"))]
    result: String,
    /// The status of the upstream's answer; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u64>,
    /// From the start of the attempt until the head of the answer, in microseconds; absent without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    head_us: Option<u64>,
    /// From the start of the attempt until its failure or its first content, in microseconds; absent for a target that
    /// was passed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    spent_us: Option<u64>,
    /// The time from the request's head to the start of the attempt, in microseconds; absent for a skipped target, and in
    /// records of earlier releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_us: Option<u64>,
    /// The key, as `c2`; absent if the provider has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<String>,
    /// The time from the request's head to the first content, in microseconds; absent unless the attempt served.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_content_us: Option<u64>,
    /// The number of the attempt among those at its target, from 1; absent for a skipped target.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// The error of a failed attempt, sanitized, at most 200 characters; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The ID of the quota in whose line the request waited; absent unless `result` is `waited`. `spent_us` is the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    /// The wait that the upstream asked for, in milliseconds; absent if it asked for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// The time until the target's circuit would admit an attempt, in milliseconds; absent unless `result` is
    /// `circuit_open`, and in records of earlier releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    circuit_wait_ms: Option<u64>,
    /// The time until the target's rest ends, in milliseconds; absent unless `result` is `resting`.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    /// The consumption of a failed attempt; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<LostShown>,
}

/// The consumption of a failed attempt, as the API shows it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "LostUsage"))]
struct LostShown {
    /// Tokens by class.
    #[serde(serialize_with = "by_class")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, u64>"))]
    tokens: [u64; TokenCounts::COUNT],
    /// Other billed units by class.
    #[serde(serialize_with = "units_by_class")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, u64>"))]
    units: Units,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<Box<str>>,
    /// Null if it is unknown.
    cost_micro_usd: Option<MicroUsd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor_cost_micro_usd: Option<MicroUsd>,
}

impl LostShown {
    fn of(lost: Lost) -> Self {
        Self {
            tokens: lost.tokens.list(),
            units: lost.units,
            tier: lost.tier,
            picture: lost.picture,
            cost_micro_usd: lost.cost_nano_usd.map(MicroUsd),
            vendor_cost_micro_usd: lost.vendor_cost_nano_usd.map(MicroUsd),
        }
    }
}

/// Serializes token counts by the names of their classes, including zeros.
pub(crate) fn by_class<S: Serializer>(counts: &[u64; TokenCounts::COUNT], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(Class::ALL.into_iter().map(Class::name).zip(counts))
}

/// Serializes unit counts by the names of their classes, including zeros.
pub(crate) fn units_by_class<S: Serializer>(units: &Units, to: S) -> Result<S::Ok, S::Error> {
    let names = Class::ALL.into_iter().skip(TokenCounts::COUNT).map(Class::name);
    to.collect_map(names.zip(units.list()))
}

impl RequestRow {
    /// Returns the first target that was considered.
    pub(crate) fn first_step(&self) -> Option<&RequestStep> {
        self.trace.as_ref()?.first()
    }

    /// Returns the row without its trace.
    pub(crate) fn of(record: &Record<'_>, owners: OwnerNames, trace: Trace<'_>) -> Self {
        let name = |name| record.name(name).to_owned();
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let or_none = |name| some(record.name(name));
        let lost_nano_usd = rare_fields::lost(&record.lost).filter_map(|(_, lost)| lost.cost_nano_usd).sum();
        Self {
            request_id: record.request_id.to_owned(),
            started_at_ms: record.started_at_ms,
            duration_us: record.duration_us,
            operation: name(RecordName::Operation),
            key: name(RecordName::Key),
            project: or_none(RecordName::Project),
            principal: or_none(RecordName::Principal),
            owners,
            selector: name(RecordName::Selector),
            endpoint: or_none(RecordName::Endpoint),
            provider: or_none(RecordName::Provider),
            model: or_none(RecordName::Model),
            stream: record.stream,
            status: record.status,
            outcome: name(RecordName::Outcome),
            error: or_none(RecordName::Error),
            tokens: record.tokens.list(),
            units: record.units,
            provenance: name(RecordName::Provenance),
            tier: or_none(RecordName::Tier),
            picture: or_none(RecordName::Picture),
            cost_micro_usd: record.cost_nano_usd.map(MicroUsd),
            lost_micro_usd: MicroUsd(lost_nano_usd),
            vendor_cost_micro_usd: record.vendor_cost_nano_usd.map(MicroUsd),
            price: or_none(RecordName::Price),
            unpriced: Unpriced::of_bits(record.unpriced).members(record.name_if_any(RecordName::Tier)),
            upstream_id: some(record.upstream_id),
            tags: tags::pairs(record.name(RecordName::Tags))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            end_user: or_none(RecordName::EndUser),
            head_us: record.head_us,
            first_content_us: record.first_content_us,
            queue_us: attempts::queue_us(trace),
            protocol: protocol(record),
            attempts: AttemptSummary::of_exchange(record, trace),
            details: RequestDetails::of(record),
            cancelled_by: cancelled_by(record),
            trace: None,
            node: None,
        }
    }

    /// Removes the targets that were passed over because they are private to a human as whom the key does not act.
    pub(crate) fn without_private_targets(mut self) -> Self {
        if let Some(steps) = &mut self.trace {
            steps.retain(|step| step.result != StepResult::Private.name());
        }
        self
    }

    /// Adds the trace.
    pub(crate) fn with_trace(self, record: &Record<'_>, trace: Trace<'_>) -> Self {
        Self { trace: Some(steps(record, trace)), ..self }
    }
}

impl RequestDetails {
    /// Returns `None` for a record of an earlier release.
    fn of(record: &Record<'_>) -> Option<Self> {
        let text = |name| record.name_if_any(name).map(str::to_owned);
        let choice = record.choice.and_then(TargetChoice::of_code);
        let dropped = record.name(RecordName::Dropped).split(", ").filter(|name| !name.is_empty());
        Some(Self {
            client: text(RecordName::Client),
            session: text(RecordName::Session),
            adapted: text(RecordName::Adapted),
            dropped: dropped.map(str::to_owned).collect(),
            bytes_in: record.bytes_in?,
            bytes_out: record.bytes_out,
            gateway_us: record.gateway_us,
            silence_us_max: record.silence_us_max,
            finish: text(RecordName::Finish),
            refused_by: text(RecordName::RefusedBy),
            order: choice.map(|choice| choice.order.name()),
            chosen_by: choice.map(|choice| choice.chosen_by.name()),
            message: Some(record.message.to_owned()).filter(|message| !message.is_empty()),
        })
    }
}

/// Returns the name of the client's dialect.
pub(crate) fn protocol(record: &Record<'_>) -> Option<&'static str> {
    Some(Operation::named(record.name(RecordName::Operation))?.dialect()?.name())
}

/// Returns the originator of the exchange's cancellation: `client` or `administrator`.
pub(crate) fn cancelled_by(record: &Record<'_>) -> Option<&'static str> {
    if record.name(RecordName::Outcome) != Outcome::Cancelled.name() {
        return None;
    }
    // A client that leaves gets no error.
    Some(if record.name(RecordName::Error).is_empty() { "client" } else { "administrator" })
}

fn steps(record: &Record<'_>, trace: Trace<'_>) -> Vec<RequestStep> {
    let step = |(step, attempt): (RecordStep<'_>, Option<u32>)| RequestStep {
        provider: step.provider.to_owned(),
        model: step.model.to_owned(),
        result: step.result.to_owned(),
        status: step.status,
        head_us: step.head_us,
        spent_us: step.spent_us,
        start_us: step.start_us,
        credential: step.credential.map(|number| format!("c{number}")),
        first_content_us: record.first_content_us.filter(|_| step.result == StepResult::Served.name()),
        attempt,
        message: Some(step.message.to_owned())
            .filter(|message| !message.is_empty() && step.result != StepResult::Waited.name()),
        quota: (step.result == StepResult::Waited.name()).then(|| step.message.to_owned()),
        retry_after_ms: step.retry_after_ms,
        circuit_wait_ms: step.skip_wait_ms.filter(|_| step.result == StepResult::CircuitOpen.name()),
        wait_ms: step.skip_wait_ms.filter(|_| step.result == StepResult::Resting.name()),
        lost: None,
    };
    let mut steps: Vec<RequestStep> = trace.zip(attempts::numbers(trace)).map(step).collect();
    for (place, lost) in rare_fields::lost(&record.lost) {
        if let Some(step) = steps.get_mut(place) {
            step.lost = Some(LostShown::of(lost));
        }
    }
    steps
}
