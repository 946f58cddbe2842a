//! Sums of usage over a time. Whole hours come from `usage_hour`; of the hours that the time cuts, the rows
//! themselves are read, so that the answer is exact at any edge and fast over any length.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use super::block;
use super::record::Record;
use super::requests::{Column, has_names, names_of};
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
    fn of(record: &Record<'_>) -> Self {
        let tokens = record.tokens;
        Self {
            requests: 1,
            input: tokens.input,
            cache_read: tokens.cache_read,
            cache_write: tokens.cache_write,
            output: tokens.output,
            reasoning: tokens.reasoning,
            duration_us: record.duration_us,
            first_content_us: record.first_content_us.unwrap_or(0),
            first_contents: u64::from(record.first_content_us.is_some()),
        }
    }

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

/// The sums, one group after the other; more than [`GROUPS_MAX`] if there are more, but not all of them.
pub(crate) fn sums(db: &Connection, question: &Question) -> rusqlite::Result<Vec<Group>> {
    // One transaction, so that hours and rows are those of one moment.
    let tx = db.unchecked_transaction()?;
    let window = Window::of(question.from_ms, whole_hour_if_over(&tx, question.to_ms)?);
    let mut groups = Groups::default();
    add_hours(&tx, question, &window, &mut groups)?;
    for (from_ms, to_ms) in window.edges {
        add_rows(&tx, question, (from_ms, to_ms), &mut groups)?;
    }
    Ok(groups.into_iter().map(|(key, sums)| answer(question, key, sums)).collect())
}

/// Sums by the first hour of the bucket and the names, `None` where there is none.
type Groups = BTreeMap<Key, Sums>;
type Key = (u64, Vec<Option<String>>);

fn answer(question: &Question, (hour, group): Key, sums: Sums) -> Group {
    Group { bucket_start_ms: question.bucket.map(|_| hour.saturating_mul(HOUR_MS)), group, sums }
}

/// An hour in which nothing has begun after `to_ms` is as good as a whole one.
fn whole_hour_if_over(db: &Connection, to_ms: u64) -> rusqlite::Result<u64> {
    let last: Option<u64> = db.query_row(LAST_MS, [], |row| row.get("last_ms")).optional()?;
    let is_over = last.is_none_or(|last| last < to_ms);
    Ok(if is_over { to_ms.div_ceil(HOUR_MS).saturating_mul(HOUR_MS) } else { to_ms })
}

fn add_hours(
    db: &Connection,
    question: &Question,
    window: &Window,
    sums: &mut Groups,
) -> rusqlite::Result<()> {
    let mut groups: Vec<String> = question.group_by.iter().map(|column| column.name().to_owned()).collect();
    groups.insert(0, bucket_sql(question.bucket).to_owned());
    let mut values: Vec<Value> = [window.first, window.end].map(integer).into();
    let mut wanted = vec!["hour >= ? AND hour < ?".to_owned()];
    for (column, name) in &question.filters {
        wanted.push(format!("{} = ?", column.name()));
        values.push(name.clone().into());
    }
    values.push(integer(u64::try_from(GROUPS_MAX).unwrap_or(u64::MAX).saturating_add(1)));
    let (groups, wanted) = (groups.join(", "), wanted.join(" AND "));
    let sql = format!("SELECT {SUMS}, {groups} FROM usage_hour WHERE {wanted} GROUP BY {groups} LIMIT ?");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let (key, more) = read(row, question.group_by.len())?;
        sums.entry(key).or_default().add(&more);
    }
    Ok(())
}

fn read(row: &rusqlite::Row<'_>, names: usize) -> rusqlite::Result<(Key, Sums)> {
    let name =
        |at: usize| row.get::<_, String>(BUCKET_AT + 1 + at).map(|name| Some(name).filter(|n| !n.is_empty()));
    let names = (0..names).map(name).collect::<rusqlite::Result<_>>()?;
    let sums = Sums {
        requests: row.get("requests")?,
        input: row.get("input")?,
        cache_read: row.get("cache_read")?,
        cache_write: row.get("cache_write")?,
        output: row.get("output")?,
        reasoning: row.get("reasoning")?,
        duration_us: row.get("duration_us")?,
        first_content_us: row.get("first_content_us")?,
        first_contents: row.get("first_contents")?,
    };
    Ok(((row.get(BUCKET_AT)?, names), sums))
}

/// Adds the exchanges that began from the first moment up to before the second.
fn add_rows(
    db: &Connection,
    question: &Question,
    (from_ms, to_ms): (u64, u64),
    sums: &mut Groups,
) -> rusqlite::Result<()> {
    if from_ms >= to_ms {
        return Ok(());
    }
    let mut statement = db.prepare_cached(BLOCKS)?;
    let mut blocks = statement.query([from_ms, to_ms].map(integer))?;
    while let Some(block) = blocks.next()? {
        let names = block::names(block.get_ref("names")?.as_blob()?);
        for (record, _) in block::rows(block.get_ref("rows")?.as_blob()?, &names).flatten() {
            let is_inside = from_ms <= record.started_at_ms && record.started_at_ms < to_ms;
            if !is_inside || !has_names(&record, &question.filters) {
                continue;
            }
            let names = names_of(&question.group_by, &record).into_iter();
            let names = names.map(|name| Some(name.to_owned()).filter(|name| !name.is_empty())).collect();
            let hour = first_hour(question.bucket, record.started_at_ms / HOUR_MS);
            sums.entry((hour, names)).or_default().add(&Sums::of(&record));
            if sums.len() > GROUPS_MAX {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn first_hour(bucket: Option<Bucket>, hour: u64) -> u64 {
    match bucket {
        None => 0,
        Some(Bucket::Hour) => hour,
        Some(Bucket::Day) => hour - hour % 24,
    }
}

/// The first hour of the bucket of `hour`; grouping by a constant column is grouping by nothing.
fn bucket_sql(bucket: Option<Bucket>) -> &'static str {
    match bucket {
        None => "hour * 0",
        Some(Bucket::Hour) => "hour",
        Some(Bucket::Day) => "hour - hour % 24",
    }
}

/// A time, cut at hours.
#[derive(Debug)]
struct Window {
    /// The whole hours inside.
    first: u64,
    end: u64,
    /// The milliseconds before and after them.
    edges: [(u64, u64); 2],
}

impl Window {
    fn of(from_ms: u64, to_ms: u64) -> Self {
        let first = from_ms.div_ceil(HOUR_MS);
        let end = (to_ms / HOUR_MS).max(first);
        let inside = first.saturating_mul(HOUR_MS).min(to_ms);
        // Without a whole hour inside, everything is before.
        let after = if to_ms / HOUR_MS > first { end.saturating_mul(HOUR_MS) } else { inside };
        Self { first, end, edges: [(from_ms, inside), (after, to_ms)] }
    }
}

fn integer(number: u64) -> Value {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}

/// Groups of one answer.
pub(crate) const GROUPS_MAX: usize = 10_000;

const BUCKET_AT: usize = 9;

const SUMS: &str = "sum(requests) AS requests, sum(input_tokens) AS input, sum(cache_read_tokens) AS cache_read, \
     sum(cache_write_tokens) AS cache_write, sum(output_tokens) AS output, sum(reasoning_tokens) AS reasoning, \
     sum(duration_us) AS duration_us, sum(first_content_us) AS first_content_us, \
     sum(first_contents) AS first_contents";

const BLOCKS: &str = "SELECT names, rows FROM usage WHERE last_ms >= ? AND first_ms < ?";
const LAST_MS: &str = "SELECT last_ms FROM usage ORDER BY last_ms DESC LIMIT 1";
