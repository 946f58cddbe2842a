//! The tables `usage_period` and `usage_followed`.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::time::Instant;

use super::figures::PeriodFigures;
use super::tally::{NameSet, PeriodKey, PeriodSums, unpack_figures};
use super::{Grain, MINUTE_MS, Section, first_minute};
use crate::db::engine::{Db, DbError, DbResult, Place, Row, ToValue, Value, Values, named_params};
use crate::db::record_id::NodeId;
use crate::usage::recent::feed::RowPlace;

/// How far the table follows the records of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// The end of the records that are counted.
    pub(crate) place: RowPlace,
    /// Exchanges that started before this moment were deleted before they were counted.
    pub(crate) from_ms: u64,
}

/// Consecutive periods of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeriodSpan {
    pub(crate) grain: Grain,
    pub(crate) section: Section,
    /// In milliseconds since the Unix epoch; multiples of the grain.
    pub(crate) time_ms: Range<u64>,
}

/// A row that is read.
#[derive(Clone, Copy)]
pub(crate) struct PeriodRow<'a> {
    /// The start of the period, in milliseconds since the Unix epoch.
    pub(crate) start_ms: u64,
    pub(crate) name: &'a str,
    pub(crate) model: &'a str,
    cost_nano_usd: u64,
    unpriced: u64,
    packed: &'a [u8],
}

impl PeriodRow<'_> {
    /// Returns the figures; `None` if they are of another release's format.
    pub(crate) fn figures(&self) -> Option<PeriodFigures> {
        let figures = unpack_figures(&mut { self.packed })?;
        Some(PeriodFigures { cost_nano_usd: self.cost_nano_usd, unpriced: self.unpriced, ..figures })
    }

    /// Returns all sums; `None` if they are of another release's format.
    pub(crate) fn sums(&self) -> Option<PeriodSums> {
        let sums = PeriodSums::unpack(self.packed)?;
        let (cost_nano_usd, unpriced) = (self.cost_nano_usd, self.unpriced);
        Some(PeriodSums { figures: PeriodFigures { cost_nano_usd, unpriced, ..sums.figures }, ..sums })
    }
}

/// Passes the rows of a time to `take`, in the order of time, until it breaks.
pub(crate) fn rows(
    db: &Db,
    span: &PeriodSpan,
    mut take: impl FnMut(PeriodRow<'_>) -> ControlFlow<()>,
) -> DbResult<()> {
    let minutes = span.time_ms.start / MINUTE_MS..span.time_ms.end / MINUTE_MS;
    let mut statement = db.prepare(ROWS)?;
    let mut rows = statement.query(named_params! {
        ":grain": span.grain.minutes(),
        ":section": span.section.number(),
        ":from": minutes.start,
        ":to": minutes.end,
    })?;
    while let Some(row) = rows.next()? {
        if take(read(row)?).is_break() {
            break;
        }
    }
    Ok(())
}

/// Passes targets of the newest minutes to `take`, each with the start of the minute in milliseconds, until it breaks.
pub(super) fn newest_targets(
    db: &Db,
    mut take: impl FnMut(u64, (&str, &str), &PeriodSums) -> ControlFlow<()>,
) -> DbResult<()> {
    let mut statement = db.prepare(NEWEST)?;
    let mut rows = statement.query(named_params! {
        ":grain": Grain::Minute.minutes(),
        ":section": Section::Target.number(),
    })?;
    while let Some(row) = rows.next()? {
        let row = read(row)?;
        if let Some(sums) = row.sums()
            && take(row.start_ms, (row.name, row.model), &sums).is_break()
        {
            break;
        }
    }
    Ok(())
}

fn read(row: Row<'_>) -> DbResult<PeriodRow<'_>> {
    Ok(PeriodRow {
        start_ms: row.get::<u64>("start")?.saturating_mul(MINUTE_MS),
        name: row.get("name")?,
        model: row.get("model")?,
        cost_nano_usd: row.get("cost_nano_usd")?,
        unpriced: row.get("unpriced")?,
        packed: row.get("figures")?,
    })
}

/// Returns the start of the first period of a section, in milliseconds since the Unix epoch; `None` if there is none.
pub(crate) fn first_period(db: &Db, grain: Grain, section: Section) -> DbResult<Option<u64>> {
    let of = named_params! {":grain": grain.minutes(), ":section": section.number()};
    let first: Option<u64> = db.row(FIRST, of, |row| row.get(0))?;
    Ok(first.map(|minute| minute.saturating_mul(MINUTE_MS)))
}

/// Returns the names that a day has in a section.
pub(super) fn names(db: &Db, section: Section, day: u64) -> DbResult<NameSet> {
    let of = named_params! {":grain": Grain::Day.minutes(), ":section": section.number(), ":start": day};
    let names = |row: Row<'_>| Ok((Box::from(row.get::<&str>(0)?), Box::from(row.get::<&str>(1)?)));
    let found: Vec<(Box<str>, Box<str>)> = db.rows(NAMES, of, names)?;
    Ok(found.into_iter().collect())
}

/// Adds sums to the rows of a node, which other nodes may merge at the same time.
pub(super) fn add(tx: &Db, node: NodeId, all: &BTreeMap<PeriodKey, PeriodSums>) -> DbResult<()> {
    let mut all = all.iter();
    loop {
        let mut some: Vec<_> = all.by_ref().take(ROWS_TOGETHER).collect();
        if some.is_empty() {
            return Ok(());
        }
        while !some.is_empty() {
            some = add_some(tx, node, some)?;
        }
    }
}

/// Adds sums to rows. Returns those that another node has put meanwhile.
fn add_some<'a>(
    tx: &Db,
    node: NodeId,
    some: Vec<(&'a PeriodKey, &'a PeriodSums)>,
) -> DbResult<Vec<(&'a PeriodKey, &'a PeriodSums)>> {
    let mut find = tx.prepare(if tx.is_postgres() { ROW_LOCKED } else { ROW })?;
    let places = some.iter().map(|(key, _)| RowValues { node, key, sum: None });
    let known = find.optional_row_each(places, |row| Ok(read(row)?.sums()))?;
    let (mut changed, mut put) = (Vec::new(), Vec::new());
    for ((key, sums), known) in some.into_iter().zip(known) {
        let rows = if known.is_some() { &mut changed } else { &mut put };
        let mut sum = known.flatten().unwrap_or_default();
        sum.add(sums);
        rows.push(((key, sums), sum));
    }
    let mut again = Vec::new();
    for (sql, rows) in [(CHANGE, &changed), (PUT, &put)] {
        let mut added = rows.iter().map(|(added, _)| *added);
        let values = rows.iter().map(|((key, _), sum)| RowValues { node, key, sum: Some(sum) });
        tx.prepare(sql)?.execute_each(values, |count| {
            again.extend(added.next().filter(|_| count == Ok(0)));
            count.map(drop)
        })?;
    }
    Ok(again)
}

/// The values of a row of a node, or of its place alone.
struct RowValues<'a> {
    node: NodeId,
    key: &'a PeriodKey,
    sum: Option<&'a PeriodSums>,
}

impl Values for RowValues<'_> {
    fn each(self, bind: &mut dyn FnMut(Place<'_>, Value<'_>) -> DbResult<()>) -> DbResult<()> {
        let PeriodKey { grain, section, start, name, model } = self.key;
        let (grain, number) = (grain.minutes(), section.number());
        named_params! {
            ":grain": grain, ":section": number, ":start": start, ":node": self.node, ":name": name, ":model": model,
        }
        .each(bind)?;
        let Some(sum) = self.sum else { return Ok(()) };
        named_params! {
            ":cost": sum.figures.cost_nano_usd, ":unpriced": sum.figures.unpriced, ":figures": sum.pack(*section),
        }
        .each(bind)
    }
}

/// Changes the money of a row, which becomes that of all nodes.
pub(super) fn correct(tx: &Db, key: &PeriodKey, cost_nano_usd: i64, unpriced: i64) -> DbResult<()> {
    let PeriodKey { grain, section, start, name, model } = key;
    let (grain, number) = (grain.minutes(), section.number());
    let row = named_params! {
        ":grain": grain, ":section": number, ":start": start, ":name": name, ":model": model,
    };
    // SQLite makes a table for what a deletion returns, which costs more than all else here.
    if tx.exists(HAS_ROW, row)? {
        let taken: Vec<PeriodSums> = tx.rows(TAKE_ROW, row, |row| known_sums(read(row)?))?;
        let merged = taken.into_iter().reduce(|mut sum, of_node| {
            sum.add(&of_node);
            sum
        });
        add(tx, NodeId::FIRST, &merged.map(|sum| (key.clone(), sum)).into_iter().collect())?;
    }
    tx.execute(
        CORRECT,
        named_params! {
            ":cost": cost_nano_usd,
            ":unpriced": unpriced,
            ":grain": grain,
            ":section": number,
            ":start": start,
            ":node": NodeId::FIRST,
            ":name": name,
            ":model": model,
        },
    )?;
    Ok(())
}

/// Merges the rows of nodes for the first period of a length that starts after `after` and before `before`, in minutes, into
/// those of node 0. Moves `after` to it. Returns false if there is none.
pub(crate) fn merge_next(tx: &Db, grain: Grain, after: &mut u64, before: u64) -> DbResult<bool> {
    let of = named_params! {":grain": grain.minutes(), ":after": *after, ":before": before};
    let next: Option<u64> = tx.row(UNMERGED, of, |row| row.get(0))?;
    let Some(start) = next else { return Ok(false) };
    *after = start;
    let mut merged = BTreeMap::<PeriodKey, PeriodSums>::new();
    let taken: Vec<(PeriodKey, PeriodSums)> = tx.rows(TAKE, [grain.minutes(), start], |row| {
        let section = Section::of_number(row.get("section")?).ok_or_else(unknown_format)?;
        let found = read(row)?;
        let (name, model) = (found.name.into(), found.model.into());
        Ok((PeriodKey { grain, section, start, name, model }, known_sums(found)?))
    })?;
    for (key, sums) in taken {
        merged.entry(key).or_default().add(&sums);
    }
    add(tx, NodeId::FIRST, &merged).map(|()| true)
}

fn known_sums(row: PeriodRow<'_>) -> DbResult<PeriodSums> {
    row.sums().ok_or_else(unknown_format)
}

/// The error of a row of a later release, which must stay as it is.
fn unknown_format() -> DbError {
    DbError::bad_value("a row of the table usage_period has the format of another release")
}

/// Returns how far the table follows the records of each node that it follows.
pub(crate) fn followed(db: &Db) -> DbResult<BTreeMap<NodeId, Followed>> {
    db.rows(FOLLOWED_ALL, (), |row| Ok((row.get("node")?, read_followed(row)?)))
}

/// Returns how far the table follows the records of a node; `None` before it began.
pub(crate) fn followed_of(db: &Db, node: NodeId) -> DbResult<Option<Followed>> {
    db.optional_row(FOLLOWED, [node], read_followed)
}

fn read_followed(row: Row<'_>) -> DbResult<Followed> {
    let place = RowPlace { id: row.get("place")?, taken: row.get("exchanges")? };
    Ok(Followed { place, from_ms: row.get("from_ms")? })
}

/// Moves the place to which the table follows the records of a node. Returns false if it was not `before`.
pub(super) fn move_followed(
    tx: &Db,
    node: NodeId,
    before: Option<&Followed>,
    followed: &Followed,
) -> DbResult<bool> {
    let Followed { place, from_ms } = followed;
    let (sql, old) = match before {
        None => (FOLLOW, None),
        Some(before) => (FOLLOW_ON, Some(before.place)),
    };
    let mut values: Vec<(&str, &dyn ToValue)> =
        vec![(":node", &node), (":place", &place.id), (":exchanges", &place.taken), (":from_ms", from_ms)];
    if let Some(old) = &old {
        values.extend([(":old_place", &old.id as &dyn ToValue), (":old_exchanges", &old.taken)]);
    }
    Ok(tx.execute(sql, values.as_slice())? == 1)
}

/// Deletes periods that are too old at `now_ms`, until it is `until`; days after `days_max`. Returns true if all are deleted.
pub(crate) fn prune(tx: &Db, now_ms: u64, days_max: u64, until: Instant) -> DbResult<bool> {
    for grain in [Grain::Minute, Grain::Hour, Grain::Day] {
        let before = grain.kept_from(now_ms).unwrap_or_else(|| first_minute(now_ms, days_max));
        for section in Section::EVERY {
            while tx.execute(DELETE, [grain.minutes(), section.number(), before])? > 0 {
                if Instant::now() >= until {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// The number of rows that are read before they are written.
const ROWS_TOGETHER: usize = 256;
const ROWS: &str = "SELECT start, name, model, cost_nano_usd, unpriced, figures FROM usage_period \
     WHERE grain = :grain AND section = :section AND start >= :from AND start < :to ORDER BY start";
const NEWEST: &str = "SELECT start, name, model, cost_nano_usd, unpriced, figures FROM usage_period \
     WHERE grain = :grain AND section = :section ORDER BY start DESC";
const FIRST: &str = "SELECT min(start) FROM usage_period WHERE grain = :grain AND section = :section";
const NAMES: &str = "SELECT name, model FROM usage_period \
     WHERE grain = :grain AND section = :section AND start = :start";
const ROW: &str = "SELECT start, name, model, cost_nano_usd, unpriced, figures FROM usage_period \
     WHERE grain = :grain AND section = :section AND start = :start AND node = :node AND name = :name AND model = :model";
const ROW_LOCKED: &str = "SELECT start, name, model, cost_nano_usd, unpriced, figures FROM usage_period \
     WHERE grain = :grain AND section = :section AND start = :start AND node = :node AND name = :name AND model = :model \
     FOR UPDATE";
const PUT: &str = "INSERT INTO usage_period (grain, section, start, node, name, model, cost_nano_usd, unpriced, figures) \
     VALUES (:grain, :section, :start, :node, :name, :model, :cost, :unpriced, :figures) \
     ON CONFLICT (grain, section, start, node, name, model) DO NOTHING";
const CHANGE: &str = "UPDATE usage_period SET cost_nano_usd = :cost, unpriced = :unpriced, figures = :figures \
     WHERE grain = :grain AND section = :section AND start = :start AND node = :node AND name = :name AND model = :model";
const UNMERGED: &str = "SELECT min(start) FROM usage_period \
     WHERE node <> 0 AND grain = :grain AND start > :after AND start < :before";
const TAKE: &str = "DELETE FROM usage_period WHERE node <> 0 AND grain = :grain AND start = :start \
     RETURNING section, start, name, model, cost_nano_usd, unpriced, figures";
/// Searches the primary key. Without rows of nodes, `node > 0` ends the search at once.
const HAS_ROW: &str = "SELECT 1 FROM usage_period WHERE grain = :grain AND section = :section AND start = :start \
     AND node > 0 AND name = :name AND model = :model";
const TAKE_ROW: &str = "DELETE FROM usage_period WHERE grain = :grain AND section = :section AND start = :start \
     AND node > 0 AND name = :name AND model = :model \
     RETURNING start, name, model, cost_nano_usd, unpriced, figures";
const CORRECT: &str = "UPDATE usage_period SET cost_nano_usd = cost_nano_usd + :cost, unpriced = unpriced + :unpriced \
     WHERE grain = :grain AND section = :section AND start = :start AND node = :node AND name = :name AND model = :model";
const FOLLOWED: &str = "SELECT place, exchanges, from_ms FROM usage_followed WHERE node = :node";
const FOLLOWED_ALL: &str = "SELECT node, place, exchanges, from_ms FROM usage_followed";
const FOLLOW: &str = "INSERT INTO usage_followed (node, place, exchanges, from_ms) \
     VALUES (:node, :place, :exchanges, :from_ms) ON CONFLICT (node) DO NOTHING";
const FOLLOW_ON: &str = "UPDATE usage_followed SET place = :place, exchanges = :exchanges, from_ms = :from_ms \
     WHERE node = :node AND place = :old_place AND exchanges = :old_exchanges";
const DELETE: &str = "DELETE FROM usage_period WHERE (grain, section, start, node, name, model) IN \
     (SELECT grain, section, start, node, name, model FROM usage_period \
     WHERE grain = :grain AND section = :section AND start < :before LIMIT 16)";
