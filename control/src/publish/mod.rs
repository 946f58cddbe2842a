//! Turns configuration and rows into the snapshot that the data plane reads, and keeps it current. What held at
//! start-up (policies, static keys, how the process serves) is never replaced.

mod access;
mod publisher;
mod quotas;
mod reload;
mod routes;

pub(crate) use publisher::{Publisher, PublisherParams, Touched};
pub(crate) use reload::{Reloader, Reloading, StatusCell};

#[cfg(test)]
mod tests;
