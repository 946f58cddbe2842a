//! How long ago this process last knew that its snapshot contains every change, and whether its clock is right. Only nodes that
//! share a database can be behind, or compare their clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{monotonic_ms, unix_ms};

/// The time at which the snapshot was last known to be current. The control service confirms it, and admission reads it.
/// Clones share the time. The default is that of a process with its own database, which is always current.
#[derive(Clone, Debug, Default)]
pub struct Freshness(Option<Arc<Confirmed>>);

#[derive(Debug)]
struct Confirmed {
    stale_after_ms: u64,
    at: Moment<AtomicU64>,
    is_clock_wrong: AtomicBool,
}

/// The reason why a node must not admit the callers of project keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The snapshot may lack a change for too long.
    Stale,
    /// The clocks of this machine and of the database differ: the node would count in other windows of limits than the others.
    WrongClock,
}

/// A time on both clocks: the monotonic one stands still while the machine is suspended, and the other one can be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment<T = u64> {
    monotonic_ms: T,
    unix_ms: T,
}

impl Moment {
    /// Returns the present.
    pub fn now() -> Self {
        Self { monotonic_ms: monotonic_ms(), unix_ms: unix_ms() }
    }
}

impl Freshness {
    /// Returns the freshness of a node, which is stale until it is confirmed, and again this long after the last confirmation.
    pub fn new(stale_after: Duration) -> Self {
        let stale_after_ms = u64::try_from(stale_after.as_millis()).unwrap_or(u64::MAX);
        let (at, is_clock_wrong) = (Moment::default(), AtomicBool::new(false));
        Self(Some(Arc::new(Confirmed { stale_after_ms, at, is_clock_wrong })))
    }

    /// Records that the snapshot contains every change that was made before `at`.
    pub fn confirm(&self, at: Moment) {
        if let Some(confirmed) = &self.0 {
            confirmed.at.monotonic_ms.store(at.monotonic_ms, Ordering::Relaxed);
            confirmed.at.unix_ms.store(at.unix_ms, Ordering::Relaxed);
        }
    }

    /// Records whether the clock of this machine is wrong. Returns what was recorded before.
    pub fn compare_clocks(&self, is_wrong: bool) -> bool {
        self.0.as_ref().is_some_and(|confirmed| confirmed.is_clock_wrong.swap(is_wrong, Ordering::Relaxed))
    }

    /// Returns the reason why project keys are refused, if there is one.
    pub fn doubt(&self) -> Option<Doubt> {
        let confirmed = self.0.as_ref()?;
        if confirmed.is_clock_wrong.load(Ordering::Relaxed) {
            return Some(Doubt::WrongClock);
        }
        self.is_stale_at(Moment::now()).then_some(Doubt::Stale)
    }

    /// Returns the time after which an unconfirmed snapshot is stale; zero for a process with its own database.
    pub fn stale_after(&self) -> Duration {
        Duration::from_millis(self.0.as_ref().map_or(0, |confirmed| confirmed.stale_after_ms))
    }

    fn is_stale_at(&self, now: Moment) -> bool {
        let Some(Confirmed { stale_after_ms, at, .. }) = self.0.as_deref() else { return false };
        let confirmed_ms = at.monotonic_ms.load(Ordering::Relaxed);
        let passed = [
            now.monotonic_ms.saturating_sub(confirmed_ms),
            now.unix_ms.saturating_sub(at.unix_ms.load(Ordering::Relaxed)),
        ];
        confirmed_ms == 0 || passed.iter().any(|passed| passed >= stale_after_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_stale_some_time_after_the_last_confirmation_on_either_clock() {
        let freshness = Freshness::new(Duration::from_secs(5));
        let at = |monotonic_ms, unix_ms| Moment { monotonic_ms, unix_ms };
        assert_eq!(freshness.doubt(), Some(Doubt::Stale), "it was never confirmed");
        freshness.clone().confirm(at(1_000, 70_000));
        for (now, stale) in [
            (at(1_000, 70_000), false),
            (at(5_999, 74_999), false),
            (at(6_000, 70_000), true),
            // The machine was suspended.
            (at(1_001, 75_000), true),
            // The wall clock was set back.
            (at(1_001, 10), false),
        ] {
            assert_eq!(freshness.is_stale_at(now), stale, "{now:?}");
        }
        freshness.confirm(at(6_000, 75_000));
        assert!(!freshness.is_stale_at(at(6_001, 75_001)));
    }

    #[test]
    fn a_wrong_clock_is_the_reason_until_it_is_right_again() {
        let freshness = Freshness::new(Duration::from_mins(5));
        assert!(!freshness.compare_clocks(true));
        freshness.clone().confirm(Moment::now());
        assert_eq!(freshness.doubt(), Some(Doubt::WrongClock));
        assert!(freshness.compare_clocks(false));
        assert_eq!(freshness.doubt(), None);
    }

    #[test]
    fn a_process_with_its_own_database_is_never_stale() {
        let freshness = Freshness::default();
        freshness.confirm(Moment::now());
        freshness.compare_clocks(true);
        assert_eq!(freshness.doubt(), None);
    }
}
