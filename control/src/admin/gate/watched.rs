//! The sessions that live streams of this process belong to. A stream outlives the ticket of its request, so it has to learn
//! of later uses; nothing else of a session is held in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The watched sessions, by their ID. There are at most as many as live streams.
#[derive(Debug, Default)]
pub(super) struct WatchedSessions(Mutex<HashMap<String, Weak<LatestUse>>>);

/// The latest request of a session at this process.
#[derive(Debug, Default)]
pub(in crate::admin) struct LatestUse {
    used_ms: AtomicU64,
    /// True if the request asserted the administrators' group.
    is_administrator: AtomicBool,
}

impl LatestUse {
    pub(super) fn used_ms(&self) -> u64 {
        self.used_ms.load(Relaxed)
    }

    pub(super) fn is_administrator(&self) -> bool {
        self.is_administrator.load(Relaxed)
    }
}

impl WatchedSessions {
    /// Watches a session for as long as the result is held.
    pub(super) fn watch(&self, id: &str) -> Arc<LatestUse> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|_, latest| latest.strong_count() > 0);
        if let Some(latest) = watched.get(id).and_then(Weak::upgrade) {
            return latest;
        }
        let latest = Arc::new(LatestUse::default());
        watched.insert(id.to_owned(), Arc::downgrade(&latest));
        latest
    }

    /// Notes a request of a session; `used_ms` is `None` if it does not prolong the session.
    pub(super) fn note(&self, id: &str, used_ms: Option<u64>, is_administrator: bool) {
        let watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(latest) = watched.get(id).and_then(Weak::upgrade) else { return };
        latest.used_ms.fetch_max(used_ms.unwrap_or_default(), Relaxed);
        latest.is_administrator.store(is_administrator, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_held_no_longer_than_its_streams() {
        let watched = WatchedSessions::default();
        watched.note("one", Some(5), true);
        let (first, second) = (watched.watch("one"), watched.watch("one"));
        watched.note("one", Some(7), true);
        watched.note("one", None, false);
        assert_eq!((first.used_ms(), first.is_administrator()), (7, false));
        drop(first);
        watched.note("one", Some(6), true);
        assert_eq!((second.used_ms(), second.is_administrator()), (7, true));
        drop(second);
        let _other = watched.watch("other");
        assert_eq!(watched.0.lock().unwrap().keys().collect::<Vec<_>>(), ["other"]);
    }
}
