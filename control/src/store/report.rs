//! Sums of usage over a time. Whole hours come from `usage_hour`; of the hours that the time cuts, the rows
//! themselves are read, so that the answer is exact at any edge and fast over any length.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::requests::Column;
use super::rollup::HOUR_MS;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) from_ms: u64,
    /// The first moment that is too late.
    pub(crate) to_ms: u64,
    pub(crate) bucket: Option<Bucket>,
    pub(crate) group_by: Vec<Column>,
    pub(crate) filters: Vec<(Column, String)>,
}

/// A part of the time that is summed apart, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bucket {
    Hour,
    Day,
}

/// One group of the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) bucket_start_ms: Option<u64>,
    /// The names, in the order of the question; `None` where an exchange has none.
    pub(crate) group: Vec<Option<String>>,
    pub(crate) sums: Sums,
}

/// What was used by some exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) requests: u64,
    pub(crate) input: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
    pub(crate) duration_us: u64,
    pub(crate) first_content_us: u64,
    pub(crate) first_contents: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.requests, other.requests),
            (&mut self.input, other.input),
            (&mut self.cache_read, other.cache_read),
            (&mut self.cache_write, other.cache_write),
            (&mut self.output, other.output),
            (&mut self.reasoning, other.reasoning),
            (&mut self.duration_us, other.duration_us),
            (&mut self.first_content_us, other.first_content_us),
            (&mut self.first_contents, other.first_contents),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// The sums, one group after the other; at most one more than [`GROUPS_MAX`].
pub(crate) fn sums(db: &Connection, question: &Question) -> rusqlite::Result<Vec<Group>> {
    let mut groups: Vec<String> = question.group_by.iter().map(|column| column.name().to_owned()).collect();
    groups.insert(0, bucket_sql(question.bucket).to_owned());
    let mut values = bounds(question.from_ms, question.to_ms);
    let mut wanted = vec!["TRUE".to_owned()];
    for (column, name) in &question.filters {
        wanted.push(format!("{} = ?", column.name()));
        values.push(name.clone().into());
    }
    values.push(i64::try_from(GROUPS_MAX).unwrap_or(i64::MAX).saturating_add(1).into());
    let (groups, wanted) = (groups.join(", "), wanted.join(" AND "));
    let sql = format!(
        "SELECT {SUMS}, {groups} FROM ({PARTS}) WHERE {wanted} GROUP BY {groups} ORDER BY {groups} LIMIT ?"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let names = question.group_by.len();
    let rows = statement.query_map(params_from_iter(values), |row| read(row, question.bucket, names))?;
    rows.collect()
}

fn read(row: &rusqlite::Row<'_>, bucket: Option<Bucket>, names: usize) -> rusqlite::Result<Group> {
    let hour: u64 = row.get(BUCKET_AT)?;
    let name =
        |at: usize| row.get::<_, String>(BUCKET_AT + 1 + at).map(|name| Some(name).filter(|n| !n.is_empty()));
    Ok(Group {
        bucket_start_ms: bucket.map(|_| hour.saturating_mul(HOUR_MS)),
        group: (0..names).map(name).collect::<rusqlite::Result<_>>()?,
        sums: Sums {
            requests: row.get("requests")?,
            input: row.get("input")?,
            cache_read: row.get("cache_read")?,
            cache_write: row.get("cache_write")?,
            output: row.get("output")?,
            reasoning: row.get("reasoning")?,
            duration_us: row.get("duration_us")?,
            first_content_us: row.get("first_content_us")?,
            first_contents: row.get("first_contents")?,
        },
    })
}

/// The first hour of the bucket of `hour`; grouping by a constant column is grouping by nothing.
fn bucket_sql(bucket: Option<Bucket>) -> &'static str {
    match bucket {
        None => "hour * 0",
        Some(Bucket::Hour) => "hour",
        Some(Bucket::Day) => "hour - hour % 24",
    }
}

/// The whole hours inside the time, and the milliseconds before and after them.
fn bounds(from_ms: u64, to_ms: u64) -> Vec<Value> {
    let first = from_ms.div_ceil(HOUR_MS);
    let end = (to_ms / HOUR_MS).max(first);
    let inside = first.saturating_mul(HOUR_MS).min(to_ms);
    // Without a whole hour inside, everything is before.
    let after = if to_ms / HOUR_MS > first { end.saturating_mul(HOUR_MS) } else { inside };
    [first, end, from_ms, inside, after, to_ms]
        .map(|bound| i64::try_from(bound).unwrap_or(i64::MAX).into())
        .into()
}

/// Groups of one answer.
pub(crate) const GROUPS_MAX: usize = 10_000;

const BUCKET_AT: usize = 9;

const SUMS: &str = "sum(requests) AS requests, sum(input_tokens) AS input, sum(cache_read_tokens) AS cache_read, \
     sum(cache_write_tokens) AS cache_write, sum(output_tokens) AS output, sum(reasoning_tokens) AS reasoning, \
     sum(duration_us) AS duration_us, sum(first_content_us) AS first_content_us, \
     sum(first_contents) AS first_contents";

const PARTS: &str = "SELECT hour, project, key, provider, model, endpoint, operation, outcome, requests, \
     input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, duration_us, \
     first_content_us, first_contents \
     FROM usage_hour WHERE hour >= ? AND hour < ? \
     UNION ALL \
     SELECT started_at_ms / 3600000, coalesce(project, ''), key, coalesce(provider, ''), coalesce(model, ''), \
     coalesce(endpoint, ''), operation, outcome, 1, \
     input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, duration_us, \
     coalesce(first_content_us, 0), first_content_us IS NOT NULL \
     FROM usage WHERE (started_at_ms >= ? AND started_at_ms < ?) OR (started_at_ms >= ? AND started_at_ms < ?)";
