//! The error for a request that no target has served.

use std::time::Duration;

use shared::error_kind::ErrorKind;
use shared::routing::{ProviderInstance, Target};
use wire::adapt::Rejection;

use super::{Failure, KeyBlame};
use crate::adapt;
use crate::admit::quota;
use crate::error::Fault;
use crate::memory_budget::MemoryExhausted;

/// The reasons why no target has served the request so far: the most informative failure, and what kept targets from
/// being tried.
#[derive(Debug)]
pub(super) struct Reasons {
    /// The most informative failure for the client.
    worst: Option<Box<Failure>>,
    /// The time until the first open circuit lets a request pass.
    pub(super) shortest_wait_ms: u64,
    /// The time until the first of the candidates that rest may be tried, if any rests.
    pub(super) shortest_rest_ms: Option<u64>,
    /// The rejection by the first target into whose dialect the request cannot be translated.
    pub(super) rejection: Option<Box<Rejection>>,
    /// True if there was no memory to translate the request into another dialect.
    pub(super) no_memory: bool,
    /// True if a hard quota applies to the request and it cannot be noted in the usage log.
    pub(super) no_slot: bool,
    /// The error of a skipped target's quota, and that target; of several, the one that can be used again first.
    over_quota: Option<Box<(Fault, Target)>>,
}

impl Reasons {
    pub(super) fn new() -> Self {
        Self {
            worst: None,
            shortest_wait_ms: u64::MAX,
            shortest_rest_ms: None,
            rejection: None,
            no_memory: false,
            no_slot: false,
            over_quota: None,
        }
    }

    /// Keeps `failure` if it is the most informative one for the client.
    pub(super) fn keep(&mut self, failure: Failure) {
        // The first target that serves again suffices.
        let waits = [self.worst.as_ref().and_then(|worst| worst.retry_after), failure.retry_after];
        let retry_after = waits.into_iter().flatten().min();
        match &mut self.worst {
            Some(worst) if meaning(worst) > meaning(&failure) => worst.retry_after = retry_after,
            worst => *worst = Some(Box::new(Failure { retry_after, ..failure })),
        }
    }

    /// Adds to the most informative failure that the upstream rejected the keys of `provider`, if the failure is such a
    /// rejection: a client must not doubt its own key.
    pub(super) fn keys_rejected(&mut self, provider: &ProviderInstance, rejected: usize) {
        let (id, keys) = (&provider.id, provider.lanes.len());
        if let Some(worst) = self.worst.as_mut().filter(|worst| worst.blame == Some(KeyBlame::Rejected)) {
            worst.add_note(&if rejected >= keys {
                format!("All {keys} keys of the provider '{id}' were rejected.")
            } else {
                format!(
                    "{rejected} of the {keys} keys of the provider '{id}' were rejected; no other was tried."
                )
            });
        }
    }

    pub(super) fn keep_over_quota(&mut self, fault: Fault, target: &Target) {
        if self.over_quota.as_ref().is_none_or(|kept| wait_of(&fault) < wait_of(&kept.0)) {
            self.over_quota = Some(Box::new((fault, target.clone())));
        }
    }

    /// Returns a target that was skipped because its quota is used up, if any.
    pub(super) fn over_quota_target(&self) -> Option<&Target> {
        self.over_quota.as_ref().map(|over| &over.1)
    }

    pub(super) fn into_fault(self) -> Fault {
        match (self.worst, self.rejection) {
            (Some(failure), _) => {
                let mut fault = Fault::new(failure.kind, failure.message);
                fault.status = failure.status.filter(|_| failure.kind == ErrorKind::UpstreamStatus);
                fault.error = failure.error;
                fault.retry_after = failure.retry_after.map(|wait| wait.min(CLIENT_WAIT_MAX));
                fault
            }
            (None, _) if self.no_slot => quota::no_slot(),
            (None, _) if self.no_memory => Fault::from(MemoryExhausted),
            (None, _) if let Some(wait_ms) = self.shortest_rest_ms => all_resting(wait_ms),
            (None, _) if let Some(over) = self.over_quota => over.0,
            // A target with an open circuit could serve the request later.
            (None, Some(rejection)) if self.shortest_wait_ms == u64::MAX => adapt::refusal(*rejection),
            (None, _) => all_cooling_down(self.shortest_wait_ms),
        }
    }
}
/// Returns the time after which a rejected request may succeed; the maximum duration if it never will.
pub(crate) fn wait_of(fault: &Fault) -> Duration {
    fault.retry_after.unwrap_or(Duration::MAX)
}

/// Returns the error for a request whose candidates all have an open circuit; the first of them admits a request
/// after `wait_ms`.
pub(crate) fn all_cooling_down(wait_ms: u64) -> Fault {
    let message = "Every model that could serve this request has failed too often and is cooling down.";
    let wait = Duration::from_millis(wait_ms).min(CLIENT_WAIT_MAX);
    Fault::new(ErrorKind::NoEligibleTarget, message).retry_after(wait)
}

/// Returns the error for a request whose candidates all rest because of rate limits of their upstreams; the first of them
/// may be tried after `wait_ms`.
pub(crate) fn all_resting(wait_ms: u64) -> Fault {
    let message =
        "The providers of every model that could serve this request limit the rate of requests now.";
    let wait = Duration::from_millis(wait_ms).min(CLIENT_WAIT_MAX);
    Fault::new(ErrorKind::RateLimited, message).retry_after(wait)
}

/// The longest wait that is reported to a client: Anthropic's SDK obeys any.
const CLIENT_WAIT_MAX: Duration = Duration::from_secs(120);

/// Ranks failures by their information for the client: a fault of its request is highest, an unreachable upstream lowest.
fn meaning(failure: &Failure) -> u8 {
    let shown = |status| failure.error.as_ref().map_or(status, |error| error.client_status(status));
    match (failure.kind, failure.status.map(shown)) {
        (ErrorKind::BudgetExhausted, _) => 7,
        (ErrorKind::UpstreamStatus, Some(400 | 405..=407 | 409..=428 | 430..=499)) => 6,
        (ErrorKind::UpstreamStatus, Some(429)) => 5,
        (ErrorKind::UpstreamStatus, Some(401..=404)) => 4,
        (ErrorKind::UpstreamStatus, _) => 3,
        (ErrorKind::UpstreamTimeout, _) => 2,
        _ => 1,
    }
}
