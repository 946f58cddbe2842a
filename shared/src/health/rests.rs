//! Rests: the time for which a model of an instance receives no requests, because its upstream limits their rate. They
//! belong to one credential of one instance, outlive snapshots and end with the process.
//!
//! A rest moves requests to other targets and never refuses one that has no other target. It is *firm* if the upstream
//! refused a request for longer than [`RETRY_AFTER_MAX`]: "too many at once" and "too many per minute" share one status, and
//! only a short wait fits the first, which the end of any other request may lift.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::per_model::PerModel;
use crate::id::ModelId;
use crate::policy::RETRY_AFTER_MAX;

/// The rests of the models of one instance and credential. Times are milliseconds on a monotonic clock of the caller's
/// choice.
#[derive(Debug, Default)]
pub struct Rests {
    models: PerModel<ModelRest>,
}

/// A rest that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The time until the rest ends.
    pub wait_ms: u64,
    /// True if the upstream has refused a request for longer than [`RETRY_AFTER_MAX`].
    pub is_firm: bool,
}

/// A statement of the upstream that it takes no more requests for a time.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    /// The time in which the upstream takes no more requests; `None` if it named none.
    pub wait: Option<Duration>,
    /// The status of the refusal; `None` if an answer announced that nothing is left.
    pub status: Option<u16>,
    /// The time of the answer, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// A rest, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownRest {
    /// The model that rests.
    pub model: ModelId,
    /// The time until the rest ends.
    pub wait_ms: u64,
    /// The beginning of the rest, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// The status of the last refusal; `None` if an answer announced that nothing is left.
    pub status: Option<u16>,
}

/// The rest of one model.
#[derive(Debug, Default)]
struct ModelRest {
    /// The end of the rest, shifted left by one; the lowest bit is set if the rest is firm. 0 if there was none.
    end: AtomicU64,
    /// Consecutive refusals without a wait, each after the end of the rest before.
    guesses: AtomicU32,
    /// The beginning and the status, for display; written only when a rest begins or grows.
    shown: Mutex<(u64, Option<u16>)>,
}

/// The rest after the first refusal that names no wait; it doubles with each further one.
const GUESS: Duration = Duration::from_secs(1);
/// The longest rest after a refusal that names no wait.
const GUESS_MAX: Duration = Duration::from_secs(30);
/// The share of a guessed rest that jitter adds at most.
const JITTER: f64 = 0.25;

impl Rests {
    /// Returns the rest of a model that is in force, if any. `now_ms` is called only if the model has rested lately.
    pub fn of(&self, model_id: &ModelId, now_ms: impl FnOnce() -> u64) -> Option<Rest> {
        self.models.get(model_id)?.rest(now_ms())
    }

    /// Lets a model rest, at most for `rest_max`; zero disables rests. `jitter` is a random number from 0 to 1. Returns
    /// the length of the rest if the model did not rest before.
    pub fn limit(
        &self,
        model_id: &ModelId,
        limit: RateLimit,
        now_ms: u64,
        (rest_max, jitter): (Duration, f64),
    ) -> Option<Duration> {
        if rest_max.is_zero() || limit.wait.is_some_and(|wait| wait.is_zero()) {
            return None;
        }
        let rest = self.models.get_or_new(model_id, |rest| rest.rest(now_ms).is_none())?;
        let wait = match limit.wait {
            Some(wait) => wait,
            // A crowd that is refused at the same time counts once.
            None if rest.rest(now_ms).is_some() => return None,
            None => rest.guess(jitter),
        };
        rest.extend(wait.min(rest_max), limit, now_ms)
    }

    /// Records that the model served a request: the next guess begins at the shortest rest. A rest in force goes on.
    pub(super) fn served(&self, model_id: &ModelId, now_ms: impl FnOnce() -> u64) {
        let Some(rest) = self.models.get(model_id) else { return };
        if rest.rest(now_ms()).is_none() {
            self.models.remove(model_id);
        } else {
            rest.guesses.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the rests in force, sorted by model.
    pub fn all(&self, now_ms: u64) -> Vec<ShownRest> {
        let models = self.models.all();
        let shown = models.iter().filter_map(|(model, rest)| {
            let Rest { wait_ms, .. } = rest.rest(now_ms)?;
            let (since_ms, status) = *rest.shown.lock().unwrap_or_else(PoisonError::into_inner);
            Some(ShownRest { model: model.clone(), wait_ms, since_ms, status })
        });
        shown.collect()
    }
}

impl ModelRest {
    fn rest(&self, now_ms: u64) -> Option<Rest> {
        let end = self.end.load(Ordering::Acquire);
        let wait_ms = (end >> 1).saturating_sub(now_ms);
        (wait_ms > 0).then_some(Rest { wait_ms, is_firm: end & 1 == 1 })
    }

    /// Counts a refusal that names no wait, and returns the length of its rest.
    fn guess(&self, jitter: f64) -> Duration {
        let before = self.guesses.fetch_add(1, Ordering::AcqRel).min(GUESS_MAX.as_secs().ilog2() + 1);
        GUESS.saturating_mul(1 << before).min(GUESS_MAX).mul_f64(JITTER.mul_add(jitter, 1.0))
    }

    /// Moves the end of the rest to `wait` from now, unless it is later already. Returns `wait` if this began a rest.
    fn extend(&self, wait: Duration, limit: RateLimit, now_ms: u64) -> Option<Duration> {
        let is_firm = limit.status.is_some() && wait > RETRY_AFTER_MAX;
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        let end = now_ms.saturating_add(wait_ms).min(u64::MAX >> 1) << 1 | u64::from(is_firm);
        let before = self.end.fetch_max(end, Ordering::AcqRel);
        if before >= end {
            return None;
        }
        let begins = before >> 1 <= now_ms;
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = (if begins { limit.at_ms } else { shown.0 }, limit.status);
        begins.then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::MODEL_STATES;
    use crate::bounds::tests::passes;

    const MAX: Duration = Duration::from_secs(600);

    fn refusal(wait: Option<f64>) -> RateLimit {
        RateLimit { wait: wait.map(Duration::from_secs_f64), status: Some(429), at_ms: 7_000 }
    }

    fn rest_of(rests: &Rests, now_ms: u64) -> Option<(u64, bool)> {
        rests.of(&ModelId::new("m"), || now_ms).map(|rest| (rest.wait_ms, rest.is_firm))
    }

    #[test]
    fn a_stated_wait_rests_one_model_and_ends_on_time() {
        let (rests, m) = (Rests::default(), ModelId::new("m"));
        assert_eq!(rest_of(&rests, 1_000), None);
        let begun = rests.limit(&m, refusal(Some(43.0)), 1_000, (MAX, 0.0));
        assert_eq!(begun, Some(Duration::from_secs(43)));
        assert_eq!(rest_of(&rests, 1_000), Some((43_000, true)));
        assert_eq!(rest_of(&rests, 43_999), Some((1, true)));
        assert_eq!(rest_of(&rests, 44_000), None);
        assert_eq!(rests.of(&ModelId::new("other"), || 1_000), None);
        let all = rests.all(2_000);
        assert_eq!(all, [ShownRest { model: m, wait_ms: 42_000, since_ms: 7_000, status: Some(429) }]);
        assert_eq!(rests.all(44_000), []);
    }

    #[test]
    fn only_a_refusal_for_longer_than_a_retry_waits_is_firm() {
        for (limit, want) in [
            (refusal(Some(5.0)), (5_000, false)),
            (refusal(Some(5.001)), (5_001, true)),
            (RateLimit { status: None, ..refusal(Some(60.0)) }, (60_000, false)),
            (refusal(None), (1_000, false)),
        ] {
            let rests = Rests::default();
            rests.limit(&ModelId::new("m"), limit, 1_000, (MAX, 0.0));
            assert_eq!(rest_of(&rests, 1_000), Some(want), "{limit:?}");
        }
    }

    #[test]
    fn rests_are_bounded_by_the_policy_and_can_be_disabled() {
        let (rests, m) = (Rests::default(), ModelId::new("m"));
        assert_eq!(rests.limit(&m, refusal(Some(60.0)), 1_000, (Duration::ZERO, 0.0)), None);
        assert_eq!(rests.limit(&m, refusal(Some(0.0)), 1_000, (MAX, 0.0)), None);
        assert_eq!(rest_of(&rests, 1_000), None);
        rests.limit(&m, refusal(Some(3_600.0)), 1_000, (MAX, 0.0));
        assert_eq!(rest_of(&rests, 1_000), Some((600_000, true)));
    }

    #[test]
    fn the_latest_end_stands() {
        let (rests, m) = (Rests::default(), ModelId::new("m"));
        rests.limit(&m, refusal(Some(60.0)), 1_000, (MAX, 0.0));
        assert_eq!(rests.limit(&m, refusal(Some(2.0)), 2_000, (MAX, 0.0)), None, "it rests longer already");
        assert_eq!(rest_of(&rests, 2_000), Some((59_000, true)));
        assert_eq!(rests.limit(&m, refusal(Some(90.0)), 2_000, (MAX, 0.0)), None, "it rested before");
        assert_eq!(rest_of(&rests, 2_000), Some((90_000, true)));
    }

    #[test]
    fn rests_without_a_stated_wait_double_until_an_answer() {
        let (rests, m) = (Rests::default(), ModelId::new("m"));
        let mut now_ms = 1_000;
        let mut lengths = Vec::new();
        for _ in 0..7 {
            rests.limit(&m, refusal(None), now_ms, (MAX, 0.0));
            assert_eq!(rests.limit(&m, refusal(None), now_ms, (MAX, 0.0)), None, "a crowd counts once");
            let (wait_ms, _) = rest_of(&rests, now_ms).unwrap();
            lengths.push(wait_ms);
            now_ms += wait_ms;
        }
        assert_eq!(lengths, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        rests.served(&m, || now_ms);
        rests.limit(&m, refusal(None), now_ms, (MAX, 1.0));
        assert_eq!(rest_of(&rests, now_ms), Some((1_250, false)), "the shortest rest, with jitter");
        rests.served(&m, || now_ms);
        assert_eq!(rest_of(&rests, now_ms), Some((1_250, false)), "a rest in force goes on");
        rests.limit(&m, refusal(None), now_ms + 1_250, (MAX, 0.0));
        assert_eq!(rest_of(&rests, now_ms + 1_250), Some((1_000, false)));
    }

    #[test]
    fn rests_that_are_over_make_room_for_others() {
        let rests = Rests::default();
        let limit = |n: usize, now_ms| {
            rests.limit(&ModelId::new(n.to_string()), refusal(Some(1.0)), now_ms, (MAX, 0.0)).is_some()
        };
        let max = MODEL_STATES.max();
        assert!((0..max).all(|n| limit(n, 1_000)));
        assert!(!passes(&MODEL_STATES, || limit(max, 1_999)), "all rest");
        assert!(limit(max, 2_000));
        assert_eq!(rests.all(2_000).len(), 1);
    }
}
