//! Secrets at rest. A data key of the database's own seals every stored secret; the key from the environment
//! seals only the data key. No plain secret is ever written.

mod keys;
mod random;
mod seal;

pub(crate) use keys::VaultKeys;
pub(crate) use random::{RandomError, random};
pub(crate) use seal::{SealError, SealPlace, open, seal};
