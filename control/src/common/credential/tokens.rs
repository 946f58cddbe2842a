//! The current access tokens and their renewal times. Times are in milliseconds since the Unix epoch.

use serde::Serialize;
use shared::routing::Renew;
use shared::secret::Secret;

use super::grant::{Grant, GrantedToken};
use super::renewals::{Renewal, Renewals};

/// The access tokens of all grants in use; shared by the publisher, the task that renews tokens, and the admin API.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessTokens(Renewals<[u8; 32], HeldToken>);

#[derive(Debug)]
struct HeldToken {
    grant: Grant,
    /// The token and its expiry.
    token: Option<(Secret<String>, u64)>,
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
        let wanted = grants.into_iter().map(|grant| (grant.id, HeldToken { grant, token: None }));
        self.0.want(wanted, |known, new| known.unwrap_or_else(|| Renewal::new(new, 0, Some(0))));
    }

    /// Returns the current token of `grant`, or a short reason why it has no valid token.
    pub(crate) fn current(&self, grant: &Grant, now_ms: u64) -> Result<Secret<String>, &'static str> {
        let found = self.0.read(&grant.id, |held| {
            let valid = held.subject.token.as_ref().filter(|(_, expires_at_ms)| *expires_at_ms > now_ms);
            (valid.map(|(token, _)| token.clone()), held.failures)
        });
        match found {
            Some((Some(token), _)) => Ok(token),
            None | Some((None, 0)) => Err("its first access token has not arrived yet"),
            Some((None, _)) => Err(grant.lacks()),
        }
    }

    /// Returns the hook that renews the token of `grant` when an upstream rejects the current one.
    pub(crate) fn renew(&self, grant: &Grant) -> Renew {
        let serial = self.0.read(&grant.id, |held| held.serial);
        self.0.renew(grant.id, serial.unwrap_or(0))
    }

    /// Returns the state of the token of `grant`.
    pub(crate) fn standing(&self, grant: &Grant) -> Option<TokenStanding> {
        self.0.read(&grant.id, |held| TokenStanding {
            expires_at_ms: held.subject.token.as_ref().map(|(_, expires_at_ms)| *expires_at_ms),
            next_at_ms: held.next_at_ms.unwrap_or(0),
            error: held.trouble.as_ref().map(|(_, error)| error.clone()),
        })
    }

    /// Returns the grants whose token request is due now. Each is returned once, until its result is passed to `learn`.
    pub(super) fn take_due(&self, now_ms: u64) -> Vec<Grant> {
        self.0.take_due(now_ms, |held| held.grant.clone())
    }

    /// Returns the time until the next request is due; `None` if no request is pending.
    pub(super) fn pause_ms(&self, now_ms: u64) -> Option<u64> {
        self.0.pause_ms(now_ms)
    }

    /// Waits until a new grant is in use or a token must be renewed early.
    pub(super) async fn wanted(&self) {
        self.0.wanted().await;
    }

    /// Stores the result of a token request for `grant`. Returns true if the change must be published.
    pub(super) fn learn(&self, grant: &Grant, given: Result<GrantedToken, String>, now_ms: u64) -> bool {
        let (given, error) = given.map_or_else(|error| (None, Some(error)), |given| (Some(given), None));
        self.0.learn(&grant.id, error, now_ms, |held| {
            let Some(GrantedToken { token, life_s }) = given else {
                let has_ended = held.subject.token.take_if(|(_, expires_at_ms)| *expires_at_ms <= now_ms);
                return has_ended.is_some() || (held.failures == 1 && held.subject.token.is_none());
            };
            let life_ms = life_s.saturating_mul(1_000);
            held.subject.token = Some((token, now_ms.saturating_add(life_ms)));
            held.next_at_ms = Some(now_ms.saturating_add(life_ms / 5 * 4));
            held.serial = held.serial.saturating_add(1);
            true
        })
    }
}

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
        tokens.take_due(u64::MAX);
        assert!(tokens.learn(&a, Ok(given("two")), now_ms));
        assert_eq!(tokens.standing(&a).unwrap().error, None);
    }

    #[test]
    fn a_refused_token_is_renewed_once() {
        let (tokens, a) = (AccessTokens::default(), grant("a"));
        assert!(!tokens.0.rejected(&a.id, 0, 0), "no provider uses it");
        tokens.want(vec![a.clone()]);
        tokens.take_due(0);
        tokens.learn(&a, Ok(given("one")), 0);
        assert!(tokens.take_due(1_000).is_empty());
        assert!((0..9).all(|_| tokens.0.rejected(&a.id, 1, 1_000)), "every request of the time hears of it");
        assert_eq!(tokens.take_due(1_000).len(), 1);
        assert!(tokens.0.rejected(&a.id, 1, 1_000), "it is on its way");
        assert!(tokens.take_due(1_000).is_empty());
        tokens.learn(&a, Ok(given("two")), 1_500);
        assert!(tokens.0.rejected(&a.id, 1, 2_000), "there is another one already");
        assert!(tokens.take_due(2_000).is_empty());
        assert!(!tokens.0.rejected(&a.id, 2, 2_000), "who refuses a fresh token refuses the next one too");
        assert!(tokens.take_due(2_000).is_empty());
        assert!(tokens.0.rejected(&a.id, 2, 61_000));
        tokens.take_due(61_000);
        tokens.learn(&a, Err("down".into()), 61_000);
        assert!(!tokens.0.rejected(&a.id, 2, 61_500), "none is given");
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
