//! Rehearses the attempts at the candidates of a request under assumed faults, without sending anything. Times follow from
//! the timeouts, the back-off and the budget: upstreams answer at once, and each pause has its maximum length.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use shared::health::{Evidence, Rest};
use shared::id::{CredentialNumber, ModelId, ProviderId};
use shared::policy::RETRY_AFTER_MAX;
use shared::port::{AssumedFault, FaultKind};
use shared::routing::{ProviderInstance, Target};
use shared::snapshot::Route;
use shared::usage::StepResult;

use crate::attempt::{FailoverBudget, Next, Verdict};
use crate::plan::lanes::{LaneStanding, RankedLane};

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
    /// The key; absent if the provider has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<CredentialNumber>,
    starts_at_ms: u64,
    ends_at_ms: u64,
}

/// A candidate, and the keys with which it would be tried, in order; none if its provider has one key.
#[derive(Clone, Debug)]
pub(crate) struct RehearsedCandidate<'a> {
    pub(crate) target: &'a Target,
    pub(crate) lanes: Vec<RankedLane<'a>>,
    /// The rest that puts it behind the others, if any.
    pub(crate) rest: Option<Rest>,
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
    /// Failures in a row that circuits have counted since the beginning of the request, on top of those before.
    failures: HashMap<CircuitOf<'a>, u32>,
}

/// The circuit of a provider's key, or of a model with that key.
type CircuitOf<'a> = (&'a ProviderId, Option<CredentialNumber>, Option<&'a ModelId>);

/// A target, with one of the keys of its provider.
#[derive(Clone, Copy)]
struct WithKey<'a> {
    target: &'a Target,
    instance: &'a ProviderInstance,
}

/// The end of the attempts at one candidate, or with one of its keys.
enum Turn {
    /// The next candidate is tried.
    Next,
    /// A circuit refuses the request.
    NotAdmitted,
    /// The candidate limits the rate of requests: the next one is tried, and this one again not before `ready`.
    Limited(Again),
    /// The upstream has something against the key: the next key is tried, and this one again if a time is set.
    Refused(Option<Again>),
    /// The request has its answer or its error.
    End,
}

/// A permission to try a candidate again.
#[derive(Clone, Copy)]
struct Again {
    /// The attempts so far.
    attempts: u32,
    ready: Duration,
}

/// A candidate that is tried after the others.
struct PutOff<'c, 'a> {
    candidate: &'c RehearsedCandidate<'a>,
    again: Again,
}

/// The candidates that are left while one is tried.
#[derive(Clone, Copy)]
struct Others {
    are_left: bool,
    /// One of them could be tried now.
    could_serve: bool,
}

/// Returns the attempts at `candidates`, in order, up to the first that serves. Those that rest come after the others.
pub(crate) fn rehearse<'a>(
    candidates: &[RehearsedCandidate<'a>],
    request: RehearsedRequest<'a>,
) -> Vec<RehearsedTarget<'a>> {
    let mut walk = RehearsedWalk { request, now: Duration::ZERO, failures: HashMap::new() };
    let mut path = Vec::new();
    let mut put_off: Vec<PutOff<'_, 'a>> = candidates.iter().filter_map(PutOff::resting).collect();
    let mut next = candidates.iter().filter(|candidate| candidate.rest.is_none()).peekable();
    let mut is_settled = false;
    loop {
        let (candidate, before) = if let Some(candidate) = next.next() {
            (candidate, 0)
        } else {
            if let ([only], false) = (&mut put_off[..], is_settled)
                && only.again.attempts == 0
            {
                only.again.ready = Duration::ZERO;
            }
            is_settled = true;
            put_off.sort_by_key(|put_off| put_off.again.ready.max(walk.now));
            let Some(PutOff { again, .. }) = put_off.first() else { return path };
            let wait = again.ready.saturating_sub(walk.now);
            if wait > RETRY_AFTER_MAX || walk.now.saturating_add(wait) >= request.budget.time() {
                return path;
            }
            walk.now = walk.now.saturating_add(wait);
            let PutOff { candidate, again } = put_off.remove(0);
            (candidate, again.attempts)
        };
        let others = Others {
            are_left: !put_off.is_empty() || next.peek().is_some(),
            could_serve: !put_off.is_empty() || next.clone().any(|candidate| !walk.is_open(candidate)),
        };
        let (rehearsed, turn) = walk.candidate((candidate, before), others);
        path.push(rehearsed);
        match turn {
            Turn::Next | Turn::NotAdmitted | Turn::Refused(None) => {}
            Turn::Limited(again) | Turn::Refused(Some(again)) => put_off.push(PutOff { candidate, again }),
            Turn::End => return path,
        }
    }
}

impl<'c, 'a> PutOff<'c, 'a> {
    /// Returns the candidate as one that is put off, if it rests because of another request.
    fn resting(candidate: &'c RehearsedCandidate<'a>) -> Option<Self> {
        let rest = candidate.rest?;
        let ready = Duration::from_millis(if rest.is_firm { rest.wait_ms } else { 0 });
        Some(Self { candidate, again: Again { attempts: 0, ready } })
    }
}

impl<'a> RehearsedWalk<'a> {
    fn candidate(
        &mut self,
        (candidate, before): (&RehearsedCandidate<'a>, u32),
        others: Others,
    ) -> (RehearsedTarget<'a>, Turn) {
        let target = candidate.target;
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
        let turn = if candidate.lanes.is_empty() {
            self.attempts((WithKey { target, instance: provider }, before), others, &mut rehearsed)
        } else {
            self.lanes((candidate, before), others, &mut rehearsed)
        };
        (rehearsed, turn)
    }

    /// Tries the keys of a provider: what the upstream has against one moves the request to the next.
    fn lanes(
        &mut self,
        (candidate, before): (&RehearsedCandidate<'a>, u32),
        others: Others,
        rehearsed: &mut RehearsedTarget<'a>,
    ) -> Turn {
        let mut again: Option<Again> = None;
        for (place, RankedLane { lane, standing }) in candidate.lanes.iter().enumerate() {
            match standing {
                LaneStanding::Open { .. } => continue,
                LaneStanding::Resting { .. } if place > 0 && others.are_left => break,
                LaneStanding::Resting { .. } | LaneStanding::Ready => {}
            }
            let before = if place == 0 { before } else { 0 };
            let with_key = WithKey { target: candidate.target, instance: lane };
            match self.attempts((with_key, before), others, rehearsed) {
                Turn::Refused(own) => {
                    let is_sooner = |own: &Again| again.is_none_or(|again| own.ready < again.ready);
                    again = own.filter(is_sooner).or(again);
                }
                Turn::NotAdmitted => {}
                end => return end,
            }
        }
        again.map_or(Turn::Next, Turn::Limited)
    }

    /// Tries a model with one key.
    fn attempts(
        &mut self,
        (with_key, before): (WithKey<'a>, u32),
        others: Others,
        rehearsed: &mut RehearsedTarget<'a>,
    ) -> Turn {
        let WithKey { target, instance } = with_key;
        if self.has_opened(with_key) {
            return Turn::NotAdmitted;
        }
        let fault = self.request.faults.iter().find(|fault| fault.hits(target));
        let fault = fault.map(|fault| &fault.kind);
        let mut blame = None;
        if let Some(FaultKind::Status { status, text }) = fault {
            let verdict = Verdict::of(instance, *status, text.as_deref());
            rehearsed.status = Some(*status);
            rehearsed.rule = verdict.rule.map(|rule| rule.to_string());
            blame = verdict.blame;
        }
        let attempts_max = instance.retry.attempts_max.max(1);
        let share_end =
            others.could_serve.then(|| FailoverBudget::share_end(self.request.budget.time(), self.now));
        for attempt in before + 1..=attempts_max {
            let start = self.now;
            let (result, next, evidence) = self.attempt(with_key, fault, share_end);
            rehearsed.attempts += 1;
            rehearsed.result = result;
            rehearsed.ends_at_ms = ms(self.now);
            rehearsed.tries.push(RehearsedAttempt {
                result,
                credential: instance.lane.as_ref().map(|lane| lane.number),
                starts_at_ms: ms(start),
                ends_at_ms: ms(self.now),
            });
            self.count(with_key, evidence);
            let pause = instance.retry.backoff_bound(attempt);
            let may_repeat = next == Next::Retry && attempt < attempts_max;
            let again =
                may_repeat.then(|| Again { attempts: attempt, ready: self.now.saturating_add(pause) });
            match (next, again) {
                (Next::Stop, _) => return Turn::End,
                _ if result == StepResult::Status && blame.is_some() => return Turn::Refused(again),
                (_, Some(again)) if evidence == Evidence::RateLimited => return Turn::Limited(again),
                (_, Some(_)) if self.may_wait(with_key, pause, share_end) => self.now += pause,
                _ => break,
            }
        }
        Turn::Next
    }

    /// Advances the time to the end of an attempt, and returns its result and consequences.
    fn attempt(
        &mut self,
        with_key: WithKey<'a>,
        fault: Option<&FaultKind>,
        share_end: Option<Duration>,
    ) -> (StepResult, Next, Evidence) {
        let WithKey { target, instance } = with_key;
        let RehearsedRequest { stream, once, .. } = self.request;
        if self.now >= self.request.budget.time() {
            return (StepResult::BudgetExhausted, Next::Stop, Evidence::Nothing);
        }
        let (result, next, evidence) = match fault {
            None => return (StepResult::Served, Next::Stop, Evidence::Alive),
            Some(FaultKind::Status { status, text }) => {
                let verdict = Verdict::of(instance, *status, text.as_deref());
                (StepResult::Status, verdict.next, verdict.evidence)
            }
            Some(FaultKind::Hang) if let Some(limit) = self.content_limit(target, share_end) => {
                self.now = self.now.saturating_add(limit);
                (StepResult::TimedOut, Next::FailOver, Evidence::Nothing)
            }
            Some(FaultKind::Hang) => {
                let next = self.hang(instance.timeout, share_end);
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

    /// Returns the time in which a stream of a target must have content, if that ends a hanging attempt first.
    fn content_limit(&self, target: &Target, share_end: Option<Duration>) -> Option<Duration> {
        let RehearsedRequest { stream, budget, route, .. } = self.request;
        let limit = route?.first_content_timeout(target).filter(|_| stream)?;
        let end = self.now.saturating_add(limit);
        let timeout = target.provider.timeout;
        let attempt_end = budget.attempt_end(budget.time(), self.now, timeout);
        let is_first = limit <= timeout && end <= attempt_end && share_end.is_none_or(|share| end <= share);
        is_first.then_some(limit)
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

    /// Counts an attempt as the circuits do.
    fn count(&mut self, WithKey { target, instance }: WithKey<'a>, evidence: Evidence) {
        let model = &target.model.id;
        let of_instance = circuit_of(instance, None);
        let circuits = &instance.circuits;
        match evidence {
            Evidence::Nothing => {}
            Evidence::Served | Evidence::Alive | Evidence::RateLimited => {
                self.failures.insert(of_instance, 0);
            }
            Evidence::InstanceFailed => {
                *self.failures.entry(of_instance).or_insert_with(|| circuits.instance().failures()) += 1;
            }
            Evidence::ModelFailed => {
                self.failures.insert(of_instance, 0);
                let of_model = circuit_of(instance, Some(model));
                *self.failures.entry(of_model).or_insert_with(|| circuits.failures_of(model)) += 1;
            }
        }
    }

    /// True if the circuits let no request pass to the candidate.
    fn is_open(&self, candidate: &RehearsedCandidate<'a>) -> bool {
        let target = candidate.target;
        let is_refused = |instance| self.has_opened(WithKey { target, instance });
        let is_open = |standing| matches!(standing, LaneStanding::Open { .. });
        match &candidate.lanes[..] {
            [] => is_refused(&target.provider),
            lanes => lanes.iter().all(|lane| is_open(lane.standing) || is_refused(lane.lane)),
        }
    }

    /// True if the failures so far have opened a circuit.
    fn has_opened(&self, WithKey { target, instance }: WithKey<'_>) -> bool {
        let threshold = instance.circuit_policy.failure_threshold;
        let failures = |model| self.failures.get(&circuit_of(instance, model)).copied().unwrap_or(0);
        threshold > 0 && failures(None).max(failures(Some(&target.model.id))) >= threshold
    }

    fn may_wait(&self, with_key: WithKey<'_>, pause: Duration, share_end: Option<Duration>) -> bool {
        let end = share_end.unwrap_or_else(|| self.request.budget.time());
        self.now.saturating_add(pause) < end && !self.has_opened(with_key)
    }
}

fn circuit_of<'a>(instance: &'a ProviderInstance, model: Option<&'a ModelId>) -> CircuitOf<'a> {
    (&instance.id, instance.lane.as_ref().map(|lane| lane.number), model)
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
