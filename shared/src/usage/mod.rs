//! Usage events, the records of finished exchanges, and the interface through which they leave the data plane.

mod choice;
mod counts;
mod details;
mod finish;
mod gaps;
mod stored_state;
mod trace;
mod unpriced;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error_kind::ErrorKind;
use crate::id::{EndpointName, KeyId, ModelId, PrincipalId, ProjectId, ProviderId};
use crate::operation::Operation;

pub use self::choice::{ChosenBy, TargetChoice, TargetOrder};
pub use self::counts::{Class, TokenCounts, Units, counted};
pub use self::details::Details;
pub use self::finish::Finish;
pub use self::gaps::Gaps;
pub use self::stored_state::{StateHash, StateHasher, StoredState, owner_of_state};
pub use self::trace::{Lost, StepResult, TraceStep};
pub use self::unpriced::Unpriced;

/// The consumption and the result of one exchange. Exactly one is recorded per exchange that reached routing, whether
/// it succeeded, failed or was cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageEvent {
    /// The request ID, as in `X-Request-Id`.
    pub request_id: Arc<str>,
    /// The arrival time of the request head, in milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// The time from `started_at_ms` to the end, in microseconds.
    pub duration_us: u64,
    /// The requested operation.
    pub operation: Operation,
    /// The caller's key.
    pub key: KeyId,
    /// The project that pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// The human that the key acts as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalId>,
    /// The `model` that the client sent, cut to 256 bytes.
    pub selector: Arc<str>,
    /// The endpoint that the selector names, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointName>,
    /// The provider instance that served the request, or was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderId>,
    /// The model of that provider instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelId>,
    /// True if the client requested a stream.
    pub stream: bool,
    /// The status sent to the client; 499 if the client left before one was sent.
    pub status: u16,
    /// The result of the exchange.
    pub outcome: Outcome,
    /// The reason for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorKind>,
    /// The tokens used by the attempt that served the request.
    pub tokens: TokenCounts,
    /// Units other than tokens used by the attempt that served the request.
    #[serde(default)]
    pub units: Units,
    /// The source of `tokens`.
    pub provenance: Provenance,
    /// The service tier in the answer, normalized; absent for a vendor's standard tier. Several terms are joined by
    /// `+`, as in `fast+geo:us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Box<str>>,
    /// The quality and size of the generated images or video: `size` or `quality/size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<Box<str>>,
    /// The cost that the vendor reported, in nano-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_cost_nano_usd: Option<u64>,
    /// The vendor's ID of the request, at most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<Box<str>>,
    /// The caller's tags as `name=value`, sorted by name and joined by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Box<str>>,
    /// The end user that the request names, as configured: hashed or plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_user: Option<Box<str>>,
    /// The cost of `tokens` and `units` in nano-dollars; absent if unknown (ADM-6). The trace steps contain the cost
    /// of failed attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// The label of the prices that determined the cost; absent if none were needed or known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Arc<str>>,
    /// What lacks a price, if the cost is unknown although the model has prices.
    #[serde(default, skip_serializing_if = "Unpriced::is_empty")]
    pub unpriced: Unpriced,
    /// The amount that counts for cost quotas while the cost is unknown: the larger of the reservation and of the
    /// part of the cost that has prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_nano_usd: Option<u64>,
    /// The time from the request head to the upstream's response head, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_us: Option<u64>,
    /// The time from the request head to the first content, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_content_us: Option<u64>,
    /// Facts on which neither the cost nor quotas depend.
    #[serde(default)]
    pub details: Details,
    /// The route trace: every target considered, in order (FAIL-8).
    pub trace: Vec<TraceStep>,
}

/// The way in which the end users of requests are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndUsers {
    /// As a pseudonym derived from the name with the gateway's secret.
    #[default]
    Hashed,
    /// As the plain name.
    Plain,
    /// Not recorded.
    Off,
}

/// The result of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The client received the whole answer.
    Completed,
    /// No target answered, or the answer was an error.
    Failed,
    /// The client left.
    Cancelled,
    /// The upstream broke off after output had started.
    Cut,
    /// The process ended before the exchange did; its reservation counts as used.
    Interrupted,
}

impl Outcome {
    /// Returns the name for logs and records.
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

/// The source of token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// The upstream reported them.
    Reported,
    /// The gateway counted the relayed data.
    Measured,
    /// The gateway estimated them.
    Estimated,
    /// Nothing was used: no target started to answer.
    None,
}

impl Provenance {
    const ALL: [Self; 4] = [Self::Reported, Self::Measured, Self::Estimated, Self::None];

    /// Returns the name for records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Measured => "measured",
            Self::Estimated => "estimated",
            Self::None => "none",
        }
    }

    /// Returns the provenance with this [`name`](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provenance| provenance.name() == name)
    }
}

/// The place of an exchange in progress that was [noted](UsageLog::note).
#[derive(Debug, PartialEq, Eq)]
pub struct Note(pub u32);

/// Accepts usage events from one data-plane thread. An implementation makes the event durable against a kill of the
/// process before it returns, without a lock, an fsync or waking another thread (STATE-5).
pub trait UsageLog: Send {
    /// Records one exchange. Called before the last byte of the answer is sent to the client. Returns false if the
    /// record is not durable; then that byte must not be sent.
    fn append(&mut self, event: &UsageEvent) -> bool;

    /// Returns true while more exchanges may begin: there is durable room for their records, and the backlog of
    /// unstored records is within its limit. Otherwise a request gets 503 rather than an unrecorded answer.
    fn has_room(&self) -> bool;

    /// Tries to make room if `has_room` is false. Called about once a second.
    fn tend(&mut self);

    /// Notes an exchange that is about to go upstream, as durably as a record: if the process ends before the note is
    /// struck, the next process records `running` as interrupted. Returns `None` if there is no room or the note
    /// cannot be written.
    fn note(&mut self, running: &UsageEvent) -> Option<Note>;

    /// Removes the note of an exchange that has been recorded.
    fn strike(&mut self, note: Note);
}
