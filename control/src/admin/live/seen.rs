//! The requests that the data plane reports while a page watches for them, numbered, so that this node's frames and those for
//! other nodes both have each once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shared::activity::RequestWatch;
use shared::id::KeyId;

use super::events::SeenRequest;

/// A watched or rejected request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SeenValue {
    /// The time of its answer, in milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
    /// The ID of its key; `None` without a valid one.
    pub(super) key: Option<String>,
    /// The data of the event `seen`.
    pub(super) json: Arc<RawValue>,
}

/// The latest requests, and the keys that are watched.
#[derive(Debug, Default)]
pub(super) struct SeenRequests(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The number of the latest one.
    last: u64,
    latest: VecDeque<(u64, SeenValue)>,
    /// The keys that listeners of this node watch, one for each listener.
    keys: Vec<KeyId>,
    /// The keys that other nodes watch.
    elsewhere: Vec<KeyId>,
}

impl SeenRequests {
    /// Changes the keys that listeners of this node watch.
    pub(super) fn change_keys(&self, watch: &RequestWatch, change: impl FnOnce(&mut Vec<KeyId>)) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut seen.keys);
        watch.set_keys(seen.all_keys());
    }

    /// Replaces the keys that other nodes watch.
    pub(super) fn watch_for_others(&self, watch: &RequestWatch, keys: Vec<KeyId>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.elsewhere != keys {
            seen.elsewhere = keys;
            watch.set_keys(seen.all_keys());
        }
    }

    /// Returns the number of the latest request.
    pub(super) fn last(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// Returns the keys that listeners of this node watch.
    pub(super) fn keys(&self) -> Vec<KeyId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys.clone()
    }

    /// Takes what the data plane has reported, and returns the requests after the number `after`.
    pub(super) fn since(&self, watch: &RequestWatch, after: u64) -> Vec<(u64, SeenValue)> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for request in watch.take() {
            let Ok(json) = serde_json::value::to_raw_value(&SeenRequest::of(&request)) else { continue };
            let key = request.key.map(|key| key.as_str().to_owned());
            seen.last += 1;
            let entry = (seen.last, SeenValue { at_ms: request.at_ms, key, json: json.into() });
            seen.latest.push_back(entry);
        }
        let beyond = seen.latest.len().saturating_sub(KEPT_MAX);
        seen.latest.drain(..beyond);
        seen.latest.iter().filter(|(number, _)| *number > after).cloned().collect()
    }
}

impl Seen {
    fn all_keys(&self) -> Vec<KeyId> {
        self.keys.iter().chain(&self.elsewhere).cloned().collect()
    }
}

/// The requests that a frame can have at most.
const KEPT_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use shared::activity::WatchedRequest;

    use super::*;

    #[test]
    fn requests_are_numbered_for_all_who_read_and_keys_are_watched_until_nobody_does() {
        let (watch, seen) = (RequestWatch::default(), SeenRequests::default());
        let keys = ["a", "b"].map(KeyId::new);
        let report = || {
            watch.report(WatchedRequest {
                at_ms: 1,
                address: [127, 0, 0, 1].into(),
                client: "".into(),
                method: "POST".into(),
                path: "/".into(),
                status: 200,
                code: None,
                param: None,
                key: None,
                key_prefix: None,
                model: None,
                request_id: "".into(),
            });
        };
        seen.change_keys(&watch, |watched| watched.push(keys[0].clone()));
        seen.watch_for_others(&watch, vec![keys[1].clone()]);
        assert!(keys.iter().all(|key| watch.is_watched(key)));
        (0..=KEPT_MAX).for_each(|_| {
            report();
            seen.since(&watch, 0);
        });
        let last = seen.last();
        assert_eq!((last, seen.since(&watch, 0).len()), (KEPT_MAX as u64 + 1, KEPT_MAX));
        report();
        let numbers: Vec<u64> = seen.since(&watch, last).iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [last + 1]);
        seen.watch_for_others(&watch, vec![]);
        assert!(watch.is_watched(&keys[0]) && !watch.is_watched(&keys[1]));
        seen.change_keys(&watch, Vec::clear);
        assert!(!watch.is_on());
    }
}
