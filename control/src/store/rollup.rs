//! The table `usage_hour`: sums of `usage` by hour and by everything that usage is grouped by. A batch is
//! summed in memory first, so that a thousand records of one model are one row to write.

use std::collections::HashMap;

use rusqlite::{Connection, named_params};
use shared::usage::UsageEvent;

use super::usage::{bounded, name};

/// The sums of one batch.
#[derive(Debug, Default)]
pub(crate) struct Rollup {
    sums: HashMap<Group, Sums>,
}

/// What is summed apart.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Group {
    hour: u64,
    project: String,
    key: String,
    provider: String,
    model: String,
    endpoint: String,
    operation: &'static str,
    outcome: String,
}

#[derive(Debug, Default)]
struct Sums {
    requests: i64,
    input: i64,
    cache_read: i64,
    cache_write: i64,
    output: i64,
    reasoning: i64,
    duration_us: i64,
    first_content_us: i64,
    first_contents: i64,
}

impl Rollup {
    /// Counts one new row of `usage`.
    pub(crate) fn count(&mut self, event: &UsageEvent) {
        let sums = self.sums.entry(Group::of(event)).or_default();
        let add = |sum: &mut i64, count: u64| *sum = sum.saturating_add(bounded(count));
        add(&mut sums.requests, 1);
        add(&mut sums.input, event.tokens.input);
        add(&mut sums.cache_read, event.tokens.cache_read);
        add(&mut sums.cache_write, event.tokens.cache_write);
        add(&mut sums.output, event.tokens.output);
        add(&mut sums.reasoning, event.tokens.reasoning);
        add(&mut sums.duration_us, event.duration_us);
        if let Some(first_content_us) = event.first_content_us {
            add(&mut sums.first_content_us, first_content_us);
            add(&mut sums.first_contents, 1);
        }
    }
}

impl Group {
    fn of(event: &UsageEvent) -> Self {
        let text = |id: Option<&str>| id.unwrap_or_default().to_owned();
        Self {
            hour: event.started_at_ms / HOUR_MS,
            project: text(event.project.as_ref().map(|id| id.as_str())),
            key: event.key.as_str().to_owned(),
            provider: text(event.provider.as_ref().map(|id| id.as_str())),
            model: text(event.model.as_ref().map(|id| id.as_str())),
            endpoint: text(event.endpoint.as_ref().map(|name| name.as_str())),
            operation: event.operation.name(),
            outcome: name(&event.outcome),
        }
    }
}

/// Adds the sums to the table. Runs in the transaction that added the rows.
pub(crate) fn store(tx: &Connection, rollup: &Rollup) -> rusqlite::Result<()> {
    let mut add = tx.prepare_cached(ADD)?;
    for (group, sums) in &rollup.sums {
        add.execute(named_params! {
            ":hour": i64::try_from(group.hour).unwrap_or(i64::MAX),
            ":project": group.project,
            ":key": group.key,
            ":provider": group.provider,
            ":model": group.model,
            ":endpoint": group.endpoint,
            ":operation": group.operation,
            ":outcome": group.outcome,
            ":requests": sums.requests,
            ":input": sums.input,
            ":cache_read": sums.cache_read,
            ":cache_write": sums.cache_write,
            ":output": sums.output,
            ":reasoning": sums.reasoning,
            ":duration_us": sums.duration_us,
            ":first_content_us": sums.first_content_us,
            ":first_contents": sums.first_contents,
        })?;
    }
    Ok(())
}

/// Milliseconds of an hour.
pub(crate) const HOUR_MS: u64 = 3_600_000;

const ADD: &str = "INSERT INTO usage_hour (hour, project, key, provider, model, endpoint, operation, outcome, \
     requests, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, duration_us, \
     first_content_us, first_contents) \
     VALUES (:hour, :project, :key, :provider, :model, :endpoint, :operation, :outcome, \
     :requests, :input, :cache_read, :cache_write, :output, :reasoning, :duration_us, \
     :first_content_us, :first_contents) \
     ON CONFLICT DO UPDATE SET \
     requests = requests + excluded.requests, \
     input_tokens = input_tokens + excluded.input_tokens, \
     cache_read_tokens = cache_read_tokens + excluded.cache_read_tokens, \
     cache_write_tokens = cache_write_tokens + excluded.cache_write_tokens, \
     output_tokens = output_tokens + excluded.output_tokens, \
     reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens, \
     duration_us = duration_us + excluded.duration_us, \
     first_content_us = first_content_us + excluded.first_content_us, \
     first_contents = first_contents + excluded.first_contents";
