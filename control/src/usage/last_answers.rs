//! The time of the last answer of each target: evidence that it works, which costs no test.
//!
//! The number of targets is bounded; the one that answered longest ago makes room for another.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use records::block::BlockNames;

use super::metrics::OTHER;
use super::target_groups::{GroupFigures, TargetGroup};
use crate::common::bounds::LAST_ANSWERS;

/// A provider and a model.
type Target = (Box<str>, Box<str>);

/// The times of the last answers, in milliseconds since the Unix epoch.
#[derive(Debug, Default)]
pub(crate) struct LastAnswers(Mutex<BTreeMap<Target, u64>>);

/// The last answers of a transaction.
#[derive(Debug, Default)]
pub(crate) struct NewAnswers(HashMap<Target, u64>);

impl NewAnswers {
    /// Adds a group of exchanges.
    pub(super) fn add_group(&mut self, group: &TargetGroup, figures: &GroupFigures, names: &BlockNames) {
        if figures.answered_at_ms > 0 {
            let target = (names.get(group.provider).into(), names.get(group.model).into());
            let last_ms = self.0.entry(target).or_default();
            *last_ms = figures.answered_at_ms.max(*last_ms);
        }
    }
}

impl LastAnswers {
    /// Notes the answers of a transaction that has committed.
    pub(crate) fn add(&self, new: &NewAnswers) {
        new.0.iter().for_each(|((provider, model), at_ms)| self.note((provider, model), *at_ms));
    }

    /// Notes an answer of a target. Answers may be noted in any order.
    pub(crate) fn note(&self, (provider, model): (&str, &str), at_ms: u64) {
        if at_ms == 0 || (provider, model) == (OTHER, OTHER) {
            return;
        }
        let target = (provider.into(), model.into());
        let mut known = self.lock();
        if let Some(last_ms) = known.get_mut(&target) {
            *last_ms = at_ms.max(*last_ms);
            return;
        }
        if LAST_ANSWERS.is_full(known.len()) {
            let oldest = known.iter().min_by_key(|(_, last_ms)| **last_ms);
            match oldest.map(|(target, last_ms)| (target.clone(), *last_ms)) {
                Some((oldest, last_ms)) if last_ms < at_ms => known.remove(&oldest),
                Some(_) | None => return,
            };
        }
        known.insert(target, at_ms);
    }

    /// Returns the time of the last answer of a model; `None` if none is known.
    pub(crate) fn of_model(&self, provider: &str, model: &str) -> Option<u64> {
        self.lock().get(&(provider.into(), model.into())).copied()
    }

    /// Returns the time of the last answer of any model of a provider; `None` if none is known.
    pub(crate) fn of_provider(&self, provider: &str) -> Option<u64> {
        let known = self.lock();
        let own =
            known.range((provider.into(), Box::from(""))..).take_while(|((id, _), _)| **id == *provider);
        own.map(|(_, last_ms)| *last_ms).max()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Target, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;

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
        let kept = u64::try_from(LAST_ANSWERS.max()).unwrap();
        (1..=kept).for_each(|n| answers.note(("p", &name(n)), n + 10));
        passes(&LAST_ANSWERS, || answers.note(("p", "earlier"), 3));
        assert_eq!(answers.of_model("p", "earlier"), None);
        answers.note(("p", "later"), kept + 100);
        assert_eq!(
            (answers.of_model("p", "later"), answers.of_model("p", &name(1))),
            (Some(kept + 100), None)
        );
        assert_eq!((answers.of_model("p", &name(2)), answers.lock().len()), (Some(12), LAST_ANSWERS.max()));
    }
}
