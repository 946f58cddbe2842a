//! The times at which the tokens of OAuth connections are refreshed: ahead of their expiry, or at once when an upstream
//! rejects one. The tokens themselves are in the database. Each connection has at most one refresh at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shared::clock::unix_ms;
use shared::routing::Renew;
use tokio::sync::Notify;

use super::{OauthConnection, TokenIssuer};

/// The refreshes to come, shared by the publisher, the background task that makes them, and the admin API.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefreshSchedule(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    by_provider: Mutex<HashMap<String, Scheduled>>,
    /// Notified when a refresh may be due earlier than before.
    wanted: Notify,
    /// True if no further refresh may begin.
    is_ending: AtomicBool,
    /// Notified when a refresh has ended.
    learned: Notify,
}

#[derive(Debug)]
struct Scheduled {
    due: DueRefresh,
    /// `None` if only a rejection by an upstream causes a refresh.
    next_at_ms: Option<u64>,
    /// True while a refresh is in flight.
    is_asked: bool,
    /// Consecutive failures since the last success.
    failures: u32,
    trouble: Option<(u64, String)>,
    /// Time of the last refresh that an upstream's rejection caused.
    forced_at_ms: Option<u64>,
}

/// A connection that can be refreshed.
#[derive(Clone, Debug)]
pub(crate) struct DueRefresh {
    pub(crate) connection: Arc<OauthConnection>,
    pub(crate) issuer: Arc<TokenIssuer>,
}

impl RefreshSchedule {
    /// Replaces the connections in use with `wanted`, all of which have a refresh token.
    pub(crate) fn want(&self, wanted: Vec<DueRefresh>) {
        let mut by_provider = self.lock();
        let mut kept = HashMap::with_capacity(wanted.len());
        for due in wanted {
            let known = by_provider.remove(&due.connection.provider);
            let scheduled = match known {
                Some(known) if known.due.connection.serial == due.connection.serial => {
                    // The issuer's settings may have changed although the tokens have not.
                    Scheduled { due, ..known }
                }
                Some(known) => Scheduled {
                    is_asked: known.is_asked,
                    forced_at_ms: known.forced_at_ms,
                    ..Scheduled::new(due)
                },
                None => Scheduled::new(due),
            };
            kept.insert(scheduled.due.connection.provider.clone(), scheduled);
        }
        *by_provider = kept;
        drop(by_provider);
        self.0.wanted.notify_one();
    }

    /// Returns the hook that refreshes the tokens of `connection` when an upstream rejects the current one.
    pub(crate) fn renew(&self, connection: &OauthConnection) -> Renew {
        let (schedule, provider, serial) = (self.clone(), connection.provider.clone(), connection.serial);
        Renew::new(serial, move || schedule.rejected(&provider, serial, unix_ms()))
    }

    /// Handles an upstream's rejection of the token with this serial number. Returns true if another one exists or is
    /// on its way. Causes at most one refresh per `FORCED_PAUSE_MS`: an upstream that rejects a fresh token would reject
    /// the next one too.
    fn rejected(&self, provider: &str, serial: u64, now_ms: u64) -> bool {
        let mut by_provider = self.lock();
        let Some(held) = by_provider.get_mut(provider) else { return false };
        if self.is_ending() && !held.is_asked {
            return held.due.connection.serial != serial;
        }
        let is_due = held.is_asked || held.next_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if held.due.connection.serial != serial || is_due {
            return held.due.connection.serial != serial || held.failures == 0;
        }
        if held.forced_at_ms.is_some_and(|at_ms| now_ms < at_ms.saturating_add(FORCED_PAUSE_MS)) {
            return false;
        }
        held.forced_at_ms = Some(now_ms);
        held.next_at_ms = Some(now_ms);
        drop(by_provider);
        self.0.wanted.notify_one();
        true
    }

    /// Returns the time and text of the last failure since the last success, if the refreshes of `provider` fail.
    pub(crate) fn trouble(&self, provider: &str) -> Option<(u64, String)> {
        self.lock().get(provider)?.trouble.clone()
    }

    /// Returns the refreshes that are due now. Each is returned once, until its result is passed to `learn`.
    pub(crate) fn take_due(&self, now_ms: u64) -> Vec<DueRefresh> {
        let mut by_provider = self.lock();
        // Looked at under the lock, so that `end` sees each refresh that begins.
        if self.is_ending() {
            return Vec::new();
        }
        let due = by_provider.values_mut();
        due.filter(|held| !held.is_asked && held.next_at_ms.is_some_and(|at_ms| at_ms <= now_ms))
            .map(|held| {
                held.is_asked = true;
                held.due.clone()
            })
            .collect()
    }

    /// Returns the time until the next refresh is due; `None` if no refresh is pending.
    pub(crate) fn pause_ms(&self, now_ms: u64) -> Option<u64> {
        let by_provider = self.lock();
        if self.is_ending() {
            return None;
        }
        let waiting = by_provider.values().filter(|held| !held.is_asked);
        waiting.filter_map(|held| Some(held.next_at_ms?.saturating_sub(now_ms))).min()
    }

    /// Waits until a refresh may be due earlier than before.
    pub(crate) async fn wanted(&self) {
        self.0.wanted.notified().await;
    }

    /// Records the end of a refresh. After a failure the next one is delayed. Returns true if the change must be
    /// published, because requests can no longer use the access token.
    pub(crate) fn learn(&self, provider: &str, result: Result<(), String>, now_ms: u64) -> bool {
        let mut by_provider = self.lock();
        self.0.learned.notify_one();
        let Some(held) = by_provider.get_mut(provider) else { return false };
        held.is_asked = false;
        let Err(trouble) = result else {
            held.failures = 0;
            held.trouble = None;
            return false;
        };
        held.failures = held.failures.saturating_add(1);
        held.next_at_ms = Some(now_ms.saturating_add(wait_ms(held.failures)));
        held.trouble = Some((now_ms, trouble));
        held.due.connection.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// Lets no further refresh begin, and waits for those that have begun to end, [`END_TIME_MAX`] at most: the vendor may
    /// have replaced the refresh token already, and only its answer contains the new one.
    pub(crate) async fn end(&self) {
        self.0.is_ending.store(true, Ordering::Relaxed);
        let ended = async {
            while self.is_asking() {
                self.0.learned.notified().await;
            }
        };
        if tokio::time::timeout(END_TIME_MAX, ended).await.is_err() {
            tracing::warn!(
                "the refresh of a sign-in did not end in time; the next start reports what was lost"
            );
        }
    }

    fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::Relaxed)
    }

    fn is_asking(&self) -> bool {
        self.lock().values().any(|held| held.is_asked)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Scheduled>> {
        self.0.by_provider.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scheduled {
    fn new(due: DueRefresh) -> Self {
        let next_at_ms = due.connection.refresh_at_ms();
        Self { due, next_at_ms, is_asked: false, failures: 0, trouble: None, forced_at_ms: None }
    }
}

/// Returns the delay after a failure: 2 s after the first, doubled after each further one, up to 5 minutes.
fn wait_ms(failures: u32) -> u64 {
    1_000_u64.checked_shl(failures.min(16)).map_or(WAIT_MS_MAX, |wait| wait.min(WAIT_MS_MAX))
}

const WAIT_MS_MAX: u64 = 300_000;
/// A refresh takes 10 s at most; the rest is for storing its tokens.
const END_TIME_MAX: Duration = Duration::from_secs(15);
/// The minimum time between two refreshes that rejections cause.
const FORCED_PAUSE_MS: u64 = 60_000;
