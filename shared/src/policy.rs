//! How often, how long and how much: retry, circuit, budget and body limits as values.

use std::time::Duration;

/// Attempts at one target and the back-off between them (FAIL-4, FAIL-5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts per target, the first included; at least 1.
    pub attempts_max: u32,
    /// Upper bound of the first, fully jittered pause.
    pub initial_backoff: Duration,
    /// Upper bound of any pause.
    pub backoff_max: Duration,
    /// Growth of the bound from one pause to the next.
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
    /// The upper bound of the pause before attempt `attempt` + 1, where the first attempt is 1.
    pub fn backoff_bound(&self, attempt: u32) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial_backoff.as_secs_f64() * self.multiplier.powi(exponent);
        Duration::try_from_secs_f64(seconds).unwrap_or(self.backoff_max).min(self.backoff_max)
    }
}

/// When a provider instance's circuit opens and for how long (FAIL-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPolicy {
    /// Consecutive failures that open the circuit; 0 turns it off.
    pub failure_threshold: u32,
    /// How long an open circuit refuses before one probe may pass.
    pub cooldown: Duration,
}

impl Default for CircuitPolicy {
    fn default() -> Self {
        Self { failure_threshold: 4, cooldown: Duration::from_secs(30) }
    }
}

/// How long a client may make no progress before its connection, stream or request is ended (LIM-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// A connection without a request.
    pub idle: Duration,
    /// A connection, or a stream of HTTP/2, that takes nothing of what waits for it.
    pub stall: Duration,
    /// A pause in a request body; also the time before its minimum rate holds.
    pub body: Duration,
}

impl Default for ClientTimeouts {
    /// Above the 90 s for which many clients keep a connection, and the 60 s that a reader may pause; below two minutes.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(100),
            stall: Duration::from_secs(100),
            body: Duration::from_secs(30),
        }
    }
}

/// The failover budget when a request names none (FAIL-2).
pub const FAILOVER_BUDGET_DEFAULT: Duration = Duration::from_millis(120_000);
/// The longest `Retry-After` that a retry waits for; above it the request moves on (FAIL-4).
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);
/// Bytes of a request body when nothing else is configured (LIM-1).
pub const BODY_BYTES_MAX_DEFAULT: u64 = 64 << 20;
