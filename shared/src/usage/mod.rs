//! The one record of a finished exchange, and the door through which it leaves the data plane.

mod counts;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error_kind::ErrorKind;
use crate::id::{EndpointName, KeyId, ModelId, PrincipalId, ProjectId, ProviderId};
use crate::operation::Operation;

pub use self::counts::{Class, TokenCounts, Units, counted};

/// What one exchange used, and how it went. Made exactly once an exchange that reached routing, whether it
/// succeeded, failed or was cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageEvent {
    /// The id in `X-Request-Id`.
    pub request_id: Box<str>,
    /// When the request's head had arrived, in milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// From then to the end, in microseconds.
    pub duration_us: u64,
    /// What was asked for.
    pub operation: Operation,
    /// Whose key.
    pub key: KeyId,
    /// Whose budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalId>,
    /// The `model` that the client sent, cut to 256 bytes.
    pub selector: Box<str>,
    /// The endpoint that it named, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointName>,
    /// Who served, or was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderId>,
    /// With which model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelId>,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// The status that the client got; 499 when it left before one was sent.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorKind>,
    /// The tokens that the served attempt used.
    pub tokens: TokenCounts,
    /// Consumption of the served attempt that is not tokens.
    #[serde(default)]
    pub units: Units,
    /// Source of `tokens`.
    pub provenance: Provenance,
    /// The service tier that the answer names, normalized: absent for a vendor's standard tier. Several terms are
    /// joined by `+`, as in `fast+geo:us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Box<str>>,
    /// The sort of picture or video that was made: `size` or `quality/size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<Box<str>>,
    /// The cost that the vendor itself reported, in nano-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_cost_nano_usd: Option<u64>,
    /// The vendor's own id of the request, at most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<Box<str>>,
    /// The caller's tags as `name=value`, sorted by name and joined by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Box<str>>,
    /// The end user that the request names, as configured: hashed or plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_user: Option<Box<str>>,
    /// The cost of `tokens` and `units` in nano-dollars; absent where it is unknown (ADM-6). The cost of failed attempts
    /// stands on their steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// The label of the prices that made the cost; none where none were needed or known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Arc<str>>,
    /// The amount for quotas of cost while the cost is unknown: the larger of the reservation and of the part that has
    /// a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_nano_usd: Option<u64>,
    /// From the request's head to the upstream's head, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_us: Option<u64>,
    /// From the request's head to the first content, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_content_us: Option<u64>,
    /// The route trace: every target considered, in order (FAIL-8).
    pub trace: Vec<TraceStep>,
}

/// How the end users whom requests name are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndUsers {
    /// By a pseudonym that the secret of the gateway makes of the name.
    #[default]
    Hashed,
    /// By the name.
    Plain,
    /// Not at all.
    Off,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The client has the whole answer.
    Completed,
    /// No target answered, or the answer was an error.
    Failed,
    /// The client left.
    Cancelled,
    /// The upstream broke off after output had started.
    Cut,
    /// The gateway ended before the exchange did; what it had reserved counts as used.
    Interrupted,
}

impl Outcome {
    /// The name in logs and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Cut => "cut",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Where token counts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// The upstream said so.
    Reported,
    /// The gateway counted what passed.
    Measured,
    /// The gateway estimated.
    Estimated,
    /// Nothing was used: no target began to answer.
    None,
}

impl Provenance {
    const ALL: [Self; 4] = [Self::Reported, Self::Measured, Self::Estimated, Self::None];

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Measured => "measured",
            Self::Estimated => "estimated",
            Self::None => "none",
        }
    }

    /// The provenance with this [`name`](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provenance| provenance.name() == name)
    }
}

/// One target that was considered for a request: tried, or passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceStep {
    /// The instance.
    pub provider: ProviderId,
    /// Its model.
    pub model: ModelId,
    /// What came of it.
    pub result: StepResult,
    /// The upstream's status, where it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// From the start of the attempt to the upstream's head, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_us: Option<u64>,
    /// From the start of the attempt to its end or first content, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_us: Option<u64>,
    /// What the attempt used although its answer did not serve the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Box<Lost>>,
}

/// The consumption of an attempt whose answer did not serve the request, as its upstream reported it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// Its tokens.
    pub tokens: TokenCounts,
    /// Its consumption that is not tokens.
    #[serde(default)]
    pub units: Units,
    /// Its cost in nano-dollars; absent where it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// Its service tier, as in [`UsageEvent::tier`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Box<str>>,
    /// The sort of picture or video that was made, as in [`UsageEvent::picture`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<Box<str>>,
    /// The cost that its vendor reported, in nano-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_cost_nano_usd: Option<u64>,
    /// The amount for quotas of cost while the cost is unknown, as in [`UsageEvent::quota_nano_usd`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_nano_usd: Option<u64>,
}

/// What came of a target in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// It answered.
    Served,
    /// Not tried: its circuit is open.
    CircuitOpen,
    /// Not tried: it cannot take images (CHAT-2).
    NoVision,
    /// Not tried: it does not speak the dialect.
    NoDialect,
    /// Not tried: the request holds what its dialect cannot say (MSG-2, CHAT-6, RESP-2).
    Unsupported,
    /// Not tried: what the request refers to was made by another target.
    Elsewhere,
    /// Not tried: its connection is not ready to be used.
    NotReady,
    /// Not tried: an allowlist of the key or its project does not name it (AUTH-2).
    NotAllowed,
    /// Not tried: it is a human's own, and the key does not act as that human (AUTH-4).
    Private,
    /// Not tried: the caller has a hard limit on cost, and nobody knows what it costs (ADM-4, ADM-6).
    NoPrice,
    /// Not tried: a limit on it, or on the caller's use of it, is used up (ADM-4).
    OverQuota,
    /// Connection, TLS or protocol failure.
    Unreachable,
    /// The gateway itself had no file descriptor, port or memory for a connection.
    NoSocket,
    /// Refused as an address that is never dialled (LIM-5).
    AddressRefused,
    /// No answer in time.
    TimedOut,
    /// An answer that is none.
    Invalid,
    /// An error status.
    Status,
    /// An error event inside a 200 stream, before any content.
    StreamError,
    /// The stream ended before any content.
    StreamEnded,
    /// The client left during the attempt.
    Cancelled,
    /// The failover budget ran out during the attempt.
    BudgetExhausted,
}

/// An exchange that is on its way and was [noted](UsageLog::note), by its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Note(pub u32);

/// Takes usage events from one data-plane thread. An implementation makes the event durable against a kill of
/// the process before it returns, without a lock, an fsync or waking another thread (STATE-5).
pub trait UsageLog: Send {
    /// Records one exchange. Called before the client gets the last byte of its answer. False if the record is not
    /// durable: then the client must not get that byte.
    fn append(&mut self, event: &UsageEvent) -> bool;

    /// Returns true while more exchanges may begin: there is durable room for their records, and not too many wait to be
    /// stored. Otherwise a request gets 503 rather than an unrecorded answer.
    fn has_room(&self) -> bool;

    /// Looks for room where there is none. Called about once a second.
    fn tend(&mut self);

    /// Notes an exchange that is about to go upstream, as durably as a record: if the process ends before the note is
    /// struck, the next one records `running` as interrupted. `None` if there is no room, or the note cannot be written.
    fn note(&mut self, running: &UsageEvent) -> Option<Note>;

    /// The exchange has been recorded otherwise.
    fn strike(&mut self, note: Note);
}
