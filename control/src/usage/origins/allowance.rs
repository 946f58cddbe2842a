//! The look-ups that one owner may have: a number at a time, and a number of unknown IDs that grows again with time. So no
//! caller delays the look-ups of others much, or keeps a core busy with IDs that it made up. What is known costs nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The allowances of the owners that have looked something up.
#[derive(Debug, Default)]
pub(super) struct Allowances(Mutex<HashMap<String, Allowance>>);

#[derive(Debug)]
struct Allowance {
    /// Look-ups that have not ended.
    running: u32,
    /// Unknown IDs that may still be looked up, as of `at`.
    left: u64,
    at: Instant,
}

/// A look-up of an owner that has not ended. Dropping it ends the look-up.
#[derive(Debug)]
pub(super) struct Permit {
    allowances: Arc<Allowances>,
    owner: String,
}

impl Allowances {
    /// Returns a permit for one look-up, unless the owner has used up its allowance, or there are too many owners.
    pub(super) fn enter(self: &Arc<Self>, owner: &str, now: Instant) -> Option<Permit> {
        let mut owners = self.lock();
        if owners.len() >= OWNERS_MAX && !owners.contains_key(owner) {
            owners.retain(|_, allowance| !allowance.is_whole(now));
            if owners.len() >= OWNERS_MAX {
                return None;
            }
        }
        let fresh = || Allowance { running: 0, left: UNKNOWN_MAX, at: now };
        let allowance = owners.entry(owner.to_owned()).or_insert_with(fresh);
        allowance.refill(now);
        if allowance.running >= AT_ONCE_MAX || allowance.left == 0 {
            return None;
        }
        allowance.running += 1;
        Some(Permit { allowances: Arc::clone(self), owner: owner.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Allowance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Allowance {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        let more = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX) / MS_PER_UNKNOWN;
        if more > 0 {
            self.left = self.left.saturating_add(more).min(UNKNOWN_MAX);
            self.at = now;
        }
    }

    /// True if it is what an owner begins with.
    fn is_whole(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.running == 0 && self.left == UNKNOWN_MAX
    }
}

impl Permit {
    /// Ends the look-up, which found nothing of the owner's if `is_unknown`.
    pub(super) fn end(self, is_unknown: bool, now: Instant) {
        if is_unknown && let Some(allowance) = self.allowances.lock().get_mut(&self.owner) {
            allowance.refill(now);
            allowance.left = allowance.left.saturating_sub(1);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(allowance) = self.allowances.lock().get_mut(&self.owner) {
            allowance.running = allowance.running.saturating_sub(1);
        }
    }
}

/// Look-ups of one owner that may wait or run.
const AT_ONCE_MAX: u32 = 32;
/// Unknown IDs that an owner may look up at once, and the time in which it may look up another.
const UNKNOWN_MAX: u64 = 1_000;
const MS_PER_UNKNOWN: u64 = 10;
/// Owners whose allowances are remembered.
const OWNERS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_owner_has_few_look_ups_at_a_time() {
        let (allowances, now) = (Arc::<Allowances>::default(), Instant::now());
        let mut running: Vec<_> = (0..AT_ONCE_MAX).map(|_| allowances.enter("a", now).unwrap()).collect();
        assert!(allowances.enter("a", now).is_none());
        assert!(allowances.enter("b", now).is_some(), "others are not concerned");
        running.pop().unwrap().end(false, now);
        assert!(allowances.enter("a", now).is_some());
    }

    #[test]
    fn unknown_ids_use_an_allowance_up_that_grows_again() {
        let (allowances, now) = (Arc::<Allowances>::default(), Instant::now());
        let look_up = |is_unknown, at: Instant| {
            let permit = allowances.enter("a", at);
            let is_permitted = permit.is_some();
            permit.into_iter().for_each(|permit| permit.end(is_unknown, at));
            is_permitted
        };
        (0..2 * UNKNOWN_MAX).for_each(|_| assert!(look_up(false, now), "what is known costs nothing"));
        (0..UNKNOWN_MAX).for_each(|_| assert!(look_up(true, now)));
        assert!(!look_up(true, now));
        let later = |unknowns: u64| now + Duration::from_millis(unknowns * MS_PER_UNKNOWN);
        assert!(!look_up(true, later(1) - Duration::from_millis(1)));
        assert!(look_up(true, later(1)) && !look_up(true, later(1)));
        (0..UNKNOWN_MAX).for_each(|_| assert!(look_up(true, later(9 * UNKNOWN_MAX))));
        assert!(!look_up(true, later(9 * UNKNOWN_MAX)), "it never grows beyond what it was");
    }

    #[test]
    fn owners_with_whole_allowances_are_forgotten() {
        let (allowances, now) = (Arc::<Allowances>::default(), Instant::now());
        for n in 0..OWNERS_MAX {
            allowances.enter(&n.to_string(), now).unwrap().end(true, now);
        }
        assert!(allowances.enter("one more", now).is_none());
        assert!(allowances.enter("7", now).is_some(), "one that is known");
        let later = now + Duration::from_millis(MS_PER_UNKNOWN);
        assert!(allowances.enter("one more", later).is_some());
        assert_eq!(allowances.lock().len(), 1);
    }
}
