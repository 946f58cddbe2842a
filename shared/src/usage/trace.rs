//! The route trace of an exchange: the targets that were considered, and what became of each.

use serde::{Deserialize, Serialize};

use super::counts::{TokenCounts, Units};
use crate::id::{CredentialNumber, ModelId, ProviderId};

/// One target that was considered for a request, whether it was tried or skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceStep {
    /// The provider instance.
    pub provider: ProviderId,
    /// The model.
    pub model: ModelId,
    /// The result of the attempt, or the reason for skipping the target.
    pub result: StepResult,
    /// The key of the attempt, if the provider instance has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialNumber>,
    /// The upstream's status, if it responded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The time from the start of the attempt to the upstream's response head, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_us: Option<u64>,
    /// The time from the start of the attempt to its end or first content, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_us: Option<u64>,
    /// The time from the request head to the start of the attempt or wait, in microseconds; absent for a skipped target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_us: Option<u64>,
    /// The error of a failed attempt, sanitized and without quoted text, at most [`MESSAGE_CHARS_MAX`](Self::MESSAGE_CHARS_MAX)
    /// characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// The wait that the upstream asked for, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The remaining time of the cooldown or the rest for which the target was skipped, in milliseconds.
    #[serde(default, rename = "circuit_wait_ms", skip_serializing_if = "Option::is_none")]
    pub skip_wait_ms: Option<u64>,
    /// The consumption of the attempt, if its answer did not serve the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Box<Lost>>,
}

impl TraceStep {
    /// The limit on the characters of a message.
    pub const MESSAGE_CHARS_MAX: usize = 200;

    /// Creates the step of a target, without times.
    pub fn new(provider: ProviderId, model: ModelId, result: StepResult) -> Self {
        Self {
            provider,
            model,
            result,
            credential: None,
            status: None,
            head_us: None,
            spent_us: None,
            start_us: None,
            message: None,
            retry_after_ms: None,
            skip_wait_ms: None,
            lost: None,
        }
    }
}

/// The consumption of an attempt whose answer did not serve the request, as its upstream reported it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// The tokens used.
    pub tokens: TokenCounts,
    /// The units other than tokens.
    #[serde(default)]
    pub units: Units,
    /// The cost in nano-dollars; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// The service tier, as in [`UsageEvent::tier`](super::UsageEvent::tier).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Box<str>>,
    /// The quality and size of the generated images or video, as in [`UsageEvent::picture`](super::UsageEvent::picture).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<Box<str>>,
    /// The cost that the vendor reported, in nano-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_cost_nano_usd: Option<u64>,
    /// The amount that counts for cost quotas while the cost is unknown, as in
    /// [`UsageEvent::quota_nano_usd`](super::UsageEvent::quota_nano_usd).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_nano_usd: Option<u64>,
}

/// The result of a target in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult {
    /// The target answered.
    Served,
    /// Not tried yet: the request waited in the line of a quota. The message is the ID of the quota.
    Waited,
    /// Skipped: its circuit is open.
    CircuitOpen,
    /// Skipped: it rests, because its upstream limits the rate of requests.
    Resting,
    /// Put behind all others: the request is probably longer than its context window.
    TooLong,
    /// Skipped: it does not accept images (CHAT-2).
    NoVision,
    /// Skipped: it cannot call tools.
    NoTools,
    /// Skipped: it does not support the dialect.
    NoDialect,
    /// Skipped: its dialect cannot express the request (MSG-2, CHAT-6, RESP-2).
    Unsupported,
    /// Skipped: the request refers to something that another target created.
    Elsewhere,
    /// Skipped: the provider instance is not ready to use.
    NotReady,
    /// Skipped: an allowlist of the key or its project does not contain it (AUTH-2).
    NotAllowed,
    /// Skipped: it is owned by a human, and the key does not act as that human (AUTH-4).
    Private,
    /// Skipped: the caller has a hard limit on cost, and the target's prices are unknown (ADM-4, ADM-6).
    NoPrice,
    /// Skipped: a limit on the target, or on the caller's use of it, is used up (ADM-4).
    OverQuota,
    /// A connection, TLS or protocol failure.
    Unreachable,
    /// The gateway had no file descriptor, port or memory for a connection.
    NoSocket,
    /// The address is one that is never dialled (LIM-5).
    AddressRefused,
    /// The upstream did not answer in time.
    TimedOut,
    /// The answer is invalid.
    Invalid,
    /// The upstream responded with an error status.
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

impl StepResult {
    /// Every result.
    pub const ALL: [Self; 25] = [
        Self::Served,
        Self::Waited,
        Self::CircuitOpen,
        Self::Resting,
        Self::TooLong,
        Self::NoVision,
        Self::NoTools,
        Self::NoDialect,
        Self::Unsupported,
        Self::Elsewhere,
        Self::NotReady,
        Self::NotAllowed,
        Self::Private,
        Self::NoPrice,
        Self::OverQuota,
        Self::Unreachable,
        Self::NoSocket,
        Self::AddressRefused,
        Self::TimedOut,
        Self::Invalid,
        Self::Status,
        Self::StreamError,
        Self::StreamEnded,
        Self::Cancelled,
        Self::BudgetExhausted,
    ];

    /// Returns the name for records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Waited => "waited",
            Self::CircuitOpen => "circuit_open",
            Self::Resting => "resting",
            Self::TooLong => "too_long",
            Self::NoVision => "no_vision",
            Self::NoTools => "no_tools",
            Self::NoDialect => "no_dialect",
            Self::Unsupported => "unsupported",
            Self::Elsewhere => "elsewhere",
            Self::NotReady => "not_ready",
            Self::NotAllowed => "not_allowed",
            Self::Private => "private",
            Self::NoPrice => "no_price",
            Self::OverQuota => "over_quota",
            Self::Unreachable => "unreachable",
            Self::NoSocket => "no_socket",
            Self::AddressRefused => "address_refused",
            Self::TimedOut => "timed_out",
            Self::Invalid => "invalid",
            Self::Status => "status",
            Self::StreamError => "stream_error",
            Self::StreamEnded => "stream_ended",
            Self::Cancelled => "cancelled",
            Self::BudgetExhausted => "budget_exhausted",
        }
    }

    /// Returns the result with this [`name`](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|result| result.name() == name)
    }

    /// Returns true if the target was tried, and false if it was skipped.
    pub fn is_attempt(self) -> bool {
        match self {
            Self::Served
            | Self::Unreachable
            | Self::NoSocket
            | Self::AddressRefused
            | Self::TimedOut
            | Self::Invalid
            | Self::Status
            | Self::StreamError
            | Self::StreamEnded
            | Self::Cancelled
            | Self::BudgetExhausted => true,
            Self::Waited
            | Self::CircuitOpen
            | Self::Resting
            | Self::TooLong
            | Self::NoVision
            | Self::NoTools
            | Self::NoDialect
            | Self::Unsupported
            | Self::Elsewhere
            | Self::NotReady
            | Self::NotAllowed
            | Self::Private
            | Self::NoPrice
            | Self::OverQuota => false,
        }
    }
}
