//! Commands on the state of a gateway that is not running.

mod import;
mod rekey;

pub use import::{ImportError, Imported, import_credentials};
pub use rekey::{RekeyError, RekeyParams, Rekeyed, rekey};
