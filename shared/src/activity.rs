//! The activity of the data plane as the control service shows it: connections, the drain, and single requests while a
//! page of the console waits for them.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;

use crate::bounds::WATCHED_QUEUED;
use crate::id::KeyId;

/// The activity of the data plane. Both planes hold a reference to it.
#[derive(Debug, Default)]
pub struct Activity {
    /// The number of client connections.
    pub connections: Arc<AtomicUsize>,
    /// The end of the process; empty until it begins.
    pub draining: OnceLock<Draining>,
    /// The requests that the console watches.
    pub watch: RequestWatch,
}

/// The end of the process. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining {
    /// The time at which it began.
    pub since_ms: u64,
    /// The time at which the remaining connections are cut.
    pub until_ms: u64,
}

/// A queue of requests to watched keys and of rejected requests. It is empty, and costs a request one relaxed load,
/// while no key is watched.
#[derive(Debug)]
pub struct RequestWatch {
    watchers: AtomicUsize,
    keys: ArcSwap<Vec<KeyId>>,
    queue: SyncSender<WatchedRequest>,
    queued: Mutex<Receiver<WatchedRequest>>,
}

/// One request, as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedRequest {
    /// The time of the answer, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The client's address.
    pub address: IpAddr,
    /// The family and version of the client's software; empty if it does not name itself.
    pub client: Arc<str>,
    /// The HTTP method.
    pub method: Box<str>,
    /// The path without the query, at most [`WatchedRequest::PATH_CHARS_MAX`] characters.
    pub path: Box<str>,
    /// The status of the answer.
    pub status: u16,
    /// The error code of the answer; `None` if it is not an error.
    pub code: Option<&'static str>,
    /// The field of the request that causes the error, at most [`WatchedRequest::PARAM_CHARS_MAX`] characters; `None` if
    /// no field does.
    pub param: Option<Box<str>>,
    /// The key, if the request has a valid one.
    pub key: Option<KeyId>,
    /// The part of the presented key that may be shown; `None` without a key.
    pub key_prefix: Option<Box<str>>,
    /// The `model` of the request; `None` if the request was rejected before it was read.
    pub model: Option<Box<str>>,
    /// The request ID.
    pub request_id: Box<str>,
}

impl WatchedRequest {
    /// The maximum length of `path` in characters.
    pub const PATH_CHARS_MAX: usize = 256;
    /// The maximum length of `param` in characters.
    pub const PARAM_CHARS_MAX: usize = 128;
}

impl Default for RequestWatch {
    fn default() -> Self {
        let (queue, queued) = sync_channel(WATCHED_QUEUED.max());
        Self { watchers: AtomicUsize::new(0), keys: ArcSwap::default(), queue, queued: Mutex::new(queued) }
    }
}

impl RequestWatch {
    /// Returns true while any key is watched.
    pub fn is_on(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Returns true if requests with this key are watched.
    pub fn is_watched(&self, key: &KeyId) -> bool {
        self.keys.load().contains(key)
    }

    /// Replaces the watched keys. Without any, the queue is emptied.
    pub fn set_keys(&self, keys: Vec<KeyId>) {
        let count = keys.len();
        self.keys.store(Arc::new(keys));
        self.watchers.store(count, Ordering::Relaxed);
        if count == 0 {
            drop(self.take());
        }
    }

    /// Queues a request. It is dropped if the queue is full.
    pub fn report(&self, request: WatchedRequest) {
        if self.queue.try_send(request).is_err() {
            WATCHED_QUEUED.reach();
        }
    }

    /// Takes the queued requests, the oldest first.
    pub fn take(&self) -> Vec<WatchedRequest> {
        self.queued
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .try_iter()
            .take(WATCHED_QUEUED.max())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::tests::passes;

    fn request(n: u64) -> WatchedRequest {
        WatchedRequest {
            at_ms: n,
            address: [127, 0, 0, 1].into(),
            client: "".into(),
            method: "POST".into(),
            path: "/v1/chat/completions".into(),
            status: 200,
            code: None,
            param: None,
            key: None,
            key_prefix: None,
            model: None,
            request_id: "".into(),
        }
    }

    #[test]
    fn the_queue_is_bounded_and_empty_while_no_key_is_watched() {
        let watch = RequestWatch::default();
        assert!(!watch.is_on() && !watch.is_watched(&KeyId::new("key_1")));
        watch.set_keys(vec![KeyId::new("key_1")]);
        assert!(
            watch.is_on()
                && watch.is_watched(&KeyId::new("key_1"))
                && !watch.is_watched(&KeyId::new("key_2"))
        );
        passes(&WATCHED_QUEUED, || (0..1_000).for_each(|n| watch.report(request(n))));
        let taken: Vec<u64> = watch.take().iter().map(|request| request.at_ms).collect();
        assert_eq!(taken, (0..256).collect::<Vec<_>>(), "later ones are dropped");
        watch.report(request(1));
        watch.set_keys(Vec::new());
        assert!(!watch.is_on() && watch.take().is_empty());
    }
}
