//! The control plane: configuration, state, the admin API and background work.
//!
//! It runs on threads of its own: one for the API and the configuration, one that writes to the database, a few
//! that read. The data plane meets it as a [`Handler`](shared::port::Handler) and as usage logs, never waits
//! for it, and goes on when it is busy.

pub mod config;
pub mod detect;
pub mod publish;

mod api;
mod console;
mod meter;
mod service;
mod state;
mod store;
mod vault;

pub use console::Asset;
pub use service::{BuildIdentity, Control, Params, start};
pub use state::{OpenParams, State};
pub use store::error::OpenError;
