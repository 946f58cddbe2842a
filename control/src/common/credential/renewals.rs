//! Renewals ahead of an expiry, or at once when an upstream rejects a token. There is at most one renewal of each subject at a
//! time. Times are in milliseconds since the Unix epoch.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shared::backoff::Backoff;
use shared::clock::unix_ms;
use shared::routing::Renew;
use tokio::sync::Notify;

/// The renewals to come of subjects `R`, shared by the publisher, the background task that makes them, and the admin API.
#[derive(Debug)]
pub(super) struct Renewals<K, R>(Arc<Shared<K, R>>);

#[derive(Debug)]
struct Shared<K, R> {
    by_key: Mutex<HashMap<K, Renewal<R>>>,
    /// Notified when a renewal may be due earlier than before.
    wanted: Notify,
    /// True if no further renewal may begin.
    is_ending: AtomicBool,
    /// Notified when a renewal has ended.
    learned: Notify,
}

/// The next renewal of a subject.
#[derive(Debug)]
pub(super) struct Renewal<R> {
    pub(super) subject: R,
    /// The number of the current token.
    pub(super) serial: u64,
    /// `None` if only a rejection by an upstream causes a renewal.
    pub(super) next_at_ms: Option<u64>,
    /// True while a renewal is in flight.
    is_asked: bool,
    /// Consecutive failures since the last success.
    pub(super) failures: u32,
    /// The time and text of the last failure since the last success.
    pub(super) trouble: Option<(u64, String)>,
    /// The time of the last renewal that a rejection caused.
    forced_at_ms: Option<u64>,
}

impl<R> Renewal<R> {
    pub(super) fn new(subject: R, serial: u64, next_at_ms: Option<u64>) -> Self {
        Self { subject, serial, next_at_ms, is_asked: false, failures: 0, trouble: None, forced_at_ms: None }
    }

    /// Returns the renewal that replaces this one when the subject has another token.
    pub(super) fn replaced(self, new: Self) -> Self {
        Self { is_asked: self.is_asked, forced_at_ms: self.forced_at_ms, ..new }
    }

    fn is_due(&self, now_ms: u64) -> bool {
        !self.is_asked && self.next_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

impl<K: Eq + Hash + Send + Sync + 'static, R: Send + 'static> Renewals<K, R> {
    /// Replaces the subjects in use. `renewal` returns the renewal of a subject, given the one that is known.
    pub(super) fn want(
        &self,
        wanted: impl IntoIterator<Item = (K, R)>,
        renewal: impl Fn(Option<Renewal<R>>, R) -> Renewal<R>,
    ) {
        let mut by_key = self.lock();
        let mut kept = HashMap::new();
        for (key, subject) in wanted {
            let known = kept.remove(&key).or_else(|| by_key.remove(&key));
            kept.insert(key, renewal(known, subject));
        }
        *by_key = kept;
        drop(by_key);
        self.0.wanted.notify_one();
    }

    /// Returns what `read` finds in a renewal; `None` if the subject is not in use.
    pub(super) fn read<T>(&self, key: &K, read: impl FnOnce(&Renewal<R>) -> T) -> Option<T> {
        self.lock().get(key).map(read)
    }

    /// Returns the hook that renews token number `serial` when an upstream rejects it.
    pub(super) fn renew(&self, key: K, serial: u64) -> Renew {
        let renewals = self.clone();
        Renew::new(serial, move || renewals.rejected(&key, serial, unix_ms()))
    }

    /// Handles an upstream's rejection of token number `serial`. Returns true if another one exists or is on its way. Causes
    /// at most one renewal per `FORCED_PAUSE_MS`: an upstream that rejects a fresh token would reject the next one too.
    pub(super) fn rejected(&self, key: &K, serial: u64, now_ms: u64) -> bool {
        let mut by_key = self.lock();
        let Some(held) = by_key.get_mut(key) else { return false };
        if held.serial != serial {
            return true;
        }
        if self.is_ending() && !held.is_asked {
            return false;
        }
        if held.is_asked || held.is_due(now_ms) {
            return held.failures == 0;
        }
        if held.forced_at_ms.is_some_and(|at_ms| now_ms < at_ms.saturating_add(FORCED_PAUSE_MS)) {
            return false;
        }
        held.forced_at_ms = Some(now_ms);
        held.next_at_ms = Some(now_ms);
        drop(by_key);
        self.0.wanted.notify_one();
        true
    }

    /// Returns the subjects whose renewal is due now, as `shown` shows them. Each is returned once, until its result is
    /// passed to `learn`.
    pub(super) fn take_due<T>(&self, now_ms: u64, shown: impl Fn(&R) -> T) -> Vec<T> {
        let mut by_key = self.lock();
        // Looked at under the lock, so that `end` sees each renewal that begins.
        if self.is_ending() {
            return Vec::new();
        }
        let due = by_key.values_mut().filter(|held| held.is_due(now_ms));
        due.map(|held| {
            held.is_asked = true;
            shown(&held.subject)
        })
        .collect()
    }

    /// Returns the time until the next renewal is due; `None` if none is pending.
    pub(super) fn pause_ms(&self, now_ms: u64) -> Option<u64> {
        let by_key = self.lock();
        if self.is_ending() {
            return None;
        }
        let waiting = by_key.values().filter(|held| !held.is_asked);
        waiting.filter_map(|held| Some(held.next_at_ms?.saturating_sub(now_ms))).min()
    }

    /// Waits until a renewal may be due earlier than before.
    pub(super) async fn wanted(&self) {
        self.0.wanted.notified().await;
    }

    /// Records the end of a renewal, with the error if it failed; the next one is then delayed. Returns what `learned`
    /// returns; false if the subject is no longer in use.
    pub(super) fn learn(
        &self,
        key: &K,
        error: Option<String>,
        now_ms: u64,
        learned: impl FnOnce(&mut Renewal<R>) -> bool,
    ) -> bool {
        let mut by_key = self.lock();
        self.0.learned.notify_one();
        let Some(held) = by_key.get_mut(key) else { return false };
        held.is_asked = false;
        match error {
            None => (held.failures, held.trouble) = (0, None),
            Some(error) => {
                held.failures = held.failures.saturating_add(1);
                held.next_at_ms = Some(now_ms.saturating_add(RETRY.bound_ms(held.failures)));
                held.trouble = Some((now_ms, error));
            }
        }
        learned(held)
    }

    /// Lets no further renewal begin, and waits for those that have begun to end, `time_max` at most. Returns false if they
    /// did not.
    pub(super) async fn end(&self, time_max: Duration) -> bool {
        self.0.is_ending.store(true, Ordering::Relaxed);
        let ended = async {
            while self.lock().values().any(|held| held.is_asked) {
                self.0.learned.notified().await;
            }
        };
        tokio::time::timeout(time_max, ended).await.is_ok()
    }

    fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Renewal<R>>> {
        self.0.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, R> Clone for Renewals<K, R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, R> Default for Renewals<K, R> {
    fn default() -> Self {
        Self(Arc::new(Shared {
            by_key: Mutex::default(),
            wanted: Notify::new(),
            is_ending: AtomicBool::new(false),
            learned: Notify::new(),
        }))
    }
}

/// 2 s after the first failure, doubled after each further one, up to 5 minutes.
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(2), Duration::from_secs(300));
/// The minimum time between two renewals that rejections cause.
const FORCED_PAUSE_MS: u64 = 60_000;
