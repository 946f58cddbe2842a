//! One file an operation: what is particular to it.

pub(crate) mod chat;
pub(crate) mod cors;
pub(crate) mod explain;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod models;
