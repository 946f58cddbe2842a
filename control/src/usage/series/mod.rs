//! Figures over a time in steps, for charts. They are read from the periods (`usage/periods`), whatever the length of the
//! time. For combinations of names that those do not have, they are read from the records while that is quick, and else from
//! the hourly and daily sums, which know less ([`SeriesSource`]). Only filters that sums cannot answer read all records of
//! the time, newest first, until their time is over; the answer has the moment from which it is complete.

mod reading;
mod tally;

use std::time::Instant;

use self::reading::SeriesReading;
use self::tally::{GroupSizes, GroupTally};
use crate::db::HOUR_MS;
use crate::db::engine::{Db, DbResult};
use crate::usage::dimension::Dimension;
use crate::usage::periods::{MINUTE_MS, PeriodFigures, Section};
use crate::usage::requests::RequestFilter;

/// A query for a series.
#[derive(Clone, Debug)]
pub(crate) struct SeriesQuestion {
    /// The starts of the points in order, and the end of the last one, in milliseconds since the Unix epoch.
    pub(crate) edges: Vec<u64>,
    pub(crate) group_by: Vec<Dimension>,
    /// The exchanges that count. Its own time is ignored. Filtered by provider or model, attempts count for their own target.
    pub(crate) filter: RequestFilter,
}

/// The times until which a query may read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadingTimes {
    /// Records, where the sums of hours answer if they take longer.
    pub(crate) records: Instant,
    pub(crate) all: Instant,
    /// The sums of hours.
    pub(crate) hours: Instant,
}

/// The source of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeriesSource {
    /// Periods, and records where one is cut or not counted yet.
    Periods(Section),
    /// The sums of hours and days: without attempts, failovers and percentiles, and refused exchanges count as failed.
    Hours,
    Records,
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
    pub(crate) source: SeriesSource,
    /// The requests that are counted under a common name, because their days had too many names.
    pub(crate) merged: u64,
}

/// The figures of one group.
#[derive(Debug)]
pub(crate) struct SeriesGroup {
    /// The names, in the order of the query; empty if the exchanges have none.
    pub(crate) names: Vec<String>,
    /// One item for each point.
    pub(crate) points: Vec<PeriodFigures>,
}

impl SeriesGroup {
    fn requests(&self) -> u64 {
        self.points.iter().map(|point| point.requests).sum()
    }
}

impl SeriesQuestion {
    fn start_ms(&self) -> u64 {
        self.edges.first().copied().unwrap_or(0)
    }

    fn end_ms(&self) -> u64 {
        self.edges.last().copied().unwrap_or(0)
    }

    /// Returns the section that has all dimensions of the query; `None` if there is none.
    fn section(&self) -> Option<Section> {
        let filtered: Vec<Dimension> = self.filter.columns().map(Dimension::Column).collect();
        let is_known = self.filter.is_of_columns() && self.has_steps_of(MINUTE_MS);
        is_known.then(|| Section::with(self.group_by.iter().chain(&filtered)))?
    }

    /// True if the sums of hours have all dimensions of the query.
    fn is_of_hours(&self) -> bool {
        self.filter.is_of_columns()
            && self.group_by.iter().all(|dimension| dimension.column().is_some())
            && self.has_steps_of(HOUR_MS)
    }

    /// True if no point is shorter.
    fn has_steps_of(&self, ms: u64) -> bool {
        self.edges.windows(2).all(|pair| matches!(pair, [from, to] if to - from >= ms))
    }
}

/// Computes a series. Returns `None` if there are too many groups to find the largest ones.
pub(crate) fn series(db: &Db, question: &SeriesQuestion, until: ReadingTimes) -> DbResult<Option<Series>> {
    // One transaction, so that all readings are of one moment.
    let tx = db.read_transaction()?;
    if let Some(section) = question.section() {
        return from(&tx, question, SeriesSource::Periods(section), until.all);
    }
    if !question.is_of_hours() {
        return from(&tx, question, SeriesSource::Records, until.all);
    }
    let found = from(&tx, question, SeriesSource::Records, until.records)?;
    match found.filter(|found| found.complete_from_ms <= question.start_ms()) {
        Some(found) => Ok(Some(found)),
        None => from(&tx, question, SeriesSource::Hours, until.hours),
    }
}

fn from(
    db: &Db,
    question: &SeriesQuestion,
    source: SeriesSource,
    until: Instant,
) -> DbResult<Option<Series>> {
    let reading = SeriesReading::new(db, question, source)?;
    let mut tally = GroupTally::new(question, None);
    let mut read = reading.read(until, &mut |key, at_ms, part| tally.add(key, at_ms, part))?;
    let mut omitted = 0;
    if tally.is_full {
        let now = Instant::now();
        let half = now + until.saturating_duration_since(now) / 2;
        let mut sizes = GroupSizes::default();
        reading.read(half, &mut |key, _, part| sizes.add(key, part))?;
        if sizes.is_full {
            return Ok(None);
        }
        omitted = sizes.omitted();
        tally = GroupTally::new(question, Some(sizes.largest()));
        read = reading.read(until, &mut |key, at_ms, part| tally.add(key, at_ms, part))?;
    }
    Ok(Some(Series {
        groups: tally.finish(),
        omitted,
        complete_from_ms: read.complete_from_ms,
        source,
        merged: read.merged,
    }))
}

/// The maximum number of points of a series: an hour in steps of ten seconds, where both ends cut a point. Charts of the
/// console have room for as many.
pub(crate) const POINTS_MAX: u64 = 361;
/// The maximum number of groups that are returned.
pub(crate) const GROUPS_MAX: usize = 50;
/// The maximum number of groups among which the largest can be found.
pub(crate) const GROUPS_COUNTED_MAX: usize = 100_000;

#[cfg(test)]
mod tests;
