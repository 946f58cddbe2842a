//! The control plane: configuration, state, the admin API and background work.
//!
//! Runs on its own threads: one for the API and the configuration, one that writes to the database, and a few that
//! read. The data plane calls it through a [`Handler`](shared::port::Handler) and writes usage logs; it never waits
//! for the control plane and keeps serving while the control plane is busy.

mod admin;
mod cluster;
mod common;
mod db;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
#[expect(clippy::expect_used, reason = "a broken invariant must panic")]
pub mod fuzzing;
mod jobs;
mod routing;
mod serve;
mod state;
mod usage;
mod writer;

pub use admin::console::Asset;
pub use common::regular_file;
pub use db::chain::{ChainBroken, ChainHolds};
pub use db::engine::postgres::DatabaseAddress;
pub use db::error::OpenError;
pub use db::sealed::{Survey, Unopened};
pub use db::state_copy::{CopyNews, StateCopied, StateCopyError};
pub use jobs::otlp::span_encoder;
pub use routing::{config, detect};
pub use serve::service::{Control, Params, start};
pub use state::affinity_file::AffinityFile;
pub use state::checks::{verify_audit, verify_credentials};
pub use state::offline::{
    ExportError, ImportError, ImportFinding, Imported, LitellmError, LitellmImport, Migrated,
    NodesRekeyParams, NodesRekeyed, RekeyError, RekeyParams, Rekeyed, RollbackError, RolledBack,
    StateCopyParams, begin_rekey, copy_state_from, copy_state_to, export, finish_rekey, import_credentials,
    import_litellm, migrate_database, rekey, rollback,
};
pub use state::{NodeParams, OpenParams, State, StatePlace, UsageStore, backup, doctor, log_lines};
