//! Secrets at rest. A data key of the database's own seals every stored secret; the key from the environment
//! seals only the data key. No plain secret is ever written.

mod import;
mod key_check;
mod random;
mod rekey;
mod seal;

pub use import::{ImportError, Imported, import_credentials};
pub(crate) use key_check::{Keys, KeysError, make_keys, open_keys, reseal_data_key};
pub(crate) use random::{RandomError, random};
pub use rekey::{RekeyError, RekeyParams, Rekeyed, rekey};
pub(crate) use seal::{Place, SealError, open, seal};
