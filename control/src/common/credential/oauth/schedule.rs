//! The times at which the tokens of OAuth connections are refreshed: ahead of their expiry, or at once when an upstream
//! rejects one. The tokens themselves are in the database. Each connection has at most one refresh at a time.

use std::sync::Arc;
use std::time::Duration;

use shared::routing::Renew;

use super::super::renewals::{Renewal, Renewals};
use super::{OauthConnection, TokenIssuer};

/// The refreshes to come by provider, shared by the publisher, the background task that makes them, and the admin API.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefreshSchedule(Renewals<String, DueRefresh>);

/// A connection that can be refreshed.
#[derive(Clone, Debug)]
pub(crate) struct DueRefresh {
    pub(crate) connection: Arc<OauthConnection>,
    pub(crate) issuer: Arc<TokenIssuer>,
}

impl RefreshSchedule {
    /// Replaces the connections in use with `wanted`, all of which have a refresh token.
    pub(crate) fn want(&self, wanted: Vec<DueRefresh>) {
        let wanted = wanted.into_iter().map(|due| (due.connection.provider.clone(), due));
        self.0.want(wanted, |known, due| {
            let (serial, refresh_at_ms) = (due.connection.serial, due.connection.refresh_at_ms());
            match known {
                Some(mut known) if known.serial == serial => {
                    // The issuer's settings may have changed although the tokens have not.
                    known.subject = due;
                    known
                }
                Some(known) => known.replaced(Renewal::new(due, serial, refresh_at_ms)),
                None => Renewal::new(due, serial, refresh_at_ms),
            }
        });
    }

    /// Returns the hook that refreshes the tokens of `connection` when an upstream rejects the current one.
    pub(crate) fn renew(&self, connection: &OauthConnection) -> Renew {
        self.0.renew(connection.provider.clone(), connection.serial)
    }

    /// Returns the time and text of the last failure since the last success, if the refreshes of `provider` fail.
    pub(crate) fn trouble(&self, provider: &str) -> Option<(u64, String)> {
        self.0.read(&provider.to_owned(), |held| held.trouble.clone())?
    }

    /// Returns the refreshes that are due now. Each is returned once, until its result is passed to `learn`.
    pub(crate) fn take_due(&self, now_ms: u64) -> Vec<DueRefresh> {
        self.0.take_due(now_ms, DueRefresh::clone)
    }

    /// Returns the time until the next refresh is due; `None` if no refresh is pending.
    pub(crate) fn pause_ms(&self, now_ms: u64) -> Option<u64> {
        self.0.pause_ms(now_ms)
    }

    /// Waits until a refresh may be due earlier than before.
    pub(crate) async fn wanted(&self) {
        self.0.wanted().await;
    }

    /// Records the end of a refresh. After a failure the next one is delayed. Returns true if the change must be
    /// published, because requests can no longer use the access token.
    pub(crate) fn learn(&self, provider: &str, result: Result<(), String>, now_ms: u64) -> bool {
        let has_failed = result.is_err();
        self.0.learn(&provider.to_owned(), result.err(), now_ms, |held| {
            has_failed && held.subject.connection.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
        })
    }

    /// Lets no further refresh begin, and waits for those that have begun to end, [`END_TIME_MAX`] at most: the vendor may
    /// have replaced the refresh token already, and only its answer contains the new one.
    pub(crate) async fn end(&self) {
        if !self.0.end(END_TIME_MAX).await {
            tracing::warn!(
                "the refresh of a sign-in did not end in time; the next start reports what was lost"
            );
        }
    }
}

/// A refresh takes 10 s at most; the rest is for storing its tokens.
const END_TIME_MAX: Duration = Duration::from_secs(15);
