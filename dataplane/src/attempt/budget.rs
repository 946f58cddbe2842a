//! The failover budget of a request (FAIL-2), and the part of it that an attempt may use.
//!
//! - While another candidate could serve the request, the attempts at one candidate use at most half of what is left of the
//!   budget, unless the upstream has shown a sign of life: a response head, or for a stream its first event.
//! - A budget that the client has set ends every attempt. The default budget ends none before the provider's own timeout,
//!   but no candidate is tried after it.

use std::time::{Duration, Instant};

use shared::policy::FAILOVER_BUDGET_DEFAULT;
use shared::routing::Target;
use wire::adapt::Rejection;

use super::Job;
use super::waiting::{Waiting, rest_of};
use crate::adapt;
use crate::admit::demand::Demand;
use crate::admit::quota;

/// The time that a request may take until its output starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailoverBudget {
    /// The client has set none.
    Default,
    /// The client has set this time.
    Set(Duration),
}

impl FailoverBudget {
    /// Returns the budget for the milliseconds that a request contains. Zero is invalid, as it would fail every request.
    pub(crate) fn of(given_ms: Option<u64>) -> Self {
        given_ms.filter(|&ms| ms > 0).map_or(Self::Default, |ms| Self::Set(Duration::from_millis(ms)))
    }

    /// Returns the length of the budget.
    pub(crate) fn time(self) -> Duration {
        match self {
            Self::Default => FAILOVER_BUDGET_DEFAULT,
            Self::Set(time) => time,
        }
    }

    /// Returns the end of an attempt at a provider with this `timeout`. All times are from the same origin.
    pub(crate) fn attempt_end(self, budget_end: Duration, began: Duration, timeout: Duration) -> Duration {
        match self {
            Self::Default => budget_end.max(began.saturating_add(timeout)),
            Self::Set(_) => budget_end,
        }
    }

    /// Returns the end of the time that a candidate may use without a sign of life while others are left.
    pub(crate) fn share_end(budget_end: Duration, began: Duration) -> Duration {
        began.saturating_add(budget_end.saturating_sub(began) / 2)
    }
}

/// The time limits of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptLimits<'a> {
    /// The end of the attempt, unless output has started.
    pub(crate) end: tokio::time::Instant,
    /// The end of the attempt if the upstream shows no sign of life and another candidate could serve the request.
    pub(crate) share_end: Option<tokio::time::Instant>,
    /// The end of the attempt if its stream has no content by then.
    pub(crate) content_end: Option<tokio::time::Instant>,
    /// The candidates that are left.
    pub(crate) next: NextCandidates<'a>,
}

impl<'a> AttemptLimits<'a> {
    /// Returns the limits before the first attempt at a target, which none may exceed.
    pub(super) fn unset(next: NextCandidates<'a>) -> Self {
        Self { end: tokio::time::Instant::from_std(next.started), share_end: None, content_end: None, next }
    }

    /// Returns the limits of an attempt that begins at `began`, at a target that the request has reached at `reached`.
    pub(super) fn new(
        (began, reached): (Instant, Instant),
        target: &Target,
        next: NextCandidates<'a>,
    ) -> Self {
        let NextCandidates { job, started, .. } = next;
        let after = |time: Instant| time.saturating_duration_since(started);
        let at =
            |time: Duration| tokio::time::Instant::from_std(started) + time.min(Duration::from_secs(86_400));
        let budget_end = job.budget.time();
        let end = job.budget.attempt_end(budget_end, after(began), target.provider.timeout);
        let share_end = (!next.is_empty()).then(|| at(FailoverBudget::share_end(budget_end, after(reached))));
        let content_max = job.route.first_content_timeout(target).filter(|_| job.head.stream);
        let content_end = content_max.map(|limit| at(after(began).saturating_add(limit)));
        Self { end: at(end), share_end, content_end, next }
    }
}

/// The candidates that are left for a request while it tries one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextCandidates<'a> {
    pub(super) job: &'a Job,
    pub(super) demand: Demand<'a>,
    /// The beginning of the request.
    pub(super) started: Instant,
    /// The candidates that have not been reached.
    pub(super) after: &'a [&'a Target],
    /// The candidates that were put off.
    pub(super) waiting: &'a Waiting<'a>,
}

impl NextCandidates<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.after.is_empty() && self.waiting.is_empty()
    }

    /// Returns true if one of the candidates could be tried now. Called only when an attempt has used its share.
    pub(super) fn any_ready(&self) -> bool {
        let rests = |target: &Target| rest_of(target).is_some_and(|rest| rest.is_firm);
        let mut after = self.after.iter().filter(|target| !rests(target));
        after.any(|target| self.could_serve(target))
            || self.waiting.soon().any(|target| self.could_serve(target))
    }

    fn could_serve(&self, target: &Target) -> bool {
        let Job { access, route, head, .. } = self.job;
        target.open_ms(shared::clock::monotonic_ms()).is_none()
            && quota::exceeded_of_target(access, route.endpoint(), self.demand, target).is_none()
            && (target.speaks(head.dialect) || self.can_translate(target))
    }

    /// Returns true if the request can be translated for the target. A large one, whose translation would hold up the
    /// worker, is assumed to be.
    fn can_translate(&self, target: &Target) -> bool {
        self.rejection(target).is_none()
    }

    /// Returns the reason why the request cannot be translated for the target. A large one is assumed to have none.
    pub(super) fn rejection(&self, target: &Target) -> Option<Rejection> {
        let Job { body, head, .. } = self.job;
        if target.speaks(head.dialect) || body.bytes() > TRANSLATED_BYTES_MAX {
            return None;
        }
        adapt::target_request(self.job.routed(), target).err()
    }
}

const TRANSLATED_BYTES_MAX: u64 = 256 << 10;
