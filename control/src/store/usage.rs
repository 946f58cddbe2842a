//! The table `usage`: one row an exchange, stored once however often it is offered.

use rusqlite::{CachedStatement, Connection, named_params};
use serde::Serialize;
use shared::usage::UsageEvent;

use super::rollup::{self, Rollup};

/// The name of an event before it is stored: who made it (random for each worker of each process), and its
/// number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EventId {
    pub(crate) origin: u64,
    pub(crate) sequence: u64,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Rows that are new.
    pub(crate) added: u64,
    /// Rows that no table takes; they can never be stored.
    pub(crate) rejected: u64,
}

/// Stores `events` and their sums. Runs inside the caller's transaction.
pub(crate) fn store<'a>(
    tx: &Connection,
    events: impl Iterator<Item = (EventId, &'a UsageEvent)>,
) -> rusqlite::Result<Stored> {
    let mut stored = Stored::default();
    let mut rollup = Rollup::default();
    let mut insert = tx.prepare_cached(INSERT)?;
    for (id, event) in events {
        match add(&mut insert, id, event) {
            Ok(true) => {
                stored.added += 1;
                rollup.count(event);
            }
            Ok(false) => {}
            Err(error) if is_about_the_row(&error) => {
                stored.rejected += 1;
                tracing::error!(request.id = %event.request_id, "a usage record cannot be stored: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    rollup::store(tx, &rollup)?;
    Ok(stored)
}

fn add(insert: &mut CachedStatement<'_>, id: EventId, event: &UsageEvent) -> rusqlite::Result<bool> {
    let tokens = &event.tokens;
    let added = insert.execute(named_params! {
        ":origin": signed(id.origin),
        ":sequence": signed(id.sequence),
        ":request_id": event.request_id,
        ":started_at_ms": signed(event.started_at_ms),
        ":duration_us": bounded(event.duration_us),
        ":operation": event.operation.name(),
        ":key": event.key.as_str(),
        ":project": event.project.as_ref().map(|id| id.as_str()),
        ":principal": event.principal.as_ref().map(|id| id.as_str()),
        ":selector": event.selector,
        ":endpoint": event.endpoint.as_ref().map(|name| name.as_str()),
        ":provider": event.provider.as_ref().map(|id| id.as_str()),
        ":model": event.model.as_ref().map(|id| id.as_str()),
        ":stream": event.stream,
        ":status": event.status,
        ":outcome": name(&event.outcome),
        ":error": event.error.as_ref().map(name),
        ":input": bounded(tokens.input),
        ":cache_read": bounded(tokens.cache_read),
        ":cache_write": bounded(tokens.cache_write),
        ":output": bounded(tokens.output),
        ":reasoning": bounded(tokens.reasoning),
        ":provenance": name(&event.provenance),
        ":head_us": event.head_us.map(bounded),
        ":first_content_us": event.first_content_us.map(bounded),
        ":trace": serde_json::to_string(&event.trace).unwrap_or_else(|_| "[]".into()),
    })?;
    Ok(added > 0)
}

/// Whether the row itself is at fault, so that trying again is in vain.
fn is_about_the_row(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, ParameterOutOfRange, TooBig, TypeMismatch};
    matches!(
        error.sqlite_error_code(),
        Some(ConstraintViolation | ParameterOutOfRange | TooBig | TypeMismatch)
    )
}

/// The name that serde gives a variant without data.
pub(crate) fn name<T: Serialize>(variant: &T) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(_) | Err(_) => String::new(),
    }
}

/// A count as SQLite keeps it, small enough that no sum of counts overflows: an upstream may say anything.
pub(crate) fn bounded(count: u64) -> i64 {
    signed(count.min(COUNT_MAX))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// 69 thousand million tokens, or 19 hours in microseconds; 134 million of them fit into a sum.
const COUNT_MAX: u64 = 1 << 36;

const INSERT: &str = "INSERT INTO usage (origin, sequence, request_id, started_at_ms, duration_us, operation, key, \
     project, principal, selector, endpoint, provider, model, stream, status, outcome, error, input_tokens, \
     cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, provenance, head_us, \
     first_content_us, trace) \
     VALUES (:origin, :sequence, :request_id, :started_at_ms, :duration_us, :operation, :key, \
     :project, :principal, :selector, :endpoint, :provider, :model, :stream, :status, :outcome, :error, :input, \
     :cache_read, :cache_write, :output, :reasoning, :provenance, :head_us, \
     :first_content_us, :trace) \
     ON CONFLICT (origin, sequence) DO NOTHING";
