//! Retry, circuit, timeout, budget and body limits as values.

use std::time::Duration;

use crate::backoff::Backoff;

/// The number of attempts at one target and the back-off between them (FAIL-4, FAIL-5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts per target, including the first; at least 1.
    pub attempts_max: u32,
    /// Upper bound of the first, fully jittered pause.
    pub initial_backoff: Duration,
    /// Upper bound of every pause.
    pub backoff_max: Duration,
    /// The factor by which the bound grows from one pause to the next.
    pub multiplier: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 2,
            initial_backoff: Duration::from_millis(500),
            backoff_max: Duration::from_secs(8),
            multiplier: 2.0,
        }
    }
}

impl RetryPolicy {
    /// Returns the upper bound of the pause after attempt `attempt`, where the first attempt is 1.
    pub fn backoff_bound(&self, attempt: u32) -> Duration {
        let Self { initial_backoff: first, backoff_max: max, multiplier, .. } = *self;
        Backoff { first, max, multiplier }.bound(attempt)
    }
}

/// The settings of a provider instance's circuit (FAIL-5), and of the rests of its models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPolicy {
    /// Consecutive failures that open the circuit; 0 disables it.
    pub failure_threshold: u32,
    /// The time for which an open circuit rejects requests before one probe may pass.
    pub cooldown: Duration,
    /// The longest rest of a model after a rate limit; zero disables rests.
    pub rest_max: Duration,
}

impl Default for CircuitPolicy {
    fn default() -> Self {
        Self { failure_threshold: 4, cooldown: Duration::from_secs(30), rest_max: Duration::from_secs(600) }
    }
}

/// The time for which a client may make no progress before its connection, stream or request is closed (LIM-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// A connection without a request.
    pub idle: Duration,
    /// A connection, or an HTTP/2 stream, that reads none of the pending output.
    pub stall: Duration,
    /// A pause in a request body; also the time before its minimum rate applies.
    pub body: Duration,
}

impl Default for ClientTimeouts {
    /// The idle and stall timeouts exceed the 90 s for which many clients keep a connection and the 60 s for which a
    /// reader may pause, and are below two minutes.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(100),
            stall: Duration::from_secs(100),
            body: Duration::from_secs(30),
        }
    }
}

/// The failover budget of a request that specifies none (FAIL-2).
pub const FAILOVER_BUDGET_DEFAULT: Duration = Duration::from_millis(120_000);
/// The longest `Retry-After` that a retry waits for; a longer one makes the request move on (FAIL-4).
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);
/// The default limit of a request body in bytes (LIM-1).
pub const BODY_BYTES_MAX_DEFAULT: u64 = 64 << 20;
