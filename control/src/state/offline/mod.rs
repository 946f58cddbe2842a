//! Commands on the state of a gateway.

mod configuration_text;
mod export;
mod import;
mod litellm;
mod migrate;
mod rekey;
mod rekey_nodes;
mod rollback;
mod state_copy;

pub use export::{ExportError, export};
pub use import::{ImportError, Imported, import_credentials};
pub use litellm::{ImportFinding, LitellmError, LitellmImport, import_litellm};
pub use migrate::{Migrated, migrate_database};
pub use rekey::{RekeyError, RekeyParams, Rekeyed, rekey};
pub use rekey_nodes::{NodesRekeyParams, NodesRekeyed, begin_rekey, finish_rekey};
pub use rollback::{RollbackError, RolledBack, rollback};
pub use state_copy::{StateCopyParams, copy_state_from, copy_state_to};
