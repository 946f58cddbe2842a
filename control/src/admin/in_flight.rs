//! Running requests that have an `Idempotency-Key` and external side effects: a concurrent duplicate must not cause
//! the cost twice.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The caller's name and the idempotency key.
type RunningName = (String, String);

/// The names of the requests that are running.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlightRequests(Arc<Mutex<HashSet<RunningName>>>);

/// A running request; dropping it marks the request as answered or abandoned.
#[derive(Debug)]
pub(crate) struct InFlight {
    name: RunningName,
    running: InFlightRequests,
}

impl InFlightRequests {
    /// Registers a running request. Returns `None` if one with the same name is already running.
    pub(super) fn begin(&self, name: RunningName) -> Option<InFlight> {
        let is_new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        is_new.then(|| InFlight { name, running: self.clone() })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.running.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotency_key_is_free_after_its_request_ended() {
        let running = InFlightRequests::default();
        let name = |key: &str| ("admin".to_owned(), key.to_owned());
        let first = running.begin(name("a")).unwrap();
        assert!(running.begin(name("a")).is_none());
        assert!(running.begin(name("b")).is_some());
        assert!(running.begin(("somebody else".to_owned(), "a".to_owned())).is_some());
        drop(first);
        assert!(running.begin(name("a")).is_some());
    }
}
