//! Sums of usage over a time. Whole days and hours are read from `usage_day` and `usage_hour`. For hours that are cut
//! by the report's time or by a bucket, the exchanges are read, so the result is exact at any edge and fast over any
//! length. A report is returned in pages, ordered by bucket and names, or by a figure.

pub(crate) mod calendar;
mod groups;
mod records;
mod strip;
mod window;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use self::calendar::{Calendar, Span};
use self::groups::{GroupKey, Groups};
use self::records::Records;
use self::strip::Strip;
use self::window::ReportWindow;
use crate::common::bounds::REPORT_GROUPS;
use crate::db::engine::{Db, DbError, DbErrorKind, DbResult};
use crate::db::{HOUR_MS, signed};
use crate::usage::dimension::{Dimension, Marks};
use crate::usage::requests::Column;
use crate::usage::rollup::{DAY_HOURS, first_hour_of_day};
use crate::usage::scope::UsageScope;
use crate::usage::sums::{Figure, UsageSums};

/// A query for a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportQuestion {
    pub(crate) from_ms: u64,
    /// The end of the time, exclusive.
    pub(crate) to_ms: u64,
    pub(crate) calendar: Calendar,
    pub(crate) group_by: Vec<Dimension>,
    pub(crate) filters: Vec<(Column, String)>,
    pub(crate) marks: Marks,
    pub(crate) scope: UsageScope,
}

impl ReportQuestion {
    /// True if sums cannot answer the query, so that every exchange of the time is read.
    fn is_of_records(&self) -> bool {
        !self.marks.is_empty() || self.group_by.iter().any(|dimension| dimension.column().is_none())
    }
}

/// The requested part of a report and its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportPart {
    /// `None` orders by bucket, then by names.
    pub(crate) order: Option<GroupOrder>,
    pub(crate) cursor: Option<ReportCursor>,
    pub(crate) limit: usize,
    /// At this time, a page that is not full ends after the current bucket.
    pub(crate) page_until: Instant,
    /// At this time, the query is aborted.
    pub(crate) until: Instant,
}

/// The figure by which the groups of a report are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupOrder {
    pub(crate) figure: Figure,
    pub(crate) descending: bool,
}

/// The start of a page: after the group with these names in this bucket, or at the beginning of the bucket if there are
/// no names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportCursor {
    bucket_ms: u64,
    names: Option<Vec<Option<String>>>,
    /// The preceding group's value of the figure by which the report is sorted.
    value: Option<u64>,
}

impl ReportCursor {
    /// True if the cursor is for a query with this number of names and this order.
    pub(crate) fn fits(&self, names: usize, order: Option<GroupOrder>) -> bool {
        self.value.is_some() == order.is_some()
            && match &self.names {
                Some(known) => known.len() == names,
                None => order.is_none(),
            }
    }

    fn is_before(&self, (bucket_ms, names): &GroupKey) -> bool {
        match &self.names {
            None => self.bucket_ms <= *bucket_ms,
            Some(last) => (self.bucket_ms, last) < (*bucket_ms, names),
        }
    }
}

/// One group of a report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReportGroup {
    pub(crate) bucket_ms: u64,
    /// The names, in the order of the query; `None` if the exchanges have none.
    pub(crate) names: Vec<Option<String>>,
    pub(crate) sums: UsageSums,
}

/// A page of a report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReportPage {
    pub(crate) groups: Vec<ReportGroup>,
    /// The sums over all groups of the report, not only those of this page; `None` if computing them would read all
    /// records for each page.
    pub(crate) totals: Option<UsageSums>,
    pub(crate) next: Option<ReportCursor>,
}

/// The reason why a query has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswerable {
    /// More than [`SORTED_MAX`] groups cannot be sorted.
    TooManyGroups,
    /// Before this moment only sums of whole UTC days are kept, and no records.
    OnlyDaysBefore(u64),
}

/// Returns one page of a report.
pub(crate) fn page(
    db: &Db,
    question: &ReportQuestion,
    part: &ReportPart,
) -> DbResult<Result<ReportPage, Unanswerable>> {
    // One transaction, so that days, hours and exchanges are of one moment.
    let tx = db.read_transaction()?;
    if (!question.calendar.is_utc() || question.is_of_records())
        && let Some(kept_ms) = only_days_before(&tx)?
        && question.from_ms < kept_ms
    {
        return Ok(Err(Unanswerable::OnlyDaysBefore(kept_ms)));
    }
    let (groups, next) = match part.order {
        None => in_order(&tx, question, part)?,
        Some(order) => match sorted(&tx, question, part, order)? {
            Some(sorted) => sorted,
            None => return Ok(Err(Unanswerable::TooManyGroups)),
        },
    };
    let totals = if part.cursor.is_none() && next.is_none() {
        Some(total(&groups))
    } else if question.is_of_records() {
        None
    } else {
        Some(totals(&tx, question, part)?)
    };
    Ok(Ok(ReportPage { groups, totals, next }))
}

/// Returns every group of a report that is known to be short, and true if there are no more than [`REPORT_GROUPS`]. Fails
/// with [`too_slow`] at `until`.
pub(crate) fn sums(db: &Db, question: &ReportQuestion, until: Instant) -> DbResult<(Vec<ReportGroup>, bool)> {
    let tx = db.read_transaction()?;
    let part = ReportPart { order: None, cursor: None, limit: REPORT_GROUPS.max(), page_until: until, until };
    let (groups, more) = in_order(&tx, question, &part)?;
    if more.is_some() {
        REPORT_GROUPS.reach();
    }
    Ok((groups, more.is_none()))
}

fn totals(db: &Db, question: &ReportQuestion, part: &ReportPart) -> DbResult<UsageSums> {
    let question = ReportQuestion { calendar: Calendar::whole(), group_by: Vec::new(), ..question.clone() };
    let part = ReportPart { order: None, cursor: None, limit: 1, ..part.clone() };
    Ok(total(&in_order(db, &question, &part)?.0))
}

fn total(groups: &[ReportGroup]) -> UsageSums {
    let mut totals = UsageSums::default();
    groups.iter().for_each(|group| totals.add(&group.sums));
    totals
}

/// The groups of a page, and the start of the next page.
type FoundGroups = (Vec<ReportGroup>, Option<ReportCursor>);

fn in_order(db: &Db, question: &ReportQuestion, part: &ReportPart) -> DbResult<FoundGroups> {
    let mut groups = Groups::new(part.cursor.clone(), part.limit.saturating_add(1));
    let left = ReportReading { question, until: part.until, pause: part.page_until }.add(db, &mut groups)?;
    let cut = groups.is_full();
    let mut groups: Vec<ReportGroup> = groups.into_groups().collect();
    groups.truncate(part.limit);
    let last = groups.last().filter(|_| cut);
    let next = last.map(|group| ReportCursor::after(group, None));
    let at_bucket = left.map(|bucket_ms| ReportCursor { bucket_ms, names: None, value: None });
    Ok((groups, next.or(at_bucket)))
}

/// Returns `None` if there are too many groups to sort.
fn sorted(
    db: &Db,
    question: &ReportQuestion,
    part: &ReportPart,
    order: GroupOrder,
) -> DbResult<Option<FoundGroups>> {
    let mut groups = Groups::new(None, SORTED_MAX + 1);
    let left = ReportReading { question, until: part.until, pause: part.until }.add(db, &mut groups)?;
    if groups.is_full() {
        return Ok(None);
    }
    if left.is_some() {
        return Err(DbError::too_slow());
    }
    let rank = |value: u64| if order.descending { u64::MAX - value } else { value };
    let mut ranked: Vec<(u64, ReportGroup)> =
        groups.into_groups().map(|group| (rank(group.sums.figure(order.figure)), group)).collect();
    // The groups are ordered by name; the stable sort keeps that order for equal figures.
    ranked.sort_by_key(|(rank, _)| *rank);
    if let Some(cursor) = &part.cursor {
        let last = rank(cursor.value.unwrap_or_default());
        ranked.retain(|(rank, group)| *rank > last || (*rank == last && cursor.is_before(&group.key())));
    }
    let cut = ranked.len() > part.limit;
    ranked.truncate(part.limit);
    let groups: Vec<ReportGroup> = ranked.into_iter().map(|(_, group)| group).collect();
    let last = groups.last().filter(|_| cut);
    let next = last.map(|group| ReportCursor::after(group, Some(group.sums.figure(order.figure))));
    Ok(Some((groups, next)))
}

impl ReportCursor {
    fn after(group: &ReportGroup, value: Option<u64>) -> Self {
        Self { bucket_ms: group.bucket_ms, names: Some(group.names.clone()), value }
    }
}

impl ReportGroup {
    fn key(&self) -> GroupKey {
        (self.bucket_ms, self.names.clone())
    }
}

/// An iterator over the buckets of a query that may contain usage, in order.
struct BucketSpans<'a> {
    question: &'a ReportQuestion,
    at_ms: u64,
    to_ms: u64,
}

impl<'a> BucketSpans<'a> {
    fn new(db: &Db, question: &'a ReportQuestion, cursor: Option<&ReportCursor>) -> DbResult<Self> {
        let at_ms = question.from_ms.max(cursor.map_or(0, |cursor| cursor.bucket_ms));
        Ok(Self { question, at_ms, to_ms: whole_day_if_over(db, question.to_ms)? })
    }

    /// Returns the next bucket and the requested part of it.
    fn next(&mut self, db: &Db) -> DbResult<Option<(Span, Span)>> {
        if self.question.calendar.bucket.is_some() {
            let Some(hour) = next_hour(db, self.at_ms / HOUR_MS)? else { return Ok(None) };
            self.at_ms = self.at_ms.max(hour.saturating_mul(HOUR_MS));
        }
        if self.at_ms >= self.to_ms {
            return Ok(None);
        }
        let bucket = self.question.calendar.span(self.at_ms);
        let part = Span { start_ms: self.at_ms, end_ms: bucket.end_ms.min(self.to_ms) };
        self.at_ms = part.end_ms;
        Ok(Some((bucket, part)))
    }
}

/// Returns the first hour from `hour` on that has sums, or the first hour of a day that has some.
fn next_hour(db: &Db, hour: u64) -> DbResult<Option<u64>> {
    let from = [hour, first_hour_of_day(hour)].map(signed);
    let (of_hours, of_days): (Option<u64>, Option<u64>) =
        db.row(NEXT_HOUR, from, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(of_hours.into_iter().chain(of_days).min())
}

/// Extends `to_ms` to the end of its day if no exchange started after it: the daily sums then give the same result.
fn whole_day_if_over(db: &Db, to_ms: u64) -> DbResult<u64> {
    let last: Option<u64> = db.optional_row(LAST_MS, (), |row| row.get("last_ms"))?;
    let is_over = last.is_none_or(|last| last < to_ms);
    let day_ms = DAY_HOURS * HOUR_MS;
    Ok(if is_over { to_ms.div_ceil(day_ms).saturating_mul(day_ms) } else { to_ms })
}

/// Returns the starts of the first hour and of the first day that have sums, in milliseconds since the Unix epoch.
pub(crate) fn first_hours(db: &Db) -> DbResult<(Option<u64>, Option<u64>)> {
    let ms = |hour: Option<u64>| hour.map(|hour| hour.saturating_mul(HOUR_MS));
    db.row(FIRST_HOURS, (), |row| Ok((ms(row.get(0)?), ms(row.get(1)?))))
}

/// Returns the first moment from which hourly sums and records are kept; `None` if there are no daily sums before it.
pub(crate) fn only_days_before(db: &Db) -> DbResult<Option<u64>> {
    let (of_hours, of_days): (Option<u64>, Option<u64>) =
        db.row(FIRST_HOURS, (), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let first_day = of_hours.map_or(u64::MAX, first_hour_of_day);
    if of_days.is_none_or(|of_days| of_days >= first_day) {
        return Ok(None);
    }
    // Records are deleted before the sums of their hours, so a day that is being deleted may still have hourly sums.
    let oldest: Option<u64> = db.optional_row(FIRST_MS, (), |row| row.get(0))?;
    let being_deleted =
        oldest.map(|oldest| first_hour_of_day(oldest / HOUR_MS)).filter(|day| *day > first_day);
    let kept = being_deleted.map_or(first_day, |day| day.saturating_add(DAY_HOURS));
    Ok(Some(kept.saturating_mul(HOUR_MS)))
}

/// Reads the groups of a query.
struct ReportReading<'a> {
    question: &'a ReportQuestion,
    /// At this time, the query is aborted.
    until: Instant,
    /// At this time, reading ends after the current bucket.
    pause: Instant,
}

impl ReportReading<'_> {
    /// Adds groups until all are added or `groups` is full. If the time ends first, returns the bucket to continue
    /// with.
    fn add(&self, db: &Db, groups: &mut Groups) -> DbResult<Option<u64>> {
        let mut spans = BucketSpans::new(db, self.question, groups.after())?;
        while let Some((bucket, part)) = spans.next(db)? {
            match self.strip(bucket, part.start_ms, spans.to_ms) {
                Some(strip) => {
                    spans.at_ms = strip.add(db, self, bucket, groups)?;
                }
                None => self.add_span(db, bucket, part, groups)?,
            }
            if groups.is_full() {
                break;
            }
            if Instant::now() >= self.pause {
                return Ok(spans.next(db)?.map(|(bucket, _)| bucket.start_ms));
            }
        }
        Ok(None)
    }

    /// Returns the sums from `start_ms` on that answer the query for many buckets in one statement.
    fn strip(&self, bucket: Span, start_ms: u64, end_ms: u64) -> Option<Strip> {
        if self.question.is_of_records() {
            return None;
        }
        Strip::of_buckets(&self.question.calendar, bucket, start_ms, end_ms)
    }

    /// Adds a part of a bucket.
    fn add_span(&self, db: &Db, bucket: Span, part: Span, groups: &mut Groups) -> DbResult<()> {
        let (question, until) = (self.question, self.until);
        if question.is_of_records() {
            return Records { part, until }.add(db, question, bucket, groups);
        }
        let window = ReportWindow::of(part.start_ms, part.end_ms);
        let strips = [Strip::days(window.days)].into_iter().chain(window.hours.map(Strip::hours));
        for piece in strips.flat_map(Strip::pieces) {
            if Instant::now() >= until {
                return Err(DbError::too_slow());
            }
            piece.add(db, self, bucket, groups)?;
        }
        for (start_ms, end_ms) in window.edges {
            Records { part: Span { start_ms, end_ms }, until }.add(db, question, bucket, groups)?;
        }
        Ok(())
    }
}

/// Returns what a query found, or `None` if it was aborted because it takes too long.
pub(crate) fn in_time<T>(found: DbResult<T>) -> DbResult<Option<T>> {
    match found {
        Err(error) if error.kind() == DbErrorKind::TooSlow => Ok(None),
        found => found.map(Some),
    }
}

/// Limit on the groups that can be sorted.
pub(crate) const SORTED_MAX: usize = 100_000;

const NEXT_HOUR: &str = "SELECT (SELECT min(hour) FROM usage_hour WHERE hour >= :from), \
     (SELECT min(hour) FROM usage_day WHERE hour >= :from_day)";
const FIRST_HOURS: &str = "SELECT (SELECT min(hour) FROM usage_hour), (SELECT min(hour) FROM usage_day)";
const FIRST_MS: &str = "SELECT first_ms FROM usage ORDER BY last_ms LIMIT 1";
const LAST_MS: &str = "SELECT last_ms FROM usage ORDER BY last_ms DESC LIMIT 1";

#[cfg(test)]
mod tests;
