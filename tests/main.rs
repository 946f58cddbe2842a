//! The single end-to-end test binary: a real gateway process, scripted upstreams, and well-behaved or hostile clients
//! on loopback. Each module covers one behaviour and each test one fact. No test sleeps to wait for a condition; a
//! pause occurs only where it is part of the fact under test, such as a client that stops reading or a process without
//! work.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a broken expectation in a test is a failed test"
)]

mod access;
mod admin;
mod alert_kinds;
mod alerts;
mod anonymous;
mod answer_shapes;
mod audit;
mod authorize;
mod backup;
mod blocked_output;
mod bounds;
mod cancel;
mod capture;
mod catalog;
mod circuits;
mod clouds;
mod console;
mod cors;
mod counting;
mod credentials;
mod cut;
mod doctor;
mod dry_run;
mod durability;
mod effective_access;
mod every_route;
mod explain;
mod export;
mod extensions;
mod failed_ends;
mod failover;
mod file_systems;
mod flipped;
mod hanging;
mod harness;
mod http;
mod http2;
mod http2_duress;
mod images;
mod import;
mod interrupted;
mod jobs;
mod kept_affinity;
mod keys;
mod kinds;
mod labels;
mod limits;
mod live;
mod logs;
mod lost;
mod media;
mod memory;
mod memory_dumps;
mod messages;
mod metrics;
mod model_rules;
mod models;
mod money;
mod names;
mod oauth;
mod otlp_metrics;
mod outbox;
mod own_key;
mod people;
mod plain_secrets;
mod prices;
mod process;
mod providers;
mod published_bills;
mod quota;
mod recorded;
mod reported;
mod request_records;
mod responses;
mod rests;
mod retention;
mod run;
mod running;
mod search;
mod secrets;
mod series;
mod setup;
mod speech;
mod sso;
mod stalled;
mod state_files;
mod stopping;
mod streaming;
mod supervision;
mod support;
mod telemetry;
mod tls;
mod tool_calls;
mod traces;
mod traps;
mod trials;
mod unpriced;
mod upgrade;
mod usage;
mod usage_db;
mod usage_grace;
mod usage_names;
mod variables;
mod vendor_errors;
mod videos;
mod wrong_keys;
