//! The control plane: configuration, state, the admin API and background work.
//!
//! Runs on its own threads: one for the API and the configuration, one that writes to the database, and a few that
//! read. The data plane calls it through a [`Handler`](shared::port::Handler) and writes usage logs; it never waits
//! for the control plane and keeps serving while the control plane is busy.

mod actor;
mod admin;
mod affinity_file;
mod alert_watch;
mod alerts;
mod anonymous;
mod background;
pub mod backup;
mod catalog;
mod change;
mod checks;
mod command;
pub mod config;
mod connection;
mod console;
mod credential;
mod db;
pub mod detect;
pub mod doctor;
mod entrance;
mod extension;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
#[expect(clippy::expect_used, reason = "a broken invariant must panic")]
pub mod fuzzing;
pub mod log_lines;
mod model_facts;
mod model_test;
mod money;
mod oauth;
mod offline;
mod otlp;
mod outbox;
mod periodic;
mod permission;
mod private_file;
mod publish;
mod recorded;
mod refusals;
pub mod regular_file;
mod selector_access;
mod service;
#[cfg(test)]
mod shared_shapes;
mod state;
mod telemetry;
mod usage;
mod vault;
mod verdict;
mod webhook;
mod writer;

pub use affinity_file::AffinityFile;
pub use checks::{verify_audit, verify_credentials};
pub use console::Asset;
pub use db::chain::{ChainBroken, ChainHolds};
pub use db::error::OpenError;
pub use db::sealed::{Survey, Unopened};
pub use offline::{
    ExportError, ImportError, ImportFinding, Imported, LitellmError, LitellmImport, RekeyError, RekeyParams,
    Rekeyed, RollbackError, RolledBack, export, import_credentials, import_litellm, rekey, rollback,
};
pub use otlp::span_encoder;
pub use service::{Control, Params, start};
pub use state::{OpenParams, State, UsageStore};
