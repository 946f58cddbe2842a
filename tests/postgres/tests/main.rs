//! Tests of the servers and of the proxy, through `psql` and plain TCP.
#![expect(clippy::unwrap_used, reason = "a broken expectation in a test is a failed test")]

mod commits;
mod proxy;
mod remains;
mod server;
mod standby;
