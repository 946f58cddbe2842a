//! Reads the tables of sums: a range of whole hours or days, row by row in one statement, for any number of buckets.
//! Rows are grouped here and not in SQL, which would sort each row with all its columns.

use std::collections::HashMap;
use std::time::Instant;

use super::calendar::{BucketLength, Calendar, Span};
use super::groups::{Groups, named};
use super::{Column, Dimension, ReportQuestion, ReportReading};
use crate::db::engine::{Db, DbResult, Row, ToValue};
use crate::db::{HOUR_MS, signed};
use crate::usage::dimension::NameKey;
use crate::usage::rollup::DAY_HOURS;
use crate::usage::sums::{SELECTED, UsageSums};

/// Consecutive hours whose sums are read from one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strip {
    table: &'static str,
    /// The time that a row covers, in milliseconds.
    unit_ms: u64,
    /// The first hour.
    start: u64,
    /// The first hour after the strip.
    end: u64,
}

impl Strip {
    /// Returns a strip of whole UTC days.
    pub(super) fn days((start, end): (u64, u64)) -> Self {
        Self { table: "usage_day", unit_ms: DAY_HOURS * HOUR_MS, start, end }
    }

    /// Returns a strip of whole hours.
    pub(super) fn hours((start, end): (u64, u64)) -> Self {
        Self { table: "usage_hour", unit_ms: HOUR_MS, start, end }
    }

    /// Returns the whole hours or days from `start_ms` to `end_ms`, if the buckets of `calendar` consist only of those.
    /// `start_ms` is in `bucket`.
    pub(super) fn of_buckets(calendar: &Calendar, bucket: Span, start_ms: u64, end_ms: u64) -> Option<Self> {
        let hours = (start_ms / HOUR_MS, end_ms / HOUR_MS);
        let strip = match calendar.bucket? {
            BucketLength::Day | BucketLength::Week | BucketLength::Month if calendar.is_utc() => {
                Self::days((hours.0, hours.1 - hours.1 % DAY_HOURS))
            }
            BucketLength::Hour | BucketLength::Day => Self::hours(hours),
            // These buckets consist mostly of whole UTC days, which are fewer rows.
            BucketLength::Week | BucketLength::Month => return None,
        };
        let is_whole = start_ms.is_multiple_of(strip.unit_ms) && strip.divides(bucket);
        (is_whole && strip.start < strip.end).then_some(strip)
    }

    /// Returns the strip in pieces that are read in little time each.
    pub(super) fn pieces(self) -> impl Iterator<Item = Self> {
        let hours = PIECE_ROWS * (self.unit_ms / HOUR_MS);
        let starts =
            (0..).map(move |n: u64| self.start + n * hours).take_while(move |start| *start < self.end);
        starts.map(move |start| Self { start, end: self.end.min(start + hours), ..self })
    }

    fn divides(&self, bucket: Span) -> bool {
        bucket.start_ms.is_multiple_of(self.unit_ms) && bucket.end_ms.is_multiple_of(self.unit_ms)
    }

    /// Adds the sums of the strip, which begins in `bucket`. Returns the moment up to which everything was added. The
    /// strip ends early before a bucket that does not consist of its rows, or before any bucket if `groups` is full or
    /// the time is over.
    pub(super) fn add(
        &self,
        db: &Db,
        reading: &ReportReading<'_>,
        bucket: Span,
        groups: &mut Groups,
    ) -> DbResult<u64> {
        let question = reading.question;
        let end_ms = self.end.saturating_mul(HOUR_MS);
        if self.start >= self.end {
            return Ok(end_ms);
        }
        let columns: Vec<Column> = question.group_by.iter().filter_map(Dimension::column).collect();
        let mut statement = db.prepare(&self.sql(&columns, question))?;
        let (hours, scope) = ([self.start, self.end].map(signed), question.scope.values());
        let mut values: Vec<&dyn ToValue> = hours.iter().map(|hour| hour as _).collect();
        values.extend(question.filters.iter().map(|(_, name)| name as &dyn ToValue));
        values.extend(scope.iter().map(|list| list as &dyn ToValue));
        let mut rows = statement.query(values.as_slice())?;
        let mut tally = BucketTally::new(bucket, columns.len());
        while let Some(row) = rows.next()? {
            let at_ms = row.get::<u64>(UsageSums::SELECTED)?.saturating_mul(HOUR_MS);
            if !tally.bucket.contains(at_ms) {
                tally.leave(groups);
                let next = question.calendar.span(at_ms);
                if groups.is_full() || Instant::now() >= reading.pause || !self.divides(next) {
                    return Ok(next.start_ms);
                }
                tally.bucket = next;
            }
            tally.add(row, groups)?;
        }
        tally.leave(groups);
        Ok(end_ms)
    }

    fn sql(&self, names: &[Column], question: &ReportQuestion) -> String {
        let names = names.iter().map(Column::name);
        let selected: Vec<&str> = [SELECTED.sql.as_str(), "hour"].into_iter().chain(names).collect();
        let filters = question.filters.iter().map(|(column, _)| column.name()).enumerate();
        let filters: String = filters.map(|(at, name)| format!(" AND {name} = :filter_{at}")).collect();
        let (selected, table, scope) = (selected.join(", "), self.table, question.scope.sql());
        format!(
            "SELECT {selected} FROM {table} WHERE hour >= :from AND hour < :to{filters}{scope} ORDER BY hour"
        )
    }
}

/// The groups of one bucket while its rows are read.
struct BucketTally {
    bucket: Span,
    /// The number of names of a group.
    names: usize,
    sums: HashMap<NameKey, UsageSums>,
    key: NameKey,
}

impl BucketTally {
    fn new(bucket: Span, names: usize) -> Self {
        Self { bucket, names, sums: HashMap::new(), key: NameKey::default() }
    }

    fn add(&mut self, row: Row<'_>, groups: &mut Groups) -> DbResult<()> {
        self.key.clear();
        for at in self.places() {
            self.key.push(row.get(at)?);
        }
        let sums = UsageSums::read(row)?;
        if let Some(so_far) = self.sums.get_mut(&self.key) {
            so_far.add(&sums);
            return Ok(());
        }
        if self.sums.len() >= TALLY_MAX {
            self.leave(groups);
        }
        self.sums.insert(self.key.clone(), sums);
        Ok(())
    }

    /// The positions of the columns that contain names.
    fn places(&self) -> std::ops::Range<usize> {
        let first = UsageSums::SELECTED + 1;
        first..first + self.names
    }

    fn leave(&mut self, groups: &mut Groups) {
        for (key, sums) in self.sums.drain() {
            let names = key.names().into_iter().map(named).collect();
            groups.add((self.bucket.start_ms, names), &sums);
        }
    }
}

/// The hours or days of a piece.
const PIECE_ROWS: u64 = 24;
/// Limit on the groups that are collected before they are added to the others.
const TALLY_MAX: usize = 10_000;
