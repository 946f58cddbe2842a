//! Commands on the state of a gateway that is not running.

mod import;
mod rekey;
mod rollback;

pub use import::{ImportError, Imported, import_credentials};
pub use rekey::{RekeyError, RekeyParams, Rekeyed, rekey};
pub use rollback::{RollbackError, RolledBack, rollback};
