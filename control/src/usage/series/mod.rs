//! Figures over a time in equal steps, computed from the records of that time. Nothing is stored for them: a query
//! reads the records, newest first, until its time is over, and reports how far back it got.

pub(crate) mod figures;
pub(crate) mod histogram;

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use records::{Record, Trace, block};

use self::figures::{PeriodFigures, attempts, lost_attempts};
use crate::db::engine::{Db, DbResult, named_params};
use crate::db::packed_row::PackedRow;
use crate::db::signed;
use crate::usage::dimension::Dimension;
use crate::usage::report::only_days_before;
use crate::usage::requests::attempts::AttemptSummary;
use crate::usage::requests::exchange_end::ExchangeEnd;
use crate::usage::requests::{Column, RequestFilter};

/// A query for a series.
#[derive(Clone, Debug)]
pub(crate) struct SeriesQuestion {
    /// The time of the series. Its length is a multiple of `step_ms`.
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    pub(crate) step_ms: u64,
    pub(crate) group_by: Vec<Dimension>,
    /// The exchanges that count. Its own time is ignored.
    pub(crate) filter: RequestFilter,
}

/// The result of a query.
#[derive(Debug)]
pub(crate) struct Series {
    /// The groups with the most requests, in that order, at most [`GROUPS_MAX`].
    pub(crate) groups: Vec<SeriesGroup>,
    /// The number of further groups.
    pub(crate) omitted: usize,
    /// Exchanges that started before this moment may be missing.
    pub(crate) complete_from_ms: u64,
}

/// The figures of one group.
#[derive(Debug)]
pub(crate) struct SeriesGroup {
    /// The names, in the order of the query; empty if the exchanges have none.
    pub(crate) names: Vec<String>,
    /// One item for each step of the time.
    pub(crate) points: Vec<PeriodFigures>,
}

impl SeriesGroup {
    fn requests(&self) -> u64 {
        self.points.iter().map(|point| point.requests).sum()
    }
}

/// Computes a series. Reading stops at `until`. Returns `None` if there are too many groups to find the largest ones.
pub(crate) fn series(db: &Db, question: &SeriesQuestion, until: Instant) -> DbResult<Option<Series>> {
    // One transaction, so that both readings are of one moment.
    let tx = db.read_transaction()?;
    let mut tally = GroupTally::new(question, None);
    let mut complete_from_ms = read(&tx, question, until, |record, trace| tally.add(record, trace))?;
    let mut omitted = 0;
    if tally.is_full {
        let now = Instant::now();
        let half = now + until.saturating_duration_since(now) / 2;
        let mut sizes = GroupSizes::new(question);
        read(&tx, question, half, |record, trace| sizes.add(record, trace))?;
        if sizes.is_full {
            return Ok(None);
        }
        omitted = sizes.counts.len().saturating_sub(GROUPS_MAX);
        tally = GroupTally::new(question, Some(sizes.largest()));
        complete_from_ms = read(&tx, question, until, |record, trace| tally.add(record, trace))?;
    }
    if let Some(kept_ms) = only_days_before(&tx)? {
        complete_from_ms = complete_from_ms.max(kept_ms);
    }
    Ok(Some(Series { groups: tally.finish(), omitted, complete_from_ms }))
}

/// Calls `each` for the exchanges of a query. Returns the moment from which none is missing.
fn read(
    db: &Db,
    question: &SeriesQuestion,
    until: Instant,
    mut each: impl FnMut(&Record<'_>, Trace<'_>) -> bool,
) -> DbResult<u64> {
    let filter = RequestFilter {
        from_ms: Some(question.from_ms),
        to_ms: Some(question.to_ms),
        ..question.filter.resolved(db)?
    };
    let mut statement = db.prepare(NEWEST_FIRST)?;
    let span = named_params! {":from": signed(question.from_ms), ":to": signed(question.to_ms)};
    let mut blocks = statement.query(span)?;
    while let Some(block) = blocks.next()? {
        if Instant::now() >= until {
            let last_ms: u64 = block.get("last_ms")?;
            return Ok(last_ms.saturating_add(1).clamp(question.from_ms, question.to_ms));
        }
        let row = PackedRow::read(block)?;
        if !filter.may_pass(row.id, &row.names) {
            continue;
        }
        for (record, trace) in block::rows(row.rows()?, &row.names).flatten() {
            if filter.passes(&record, trace) && !each(&record, trace) {
                return Ok(question.to_ms);
            }
        }
    }
    Ok(question.from_ms)
}

/// The names of a group, each with its length.
type GroupKey = Box<[u8]>;

/// Writes the names of the group of an exchange to `key`, or of an attempt of it at `target`, a provider and a model.
fn write_key(key: &mut Vec<u8>, dimensions: &[Dimension], record: &Record<'_>, target: Option<(&str, &str)>) {
    key.clear();
    for dimension in dimensions {
        let name = match (dimension, target) {
            (Dimension::Column(Column::Provider), Some((provider, _))) => provider,
            (Dimension::Column(Column::Model), Some((_, model))) => model,
            (dimension, _) => dimension.of(record),
        };
        key.extend_from_slice(&name.len().to_le_bytes());
        key.extend_from_slice(name.as_bytes());
    }
}

/// Returns the names that [`write_key`] wrote.
fn names_of(key: &[u8]) -> Vec<String> {
    let mut rest = key;
    std::iter::from_fn(|| {
        let (length, after) = rest.split_first_chunk()?;
        let (name, after) = after.split_at_checked(usize::from_le_bytes(*length))?;
        rest = after;
        Some(String::from_utf8_lossy(name).into_owned())
    })
    .collect()
}

/// Collects the figures of the groups.
struct GroupTally<'a> {
    question: &'a SeriesQuestion,
    points: usize,
    /// The groups that count; `None` if all do.
    wanted: Option<HashSet<GroupKey>>,
    groups: HashMap<GroupKey, Vec<PeriodFigures>>,
    key: Vec<u8>,
    /// True if there are more groups than are returned.
    is_full: bool,
}

impl<'a> GroupTally<'a> {
    fn new(question: &'a SeriesQuestion, wanted: Option<HashSet<GroupKey>>) -> Self {
        let points = question.to_ms.saturating_sub(question.from_ms) / question.step_ms.max(1);
        let points = usize::try_from(points.min(POINTS_MAX)).unwrap_or(usize::MAX);
        let mut groups = HashMap::new();
        if question.group_by.is_empty() {
            groups.insert(GroupKey::default(), vec![PeriodFigures::default(); points]);
        }
        Self { question, points, wanted, groups, key: Vec::new(), is_full: false }
    }

    /// Adds an exchange and its attempts. Returns false if there is no room for one of their groups.
    fn add(&mut self, record: &Record<'_>, trace: Trace<'_>) -> bool {
        let end = ExchangeEnd::of(record, trace);
        let failed_over = AttemptSummary::has_failed_over(trace);
        self.change(record, None, |figures| figures.add_exchange(record, end, failed_over));
        for attempt in attempts(record, trace) {
            let target = Some((attempt.provider, attempt.model));
            self.change(record, target, |figures| figures.add_attempt(attempt.is_failure));
        }
        for (provider, model, lost) in lost_attempts(record, trace) {
            self.change(record, Some((provider, model)), |figures| figures.add_lost(&lost));
        }
        !self.is_full
    }

    fn change(
        &mut self,
        record: &Record<'_>,
        target: Option<(&str, &str)>,
        change: impl FnOnce(&mut PeriodFigures),
    ) {
        write_key(&mut self.key, &self.question.group_by, record, target);
        if self.wanted.as_ref().is_some_and(|wanted| !wanted.contains(self.key.as_slice())) {
            return;
        }
        if !self.groups.contains_key(self.key.as_slice()) {
            if self.groups.len() >= GROUPS_MAX {
                self.is_full = true;
                return;
            }
            let points = vec![PeriodFigures::default(); self.points];
            self.groups.insert(self.key.as_slice().into(), points);
        }
        let step = record.started_at_ms.saturating_sub(self.question.from_ms) / self.question.step_ms.max(1);
        let points = self.groups.get_mut(self.key.as_slice());
        if let Some(point) = points.and_then(|points| points.get_mut(usize::try_from(step).ok()?)) {
            change(point);
        }
    }

    fn finish(self) -> Vec<SeriesGroup> {
        let groups = self.groups.into_iter();
        let mut groups: Vec<SeriesGroup> =
            groups.map(|(key, points)| SeriesGroup { names: names_of(&key), points }).collect();
        groups.sort_by(|a, b| b.requests().cmp(&a.requests()).then_with(|| a.names.cmp(&b.names)));
        groups
    }
}

/// The number of exchanges and attempts of each group, to find the largest groups.
struct GroupSizes<'a> {
    dimensions: &'a [Dimension],
    counts: HashMap<GroupKey, u64>,
    key: Vec<u8>,
    is_full: bool,
}

impl<'a> GroupSizes<'a> {
    fn new(question: &'a SeriesQuestion) -> Self {
        Self { dimensions: &question.group_by, counts: HashMap::new(), key: Vec::new(), is_full: false }
    }

    /// Counts an exchange and its attempts. Returns false if there are too many groups.
    fn add(&mut self, record: &Record<'_>, trace: Trace<'_>) -> bool {
        self.count(record, None);
        for attempt in attempts(record, trace) {
            self.count(record, Some((attempt.provider, attempt.model)));
        }
        !self.is_full
    }

    fn count(&mut self, record: &Record<'_>, target: Option<(&str, &str)>) {
        write_key(&mut self.key, self.dimensions, record, target);
        if let Some(count) = self.counts.get_mut(self.key.as_slice()) {
            *count += 1;
        } else if self.counts.len() < GROUPS_COUNTED_MAX {
            self.counts.insert(self.key.as_slice().into(), 1);
        } else {
            self.is_full = true;
        }
    }

    fn largest(self) -> HashSet<GroupKey> {
        let mut counts: Vec<(GroupKey, u64)> = self.counts.into_iter().collect();
        counts.sort_unstable_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
        counts.into_iter().take(GROUPS_MAX).map(|(key, _)| key).collect()
    }
}

/// The maximum number of points of a series: an hour in steps of ten seconds, where both ends cut a point. Charts of the
/// console have room for as many.
pub(crate) const POINTS_MAX: u64 = 361;
/// The maximum number of groups that are returned.
pub(crate) const GROUPS_MAX: usize = 50;
/// The maximum number of groups among which the largest can be found.
pub(crate) const GROUPS_COUNTED_MAX: usize = 100_000;

const NEWEST_FIRST: &str = "SELECT * FROM usage \
     WHERE last_ms >= :from AND first_ms < :to ORDER BY last_ms DESC";

#[cfg(test)]
mod tests;
