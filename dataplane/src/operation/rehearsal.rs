//! Rehearses the attempts at the candidates of a request under assumed faults, without sending anything. Times follow from
//! the timeouts, the back-off and the budget: upstreams answer at once, and each pause has its maximum length.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use shared::health::Evidence;
use shared::id::{ModelId, ProviderId};
use shared::port::{AssumedFault, FaultKind};
use shared::routing::Target;
use shared::snapshot::Route;
use shared::usage::StepResult;

use crate::attempt::{FailoverBudget, KeyBlame, Next, next_after};
use crate::plan::lanes::LANES_TRIED_MAX;

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
    /// The rule of the provider that decided what follows; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
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
    pub(crate) route: Option<&'a Route>,
    pub(crate) budget: FailoverBudget,
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
    /// The candidate limits the rate of requests: the next one is tried, and this one again not before `ready`.
    Limited { attempts: u32, ready: Duration },
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
    // Candidates that may be tried again, with the number of attempts and the time.
    let mut limited = Vec::new();
    let mut next = candidates.iter().copied();
    loop {
        let (target, before) = match (next.next(), limited.is_empty()) {
            (Some(target), _) => (target, 0),
            (None, true) => return path,
            (None, false) => {
                limited.sort_by_key(|(_, _, ready)| *ready);
                let (target, before, ready) = limited.remove(0);
                walk.now = walk.now.max(ready);
                if walk.now >= request.budget.time() {
                    return path;
                }
                (target, before)
            }
        };
        let has_next = !limited.is_empty() || next.clone().any(|target| !walk.is_open(target));
        let (rehearsed, turn) = walk.target((target, before), has_next);
        path.push(rehearsed);
        match turn {
            Turn::Next => {}
            Turn::Limited { attempts, ready } => limited.push((target, attempts, ready)),
            Turn::End => return path,
        }
    }
}

impl<'a> RehearsedWalk<'a> {
    fn target(&mut self, (target, before): (&'a Target, u32), has_next: bool) -> (RehearsedTarget<'a>, Turn) {
        let Target { provider, model } = target;
        let mut rehearsed = RehearsedTarget {
            target: NamedTarget { provider: &provider.id, model: &model.id },
            attempts: 0,
            result: StepResult::CircuitOpen,
            status: None,
            rule: None,
            starts_at_ms: ms(self.now),
            ends_at_ms: ms(self.now),
            tries: Vec::new(),
        };
        if self.is_open(target) {
            return (rehearsed, Turn::Next);
        }
        let fault = self.request.faults.iter().find(|fault| fault.hits(target)).map(|fault| &fault.kind);
        if let Some(FaultKind::Status { status, text }) = fault {
            rehearsed.status = Some(*status);
            let (_, _, rule) = next_after(provider, *status, text.as_deref());
            rehearsed.rule = rule.map(|rule| rule.to_string());
        }
        let attempts_max = provider.retry.attempts_max.max(1);
        let share_end = has_next.then(|| FailoverBudget::share_end(self.request.budget.time(), self.now));
        // Each of the provider's keys is refused in the same way, at once. A rule goes before the key.
        if rehearsed.rule.is_none() && self.blames_key(fault) {
            for _ in 1..target.provider.lanes.len().min(LANES_TRIED_MAX) {
                let (result, at) = (StepResult::Status, ms(self.now));
                rehearsed.tries.push(RehearsedAttempt { result, starts_at_ms: at, ends_at_ms: at });
                rehearsed.attempts += 1;
            }
        }
        let other_keys = rehearsed.attempts;
        for attempt in before + 1..=attempts_max {
            let start = self.now;
            let (result, next, evidence) = self.attempt(target, fault, share_end);
            rehearsed.attempts = other_keys + attempt - before;
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
                Next::Retry if attempt < attempts_max && evidence == Evidence::RateLimited => {
                    let ready = self.now.saturating_add(pause);
                    return (rehearsed, Turn::Limited { attempts: attempt, ready });
                }
                Next::Retry if attempt < attempts_max && self.may_wait(target, pause, share_end) => {
                    self.now += pause;
                }
                Next::Retry | Next::FailOver => break,
            }
        }
        (rehearsed, Turn::Next)
    }

    /// Advances the time to the end of an attempt, and returns its result and consequences.
    fn attempt(
        &mut self,
        target: &Target,
        fault: Option<&FaultKind>,
        share_end: Option<Duration>,
    ) -> (StepResult, Next, Evidence) {
        let RehearsedRequest { stream, once, .. } = self.request;
        if self.now >= self.request.budget.time() {
            return (StepResult::BudgetExhausted, Next::Stop, Evidence::Nothing);
        }
        let (result, next, evidence) = match fault {
            None => return (StepResult::Served, Next::Stop, Evidence::Alive),
            Some(FaultKind::Status { status, text }) => {
                let (next, evidence, _) = next_after(&target.provider, *status, text.as_deref());
                (StepResult::Status, next, evidence)
            }
            Some(FaultKind::Hang) if let Some(limit) = self.content_limit(target, share_end) => {
                self.now = self.now.saturating_add(limit);
                (StepResult::TimedOut, Next::FailOver, Evidence::Nothing)
            }
            Some(FaultKind::Hang) => {
                let next = self.hang(target.provider.timeout, share_end);
                if next == Next::Stop {
                    return (StepResult::BudgetExhausted, Next::Stop, Evidence::Nothing);
                }
                (StepResult::TimedOut, next, Evidence::InstanceFailed)
            }
            Some(FaultKind::Cut) => {
                let result = if stream { StepResult::StreamEnded } else { StepResult::Unreachable };
                (result, Next::Retry, Evidence::InstanceFailed)
            }
        };
        let is_rejected = matches!(fault, Some(FaultKind::Status { status: 400..=407 | 409..=499, .. }));
        (result, if once && !is_rejected { Next::Stop } else { next }, evidence)
    }

    /// Returns the time in which a stream of `target` must have content, if that ends a hanging attempt first.
    fn content_limit(&self, target: &Target, share_end: Option<Duration>) -> Option<Duration> {
        let RehearsedRequest { stream, budget, route, .. } = self.request;
        let limit = route?.first_content_timeout(target).filter(|_| stream)?;
        let end = self.now.saturating_add(limit);
        let timeout = target.provider.timeout;
        let attempt_end = budget.attempt_end(budget.time(), self.now, timeout);
        let is_first = limit <= timeout && end <= attempt_end && share_end.is_none_or(|share| end <= share);
        is_first.then_some(limit)
    }

    /// True if the upstream would refuse an attempt because of its key.
    fn blames_key(&self, fault: Option<&FaultKind>) -> bool {
        let Some(FaultKind::Status { status, .. }) = fault else { return false };
        self.now < self.request.budget.time() && KeyBlame::of_status(*status).is_some()
    }

    /// Advances the time to the end of an attempt without an answer.
    fn hang(&mut self, timeout: Duration, share_end: Option<Duration>) -> Next {
        let budget = self.request.budget;
        let timeout_end = self.now.saturating_add(timeout);
        let end = budget.attempt_end(budget.time(), self.now, timeout);
        self.now = share_end.unwrap_or(end).min(end).min(timeout_end);
        match budget {
            FailoverBudget::Set(_) if self.now == end => Next::Stop,
            _ if self.now == timeout_end => Next::Retry,
            _ => Next::FailOver,
        }
    }

    fn count(&mut self, target: &'a Target, evidence: Evidence) {
        let provider = &target.provider.id;
        let failed = match evidence {
            Evidence::InstanceFailed => (provider, None),
            Evidence::ModelFailed => (provider, Some(&target.model.id)),
            Evidence::Served | Evidence::Alive | Evidence::RateLimited | Evidence::Nothing => return,
        };
        *self.failures.entry(failed).or_insert_with(|| known_failures(target, evidence)) += 1;
    }

    /// True if the failures so far have opened a circuit of the target.
    fn is_open(&self, target: &Target) -> bool {
        let threshold = target.provider.circuit_policy.failure_threshold;
        let failures = |model| self.failures.get(&(&target.provider.id, model)).copied().unwrap_or(0);
        threshold > 0 && failures(None).max(failures(Some(&target.model.id))) >= threshold
    }

    fn may_wait(&self, target: &Target, pause: Duration, share_end: Option<Duration>) -> bool {
        let end = share_end.unwrap_or_else(|| self.request.budget.time());
        self.now.saturating_add(pause) < end && !self.is_open(target)
    }
}

/// Returns the consecutive failures that the circuit of an instance has counted already.
fn known_failures(target: &Target, evidence: Evidence) -> u32 {
    match evidence {
        Evidence::InstanceFailed => target.provider.circuits.instance().failures(),
        Evidence::Served
        | Evidence::Alive
        | Evidence::ModelFailed
        | Evidence::RateLimited
        | Evidence::Nothing => 0,
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
