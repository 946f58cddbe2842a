//! The table `usage_hour`: sums of `usage` by hour and by everything that usage is grouped by. A batch is
//! summed in memory first, so that a thousand records of one model are one row to write.

use std::collections::HashMap;

use rusqlite::Connection;

use super::block::Names;
use super::record::{Name, Record, TEXTS};

/// The sums of the exchanges that were added to a block since the last ones were stored.
#[derive(Debug, Default)]
pub(crate) struct Rollup {
    sums: HashMap<Group, Sums>,
}

/// What is summed apart: the hour, and the places of the names in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group {
    hour: u64,
    names: [u32; GROUPED.len()],
}

#[derive(Debug, Default)]
struct Sums {
    requests: u64,
    /// As in the table: input, cache read, cache write, output, reasoning.
    tokens: [u64; 5],
    duration_us: u64,
    first_content_us: u64,
    first_contents: u64,
}

impl Rollup {
    /// Counts one exchange, whose names are at `places`.
    pub(crate) fn count(&mut self, record: &Record<'_>, places: &[u32; TEXTS]) {
        let names = GROUPED.map(|name| places.get(name as usize).copied().unwrap_or_default());
        let group = Group { hour: record.started_at_ms / HOUR_MS, names };
        let sums = self.sums.entry(group).or_default();
        let used = record.tokens;
        let used = [used.input, used.cache_read, used.cache_write, used.output, used.reasoning];
        sums.requests += 1;
        sums.tokens.iter_mut().zip(used).for_each(|(sum, count)| *sum = sum.saturating_add(count));
        sums.duration_us = sums.duration_us.saturating_add(record.duration_us);
        if let Some(first_content_us) = record.first_content_us {
            sums.first_content_us = sums.first_content_us.saturating_add(first_content_us);
            sums.first_contents += 1;
        }
    }

    /// Forgets what was counted.
    pub(crate) fn clear(&mut self) {
        self.sums.clear();
    }

    /// Adds the sums to the table and forgets them. Runs in the transaction that adds the exchanges. Gives the
    /// number of exchanges whose sums the table does not take.
    pub(crate) fn store(&mut self, tx: &Connection, names: &Names) -> rusqlite::Result<u64> {
        let mut rejected = 0;
        let mut add = tx.prepare_cached(ADD)?;
        for (group, sums) in self.sums.drain() {
            let mut at = 0;
            let mut bind = |value: &dyn rusqlite::ToSql| {
                at += 1;
                add.raw_bind_parameter(at, value)
            };
            bind(&signed(group.hour))?;
            group.names.iter().try_for_each(|place| bind(&names.get(*place)))?;
            bind(&signed(sums.requests))?;
            sums.tokens.iter().try_for_each(|sum| bind(&signed(*sum)))?;
            for sum in [sums.duration_us, sums.first_content_us, sums.first_contents] {
                bind(&signed(sum))?;
            }
            match add.raw_execute() {
                Ok(_) => {}
                Err(error) if is_about_the_row(&error) => {
                    rejected += sums.requests;
                    tracing::error!("the sums of {} usage records cannot be stored: {error}", sums.requests);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rejected)
    }
}

/// Whether the row itself is at fault, so that trying again is in vain.
fn is_about_the_row(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, ParameterOutOfRange, TooBig, TypeMismatch};
    matches!(
        error.sqlite_error_code(),
        Some(ConstraintViolation | ParameterOutOfRange | TooBig | TypeMismatch)
    )
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Milliseconds of an hour.
pub(crate) const HOUR_MS: u64 = 3_600_000;

/// In the order of the table.
const GROUPED: [Name; 7] =
    [Name::Project, Name::Key, Name::Provider, Name::Model, Name::Endpoint, Name::Operation, Name::Outcome];

const ADD: &str = "INSERT INTO usage_hour (hour, project, key, provider, model, endpoint, operation, outcome, \
     requests, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, duration_us, \
     first_content_us, first_contents) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
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
