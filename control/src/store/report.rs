//! Sums of usage over a time. Whole days and hours come from `usage_day` and `usage_hour`; of the hours that the
//! time cuts, the exchanges themselves are read, so that the answer is exact at any edge and fast over any length.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use super::block;
use super::requests::{Column, has_names, names_of};
use super::rollup::{DAY_HOURS, HOUR_MS};
use super::sums::{SELECTED, Sums};
use super::window::{Bucket, Window, first_hour, months};

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

/// One group of the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) bucket_start_ms: Option<u64>,
    /// The names, in the order of the question; `None` where an exchange has none.
    pub(crate) group: Vec<Option<String>>,
    pub(crate) sums: Sums,
}

/// The sums, one group after the other; more than [`GROUPS_MAX`] if there are more, but not all of them.
pub(crate) fn sums(db: &Connection, question: &Question) -> rusqlite::Result<Vec<Group>> {
    // One transaction, so that days, hours and exchanges are those of one moment.
    let tx = db.unchecked_transaction()?;
    let window = Window::of(question.from_ms, whole_day_if_over(&tx, question.to_ms)?, question.bucket);
    let mut groups = Groups::default();
    add_sums(&tx, question, ("usage_day", window.days), &mut groups)?;
    for hours in window.hours {
        add_sums(&tx, question, ("usage_hour", hours), &mut groups)?;
    }
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

/// A day in which nothing has begun after `to_ms` is as good as a whole one.
fn whole_day_if_over(db: &Connection, to_ms: u64) -> rusqlite::Result<u64> {
    let last: Option<u64> = db.query_row(LAST_MS, [], |row| row.get("last_ms")).optional()?;
    let is_over = last.is_none_or(|last| last < to_ms);
    let day_ms = DAY_HOURS * HOUR_MS;
    Ok(if is_over { to_ms.div_ceil(day_ms).saturating_mul(day_ms) } else { to_ms })
}

/// Adds the sums that a table has of some hours.
fn add_sums(
    db: &Connection,
    question: &Question,
    (table, hours): (&'static str, (u64, u64)),
    groups: &mut Groups,
) -> rusqlite::Result<()> {
    if question.bucket != Some(Bucket::Month) {
        return add_table(db, question, (table, hours), groups);
    }
    let first: Option<u64> = db.query_row(FIRST_HOUR, [], |row| row.get(0))?;
    let (start, end) = hours;
    for (from, to) in months((start.max(first.unwrap_or(start)), end)) {
        let mut month = Groups::default();
        add_table(db, question, (table, (from, to)), &mut month)?;
        let first = first_hour(question.bucket, from);
        for ((_, names), sums) in month {
            groups.entry((first, names)).or_default().add(&sums);
        }
    }
    Ok(())
}

fn add_table(
    db: &Connection,
    question: &Question,
    (table, (start, end)): (&'static str, (u64, u64)),
    sums: &mut Groups,
) -> rusqlite::Result<()> {
    if start >= end {
        return Ok(());
    }
    let mut groups: Vec<&str> = question.group_by.iter().map(Column::name).collect();
    groups.insert(0, bucket_sql(question.bucket));
    let mut values: Vec<Value> = [start, end].map(integer).into();
    let mut wanted = vec!["hour >= ? AND hour < ?".to_owned()];
    for (column, name) in &question.filters {
        wanted.push(format!("{} = ?", column.name()));
        values.push(name.clone().into());
    }
    values.push(integer(u64::try_from(GROUPS_MAX).unwrap_or(u64::MAX).saturating_add(1)));
    let (groups, wanted) = (groups.join(", "), wanted.join(" AND "));
    let sql = format!("SELECT {SELECTED}, {groups} FROM {table} WHERE {wanted} GROUP BY {groups} LIMIT ?");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let key = key(row, question.group_by.len())?;
        sums.entry(key).or_default().add(&Sums::read(row)?);
    }
    Ok(())
}

fn key(row: &rusqlite::Row<'_>, names: usize) -> rusqlite::Result<Key> {
    let name = |at: usize| {
        row.get::<_, String>(Sums::COUNT + 1 + at).map(|name| Some(name).filter(|name| !name.is_empty()))
    };
    Ok((row.get(Sums::COUNT)?, (0..names).map(name).collect::<rusqlite::Result<_>>()?))
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

/// The first hour of the bucket of `hour`; grouping by a constant column is grouping by nothing.
fn bucket_sql(bucket: Option<Bucket>) -> &'static str {
    match bucket {
        None | Some(Bucket::Month) => "hour * 0",
        Some(Bucket::Hour) => "hour",
        Some(Bucket::Day) => "hour - hour % 24",
    }
}

fn integer(number: u64) -> Value {
    super::signed(number).into()
}

/// Groups of one answer.
pub(crate) const GROUPS_MAX: usize = 10_000;

const BLOCKS: &str = "SELECT names, rows FROM usage WHERE last_ms >= ? AND first_ms < ?";
const FIRST_HOUR: &str = "SELECT min(hour) FROM usage_day";
const LAST_MS: &str = "SELECT last_ms FROM usage ORDER BY last_ms DESC LIMIT 1";
