//! From the configuration file and the database to the snapshot that the data plane reads: providers and their
//! connections, models and prices, endpoints, and the callers.

pub(crate) mod catalog;
pub mod config;
pub(crate) mod connection;
pub mod detect;
pub(crate) mod extension;
pub(crate) mod publish;
pub(crate) mod selector_access;
