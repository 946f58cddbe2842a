//! Merges the sums of nodes into those of node 0. Rows are taken and added in one transaction, and a node that adds to its
//! row at the same time waits for the row and then begins it again, so each exchange counts once at any moment.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::{GROUPED, SumsTable, row};
use crate::db::engine::{Db, DbResult, Row, Value};
use crate::db::record_id::NodeId;
use crate::db::signed;
use crate::usage::sums::{SELECTED, UsageSums};

/// Merges some sums of the oldest hour before `before` that has sums of nodes. Returns false if there is none.
pub(crate) fn merge_some(tx: &Db, table: SumsTable, before: u64) -> DbResult<bool> {
    let oldest: Option<u64> = tx.row(table.oldest(), [before], |row| row.get(0))?;
    let Some(hour) = oldest else { return Ok(false) };
    let mut merged = BTreeMap::<[String; GROUPED.len()], UsageSums>::new();
    let taken: Vec<_> = tx.rows(table.take_some(), [hour], |row| Ok((names(row)?, UsageSums::read(row)?)))?;
    for (names, sums) in &taken {
        merged.entry(names.clone()).or_default().add(sums);
    }
    let rows = merged
        .iter()
        .map(|(names, sums)| row((hour, NodeId::FIRST), names.each_ref().map(String::as_str), sums));
    tx.prepare(table.add())?.execute_each(rows, |added| added.map(drop))?;
    Ok(true)
}

/// Merges the sums of a group.
pub(super) fn merge_group(
    tx: &Db,
    table: SumsTable,
    hour: u64,
    names: &[&str; GROUPED.len()],
) -> DbResult<()> {
    let values: Vec<_> = [Value::Integer(signed(hour))].into_iter().chain(names.map(Value::Text)).collect();
    // SQLite makes a table for what a deletion returns, which costs more than all else here.
    if !tx.exists(table.has_group(), values.as_slice())? {
        return Ok(());
    }
    let taken: Vec<UsageSums> = tx.rows(table.take_group(), values.as_slice(), UsageSums::read)?;
    let mut sums = UsageSums::default();
    taken.iter().for_each(|of_node| sums.add(of_node));
    tx.execute(table.add(), row((hour, NodeId::FIRST), *names, &sums)).map(drop)
}

/// Reads the names behind the sums.
fn names(row: Row<'_>) -> DbResult<[String; GROUPED.len()]> {
    let mut names = <[String; GROUPED.len()]>::default();
    for (at, name) in (UsageSums::SELECTED..).zip(&mut names) {
        *name = row.get(at)?;
    }
    Ok(names)
}

impl SumsTable {
    fn oldest(self) -> &'static str {
        match self {
            Self::Hours => OLDEST_HOUR,
            Self::Days => OLDEST_DAY,
        }
    }

    fn take_some(self) -> &'static str {
        match self {
            Self::Hours => &TAKE_OF_HOUR,
            Self::Days => &TAKE_OF_DAY,
        }
    }

    fn has_group(self) -> &'static str {
        match self {
            Self::Hours => &HAS_GROUP_OF_HOUR,
            Self::Days => &HAS_GROUP_OF_DAY,
        }
    }

    fn take_group(self) -> &'static str {
        match self {
            Self::Hours => &TAKE_GROUP_OF_HOUR,
            Self::Days => &TAKE_GROUP_OF_DAY,
        }
    }
}

const OLDEST_HOUR: &str = "SELECT min(hour) FROM usage_hour WHERE node <> 0 AND hour < :before";
const OLDEST_DAY: &str = "SELECT min(hour) FROM usage_day WHERE node <> 0 AND hour < :before";
static TAKE_OF_HOUR: LazyLock<String> = LazyLock::new(|| take_some(SumsTable::Hours));
static TAKE_OF_DAY: LazyLock<String> = LazyLock::new(|| take_some(SumsTable::Days));
static HAS_GROUP_OF_HOUR: LazyLock<String> = LazyLock::new(|| has_group(SumsTable::Hours));
static HAS_GROUP_OF_DAY: LazyLock<String> = LazyLock::new(|| has_group(SumsTable::Days));
static TAKE_GROUP_OF_HOUR: LazyLock<String> = LazyLock::new(|| take_group(SumsTable::Hours));
static TAKE_GROUP_OF_DAY: LazyLock<String> = LazyLock::new(|| take_group(SumsTable::Days));
/// The rows that one transaction takes.
const ROWS: u32 = 4_096;

fn take_some(table: SumsTable) -> String {
    let (table, sums) = (table.name(), &SELECTED.sql);
    format!(
        "DELETE FROM {table} WHERE (hour, node, project, key, principal, provider, model, endpoint, operation, outcome) IN \
         (SELECT hour, node, project, key, principal, provider, model, endpoint, operation, outcome FROM {table} \
         WHERE hour = :hour AND node <> 0 LIMIT {ROWS}) \
         RETURNING {sums}, project, key, principal, provider, model, endpoint, operation, outcome"
    )
}

fn has_group(table: SumsTable) -> String {
    format!("SELECT 1 FROM {} WHERE {OF_GROUP}", table.name())
}

fn take_group(table: SumsTable) -> String {
    format!("DELETE FROM {} WHERE {OF_GROUP} RETURNING {}", table.name(), SELECTED.sql)
}

/// The sums of nodes for a group. Without any, `node > 0` ends the search in the primary key at once; `node <> 0` would read each
/// group of the hour.
const OF_GROUP: &str = "hour = :hour AND node > 0 AND project = :project AND key = :key AND principal = :principal \
     AND provider = :provider AND model = :model AND endpoint = :endpoint AND operation = :operation AND outcome = :outcome";
