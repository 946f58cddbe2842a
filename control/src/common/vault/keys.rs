//! The opened keys of a database: seal, open, derive.

use ring::hmac;
use shared::secret::Secret;

use super::{SealError, SealPlace, open, seal};

/// The opened keys of a database.
#[derive(Debug)]
pub(crate) struct VaultKeys {
    /// The key of the hash under which presented keys are looked up (AUTH-6).
    pub(crate) key_hash_key: Secret<[u8; 32]>,
    /// The key that seals every other secret.
    pub(crate) data_key: Secret<[u8; 32]>,
}

impl VaultKeys {
    /// Returns `plain`, sealed: readable only with the data key and only at `place`.
    pub(crate) fn seal(&self, place: &SealPlace<'_>, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        seal(&self.data_key, place, plain)
    }

    /// Returns the bytes that were sealed at `place`.
    pub(crate) fn open(&self, place: &SealPlace<'_>, sealed: &[u8]) -> Result<Secret<Vec<u8>>, SealError> {
        open(&self.data_key, place, sealed)
    }

    /// Derives a key for `purpose`, which is neither stored nor used for anything else.
    pub(crate) fn derived(&self, purpose: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.derived_bytes(purpose).expose())
    }

    /// Derives the key for `purpose` as bytes.
    pub(crate) fn derived_bytes(&self, purpose: &str) -> Secret<[u8; 32]> {
        let root = hmac::Key::new(hmac::HMAC_SHA256, self.data_key.expose());
        let mut key = [0; 32];
        key.copy_from_slice(hmac::sign(&root, purpose.as_bytes()).as_ref());
        Secret::new(key)
    }
}
