//! The state, on SQLite. This folder and `usage/` contain all SQL. One connection writes and a few read; nothing else
//! opens the files.

pub(crate) mod alert_rules;
pub(crate) mod alerts;
pub(crate) mod allowlist;
pub(crate) mod anonymous;
pub(crate) mod audit;
pub(crate) mod audit_pages;
pub(crate) mod chain;
pub(crate) mod circuit_changes;
pub(crate) mod cluster;
pub(crate) mod credentials;
pub(crate) mod device_sign_ins;
pub(crate) mod documents;
pub(crate) mod ended_sessions;
pub(crate) mod endpoints;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod extensions;
pub(crate) mod human_scope;
pub(crate) mod idempotency;
pub(crate) mod ids;
pub(crate) mod jobs;
pub(crate) mod key_check;
pub(crate) mod key_use;
pub(crate) mod keys;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod oauth;
pub(crate) mod outbox;
pub(crate) mod overrides;
pub(crate) mod packed_row;
pub(crate) mod postgres_state;
pub(crate) mod principals;
pub(crate) mod projects;
pub(crate) mod providers;
pub(crate) mod quota_corrections;
pub(crate) mod quotas;
mod read_queue;
pub(crate) mod readers;
pub(crate) mod record_id;
pub(crate) mod sealed;
pub(crate) mod search;
pub(crate) mod setup;
pub(crate) mod sign_in_flows;
pub(crate) mod sqlite_state;
pub(crate) mod state_copy;
pub(crate) mod storage;
pub(crate) mod telemetry;
pub(crate) mod usage_effects;
pub(crate) mod vault;
pub(crate) mod webhooks;

/// Milliseconds of an hour.
pub(crate) const HOUR_MS: u64 = 3_600_000;

/// Converts a number for SQLite; numbers that are too large become the largest one.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
