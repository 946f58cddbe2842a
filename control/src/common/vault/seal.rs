//! Sealing: AES-256-GCM, bound to the place where the sealed bytes are stored.
//!
//! The associated data names table, column and row, so that a sealed value copied to another place does not open there.
//! Layout: one version byte, 12 bytes of nonce, ciphertext, 16 bytes of tag.

use std::fmt;

use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::{Aes256Gcm, KeyInit as _};
use shared::secret::Secret;

use super::random;

/// The location where sealed bytes are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealPlace<'a> {
    pub(crate) table: &'a str,
    pub(crate) column: &'a str,
    pub(crate) id: &'a str,
}

impl SealPlace<'_> {
    /// Encodes each part with a length prefix, so that no two places have the same encoding.
    fn associated_data(&self) -> Vec<u8> {
        let mut data = b"llmgw sealed 1".to_vec();
        for part in [self.table, self.column, self.id] {
            data.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            data.extend_from_slice(part.as_bytes());
        }
        data
    }
}

/// Returns `plain`, sealed: readable only with `key` and only at `place`.
pub(crate) fn seal(
    key: &Secret<[u8; 32]>,
    place: &SealPlace<'_>,
    plain: &[u8],
) -> Result<Vec<u8>, SealError> {
    let nonce: [u8; NONCE_BYTES] = random().map_err(|_| SealError)?;
    let aad = place.associated_data();
    let payload = Payload { msg: plain, aad: &aad };
    let sealed = cipher(key)?.encrypt(&nonce.into(), payload).map_err(|_| SealError)?;
    Ok([&[VERSION], &nonce[..], &sealed[..]].concat())
}

/// Opens bytes sealed at `place`. The error does not reveal the reason.
pub(crate) fn open(
    key: &Secret<[u8; 32]>,
    place: &SealPlace<'_>,
    sealed: &[u8],
) -> Result<Secret<Vec<u8>>, SealError> {
    let (&version, rest) = sealed.split_first().ok_or(SealError)?;
    let (nonce, ciphertext) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(SealError)?;
    if version != VERSION {
        return Err(SealError);
    }
    let aad = place.associated_data();
    let payload = Payload { msg: ciphertext, aad: &aad };
    let plain = cipher(key)?.decrypt(&(*nonce).into(), payload).map_err(|_| SealError)?;
    Ok(Secret::new(plain))
}

fn cipher(key: &Secret<[u8; 32]>) -> Result<Aes256Gcm, SealError> {
    Aes256Gcm::new_from_slice(key.expose()).map_err(|_| SealError)
}

/// Bytes that could not be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealError;

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stored secret cannot be decrypted with this key in this row")
    }
}

impl std::error::Error for SealError {}

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: SealPlace<'static> = SealPlace { table: "vault", column: "sealed", id: "data_key" };

    #[test]
    fn a_sealed_value_opens_only_with_its_key_and_at_its_place() {
        let key = Secret::new([7; 32]);
        let sealed = seal(&key, &HERE, b"secret").unwrap();
        assert_eq!(open(&key, &HERE, &sealed).unwrap().expose(), b"secret");
        assert_eq!(open(&Secret::new([8; 32]), &HERE, &sealed), Err(SealError));
        for elsewhere in [
            SealPlace { table: "keys", ..HERE },
            SealPlace { column: "other", ..HERE },
            SealPlace { id: "other", ..HERE },
            SealPlace { table: "vaults", column: "ealed", id: "data_key" },
        ] {
            assert_eq!(open(&key, &elsewhere, &sealed), Err(SealError), "{elsewhere:?}");
        }
    }

    #[test]
    fn every_changed_or_cut_byte_of_a_sealed_value_is_detected() {
        let key = Secret::new([7; 32]);
        let sealed = seal(&key, &HERE, b"secret").unwrap();
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(open(&key, &HERE, &damaged), Err(SealError), "byte {at}");
            assert_eq!(open(&key, &HERE, &sealed[..at]), Err(SealError), "cut at {at}");
        }
    }

    #[test]
    fn sealing_the_same_secret_twice_gives_different_bytes() {
        let key = Secret::new([7; 32]);
        assert_ne!(seal(&key, &HERE, b"secret").unwrap(), seal(&key, &HERE, b"secret").unwrap());
    }
}
