//! Sessions of signed-in administrators and humans. They are held in memory, so a restart ends them all. Their ids are stored as
//! hashes, so that a leak of this table grants no access.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::{digest, hmac};
use shared::hex;
use shared::id::PrincipalId;
use shared::key_hash::KeyHash;
use shared::secret::Secret;

use crate::common::vault::{RandomError, random};

/// The table of sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    table: Mutex<HashMap<SessionName, OpenSession>>,
    /// Derives a session's CSRF token from its id.
    csrf_key: hmac::Key,
}

/// The table key of a session: SHA-256 of its id.
pub(super) type SessionName = [u8; 32];

/// The holder of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::admin) enum SessionHolder {
    /// An administrator, by the key that opened the session; the session ends when that key becomes invalid.
    Key(KeyHash),
    /// A human who came by single sign-on. The session is valid only in requests that assert the same subject.
    Human {
        principal: PrincipalId,
        subject: Arc<str>,
        /// True if the last request asserted the administrators' group.
        is_administrator: bool,
    },
}

impl SessionHolder {
    /// True if both sessions belong to the same key or human.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(one), Self::Key(other)) => one == other,
            (Self::Human { principal: one, .. }, Self::Human { principal: other, .. }) => one == other,
            (Self::Key(_), Self::Human { .. }) | (Self::Human { .. }, Self::Key(_)) => false,
        }
    }

    /// Returns the maximum number of sessions that the holder may have. Several administrators may share a key.
    fn sessions_max(&self) -> usize {
        match self {
            Self::Key(_) => SESSIONS_OF_KEY_MAX,
            Self::Human { .. } => SESSIONS_OF_HUMAN_MAX,
        }
    }
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenSession {
    pub(super) holder: SessionHolder,
    /// The latest time at which it ends, in milliseconds of the monotonic clock.
    end_ms: u64,
    /// The time of its last use, in milliseconds of the monotonic clock.
    used_ms: u64,
}

impl OpenSession {
    /// Returns the maximum remaining lifetime.
    pub(super) fn left(&self, now_ms: u64) -> Duration {
        Duration::from_millis(self.end_ms.saturating_sub(now_ms))
    }

    fn is_over(&self, now_ms: u64) -> bool {
        self.end_ms <= now_ms || self.used_ms.saturating_add(millis(IDLE_MAX)) <= now_ms
    }
}

impl Sessions {
    pub(super) fn new(csrf_key: hmac::Key) -> Self {
        Self { table: Mutex::default(), csrf_key }
    }

    /// Opens a session and returns its id. If the holder has too many sessions, the least recently used one of them is closed.
    /// If there are too many in all, one of the holder with the most: frequent sign-ins end no session of others.
    pub(super) fn open(&self, holder: SessionHolder, now_ms: u64) -> Result<Secret<String>, RandomError> {
        let bytes = Secret::new(random::<32>()?);
        let id = Secret::new(BASE64_URL_SAFE_NO_PAD.encode(bytes.expose()));
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.retain(|_, session| !session.is_over(now_ms));
        if count_of(&table, &holder) >= holder.sessions_max() {
            close_stalest(&mut table, &holder);
        } else if table.len() >= SESSIONS_MAX {
            let most =
                table.values().map(|session| &session.holder).max_by_key(|of| count_of(&table, of)).cloned();
            most.into_iter().for_each(|of| close_stalest(&mut table, &of));
        }
        let end_ms = now_ms.saturating_add(millis(LIFE_MAX));
        table.insert(name_of(id.expose()), OpenSession { holder, end_ms, used_ms: now_ms });
        Ok(id)
    }

    /// Returns the session with this id and marks it as used now.
    pub(super) fn use_of(&self, id: &str, now_ms: u64) -> Option<OpenSession> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let session = table.get_mut(&name_of(id)).filter(|session| !session.is_over(now_ms))?;
        session.used_ms = now_ms;
        Some(session.clone())
    }

    /// Returns the open session with this id, without marking it as used.
    pub(super) fn look(&self, id: &str, now_ms: u64) -> Option<OpenSession> {
        self.named(name_of(id), now_ms)
    }

    /// Returns the open session with this name, without marking it as used.
    pub(super) fn named(&self, name: SessionName, now_ms: u64) -> Option<OpenSession> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(&name).cloned().filter(|session| !session.is_over(now_ms))
    }

    /// Stores whether the latest request of a human's session asserted the administrators' group.
    pub(super) fn note_group(&self, id: &str, asserted: bool) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let holder = table.get_mut(&name_of(id)).map(|session| &mut session.holder);
        if let Some(SessionHolder::Human { is_administrator, .. }) = holder {
            *is_administrator = asserted;
        }
    }

    /// Closes the sessions of a human.
    pub(super) fn close_of(&self, human: &str) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let is_theirs = |holder: &SessionHolder| match holder {
            SessionHolder::Key(_) => false,
            SessionHolder::Human { principal, .. } => principal.as_str() == human,
        };
        table.retain(|_, session| !is_theirs(&session.holder));
    }

    /// Closes the session with this id.
    pub(super) fn close(&self, id: &str) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.remove(&name_of(id));
    }

    /// Returns the token that pages of the console send with changes and that other pages cannot know.
    pub(super) fn csrf_token(&self, id: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&self.csrf_key, id.as_bytes()).as_ref())
    }

    /// True if `token` is the CSRF token of the session; compares in constant time.
    pub(super) fn is_csrf_token(&self, id: &str, token: &[u8]) -> bool {
        let tag = BASE64_URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
        hmac::verify(&self.csrf_key, id.as_bytes(), &tag).is_ok()
    }
}

fn count_of(table: &HashMap<SessionName, OpenSession>, holder: &SessionHolder) -> usize {
    table.values().filter(|session| session.holder.is(holder)).count()
}

/// Closes the least recently used session of a holder.
fn close_stalest(table: &mut HashMap<SessionName, OpenSession>, holder: &SessionHolder) {
    let of_holder = table.iter().filter(|(_, session)| session.holder.is(holder));
    let stalest = of_holder.min_by_key(|(_, session)| session.used_ms).map(|(name, _)| *name);
    stalest.and_then(|name| table.remove(&name));
}

/// Returns the session's name in the audit; the id cannot be derived from it.
pub(super) fn public_name(id: &str) -> String {
    let name = name_of(id);
    let (start, _) = name.split_at(8);
    format!("ses_{}", hex::encode(start))
}

pub(super) fn name_of(id: &str) -> SessionName {
    let mut name = [0; 32];
    name.copy_from_slice(digest::digest(&digest::SHA256, id.as_bytes()).as_ref());
    name
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

const SESSIONS_MAX: usize = 1_024;
const SESSIONS_OF_HUMAN_MAX: usize = 16;
const SESSIONS_OF_KEY_MAX: usize = 256;
/// Maximum lifetime since the sign-in.
pub(super) const LIFE_MAX: Duration = Duration::from_hours(12);
/// Maximum time since the last request.
pub(in crate::admin) const IDLE_MAX: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SessionHolder = SessionHolder::Key(KeyHash([1; 32]));
    const HOUR: u64 = 3_600_000;

    fn sessions() -> Sessions {
        Sessions::new(hmac::Key::new(hmac::HMAC_SHA256, &[9; 32]))
    }

    #[test]
    fn a_session_expires_when_idle_and_at_its_maximum_age() {
        let sessions = sessions();
        let id = sessions.open(KEY, 0).unwrap();
        assert_eq!(sessions.use_of(id.expose(), HOUR - 1).unwrap().holder, KEY);
        for hour in 2..12 {
            assert!(sessions.use_of(id.expose(), hour * HOUR - hour).is_some(), "{hour}");
        }
        assert!(sessions.use_of(id.expose(), 12 * HOUR - 12).is_some());
        assert!(sessions.use_of(id.expose(), 12 * HOUR).is_none(), "used all day, and yet over");
        let id = sessions.open(KEY, 0).unwrap();
        assert!(sessions.look(id.expose(), HOUR - 1).is_some());
        assert!(sessions.look(id.expose(), HOUR).is_none(), "a look is no use");
        assert!(sessions.use_of(id.expose(), HOUR).is_none(), "not used for an hour");
        let id = sessions.open(KEY, 0).unwrap();
        sessions.close(id.expose());
        assert!(sessions.use_of(id.expose(), 1).is_none());
    }

    fn human(n: usize) -> SessionHolder {
        let principal = PrincipalId::new(format!("prn_{n}"));
        SessionHolder::Human { principal, subject: "s".into(), is_administrator: n.is_multiple_of(2) }
    }

    #[test]
    fn a_session_beyond_the_limit_of_its_holder_evicts_the_longest_idle_one_of_it() {
        for (holder, most) in [(KEY, SESSIONS_OF_KEY_MAX as u64), (human(1), SESSIONS_OF_HUMAN_MAX as u64)] {
            let sessions = sessions();
            let other = sessions.open(human(2), 0).unwrap();
            let first = sessions.open(holder.clone(), 0).unwrap();
            let second = sessions.open(holder.clone(), 1).unwrap();
            assert!(sessions.use_of(first.expose(), 2).is_some());
            (2..=most).for_each(|n| drop(sessions.open(holder.clone(), n + 1).unwrap()));
            assert_eq!(sessions.table.lock().unwrap().len() as u64, most + 1);
            assert!(sessions.use_of(second.expose(), 500).is_none());
            assert!(sessions.use_of(first.expose(), 500).is_some());
            assert!(sessions.use_of(other.expose(), 500).is_some());
        }
    }

    #[test]
    fn a_session_beyond_the_limit_of_all_evicts_one_of_the_holder_with_the_most() {
        let sessions = sessions();
        let administrator = sessions.open(KEY, 0).unwrap();
        let single = sessions.open(human(0), 0).unwrap();
        for n in 1..=2 * SESSIONS_MAX {
            drop(sessions.open(human(1 + n / SESSIONS_OF_HUMAN_MAX), n as u64).unwrap());
        }
        assert_eq!(sessions.table.lock().unwrap().len(), SESSIONS_MAX);
        for id in [administrator, single] {
            assert!(sessions.look(id.expose(), 2 * SESSIONS_MAX as u64).is_some());
        }
    }

    #[test]
    fn a_csrf_token_belongs_to_its_session_and_the_table_shows_no_id() {
        let sessions = sessions();
        let (one, other) = (sessions.open(KEY, 0).unwrap(), sessions.open(KEY, 0).unwrap());
        let token = sessions.csrf_token(one.expose());
        assert!(sessions.is_csrf_token(one.expose(), token.as_bytes()));
        assert!(!sessions.is_csrf_token(other.expose(), token.as_bytes()));
        for wrong in ["", &token[1..], one.expose(), "ä"] {
            assert!(!sessions.is_csrf_token(one.expose(), wrong.as_bytes()), "{wrong}");
        }
        let shown = format!("{sessions:?} {}", public_name(one.expose()));
        assert!(!shown.contains(one.expose().as_str()) && !shown.contains(&token));
    }
}
