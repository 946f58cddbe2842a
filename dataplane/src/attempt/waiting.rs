//! Candidates that a request tries after all others: those that rest because of a rate limit, and those that have limited
//! this request.
//!
//! A rest moves a request to other candidates. A request that has no other candidate is never refused because of a rest
//! that another request caused: only the upstream knows if it would serve, so the request is sent. The same holds for a
//! rest that is not firm. If several candidates rest and all rests are firm, the request waits for the first of them to
//! end, at most [`RETRY_AFTER_MAX`].

use std::time::Duration;

use shared::backoff::random_fraction;
use shared::clock::{monotonic_ms, unix_ms};
use shared::health::{RateLimit, Rest};
use shared::policy::RETRY_AFTER_MAX;
use shared::routing::Target;

use super::lines::LineCandidate;

/// The candidates that are left after the others.
#[derive(Debug, Default)]
pub(crate) struct Waiting<'t> {
    candidates: Vec<WaitingCandidate<'t>>,
    /// The candidates with lines of quotas, which the request enters last.
    pub(super) lines: Vec<LineCandidate<'t>>,
}

/// A candidate that is tried later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingCandidate<'t> {
    pub(crate) target: &'t Target,
    /// The number of attempts that this request has made at it.
    pub(crate) attempts: u32,
    /// The time at which it may be tried, on the monotonic clock.
    ready_ms: u64,
}

impl<'t> Waiting<'t> {
    /// Adds a candidate that rests because of another request.
    pub(crate) fn rests(&mut self, target: &'t Target, rest: Rest, now_ms: u64) {
        let wait_ms = if rest.is_firm { rest.wait_ms } else { 0 };
        self.candidates.push(WaitingCandidate {
            target,
            attempts: 0,
            ready_ms: now_ms.saturating_add(wait_ms),
        });
    }

    /// Adds a candidate that has limited this request and may be asked again after `wait`.
    pub(crate) fn limited(&mut self, target: &'t Target, attempts: u32, wait: Duration, now_ms: u64) {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.candidates.push(WaitingCandidate { target, attempts, ready_ms: now_ms.saturating_add(wait_ms) });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// Called when all other candidates have been tried: the only one that is left, unless it has limited this request
    /// itself, may be tried at once.
    pub(crate) fn settle(&mut self) {
        if let [only] = &mut *self.candidates
            && only.attempts == 0
        {
            only.ready_ms = 0;
        }
    }

    /// Removes the candidate that may be tried first, and returns it with the wait until then. Candidates that need a
    /// longer wait than [`RETRY_AFTER_MAX`] stay.
    pub(crate) fn take(&mut self, now_ms: u64) -> Option<(WaitingCandidate<'t>, Duration)> {
        let places = self.candidates.iter().enumerate();
        let (place, first) = places.min_by_key(|(_, candidate)| candidate.ready_ms.max(now_ms))?;
        let wait = Duration::from_millis(first.ready_ms.saturating_sub(now_ms));
        (wait <= RETRY_AFTER_MAX).then(|| (self.candidates.remove(place), wait))
    }

    /// Returns the candidates that may be tried within [`RETRY_AFTER_MAX`].
    pub(super) fn soon(&self) -> impl Iterator<Item = &'t Target> {
        let end_ms = monotonic_ms().saturating_add(RETRY_AFTER_MAX.as_secs() * 1_000);
        let soon = self.candidates.iter().filter(move |candidate| candidate.ready_ms <= end_ms);
        soon.map(|candidate| candidate.target)
    }

    /// Returns the time until the first of the candidates may be tried, in milliseconds.
    pub(crate) fn shortest_ms(&self, now_ms: u64) -> Option<u64> {
        self.candidates.iter().map(|candidate| candidate.ready_ms.saturating_sub(now_ms)).min()
    }
}

/// Returns the rest of a target that is in force, if any.
pub(crate) fn rest_of(target: &Target) -> Option<Rest> {
    target.rest()
}

/// Lets a target rest whose upstream has limited the rate of requests, or has announced that nothing is left.
pub(super) fn let_rest(target: &Target, wait: Option<Duration>, status: Option<u16>) {
    let Target { provider, model } = target;
    let limit = RateLimit { wait, status, at_ms: unix_ms() };
    let bounds = (provider.circuit_policy.rest_max, random_fraction());
    if let Some(rest) = provider.circuits.rests().limit(&model.id, limit, monotonic_ms(), bounds) {
        let rest_ms = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(provider.id = %provider.id, model.id = %model.id, rest_ms, "the upstream limits the rate of \
            requests; the model rests");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::routing::EchoOptions;

    use super::*;
    use crate::fixture::{echo, target};

    const REST_MAX: Duration = Duration::from_secs(600);

    /// An upstream that allows 60 requests a minute, in windows that begin `offset_ms` after each minute.
    struct Limited {
        target: Target,
        offset_ms: u64,
        window: u64,
        used: u64,
        refused: u64,
        attempts: u64,
    }

    impl Limited {
        fn new(id: &str, offset_ms: u64) -> Self {
            let target = target(&Arc::new(echo(id, EchoOptions::default())));
            Self { target, offset_ms, window: 0, used: 0, refused: 0, attempts: 0 }
        }

        fn rest(&self, now_ms: u64) -> Option<Rest> {
            self.target.provider.circuits.rests().of(&self.target.model.id, || now_ms)
        }

        /// Serves a request or refuses it. `announces` is true if answers report that nothing is left.
        fn ask(&mut self, now_ms: u64, announces: bool) -> bool {
            let since_ms = now_ms + 60_000 - self.offset_ms;
            if since_ms / 60_000 != self.window {
                (self.window, self.used) = (since_ms / 60_000, 0);
            }
            let serves = self.used < 60;
            self.used += u64::from(serves);
            self.attempts += 1;
            self.refused += u64::from(!serves);
            if !serves || (announces && self.used == 60) {
                let wait = Some(Duration::from_millis(60_000 - since_ms % 60_000));
                let limit = RateLimit { wait, status: (!serves).then_some(429), at_ms: now_ms };
                let rests = self.target.provider.circuits.rests();
                rests.limit(&self.target.model.id, limit, now_ms, (REST_MAX, 0.0));
            }
            serves
        }
    }

    /// Offers 90 requests a minute for an hour. Returns the attempts, the refused ones, and the unserved requests.
    fn hour(announces: bool) -> (u64, u64, u64) {
        let mut upstreams = [Limited::new("a", 0), Limited::new("b", 17_000)];
        let mut unserved = 0;
        for turn in 0..90 * 60 {
            let now_ms = 1_000 + turn * 60_000 / 90;
            let served = upstreams
                .iter_mut()
                .any(|upstream| upstream.rest(now_ms).is_none() && upstream.ask(now_ms, announces));
            unserved += u64::from(!served);
        }
        let sum = |figure: fn(&Limited) -> u64| upstreams.iter().map(figure).sum();
        (sum(|upstream| upstream.attempts), sum(|upstream| upstream.refused), unserved)
    }

    #[test]
    fn two_targets_of_60_a_minute_serve_90_a_minute() {
        let (attempts, refused, unserved) = hour(true);
        assert_eq!((refused, unserved), (0, 0), "of {attempts}: answers report that nothing is left");
        let (attempts, refused, unserved) = hour(false);
        assert_eq!(unserved, 0);
        assert!(
            refused <= 61 && attempts == 90 * 60 + refused,
            "one for each window: {refused} of {attempts}"
        );
    }

    #[test]
    fn the_first_candidate_to_be_ready_is_taken_and_long_waits_stay() {
        let targets = ["a", "b", "c"].map(|id| target(&Arc::new(echo(id, EchoOptions::default()))));
        let rest = |wait_ms, is_firm| Rest { wait_ms, is_firm };
        let order = |waiting: &mut Waiting<'_>| {
            waiting.settle();
            let mut order = Vec::new();
            while let Some((next, wait)) = waiting.take(1_000) {
                order.push(format!("{} {}", next.target.provider.id, wait.as_millis()));
            }
            (order.join(", "), waiting.shortest_ms(1_000))
        };
        let mut waiting = Waiting::default();
        waiting.rests(&targets[0], rest(60_000, true), 1_000);
        waiting.rests(&targets[1], rest(40_000, true), 1_000);
        assert_eq!(order(&mut waiting), (String::new(), Some(40_000)), "all rests are firm and long");

        let mut waiting = Waiting::default();
        waiting.rests(&targets[0], rest(60_000, true), 1_000);
        assert_eq!(order(&mut waiting), ("a 0".to_owned(), None), "the only one is asked");

        let mut waiting = Waiting::default();
        waiting.rests(&targets[0], rest(4_000, true), 1_000);
        waiting.limited(&targets[1], 1, Duration::from_secs(1), 1_000);
        waiting.rests(&targets[2], rest(60_000, false), 1_000);
        assert_eq!(order(&mut waiting), ("c 0, b 1000, a 4000".to_owned(), None));

        let mut waiting = Waiting::default();
        waiting.limited(&targets[1], 1, Duration::from_secs(3), 1_000);
        assert_eq!(order(&mut waiting), ("b 3000".to_owned(), None), "its own wait is kept");
    }
}
