//! The reasoning of adapted answers, as Responses clients keep it and send it back (`encrypted_content`): sealed with
//! AES-256-GCM under a key of the owner, which is derived from a key of the database. The gateway stores nothing; other
//! owners cannot open it, and a modified text does not open.
//!
//! A sealed text is [`PREFIX`] followed by the base64url encoding of a 12-byte nonce, the ciphertext and a 16-byte tag.
//! The nonce is a keyed hash of the content: equal reasoning has equal texts, so sealing needs no random bytes.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

use crate::operation_id::Owner;
use crate::secret::Secret;

/// The key from which the keys of the owners are derived.
#[derive(Clone, Default)]
pub struct ReasoningKey(Option<hmac::Key>);

/// Seals and opens the reasoning of one owner.
#[derive(Clone)]
pub struct ReasoningSeal(Arc<OwnerKeys>);

struct OwnerKeys {
    cipher: LessSafeKey,
    nonces: hmac::Key,
}

impl fmt::Debug for ReasoningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReasoningKey(••••)")
    }
}

impl fmt::Debug for ReasoningSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReasoningSeal(••••)")
    }
}

impl ReasoningKey {
    /// Creates the key. The default has no owners' keys.
    pub fn new(key: &Secret<[u8; 32]>) -> Self {
        Self(Some(hmac::Key::new(hmac::HMAC_SHA256, key.expose())))
    }

    /// Returns the seal of `owner`.
    pub fn seal_of(&self, owner: &Owner) -> Option<ReasoningSeal> {
        let (sort, id) = match owner {
            Owner::Project(project) => (PROJECT, project.as_str()),
            Owner::Key(key) => (KEY, key.as_str()),
        };
        let derived = |purpose: u8| {
            let mut context = hmac::Context::with_key(self.0.as_ref()?);
            context.update(&[purpose, sort]);
            context.update(id.as_bytes());
            Some(context.sign())
        };
        let cipher = UnboundKey::new(&AES_256_GCM, derived(CIPHER)?.as_ref()).ok()?;
        let nonces = hmac::Key::new(hmac::HMAC_SHA256, derived(NONCES)?.as_ref());
        Some(ReasoningSeal(Arc::new(OwnerKeys { cipher: LessSafeKey::new(cipher), nonces })))
    }
}

impl ReasoningSeal {
    /// Returns `plain`, sealed. Returns `None` if it is too long for the cipher.
    pub fn seal(&self, plain: &[u8]) -> Option<String> {
        let hash = hmac::sign(&self.0.nonces, plain);
        let (nonce, _) = hash.as_ref().split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = plain.to_vec();
        let aad = Aad::from(PURPOSE);
        self.0
            .cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed)
            .ok()?;
        let mut text = PREFIX.to_owned();
        BASE64_URL_SAFE_NO_PAD.encode_string([&nonce[..], &sealed].concat(), &mut text);
        Some(text)
    }

    /// Returns the content of `text` if it was sealed for this owner and is unmodified.
    pub fn open(&self, text: &str) -> Option<Vec<u8>> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(PURPOSE);
        let plain = self.0.cipher.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed);
        plain.ok().map(|plain| plain.to_vec())
    }
}

/// The beginning of every sealed text. Its number is the version of the format.
pub const PREFIX: &str = "llmgw-reasoning-1.";
/// Bound into the tag, so that data sealed for another purpose does not open here.
const PURPOSE: &[u8] = b"llmgw reasoning 1";
const CIPHER: u8 = 1;
const NONCES: u8 = 2;
const PROJECT: u8 = 1;
const KEY: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{KeyId, ProjectId};

    fn seal(key: u8, owner: &Owner) -> ReasoningSeal {
        ReasoningKey::new(&Secret::new([key; 32])).seal_of(owner).unwrap()
    }

    #[test]
    fn sealed_reasoning_opens_only_for_its_owner() {
        let project = Owner::Project(ProjectId::new("a"));
        let sealed = seal(7, &project).seal(b"why").unwrap();
        assert!(sealed.starts_with(PREFIX) && !sealed.contains("why"), "{sealed}");
        assert_eq!(seal(7, &project).open(&sealed).as_deref(), Some(&b"why"[..]));
        assert_eq!(seal(7, &project).seal(b"why").unwrap(), sealed, "equal content has equal texts");
        assert_ne!(
            seal(7, &project).seal(b"who").unwrap()[..34],
            sealed[..34],
            "another content has another nonce"
        );
        for other in [
            seal(8, &project),
            seal(7, &Owner::Project(ProjectId::new("b"))),
            seal(7, &Owner::Key(KeyId::new("a"))),
        ] {
            assert_eq!(other.open(&sealed), None);
        }
        assert!(ReasoningKey::default().seal_of(&project).is_none(), "without a key");
    }

    #[test]
    fn changed_or_cut_sealed_reasoning_does_not_open() {
        let seal = seal(7, &Owner::Key(KeyId::new("k")));
        let sealed = seal.seal(b"why").unwrap();
        for at in 0..sealed.len() {
            for other in [b'A', b'B', b'_', b'='] {
                let mut changed = sealed.clone().into_bytes();
                if changed[at] != other {
                    changed[at] = other;
                    assert_eq!(seal.open(&String::from_utf8(changed).unwrap()), None, "byte {at}");
                }
            }
            assert_eq!(seal.open(&sealed[..at]), None, "cut at {at}");
        }
    }
}
