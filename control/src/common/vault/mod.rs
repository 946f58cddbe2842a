//! Encryption of secrets at rest. The data key of the database seals every stored secret; the key from the environment
//! seals only the data key. No secret is ever written in plaintext.

mod keys;
mod random;
mod seal;

pub(crate) use keys::VaultKeys;
pub(crate) use random::{RandomError, random};
pub(crate) use seal::{SealError, SealPlace, open, seal};
