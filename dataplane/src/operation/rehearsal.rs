//! Rehearses the attempts at the candidates of a request under assumed faults, without sending anything. Times follow from
//! the timeouts, the back-off and the budget: upstreams answer at once, and each pause has its maximum length.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use shared::health::Evidence;
use shared::id::{ModelId, ProviderId};
use shared::port::{AssumedFault, FaultKind};
use shared::routing::Target;
use shared::usage::StepResult;

use crate::attempt::{Next, next_after};

/// The attempts at one candidate.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RehearsedTarget<'a> {
    target: NamedTarget<'a>,
    /// The number of attempts, including retries; 0 for a candidate whose circuit has opened.
    attempts: u32,
    /// The result of the last attempt.
    result: StepResult,
    /// The assumed status; null if no status is assumed.
    status: Option<u16>,
    /// The beginning of the first attempt, in milliseconds since the request.
    starts_at_ms: u64,
    /// The latest end of the last attempt, in milliseconds since the request.
    ends_at_ms: u64,
    /// The attempts one by one.
    tries: Vec<RehearsedAttempt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct NamedTarget<'a> {
    provider: &'a ProviderId,
    model: &'a ModelId,
}

/// One attempt.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RehearsedAttempt {
    result: StepResult,
    starts_at_ms: u64,
    ends_at_ms: u64,
}

/// The properties of a request that are known before its attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RehearsedRequest<'a> {
    pub(crate) faults: &'a [AssumedFault],
    pub(crate) budget: Duration,
    pub(crate) stream: bool,
    /// True for an operation that is started only once, because each start is billed.
    pub(crate) once: bool,
}

/// The state of a rehearsed walk over the candidates.
struct RehearsedWalk<'a> {
    request: RehearsedRequest<'a>,
    now: Duration,
    /// Consecutive failures, by instance, and by model of an instance.
    failures: HashMap<(&'a ProviderId, Option<&'a ModelId>), u32>,
}

/// The end of the attempts at one candidate.
enum Turn {
    /// The next candidate is tried.
    Next,
    /// The request has its answer or its error.
    End,
}

/// Returns the attempts at `candidates`, in order, up to the first that serves.
pub(crate) fn rehearse<'a>(
    candidates: &[&'a Target],
    request: RehearsedRequest<'a>,
) -> Vec<RehearsedTarget<'a>> {
    let mut walk = RehearsedWalk { request, now: Duration::ZERO, failures: HashMap::new() };
    let mut path = Vec::new();
    for target in candidates {
        let (rehearsed, turn) = walk.target(target);
        path.push(rehearsed);
        if matches!(turn, Turn::End) {
            break;
        }
    }
    path
}

impl<'a> RehearsedWalk<'a> {
    fn target(&mut self, target: &'a Target) -> (RehearsedTarget<'a>, Turn) {
        let Target { provider, model } = target;
        let mut rehearsed = RehearsedTarget {
            target: NamedTarget { provider: &provider.id, model: &model.id },
            attempts: 0,
            result: StepResult::CircuitOpen,
            status: None,
            starts_at_ms: ms(self.now),
            ends_at_ms: ms(self.now),
            tries: Vec::new(),
        };
        if self.is_open(target) {
            return (rehearsed, Turn::Next);
        }
        let fault = self.request.faults.iter().find(|fault| fault.hits(target)).map(|fault| fault.kind);
        if let Some(FaultKind::Status(status)) = fault {
            rehearsed.status = Some(status);
        }
        let attempts_max = provider.retry.attempts_max.max(1);
        for attempt in 1..=attempts_max {
            let start = self.now;
            let (result, next, evidence) = self.attempt(target, fault);
            rehearsed.attempts = attempt;
            rehearsed.result = result;
            rehearsed.ends_at_ms = ms(self.now);
            rehearsed.tries.push(RehearsedAttempt {
                result,
                starts_at_ms: ms(start),
                ends_at_ms: ms(self.now),
            });
            if result == StepResult::Served {
                return (rehearsed, Turn::End);
            }
            self.count(target, evidence);
            let pause = provider.retry.backoff_bound(attempt);
            match next {
                Next::Stop => return (rehearsed, Turn::End),
                Next::Retry if attempt < attempts_max && self.may_wait(target, pause) => self.now += pause,
                Next::Retry | Next::FailOver => break,
            }
        }
        (rehearsed, Turn::Next)
    }

    /// Advances the time to the end of an attempt, and returns its result and consequences.
    fn attempt(&mut self, target: &Target, fault: Option<FaultKind>) -> (StepResult, Next, Evidence) {
        let RehearsedRequest { budget, stream, once, .. } = self.request;
        if self.now >= budget {
            return (StepResult::BudgetExhausted, Next::Stop, Evidence::Nothing);
        }
        let (result, next, evidence) = match fault {
            None => return (StepResult::Served, Next::Stop, Evidence::Alive),
            Some(FaultKind::Status(status)) => {
                let (next, evidence) = next_after(status);
                (StepResult::Status, next, evidence)
            }
            Some(FaultKind::Hang) => {
                let end = self.now.saturating_add(target.provider.timeout);
                self.now = end.min(budget);
                if end >= budget {
                    return (StepResult::BudgetExhausted, Next::Stop, Evidence::Nothing);
                }
                (StepResult::TimedOut, Next::Retry, Evidence::InstanceFailed)
            }
            Some(FaultKind::Cut) => {
                let result = if stream { StepResult::StreamEnded } else { StepResult::Unreachable };
                (result, Next::Retry, Evidence::InstanceFailed)
            }
        };
        let is_rejected = matches!(fault, Some(FaultKind::Status(400..=407 | 409..=499)));
        (result, if once && !is_rejected { Next::Stop } else { next }, evidence)
    }

    fn count(&mut self, target: &'a Target, evidence: Evidence) {
        let provider = &target.provider.id;
        let failed = match evidence {
            Evidence::InstanceFailed => (provider, None),
            Evidence::ModelFailed => (provider, Some(&target.model.id)),
            Evidence::Served | Evidence::Alive | Evidence::Nothing => return,
        };
        *self.failures.entry(failed).or_insert_with(|| known_failures(target, evidence)) += 1;
    }

    /// True if the failures so far have opened a circuit of the target.
    fn is_open(&self, target: &Target) -> bool {
        let threshold = target.provider.circuit_policy.failure_threshold;
        let failures = |model| self.failures.get(&(&target.provider.id, model)).copied().unwrap_or(0);
        threshold > 0 && failures(None).max(failures(Some(&target.model.id))) >= threshold
    }

    fn may_wait(&self, target: &Target, pause: Duration) -> bool {
        self.now.saturating_add(pause) < self.request.budget && !self.is_open(target)
    }
}

/// Returns the consecutive failures that the circuit of an instance has counted already.
fn known_failures(target: &Target, evidence: Evidence) -> u32 {
    match evidence {
        Evidence::InstanceFailed => target.provider.circuits.instance().failures(),
        Evidence::Served | Evidence::Alive | Evidence::ModelFailed | Evidence::Nothing => 0,
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
