//! Real PostgreSQL servers for tests, each with its own data on loopback, and a TCP proxy that breaks connections to
//! them. No server outlives the process that started it: a supervisor, which waits for the end of that process, kills
//! it and deletes its files.
//!
//! If PostgreSQL is not installed, Debian's packages are unpacked below the target directory (`tests/postgres/install`).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a broken expectation in a test is a failed test"
)]

mod account;
mod database;
mod folder;
mod options;
mod port;
mod processes;
mod programs;
mod proxy;
mod psql;
mod server;
mod standby;
mod template;
mod wait;

pub use database::Database;
pub use options::ServerOptions;
pub use programs::installed;
pub use proxy::{PostgresProxy, ProxyMode};
pub use server::{PostgresServer, shared};
pub use standby::Replication;
