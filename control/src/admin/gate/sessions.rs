//! Sessions of signed-in administrators and humans: their tickets are sealed, renewed and checked here. There is no table of
//! sessions: a ticket is valid until it is idle or too old, unless its session was ended before.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use shared::secret::Secret;

use super::Admission;
use super::ticket::{SessionHolder, Ticket, millis};
use super::watched::WatchedSessions;
use crate::common::vault::{SealError, VaultKeys};
use crate::routing::publish::EndedSessions;

/// Seals, opens and checks the tickets of sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    ticket_key: Secret<[u8; 32]>,
    /// Derives a session's CSRF token from its ID.
    csrf_key: hmac::Key,
    ended: EndedSessions,
    watched: WatchedSessions,
}

impl Sessions {
    pub(crate) fn new(keys: &VaultKeys, ended: EndedSessions) -> Self {
        Self {
            ticket_key: keys.derived_bytes("console sessions"),
            csrf_key: keys.derived("csrf tokens"),
            ended,
            watched: WatchedSessions::default(),
        }
    }

    /// Returns the ticket of a new session, and the text of its cookie.
    pub(super) fn begin(
        &self,
        holder: SessionHolder,
        now_ms: u64,
    ) -> Result<(Ticket, Secret<String>), SealError> {
        let ticket = Ticket::new(holder, now_ms)?;
        let text = ticket.sealed(&self.ticket_key)?;
        Ok((ticket, text))
    }

    /// Returns the ticket in the text of a cookie, if its session is open.
    pub(super) fn open(&self, text: &str, now_ms: u64) -> Option<Ticket> {
        let ticket = Ticket::opened(text, &self.ticket_key)?;
        self.is_open(&ticket, ticket.used_ms, now_ms).then_some(ticket)
    }

    /// Returns the text of a cookie that prolongs a session, if its ticket was last renewed a while ago.
    pub(super) fn renewed(&self, ticket: &Ticket, now_ms: u64) -> Option<Secret<String>> {
        if ticket.used_ms.saturating_add(millis(RENEWED_AFTER)) > now_ms {
            return None;
        }
        Ticket { used_ms: now_ms, ..ticket.clone() }.sealed(&self.ticket_key).ok()
    }

    /// True if the session of an admission is open. A later use than that of its ticket counts if it is watched.
    pub(super) fn is_admitting(&self, admission: &Admission, now_ms: u64) -> bool {
        let Admission::Session { ticket, latest } = admission else { return false };
        let used_ms = latest.as_ref().map_or(0, |latest| latest.used_ms());
        self.is_open(ticket, used_ms.max(ticket.used_ms), now_ms)
    }

    /// Returns the admission of a response that stays open, which learns of later requests of the session.
    pub(super) fn watch(&self, ticket: Ticket) -> Admission {
        let latest = Some(self.watched.watch(&ticket.id));
        Admission::Session { ticket, latest }
    }

    /// Notes a request of a session; `used_ms` is `None` if it does not prolong the session.
    pub(super) fn note(&self, ticket: &Ticket, used_ms: Option<u64>, is_administrator: bool) {
        self.watched.note(&ticket.id, used_ms, is_administrator);
    }

    /// Returns the token that pages of the console send with changes and that other pages cannot know.
    pub(super) fn csrf_token(&self, ticket: &Ticket) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&self.csrf_key, ticket.id.as_bytes()).as_ref())
    }

    /// True if `token` is the CSRF token of the session; compares in constant time.
    pub(super) fn is_csrf_token(&self, ticket: &Ticket, token: &[u8]) -> bool {
        let tag = BASE64_URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
        hmac::verify(&self.csrf_key, ticket.id.as_bytes(), &tag).is_ok()
    }

    /// True unless the session is idle or too old, or was ended. A ticket of a time to come was sealed by a wrong clock,
    /// and would be valid for too long.
    fn is_open(&self, ticket: &Ticket, used_ms: u64, now_ms: u64) -> bool {
        let is_over = ticket.end_ms <= now_ms || used_ms.saturating_add(millis(IDLE_MAX)) <= now_ms;
        let is_early = ticket.began_ms.max(used_ms) > now_ms.saturating_add(millis(CLOCK_SKEW_MAX));
        let has_ended = || self.ended.contains(&ticket.holder.name(), &ticket.digest(), ticket.began_ms);
        !is_over && !is_early && !has_ended()
    }
}

/// Maximum time since the last request.
pub(in crate::admin) const IDLE_MAX: Duration = Duration::from_hours(1);
/// The time after which a use renews the ticket.
const RENEWED_AFTER: Duration = Duration::from_mins(1);
/// The most by which the clock of the process that sealed a ticket may be ahead.
const CLOCK_SKEW_MAX: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;
    use shared::key_hash::KeyHash;

    const KEY: SessionHolder = SessionHolder::Key(KeyHash([1; 32]));
    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;

    fn sessions() -> Sessions {
        let keys = VaultKeys { key_hash_key: Secret::new([1; 32]), data_key: Secret::new([2; 32]) };
        Sessions::new(&keys, EndedSessions::default())
    }

    fn is_open(sessions: &Sessions, text: &Secret<String>, now_ms: u64) -> bool {
        sessions.open(text.expose(), now_ms).is_some()
    }

    #[test]
    fn a_session_expires_when_idle_and_at_its_maximum_age() {
        let sessions = sessions();
        let (ticket, text) = sessions.begin(KEY, 0).unwrap();
        assert_eq!(sessions.open(text.expose(), HOUR - 1), Some(ticket.clone()));
        assert!(!is_open(&sessions, &text, HOUR), "not used for an hour");
        // Used all day.
        let mut text = text;
        for n in 1..=24 {
            let at = n * 30 * MINUTE - 1;
            let ticket = sessions.open(text.expose(), at).unwrap();
            text = sessions.renewed(&ticket, at).unwrap();
        }
        assert!(is_open(&sessions, &text, 12 * HOUR - 1));
        assert!(!is_open(&sessions, &text, 12 * HOUR), "used all day, and yet over");
    }

    #[test]
    fn a_ticket_is_renewed_once_a_minute_and_keeps_its_session() {
        let sessions = sessions();
        let (ticket, first) = sessions.begin(KEY, 0).unwrap();
        assert!(sessions.renewed(&ticket, MINUTE - 1).is_none());
        let text = sessions.renewed(&ticket, MINUTE).unwrap();
        let renewed = sessions.open(text.expose(), HOUR + MINUTE - 1).unwrap();
        assert!(sessions.renewed(&renewed, 2 * MINUTE - 1).is_none());
        assert_eq!(renewed, Ticket { used_ms: MINUTE, ..ticket.clone() });
        assert_eq!(sessions.csrf_token(&renewed), sessions.csrf_token(&ticket));
        assert_eq!(renewed.end(), ticket.end(), "the end of the session covers every ticket of it");
        assert!(!is_open(&sessions, &first, HOUR), "an old ticket is idle by itself");
    }

    #[test]
    fn a_ticket_of_a_time_to_come_is_refused() {
        let sessions = sessions();
        let (_, text) = sessions.begin(KEY, 5 * HOUR).unwrap();
        assert!(is_open(&sessions, &text, 5 * HOUR - MINUTE), "clocks may differ a little");
        assert!(!is_open(&sessions, &text, 5 * HOUR - MINUTE - 1));
    }

    #[test]
    fn a_watched_session_is_open_as_long_as_it_is_used() {
        let sessions = sessions();
        let (ticket, _) = sessions.begin(KEY, 0).unwrap();
        let alone = Admission::Session { ticket: ticket.clone(), latest: None };
        let watched = sessions.watch(ticket.clone());
        assert!(sessions.is_admitting(&watched, HOUR - 1) && !sessions.is_admitting(&watched, HOUR));
        sessions.note(&ticket, Some(HOUR - 1), true);
        assert!(sessions.is_admitting(&watched, HOUR) && !sessions.is_admitting(&alone, HOUR));
    }

    #[test]
    fn a_csrf_token_belongs_to_its_session() {
        let sessions = sessions();
        let (one, text) = sessions.begin(KEY, 0).unwrap();
        let (other, _) = sessions.begin(KEY, 0).unwrap();
        let token = sessions.csrf_token(&one);
        assert!(sessions.is_csrf_token(&one, token.as_bytes()));
        assert!(!sessions.is_csrf_token(&other, token.as_bytes()));
        for wrong in ["", &token[1..], one.id.as_str(), text.expose(), "ä"] {
            assert!(!sessions.is_csrf_token(&one, wrong.as_bytes()), "{wrong}");
        }
        let shown = format!("{sessions:?} {}", one.public_name());
        assert!(!shown.contains(text.expose().as_str()) && !shown.contains(&token));
    }
}
