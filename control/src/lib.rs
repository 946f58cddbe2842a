//! The control plane: configuration, state, the admin API and background work.

pub mod config;
pub mod detect;
pub mod publish;
