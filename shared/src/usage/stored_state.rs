//! State that a provider stores for a caller of the Responses API, and its origin: the account that created it. The
//! provider's ID of such state never leaves the data plane; its keyed hash stands for it.

use std::fmt;

use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// A part of HMAC-SHA-256 of the ID of a response or a conversation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateHash(pub [u8; StateHash::BYTES]);

impl StateHash {
    /// The length of a hash.
    pub const BYTES: usize = 16;
}

impl fmt::Debug for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateHash({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// Hashes the IDs of responses and conversations with a key of the database, so that all releases and nodes agree.
#[derive(Clone)]
pub struct StateHasher(hmac::Key);

impl fmt::Debug for StateHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateHasher").finish_non_exhaustive()
    }
}

impl StateHasher {
    /// Creates a hasher that uses `key`.
    pub fn new(key: &Secret<[u8; 32]>) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.expose()))
    }

    /// Returns the hash of a response's ID.
    pub fn response(&self, id: &str) -> StateHash {
        self.hash(b"response\0", id)
    }

    /// Returns the hash of a conversation's ID.
    pub fn conversation(&self, id: &str) -> StateHash {
        self.hash(b"conversation\0", id)
    }

    fn hash(&self, kind: &[u8], id: &str) -> StateHash {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(kind);
        context.update(id.as_bytes());
        let whole = context.sign();
        let mut hash = StateHash([0; StateHash::BYTES]);
        hash.0.iter_mut().zip(whole.as_ref()).for_each(|(to, from)| *to = *from);
        hash
    }
}

/// State that the provider of an exchange stored or deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredState {
    /// The response.
    pub response: StateHash,
    /// The conversation that the response belongs to.
    pub conversation: Option<StateHash>,
    /// The host and port of the provider instance; empty for one that runs in the process.
    pub address: Box<str>,
    /// True if the exchange has deleted the response.
    #[serde(default)]
    pub is_deleted: bool,
}

/// Returns the owner of the state that a caller's requests create: its project, or its key if it has no project.
pub fn owner_of_state(project: Option<&str>, key: &str) -> String {
    match project {
        Some(project) => format!("project:{project}"),
        None => format!("key:{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_depend_on_key_kind_and_id_and_never_change() {
        let hasher = |key: u8| StateHasher::new(&Secret::new([key; 32]));
        // The first 16 bytes of HMAC-SHA-256 over the kind, a zero byte and the ID, as Python's hmac computes them.
        let want =
            [(hasher(1).response("resp_1"), RESPONSE), (hasher(1).conversation("resp_1"), CONVERSATION)];
        for (hash, want) in want {
            assert_eq!(hash.0, want);
        }
        assert_ne!(hasher(2).response("resp_1"), hasher(1).response("resp_1"));
        assert_ne!(hasher(1).response("resp_2"), hasher(1).response("resp_1"));
    }

    #[test]
    fn a_project_and_a_key_of_one_name_are_two_owners() {
        assert_ne!(owner_of_state(Some("a"), "b"), owner_of_state(None, "a"));
        assert_eq!(owner_of_state(Some("a"), "b"), owner_of_state(Some("a"), "c"));
    }

    const RESPONSE: [u8; 16] =
        [0x27, 0xf8, 0xc6, 0xcc, 0x24, 0x5e, 0x2f, 0x53, 0x17, 0x87, 0x05, 0x0b, 0x96, 0x6e, 0xef, 0x85];
    const CONVERSATION: [u8; 16] =
        [0xa3, 0x7e, 0xe9, 0x9f, 0xbe, 0xe6, 0x5c, 0x24, 0x15, 0xb4, 0xcb, 0xd2, 0x95, 0x98, 0x8e, 0xbe];
}
