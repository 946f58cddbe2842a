//! The current access tokens and their renewal times. Times are in milliseconds since the Unix epoch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use shared::clock::unix_ms;
use shared::routing::Renew;
use shared::secret::Secret;
use tokio::sync::Notify;

use super::grant::{Grant, GrantedToken};

/// The access tokens of all grants in use; shared by the publisher, the keeper that renews tokens, and the admin API.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessTokens(Arc<TokenShelf>);

#[derive(Debug, Default)]
struct TokenShelf {
    by_grant: Mutex<HashMap<[u8; 32], HeldToken>>,
    /// Notified when a new grant is in use or a token must be renewed early.
    wanted: Notify,
}

#[derive(Debug)]
struct HeldToken {
    grant: Grant,
    token: Option<(Secret<String>, u64)>,
    /// Time of the next token request.
    next_at_ms: u64,
    /// True while a token request is in flight; there is at most one per grant.
    is_renewing: bool,
    /// Consecutive failures since the last success.
    failures: u32,
    trouble: Option<String>,
    /// Number of tokens received.
    serial: u64,
    /// Time of the last early renewal, which an upstream's rejection of the current token caused.
    forced_at_ms: Option<u64>,
}

/// The state of a grant's token for the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TokenState"))]
pub(crate) struct TokenStanding {
    /// The expiry of the current token, in milliseconds since the Unix epoch; null if there is no token.
    pub(crate) expires_at_ms: Option<u64>,
    /// The time of the next renewal or retry, in milliseconds since the Unix epoch.
    pub(crate) next_at_ms: u64,
    /// The error of the last attempt; null if it succeeded.
    pub(crate) error: Option<String>,
}

impl AccessTokens {
    /// Replaces the set of grants in use with `grants`.
    pub(crate) fn want(&self, grants: Vec<Grant>) {
        let mut by_grant = self.lock();
        let mut kept = HashMap::with_capacity(grants.len());
        let mut is_new = false;
        for grant in grants {
            let known = by_grant.remove(&grant.id);
            is_new |= known.is_none() && !kept.contains_key(&grant.id);
            if let Some(held) = known {
                kept.insert(grant.id, held);
            } else {
                kept.entry(grant.id).or_insert_with(|| HeldToken::new(grant));
            }
        }
        *by_grant = kept;
        drop(by_grant);
        if is_new {
            self.0.wanted.notify_one();
        }
    }

    /// Returns the current token of `grant`, or a short reason why it has no valid token.
    pub(crate) fn current(&self, grant: &Grant, now_ms: u64) -> Result<Secret<String>, &'static str> {
        let by_grant = self.lock();
        let held = by_grant.get(&grant.id);
        match held.and_then(|held| held.token.as_ref()) {
            Some((token, expires_at_ms)) if *expires_at_ms > now_ms => Ok(token.clone()),
            _ if held.is_none_or(|held| held.failures == 0) => {
                Err("its first access token has not arrived yet")
            }
            _ => Err(grant.lacks()),
        }
    }

    /// Returns the hook that renews the token of `grant` when an upstream rejects the current one.
    pub(crate) fn renew(&self, grant: &Grant) -> Renew {
        let serial = self.lock().get(&grant.id).map_or(0, |held| held.serial);
        let (tokens, id) = (self.clone(), grant.id);
        Renew::new(serial, move || tokens.refused(&id, serial, unix_ms()))
    }

    /// Handles an upstream's rejection of token number `serial` of grant `id`. Returns true if a newer token exists or
    /// is on its way. Triggers an early renewal, at most one per `FORCED_PAUSE_MS`: an upstream that rejects a fresh
    /// token would reject the next one too.
    fn refused(&self, id: &[u8; 32], serial: u64, now_ms: u64) -> bool {
        let mut by_grant = self.lock();
        let Some(held) = by_grant.get_mut(id) else { return false };
        if held.serial != serial || held.is_renewing || held.next_at_ms <= now_ms {
            return held.serial > serial || held.failures == 0;
        }
        if held.forced_at_ms.is_some_and(|at_ms| now_ms < at_ms.saturating_add(FORCED_PAUSE_MS)) {
            return false;
        }
        held.forced_at_ms = Some(now_ms);
        held.next_at_ms = now_ms;
        drop(by_grant);
        self.0.wanted.notify_one();
        true
    }

    /// Returns the state of the token of `grant`.
    pub(crate) fn standing(&self, grant: &Grant) -> Option<TokenStanding> {
        self.lock().get(&grant.id).map(|held| TokenStanding {
            expires_at_ms: held.token.as_ref().map(|(_, expires_at_ms)| *expires_at_ms),
            next_at_ms: held.next_at_ms,
            error: held.trouble.clone(),
        })
    }

    /// Returns the grants whose token request is due now. Each is returned once, until its result is passed to `learn`.
    pub(super) fn take_due(&self, now_ms: u64) -> Vec<Grant> {
        let mut by_grant = self.lock();
        let due = by_grant.values_mut().filter(|held| !held.is_renewing && held.next_at_ms <= now_ms);
        due.map(|held| {
            held.is_renewing = true;
            held.grant.clone()
        })
        .collect()
    }

    /// Returns the time until the next request is due; `None` if no request is pending.
    pub(super) fn pause_ms(&self, now_ms: u64) -> Option<u64> {
        let by_grant = self.lock();
        let waiting = by_grant.values().filter(|held| !held.is_renewing);
        waiting.map(|held| held.next_at_ms.saturating_sub(now_ms)).min()
    }

    /// Waits until a new grant is in use or a token must be renewed early.
    pub(super) async fn wanted(&self) {
        self.0.wanted.notified().await;
    }

    /// Stores the result of a token request for `grant`. Returns true if the change must be published.
    pub(super) fn learn(&self, grant: &Grant, given: Result<GrantedToken, String>, now_ms: u64) -> bool {
        let mut by_grant = self.lock();
        // The grant is no longer in use.
        let Some(held) = by_grant.get_mut(&grant.id) else { return false };
        held.is_renewing = false;
        match given {
            Ok(GrantedToken { token, life_s }) => {
                let life_ms = life_s.saturating_mul(1_000);
                held.token = Some((token, now_ms.saturating_add(life_ms)));
                held.next_at_ms = now_ms.saturating_add(life_ms / 5 * 4);
                held.failures = 0;
                held.trouble = None;
                held.serial = held.serial.saturating_add(1);
                true
            }
            Err(trouble) => {
                let was_silent = held.failures == 0;
                held.failures = held.failures.saturating_add(1);
                held.next_at_ms = now_ms.saturating_add(wait_ms(held.failures));
                held.trouble = Some(trouble);
                let has_ended = held.token.take_if(|(_, expires_at_ms)| *expires_at_ms <= now_ms).is_some();
                has_ended || (was_silent && held.token.is_none())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], HeldToken>> {
        self.0.by_grant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldToken {
    fn new(grant: Grant) -> Self {
        Self {
            grant,
            token: None,
            next_at_ms: 0,
            is_renewing: false,
            failures: 0,
            trouble: None,
            serial: 0,
            forced_at_ms: None,
        }
    }
}

/// Returns the retry delay: 2 s after the first failure, doubled after each further one, up to 5 minutes.
fn wait_ms(failures: u32) -> u64 {
    1_000_u64.checked_shl(failures.min(16)).map_or(WAIT_MS_MAX, |wait| wait.min(WAIT_MS_MAX))
}

const WAIT_MS_MAX: u64 = 300_000;
/// The minimum time between two early renewals of a token.
const FORCED_PAUSE_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::super::Metadata;
    use super::*;

    fn grant(name: &str) -> Grant {
        Grant::machine(&Metadata(Some(name.to_owned())))
    }

    fn given(token: &str) -> GrantedToken {
        GrantedToken { token: Secret::new(token.to_owned()), life_s: 1_000 }
    }

    fn token(tokens: &AccessTokens, grant: &Grant, now_ms: u64) -> Result<String, &'static str> {
        tokens.current(grant, now_ms).map(|token| token.expose().clone())
    }

    #[test]
    fn a_token_is_asked_for_once_and_renewed_at_four_fifths_of_its_life() {
        let (tokens, a) = (AccessTokens::default(), grant("a"));
        assert_eq!(tokens.pause_ms(0), None);
        tokens.want(vec![a.clone(), a.clone()]);
        assert_eq!(token(&tokens, &a, 0), Err("its first access token has not arrived yet"));
        assert_eq!((tokens.take_due(0).len(), tokens.take_due(0).len()), (1, 0), "never twice at once");
        tokens.want(vec![a.clone()]);
        assert!(tokens.take_due(0).is_empty(), "a publication in between asks no second time");
        assert!(tokens.learn(&a, Ok(given("one")), 0));
        assert_eq!(token(&tokens, &a, 999_999).as_deref(), Ok("one"));
        assert_eq!((tokens.pause_ms(0), tokens.take_due(799_999).len()), (Some(800_000), 0));
        assert_eq!(tokens.take_due(800_000).len(), 1);
        assert!(tokens.learn(&a, Ok(given("two")), 810_000), "the new one is published");
        assert_eq!(token(&tokens, &a, 1_000_001).as_deref(), Ok("two"));
    }

    #[test]
    fn a_failed_renewal_keeps_the_token_until_it_expires_and_retries() {
        let (tokens, a) = (AccessTokens::default(), grant("a"));
        tokens.want(vec![a.clone()]);
        tokens.take_due(0);
        tokens.learn(&a, Ok(given("one")), 0);
        tokens.take_due(800_000);
        assert!(!tokens.learn(&a, Err("down".into()), 800_000), "nothing changes for requests");
        assert_eq!(token(&tokens, &a, 999_999).as_deref(), Ok("one"));
        let standing = tokens.standing(&a).unwrap();
        assert_eq!((standing.error.as_deref(), standing.next_at_ms), (Some("down"), 802_000));
        let mut now_ms = 802_000;
        let mut pauses = Vec::new();
        while token(&tokens, &a, now_ms).is_ok() {
            assert_eq!(tokens.take_due(now_ms).len(), 1, "{now_ms}");
            tokens.learn(&a, Err("down".into()), now_ms);
            pauses.push(tokens.pause_ms(now_ms).unwrap());
            now_ms += pauses.last().unwrap();
        }
        assert_eq!(pauses, [4_000, 8_000, 16_000, 32_000, 64_000, 128_000]);
        assert_eq!(tokens.take_due(now_ms).len(), 1);
        assert!(tokens.learn(&a, Err("down".into()), now_ms), "it is unready from now on");
        assert!(token(&tokens, &a, now_ms).unwrap_err().contains("metadata server"));
        assert_eq!(wait_ms(u32::MAX), WAIT_MS_MAX);
        tokens.take_due(u64::MAX);
        assert!(tokens.learn(&a, Ok(given("two")), now_ms));
        assert_eq!(tokens.standing(&a).unwrap().error, None);
    }

    #[test]
    fn a_refused_token_is_renewed_once() {
        let (tokens, a) = (AccessTokens::default(), grant("a"));
        assert!(!tokens.refused(&a.id, 0, 0), "no provider uses it");
        tokens.want(vec![a.clone()]);
        tokens.take_due(0);
        tokens.learn(&a, Ok(given("one")), 0);
        assert!(tokens.take_due(1_000).is_empty());
        assert!((0..9).all(|_| tokens.refused(&a.id, 1, 1_000)), "every request of the time hears of it");
        assert_eq!(tokens.take_due(1_000).len(), 1);
        assert!(tokens.refused(&a.id, 1, 1_000), "it is on its way");
        assert!(tokens.take_due(1_000).is_empty());
        tokens.learn(&a, Ok(given("two")), 1_500);
        assert!(tokens.refused(&a.id, 1, 2_000), "there is another one already");
        assert!(tokens.take_due(2_000).is_empty());
        assert!(!tokens.refused(&a.id, 2, 2_000), "who refuses a fresh token refuses the next one too");
        assert!(tokens.take_due(2_000).is_empty());
        assert!(tokens.refused(&a.id, 2, 61_000));
        tokens.take_due(61_000);
        tokens.learn(&a, Err("down".into()), 61_000);
        assert!(!tokens.refused(&a.id, 2, 61_500), "none is given");
        assert_eq!(token(&tokens, &a, 61_500).as_deref(), Ok("two"));
    }

    #[test]
    fn a_token_that_is_no_longer_wanted_is_dropped() {
        let (tokens, a, b) = (AccessTokens::default(), grant("a"), grant("b"));
        tokens.want(vec![a.clone(), b.clone()]);
        assert_eq!(tokens.take_due(0).len(), 2);
        tokens.want(vec![b.clone()]);
        assert!(!tokens.learn(&a, Ok(given("late")), 0));
        assert!(tokens.learn(&b, Ok(given("token-of-b")), 0));
        assert!(tokens.standing(&a).is_none());
        assert!(!format!("{tokens:?}").contains("token-of-b"));
    }

    #[tokio::test]
    async fn a_new_grant_wakes_the_renewal_task() {
        let tokens = AccessTokens::default();
        tokens.want(vec![grant("a")]);
        tokens.wanted().await;
        tokens.want(vec![grant("a"), grant("b")]);
        tokens.wanted().await;
    }
}
