//! Hashes of presented keys.
//!
//! A presented key is never stored or compared in plain text: its HMAC-SHA-256 under a key of the database (AUTH-6)
//! is looked up in a table, so a near miss takes the same path as any other wrong key.

use std::fmt;
use std::hash::{Hash, Hasher};

use ring::hmac;

use crate::secret::Secret;

/// HMAC-SHA-256 of a presented key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

impl Hash for KeyHash {
    /// Hashes the first eight bytes: a caller cannot choose them without the HMAC key.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
    }
}

/// Hashes presented keys under the database's key (AUTH-6). Construct it once; hashing needs no further set-up.
#[derive(Clone)]
pub struct KeyHasher(hmac::Key);

impl KeyHasher {
    /// Creates a hasher that uses `key`.
    pub fn new(key: &Secret<[u8; 32]>) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.expose()))
    }

    /// Returns the lookup hash of `presented`.
    pub fn hash(&self, presented: &[u8]) -> KeyHash {
        let mut hash = KeyHash([0; 32]);
        hash.0.copy_from_slice(hmac::sign(&self.0, presented).as_ref());
        hash
    }

    /// Returns the pseudonym of an end user: 16 hexadecimal digits, always the same for the same name.
    pub fn pseudonym(&self, name: &str) -> Box<str> {
        // No key begins with this prefix, so no pseudonym is a part of a key's hash.
        self.digits(b"end user\0", name)
    }

    /// Returns the pseudonym of a client's session, in the same form as that of an end user.
    pub fn session(&self, name: &str) -> Box<str> {
        self.digits(b"session\0", name)
    }

    fn digits(&self, prefix: &[u8], name: &str) -> Box<str> {
        let hash = self.hash(&[prefix, name.as_bytes()].concat());
        let digits = hash.0.iter().take(8).flat_map(|byte| [byte >> 4, byte & 15]);
        digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher(••••)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_hmac_sha_256() {
        // RFC 4231, test case 1, with its key padded with zeros, as HMAC does.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let hash = KeyHasher::new(&Secret::new(key)).hash(b"Hi There").0;
        assert_eq!(hash[..4], [0xb0, 0x34, 0x4c, 0x61]);
        assert_eq!(hash[28..], [0x2e, 0x32, 0xcf, 0xf7]);
    }
}
