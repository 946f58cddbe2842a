//! The tables `usage_hour` and `usage_day`: sums of `usage` by time, node and everything that usage can be grouped by. A
//! batch is summed in memory first, so that a thousand records of one model write only one row of each table.

#![expect(clippy::indexing_slicing, reason = "there is a place for each name")]

mod merge;

use std::collections::HashMap;
use std::sync::LazyLock;

use records::block::{BlockNames, LostAt, Pushed};
use records::{Record, RecordName};

pub(crate) use self::merge::merge_some;
use super::sums::{UsageSums, columns};
use crate::db::engine::{Db, DbErrorKind, DbResult, ToValue as _, Value};
use crate::db::record_id::NodeId;
use crate::db::usage_effects;
use crate::db::{HOUR_MS, signed};

/// The sums of the exchanges that were added to a block since sums were last stored.
#[derive(Debug, Default)]
pub(crate) struct Rollup {
    hours: HashMap<RollupGroup, UsageSums>,
    /// The group of the last exchange, not yet included in `hours`: the next exchange is usually of the same group.
    last: Option<(RollupGroup, UsageSums)>,
}

/// The key of a sum: the hour, and the places of the names in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RollupGroup {
    hour: u64,
    names: [u32; GROUPED.len()],
}

impl RollupGroup {
    fn of(record: &Record<'_>, places: &[u32; RecordName::COUNT]) -> Self {
        let names = GROUPED.map(|name| places[name as usize]);
        Self { hour: record.started_at_ms / HOUR_MS, names }
    }
}

impl Rollup {
    /// Adds one exchange and its failed attempts, each for its own target.
    pub(crate) fn count(&mut self, record: &Record<'_>, pushed: &Pushed<'_>) {
        self.add(RollupGroup::of(record, &pushed.places), &UsageSums::of(record));
        for LostAt { step, lost } in &pushed.lost {
            let mut places = pushed.places;
            for (name, place) in [(RecordName::Provider, step.provider), (RecordName::Model, step.model)] {
                places[name as usize] = place;
            }
            self.add(RollupGroup::of(record, &places), &UsageSums::of_lost(lost));
        }
    }

    fn add(&mut self, group: RollupGroup, sums: &UsageSums) {
        match &mut self.last {
            Some((last, so_far)) if *last == group => so_far.add(sums),
            _ => {
                self.leave_last();
                self.last = Some((group, *sums));
            }
        }
    }

    fn leave_last(&mut self) {
        if let Some((group, sums)) = self.last.take() {
            self.hours.entry(group).or_default().add(&sums);
        }
    }

    /// Adds the sums to the tables and clears them. Runs in the transaction that adds the exchanges. Returns the number
    /// of exchanges whose sums were rejected by a table.
    pub(crate) fn store(&mut self, tx: &Db, names: &BlockNames) -> DbResult<u64> {
        self.leave_last();
        let mut days: HashMap<RollupGroup, UsageSums> = HashMap::new();
        for (group, sums) in &self.hours {
            let day = RollupGroup { hour: first_hour_of_day(group.hour), ..*group };
            days.entry(day).or_default().add(sums);
        }
        self.mark_keys(tx, names)?;
        let rejected = add(tx, SumsTable::Hours, &self.hours, names)?;
        self.hours.clear();
        Ok(rejected.max(add(tx, SumsTable::Days, &days, names)?))
    }

    /// Records the use of each key once, however many models it was used with.
    fn mark_keys(&self, tx: &Db, names: &BlockNames) -> DbResult<()> {
        let mut used: HashMap<&str, u64> = HashMap::new();
        for group in self.hours.keys() {
            let places = GROUPED.iter().zip(&group.names);
            for (_, place) in places.filter(|(name, _)| matches!(name, RecordName::Key)) {
                let newest = used.entry(names.get(*place)).or_default();
                *newest = group.hour.max(*newest);
            }
        }
        usage_effects::keys_used(tx, used)
    }
}

fn add(
    tx: &Db,
    table: SumsTable,
    groups: &HashMap<RollupGroup, UsageSums>,
    names: &BlockNames,
) -> DbResult<u64> {
    let mut rejected = 0;
    let node = NodeId::of(tx);
    let rows = groups
        .iter()
        .map(|(group, sums)| row((group.hour, node), group.names.map(|place| names.get(place)), sums));
    let mut requests = groups.values().map(|sums| sums.requests);
    tx.prepare(table.add())?.execute_each(rows, |added| {
        let requests = requests.next().unwrap_or_default();
        match added {
            Ok(_) => {}
            // The row itself is the cause, so that a retry cannot succeed.
            Err(error) if matches!(error.kind(), DbErrorKind::BadRow | DbErrorKind::BadValue) => {
                rejected += requests;
                tracing::error!("cannot store the sums of {requests} usage records: {error}");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    })?;
    Ok(rejected)
}

/// Returns the values of the row of a node, to be added.
fn row<'a>((hour, node): (u64, NodeId), names: [&'a str; GROUPED.len()], sums: &UsageSums) -> Vec<Value<'a>> {
    let mut values = Vec::with_capacity(2 + GROUPED.len() + UsageSums::COUNT);
    values.push(Value::Integer(signed(hour)));
    values.push(Value::Integer(node.number().into()));
    values.extend(names.map(Value::Text));
    values.extend(sums.list().map(|sum| Value::Integer(signed(sum))));
    values
}

/// The change of the sums of some exchanges by other prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) cost_nano_usd: i64,
    pub(crate) lost_nano_usd: i64,
    pub(crate) unpriced: i64,
}

impl Difference {
    pub(crate) fn add(&mut self, other: Self) {
        self.cost_nano_usd = self.cost_nano_usd.saturating_add(other.cost_nano_usd);
        self.lost_nano_usd = self.lost_nano_usd.saturating_add(other.lost_nano_usd);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }

    pub(crate) fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// Corrects the sums of an exchange's hour and day. Those of all nodes become one, so that none gets less than nothing.
pub(crate) fn correct(
    tx: &Db,
    hour: u64,
    names: &[&str; GROUPED.len()],
    difference: Difference,
) -> DbResult<()> {
    for (table, hour) in [(SumsTable::Hours, hour), (SumsTable::Days, first_hour_of_day(hour))] {
        merge::merge_group(tx, table, hour, names)?;
        let Difference { cost_nano_usd, lost_nano_usd, unpriced } = difference;
        let numbers = [cost_nano_usd, lost_nano_usd, unpriced, signed(hour)].map(Value::Integer);
        let node = [NodeId::FIRST.to_value()?];
        let values: Vec<_> = numbers.into_iter().chain(node).chain(names.map(Value::Text)).collect();
        tx.execute(table.correct(), values.as_slice())?;
    }
    Ok(())
}

/// Returns the names by which an exchange is summed.
pub(crate) fn grouped<'a>(record: &Record<'a>) -> [&'a str; GROUPED.len()] {
    GROUPED.map(|name| record.name(name))
}

pub(crate) fn first_hour_of_day(hour: u64) -> u64 {
    hour - hour % DAY_HOURS
}

/// A table of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumsTable {
    Hours,
    Days,
}

impl SumsTable {
    fn name(self) -> &'static str {
        match self {
            Self::Hours => "usage_hour",
            Self::Days => "usage_day",
        }
    }

    fn add(self) -> &'static str {
        match self {
            Self::Hours => &ADD_HOUR,
            Self::Days => &ADD_DAY,
        }
    }

    fn correct(self) -> &'static str {
        match self {
            Self::Hours => CORRECT_HOUR,
            Self::Days => CORRECT_DAY,
        }
    }
}

pub(crate) const DAY_HOURS: u64 = 24;

/// The names in the order of the tables' columns.
pub(crate) const GROUPED: [RecordName; 8] = [
    RecordName::Project,
    RecordName::Key,
    RecordName::Principal,
    RecordName::Provider,
    RecordName::Model,
    RecordName::Endpoint,
    RecordName::Operation,
    RecordName::Outcome,
];

macro_rules! correct_in {
    ($table:literal) => {
        concat!(
            "UPDATE ",
            $table,
            " SET cost_nano_usd = cost_nano_usd + :cost, lost_nano_usd = lost_nano_usd + :lost, \
             unpriced = unpriced + :unpriced WHERE hour = :hour AND node = :node AND project = :project AND key = :key \
             AND principal = :principal AND provider = :provider AND model = :model AND endpoint = :endpoint \
             AND operation = :operation AND outcome = :outcome"
        )
    };
}

static ADD_HOUR: LazyLock<String> = LazyLock::new(|| add_to(SumsTable::Hours));
static ADD_DAY: LazyLock<String> = LazyLock::new(|| add_to(SumsTable::Days));

fn add_to(table: SumsTable) -> String {
    let table = table.name();
    let sums: Vec<&str> = columns().collect();
    let places = sums.iter().map(|sum| format!(":{sum}")).collect::<Vec<_>>().join(", ");
    let added: Vec<String> =
        sums.iter().map(|sum| format!("{sum} = {table}.{sum} + excluded.{sum}")).collect();
    let (sums, added) = (sums.join(", "), added.join(", "));
    format!(
        "INSERT INTO {table} (hour, node, project, key, principal, provider, model, endpoint, operation, outcome, {sums}) \
         VALUES (:hour, :node, :project, :key, :principal, :provider, :model, :endpoint, :operation, :outcome, {places}) \
         ON CONFLICT (hour, node, project, key, principal, provider, model, endpoint, operation, outcome) DO UPDATE SET {added}"
    )
}
const CORRECT_HOUR: &str = correct_in!("usage_hour");
const CORRECT_DAY: &str = correct_in!("usage_day");
