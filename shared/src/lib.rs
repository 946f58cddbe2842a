//! Types shared by the data plane and the control service: plain data, a few pure functions, and the traits in [`port`].
//!
//! Nothing here accesses a file, a socket, the environment or an async runtime, so both planes may depend on every
//! item without depending on each other.

pub mod access;
pub mod activity;
pub mod adaptation;
pub mod address;
pub mod alarm;
pub mod answer_head;
pub mod backoff;
pub mod base_path;
pub mod body_members;
pub mod bound;
pub mod bounds;
pub mod build;
pub mod characters;
pub mod clock;
pub mod error_kind;
pub mod error_rule;
pub mod freshness;
pub mod health;
pub mod hex;
pub mod id;
pub mod key_format;
pub mod key_hash;
pub mod key_table;
pub mod lanes;
pub mod model_rules;
pub mod operation;
pub mod operation_id;
pub mod percent;
pub mod policy;
pub mod port;
pub mod prices;
pub mod provider;
pub mod proxy;
pub mod quota;
pub mod reasoning_seal;
pub mod request_traces;
pub mod routing;
pub mod running;
pub mod sanitize;
pub mod secret;
pub mod snapshot;
pub mod standard_webhooks;
pub mod tags;
pub mod trace_context;
pub mod upstream_tls;
pub mod usage;
