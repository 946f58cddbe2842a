//! Secrets at rest. A data key of the database's own seals every stored secret; the key from the environment
//! seals only the data key. No plain secret is ever written.

mod keys;
mod random;
mod seal;

pub(crate) use keys::Keys;
pub(crate) use random::{RandomError, random};
pub(crate) use seal::{Place, SealError, open, seal};
