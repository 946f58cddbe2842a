//! The ticket of a session: all that the gateway knows of it, sealed in the browser's cookie. Any process with the same
//! state accepts it, so a session survives a restart.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest;
use serde::{Deserialize, Serialize};
use shared::hex;
use shared::id::PrincipalId;
use shared::key_hash::KeyHash;
use shared::secret::Secret;

use crate::common::vault::{SealError, SealPlace, open, random, seal};
use crate::db::ended_sessions::{SESSION_LIFE_MAX, SessionEnd, holder_of_human, holder_of_key};

/// A session. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::admin) struct Ticket {
    /// 128 random bits, which stay the same when the ticket is renewed. They are useless without the seal; other names of
    /// the session and its CSRF token are derived from them.
    pub(super) id: String,
    pub(super) holder: SessionHolder,
    pub(super) began_ms: u64,
    /// The latest time at which it ends.
    pub(super) end_ms: u64,
    /// The time of its last use, as of the last renewal.
    pub(super) used_ms: u64,
}

/// The holder of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::admin) enum SessionHolder {
    /// An administrator, by the key that opened the session; the session ends when that key becomes invalid.
    Key(#[serde(with = "key_hash")] KeyHash),
    /// A human who came by single sign-on. The session is valid only in requests that assert the same subject.
    Human { principal: PrincipalId, subject: Arc<str> },
}

impl SessionHolder {
    /// Returns the name of the holder in the table `ended_sessions`.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Key(KeyHash(hash)) => holder_of_key(&hex::encode(hash)),
            Self::Human { principal, .. } => holder_of_human(principal.as_str()),
        }
    }
}

impl Ticket {
    /// Creates the ticket of a new session.
    pub(super) fn new(holder: SessionHolder, now_ms: u64) -> Result<Self, SealError> {
        let id = hex::encode(&random::<16>().map_err(|_| SealError)?);
        let end_ms = now_ms.saturating_add(millis(SESSION_LIFE_MAX));
        Ok(Self { id, holder, began_ms: now_ms, end_ms, used_ms: now_ms })
    }

    /// Returns the ticket as the text of a cookie.
    pub(super) fn sealed(&self, key: &Secret<[u8; 32]>) -> Result<Secret<String>, SealError> {
        let plain = serde_json::to_vec(self).map_err(|_| SealError)?;
        Ok(Secret::new(BASE64_URL_SAFE_NO_PAD.encode(seal(key, &PLACE, &plain)?)))
    }

    /// Returns the ticket in the text of a cookie; `None` if it was not sealed with this key, or was changed.
    pub(super) fn opened(text: &str, key: &Secret<[u8; 32]>) -> Option<Self> {
        if text.len() > CHARS_MAX {
            return None;
        }
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        serde_json::from_slice(open(key, &PLACE, &sealed).ok()?.expose()).ok()
    }

    /// Returns the end of this session.
    pub(super) fn end(&self) -> SessionEnd {
        let (holder, session) = (self.holder.name(), self.digest());
        SessionEnd { holder, session, began_ms: self.began_ms, until_ms: self.end_ms }
    }

    /// Returns the session's name in the audit.
    pub(super) fn public_name(&self) -> String {
        let digest = self.digest();
        format!("ses_{}", digest.get(..16).unwrap_or_default())
    }

    /// Returns SHA-256 of the ID, as hexadecimal digits.
    pub(super) fn digest(&self) -> String {
        hex::encode(digest::digest(&digest::SHA256, self.id.as_bytes()).as_ref())
    }
}

/// The hash of a key, as text.
pub(super) mod key_hash {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use shared::key_hash::KeyHash;

    pub(in super::super) fn serialize<S: Serializer>(hash: &KeyHash, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&BASE64_URL_SAFE_NO_PAD.encode(hash.0))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<KeyHash, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let hash = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        hash.map(KeyHash).ok_or_else(|| D::Error::custom("no hash of a key"))
    }
}

pub(super) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The place that a ticket is sealed to. It is never stored.
const PLACE: SealPlace<'static> = SealPlace { table: "sessions", column: "ticket", id: "" };
/// The longest text of a cookie that is opened. A subject of the longest length makes a third of it.
const CHARS_MAX: usize = 3_072;

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SessionHolder = SessionHolder::Key(KeyHash([7; 32]));

    fn human(subject: &str) -> SessionHolder {
        SessionHolder::Human { principal: PrincipalId::new("prn_1"), subject: subject.into() }
    }

    #[test]
    fn a_ticket_opens_only_as_it_was_sealed() {
        let key = Secret::new([1; 32]);
        for holder in [KEY, human("ada")] {
            let ticket = Ticket::new(holder, 5).unwrap();
            let text = ticket.sealed(&key).unwrap();
            assert_eq!(Ticket::opened(text.expose(), &key), Some(ticket.clone()));
            assert_eq!(Ticket::opened(text.expose(), &Secret::new([2; 32])), None, "another key");
            for at in 0..text.expose().len() {
                let mut changed = text.expose().clone().into_bytes();
                changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
                let changed = String::from_utf8(changed).unwrap();
                assert_eq!(Ticket::opened(&changed, &key), None, "changed at {at}");
                assert_eq!(Ticket::opened(&text.expose()[..at], &key), None, "cut at {at}");
            }
            // Sealed for something else with the same key.
            let elsewhere = SealPlace { column: "other", ..PLACE };
            let sealed = seal(&key, &elsewhere, &serde_json::to_vec(&ticket).unwrap()).unwrap();
            assert_eq!(Ticket::opened(&BASE64_URL_SAFE_NO_PAD.encode(sealed), &key), None);
        }
    }

    #[test]
    fn the_longest_ticket_is_opened_and_a_longer_text_is_not() {
        let key = Secret::new([1; 32]);
        let ticket = Ticket::new(human(&"\"".repeat(254)), u64::MAX).unwrap();
        let text = ticket.sealed(&key).unwrap();
        assert!(text.expose().len() < CHARS_MAX, "{}", text.expose().len());
        assert_eq!(Ticket::opened(text.expose(), &key), Some(ticket));
        let long = Ticket::new(human(&"s".repeat(CHARS_MAX)), 0).unwrap();
        assert_eq!(Ticket::opened(long.sealed(&key).unwrap().expose(), &key), None);
    }

    #[test]
    fn an_end_names_the_session_without_its_id() {
        let ticket = Ticket::new(KEY, 5).unwrap();
        let end = ticket.end();
        assert!(!format!("{end:?} {}", ticket.public_name()).contains(&ticket.id));
        assert_eq!(end.holder, format!("key/{}", "07".repeat(32)));
        assert_eq!(human("ada").name(), "principal/prn_1");
    }
}
