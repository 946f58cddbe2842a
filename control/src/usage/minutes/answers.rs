//! The time of the last answer of each target: evidence that it works, which costs no test.
//!
//! The number of targets is bounded; the one that answered longest ago makes room for another.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::{join, target_of};
use crate::usage::metrics::OTHER;

/// The times of the last answers, in milliseconds since the Unix epoch, by provider and model, joined.
#[derive(Debug, Default)]
pub(crate) struct LastAnswers(Mutex<BTreeMap<Box<str>, u64>>);

impl LastAnswers {
    /// Notes an answer of a target. Answers may be noted in any order.
    pub(crate) fn note(&self, (provider, model): (&str, &str), at_ms: u64) {
        if at_ms == 0 || (provider, model) == (OTHER, OTHER) {
            return;
        }
        let mut key = String::new();
        join(&mut key, provider, model);
        let mut known = self.lock();
        if let Some(last_ms) = known.get_mut(key.as_str()) {
            *last_ms = at_ms.max(*last_ms);
            return;
        }
        if known.len() >= TARGETS_KEPT {
            let oldest = known.iter().min_by_key(|(_, last_ms)| **last_ms);
            match oldest.map(|(key, last_ms)| (key.clone(), *last_ms)) {
                Some((oldest, last_ms)) if last_ms < at_ms => known.remove(&oldest),
                Some(_) | None => return,
            };
        }
        known.insert(key.into(), at_ms);
    }

    /// Returns the time of the last answer of a model; `None` if none is known.
    pub(crate) fn of_model(&self, provider: &str, model: &str) -> Option<u64> {
        let mut key = String::new();
        join(&mut key, provider, model);
        self.lock().get(key.as_str()).copied()
    }

    /// Returns the time of the last answer of any model of a provider; `None` if none is known.
    pub(crate) fn of_provider(&self, provider: &str) -> Option<u64> {
        let mut first = String::new();
        join(&mut first, provider, "");
        let known = self.lock();
        let own = known.range(Box::from(first)..).take_while(|(key, _)| target_of(key).0 == provider);
        own.map(|(_, last_ms)| *last_ms).max()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Box<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The maximum number of targets whose last answer is kept.
const TARGETS_KEPT: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_answer_counts_whatever_the_order() {
        let answers = LastAnswers::default();
        for (target, at_ms) in [
            (("p", "a"), 5),
            (("p", "b/c"), 9),
            (("p", "a"), 3),
            (("pq", "a"), 70),
            (("o", "z"), 80),
            (("p", "d"), 0),
        ] {
            answers.note(target, at_ms);
        }
        assert_eq!(["a", "b/c", "d"].map(|model| answers.of_model("p", model)), [Some(5), Some(9), None]);
        assert_eq!(
            ["o", "p", "pq", "q"].map(|id| answers.of_provider(id)),
            [Some(80), Some(9), Some(70), None]
        );
    }

    #[test]
    fn beyond_the_maximum_the_target_that_answered_longest_ago_makes_room() {
        let answers = LastAnswers::default();
        let name = |n: u64| format!("m{n}");
        let kept = u64::try_from(TARGETS_KEPT).unwrap();
        (1..=kept).for_each(|n| answers.note(("p", &name(n)), n + 10));
        answers.note(("p", "earlier"), 3);
        assert_eq!(answers.of_model("p", "earlier"), None);
        answers.note(("p", "later"), kept + 100);
        assert_eq!(
            (answers.of_model("p", "later"), answers.of_model("p", &name(1))),
            (Some(kept + 100), None)
        );
        assert_eq!((answers.of_model("p", &name(2)), answers.lock().len()), (Some(12), TARGETS_KEPT));
    }
}
