//! Requests that run now and have an `Idempotency-Key`, where what they do costs something outside: the same key
//! twice at once is not to be paid for twice.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Who asks, and what they call the request.
type RunningName = (String, String);

/// The names of requests that run now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<HashSet<RunningName>>>);

/// One that runs, until this is dropped: it has been answered, or given up.
#[derive(Debug)]
pub(crate) struct UnderWay {
    name: RunningName,
    running: Running,
}

impl Running {
    /// None where one of that name runs already.
    pub(super) fn begin(&self, name: RunningName) -> Option<UnderWay> {
        let is_new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        is_new.then(|| UnderWay { name, running: self.clone() })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.running.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_again_when_its_request_has_ended() {
        let running = Running::default();
        let name = |key: &str| ("admin".to_owned(), key.to_owned());
        let first = running.begin(name("a")).unwrap();
        assert!(running.begin(name("a")).is_none());
        assert!(running.begin(name("b")).is_some());
        assert!(running.begin(("somebody else".to_owned(), "a".to_owned())).is_some());
        drop(first);
        assert!(running.begin(name("a")).is_some());
    }
}
