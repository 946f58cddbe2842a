//! Bounds on what callers do at the same time, with a share for each: whatever one caller does, others still have their part,
//! and administrators have one that humans cannot use up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use shared::bound::Bound;
use shared::error_kind::ErrorKind;

use super::ApiError;
use crate::common::actor::Who;

/// A bound on one kind of work.
#[derive(Clone, Debug)]
pub(crate) struct CallerShares {
    bound: ShareBound,
    used: Arc<Mutex<UsedShares>>,
}

/// The numbers that may run at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareBound {
    /// The work in the plural, as errors name it.
    pub(crate) what: &'static str,
    /// The bound of all callers.
    pub(crate) bound: &'static Bound,
    /// All humans together who do not administer.
    pub(crate) humans: usize,
    /// Each of them.
    pub(crate) human: usize,
    /// Each administrator: a key, or a human of the administrators' group.
    pub(crate) administrator: usize,
    /// `Retry-After`, in seconds.
    pub(crate) retry_after: u64,
}

#[derive(Debug, Default)]
struct UsedShares {
    all: usize,
    humans: usize,
    by_caller: HashMap<CallerName, usize>,
}

/// The name of a caller, and true for a human who does not administer.
type CallerName = (Box<str>, bool);

/// Work in progress. Dropping it frees its place.
#[derive(Debug)]
pub(crate) struct CallerShare {
    used: Arc<Mutex<UsedShares>>,
    caller: CallerName,
}

impl CallerShares {
    pub(crate) fn new(bound: ShareBound) -> Self {
        Self { bound, used: Arc::default() }
    }

    /// Takes a place for a caller. The error names the bound that is reached.
    pub(crate) fn take(&self, who: &Who) -> Result<CallerShare, ApiError> {
        let is_human = matches!(who, Who::Human(_) | Who::Arriving | Who::Unknown);
        let caller: CallerName = (who.name().into(), is_human);
        let ShareBound { what, bound, humans, human, administrator, retry_after } = self.bound;
        // Those who arrive have no name yet.
        let is_nameless = matches!(who, Who::Arriving | Who::Unknown);
        let own_max = match is_human {
            true if is_nameless => humans,
            true => human,
            false => administrator,
        };
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let own = used.by_caller.get(&caller).copied().unwrap_or_default();
        let all = bound.max();
        let full = |message: String| {
            bound.reach();
            ApiError::new(ErrorKind::Overloaded, message).retry_after(retry_after)
        };
        if own >= own_max && !is_nameless {
            return Err(full(format!(
                "{own_max} of your {what} are running, the most for one caller. Try again when one has ended."
            )));
        }
        if used.all >= all {
            return Err(full(format!("{all} {what} are running, the most of all callers. Try again.")));
        }
        if is_human && used.humans >= humans {
            return Err(full(format!(
                "{humans} {what} are running, the most of all who do not administer. Try again."
            )));
        }
        used.all += 1;
        used.humans += usize::from(is_human);
        *used.by_caller.entry(caller.clone()).or_default() += 1;
        Ok(CallerShare { used: Arc::clone(&self.used), caller })
    }
}

impl Drop for CallerShare {
    fn drop(&mut self) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.all -= 1;
        used.humans -= usize::from(self.caller.1);
        if let Some(own) = used.by_caller.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                used.by_caller.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use shared::id::{KeyId, PrincipalId};

    use super::*;
    use crate::common::bounds::tests::passes;

    /// Takes the places of all, and asserts that the next one is refused and counted.
    pub(crate) fn fill(share: ShareBound) {
        let shares = CallerShares::new(share);
        let caller = |n: usize| Who::Administrator(KeyId::new(n.to_string()));
        let taken: Vec<_> = (0..share.bound.max()).map(|n| shares.take(&caller(n)).unwrap()).collect();
        passes(share.bound, || assert!(shares.take(&caller(taken.len())).is_err()));
    }

    static TESTS: Bound = Bound::new("tests", 8, "", "");

    #[test]
    fn nobody_uses_up_the_share_of_others() {
        let bound = ShareBound {
            what: "tests",
            bound: &TESTS,
            humans: 6,
            human: 4,
            administrator: 7,
            retry_after: 1,
        };
        let shares = CallerShares::new(bound);
        let human = |name: &str| Who::Human(PrincipalId::new(name));
        let expect_refused = |who: &Who, why: &str| {
            let error = format!("{:?}", passes(&TESTS, || shares.take(who).unwrap_err()));
            assert!(error.contains(why), "{error}");
        };
        let mut eve: Vec<_> = (0..4).map(|_| shares.take(&human("eve")).unwrap()).collect();
        expect_refused(&human("eve"), "\"4 of your tests are running");
        let bob: Vec<_> = (0..2).map(|_| shares.take(&human("bob")).unwrap()).collect();
        expect_refused(&human("bob"), "\"6 tests are running, the most of all who do not");
        // A human of the administrators' group is another caller than the same human without it.
        let lead = shares.take(&Who::GroupAdministrator(PrincipalId::new("eve"))).unwrap();
        let admin = shares.take(&Who::admin()).unwrap();
        expect_refused(&Who::Administrator(KeyId::new("other")), "\"8 tests are running, the most of all c");
        eve.pop();
        drop((bob, lead, admin));
        let admins: Vec<_> = (0..5).map(|_| shares.take(&Who::admin()).unwrap()).collect();
        drop(eve);
        let more: Vec<_> = (0..2).map(|_| shares.take(&Who::admin()).unwrap()).collect();
        expect_refused(&Who::admin(), "\"7 of your tests are running");
        assert!(shares.take(&human("eve")).is_ok());
        drop((admins, more));
        assert!(shares.used.lock().unwrap().by_caller.is_empty());
        assert_eq!(shares.used.lock().unwrap().all, 0);
    }
}
