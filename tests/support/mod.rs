//! The foundation of all end-to-end tests: the gateway as a process, scripted upstreams, clients that record the time
//! of each event, and raw sockets for everything that a proper client would not do.

pub(crate) mod admin;
pub(crate) mod chat;
pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod faults;
pub(crate) mod figure;
pub(crate) mod gateway;
pub(crate) mod h2_frames;
pub(crate) mod h2_upstream;
pub(crate) mod h2_wire;
pub(crate) mod journal;
pub(crate) mod memory;
pub(crate) mod otlp;
pub(crate) mod proc;
pub(crate) mod proxy;
pub(crate) mod random;
pub(crate) mod raw;
pub(crate) mod small_disk;
pub(crate) mod tls;
pub(crate) mod tls_upstream;
pub(crate) mod upstream;
pub(crate) mod vendor;
pub(crate) mod wait;

pub(crate) use client::Client;
pub(crate) use config::Yaml;
pub(crate) use gateway::Gateway;
pub(crate) use upstream::{Answer, Gate, Upstream};

/// Reports that a test, or a part of it, cannot run here. In CI this is a failure.
#[expect(clippy::disallowed_methods, reason = "the switch of a test run, no setting of the gateway")]
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped, which CI does not allow: {why}");
    eprintln!("SKIPPED: {why}");
}
