//! Reads what a series consists of: periods, sums of hours, and records.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::time::Instant;

use records::{Record, Trace};

use super::{SeriesQuestion, SeriesSource};
use crate::db::engine::{Db, DbResult, Row, ToValue};
use crate::db::record_id::{NodeId, RecordId};
use crate::db::{HOUR_MS, signed};
use crate::usage::dimension::{Dimension, NameKey};
use crate::usage::metrics::OTHER;
use crate::usage::periods::{
    Followed, Grain, Part, PeriodFigures, PeriodRow, PeriodSpan, Plan, PlannedSpan, RecordReading, Section,
    each_part, first_period, followed, rows,
};
use crate::usage::report::{first_hours, only_days_before};
use crate::usage::requests::{Column, RequestFilter};

/// Takes a part of a group at a moment. Returns false if no more is wanted.
pub(super) type Take<'a> = dyn FnMut(&NameKey, u64, &Part<'_>) -> bool + 'a;

/// A query, and where its answer is.
pub(super) struct SeriesReading<'a> {
    db: &'a Db,
    question: &'a SeriesQuestion,
    source: SeriesSource,
    plan: Plan,
    /// How far periods count the records of each node.
    followed: BTreeMap<NodeId, Followed>,
    /// The filter with what its search text names.
    filter: RequestFilter,
    /// The first moment from which records are kept, if there were earlier ones.
    kept_ms: Option<u64>,
}

/// The end of a reading.
pub(super) struct SeriesRead {
    pub(super) complete_from_ms: u64,
    pub(super) merged: u64,
}

impl<'a> SeriesReading<'a> {
    pub(super) fn new(db: &'a Db, question: &'a SeriesQuestion, source: SeriesSource) -> DbResult<Self> {
        Ok(Self {
            db,
            question,
            source,
            plan: Plan::of(&question.edges, &grains(db, source)?),
            followed: followed(db)?,
            filter: question.filter.resolved(db)?,
            kept_ms: only_days_before(db)?,
        })
    }

    /// Passes all that the query is about to `take`. Reading records stops at `until`.
    pub(super) fn read(&self, until: Instant, take: &mut Take<'_>) -> DbResult<SeriesRead> {
        let start_ms = self.question.start_ms();
        let mut read = SeriesRead { complete_from_ms: start_ms, merged: 0 };
        for PlannedSpan { grain, time_ms } in &self.plan.spans {
            let Some(grain) = grain else { continue };
            match self.source {
                SeriesSource::Periods(section) => {
                    self.periods((section, *grain), time_ms, &mut read.merged, take)?;
                    // What is missing in the sums was never counted in them.
                    let from_ms = self.followed.values().map(|followed| followed.from_ms).max().unwrap_or(0);
                    if time_ms.start < from_ms {
                        read.complete_from_ms = read.complete_from_ms.max(from_ms.min(time_ms.end));
                    }
                }
                SeriesSource::Hours => {
                    if !self.hours(*grain, time_ms, until, take)? {
                        read.complete_from_ms = self.question.end_ms();
                    }
                }
                SeriesSource::Records => {}
            }
        }
        let stopped_ms = self.records(until, take)?;
        read.complete_from_ms = read.complete_from_ms.max(stopped_ms);
        let first = self.plan.of_records().next();
        if let Some(kept_ms) = self.kept_ms.filter(|kept_ms| first.is_some_and(|time| time.start < *kept_ms))
        {
            let last = self.plan.of_records().rfind(|time| time.start < kept_ms);
            let missing_ms = last.map_or(kept_ms, |time| time.end.min(kept_ms));
            read.complete_from_ms = read.complete_from_ms.max(missing_ms);
        }
        Ok(read)
    }

    /// Reads the records that neither periods nor sums count. Returns the moment from which none is missing.
    fn records(&self, until: Instant, take: &mut Take<'_>) -> DbResult<u64> {
        let start_ms = self.question.start_ms();
        let may_have = |id: RecordId, names: &[&str]| self.filter.may_pass(id, names);
        let reading = RecordReading { db: self.db, until, may_have: &may_have };
        let mut key = NameKey::default();
        let exchange = RequestFilter { names: Vec::new(), from_ms: None, to_ms: None, ..self.filter.clone() };
        let mut each = |record: &Record<'_>, trace: Trace<'_>| {
            !exchange.passes(record, trace) || self.parts(record, trace, &mut key, take)
        };
        if matches!(self.source, SeriesSource::Periods(_)) && !self.followed.is_empty() {
            let whole = start_ms..self.question.end_ms();
            let stopped_ms = reading.uncounted(&self.followed, &whole, |record, trace| {
                self.plan.reads_records_of(record.started_at_ms) || each(record, trace)
            })?;
            if stopped_ms > start_ms {
                return Ok(stopped_ms);
            }
        }
        for time in self.plan.of_records().rev() {
            let stopped_ms = reading.between(time, &mut each)?;
            if stopped_ms > time.start {
                return Ok(stopped_ms);
            }
        }
        Ok(start_ms)
    }

    /// Passes the parts of an exchange that have the names of the query.
    fn parts(&self, record: &Record<'_>, trace: Trace<'_>, key: &mut NameKey, take: &mut Take<'_>) -> bool {
        let mut goes_on = true;
        each_part(record, trace, |(provider, model), part| {
            let value = |dimension: &Dimension| match dimension {
                Dimension::Column(Column::Provider) => provider,
                Dimension::Column(Column::Model) => model,
                dimension => dimension.of(record),
            };
            let has_name =
                |(column, name): &(Column, String)| value(&Dimension::Column(*column)) == name.as_str();
            if self.filter.names.iter().all(has_name) {
                key.set(self.question.group_by.iter().map(value));
                goes_on &= take(key, record.started_at_ms, part);
            }
        });
        goes_on
    }

    /// Reads whole periods.
    fn periods(
        &self,
        (section, grain): (Section, Grain),
        time_ms: &Range<u64>,
        merged: &mut u64,
        take: &mut Take<'_>,
    ) -> DbResult<()> {
        // Minutes have targets only.
        let section = if grain == Grain::Minute { Section::Target } else { section };
        let span = PeriodSpan { grain, section, time_ms: time_ms.clone() };
        let is_named = self.question.group_by.len() + self.filter.columns().count() > 0;
        let mut key = NameKey::default();
        rows(self.db, &span, |row| {
            let is_other = is_named && row.name == OTHER;
            if !is_other && !self.is_meant(section, &row) {
                return ControlFlow::Continue(());
            }
            let Some(figures) = row.figures() else { return ControlFlow::Continue(()) };
            if is_other {
                *merged += figures.requests;
                if !self.is_meant(section, &row) {
                    return ControlFlow::Continue(());
                }
            }
            key.set(self.question.group_by.iter().map(|dimension| value_of(section, &row, dimension)));
            match take(&key, row.start_ms, &Part::Sums(&figures)) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })
    }

    /// True if a row has the names of the query.
    fn is_meant(&self, section: Section, row: &PeriodRow<'_>) -> bool {
        let value = |column: Column| value_of(section, row, &Dimension::Column(column));
        self.filter.names.iter().all(|(column, name)| value(*column) == name)
            && self.filter.scope.admits(value)
    }

    /// Reads sums of whole hours or days. Returns false if the time is over.
    fn hours(
        &self,
        grain: Grain,
        time_ms: &Range<u64>,
        until: Instant,
        take: &mut Take<'_>,
    ) -> DbResult<bool> {
        let mut statement = self.db.prepare(&self.sql(grain))?;
        let hours = [time_ms.start / HOUR_MS, time_ms.end / HOUR_MS].map(signed);
        let scope = self.filter.scope.values();
        let mut values: Vec<&dyn ToValue> = hours.iter().map(|hour| hour as _).collect();
        values.extend(self.filter.names.iter().map(|(_, name)| name as &dyn ToValue));
        values.extend(scope.iter().map(|list| list as &dyn ToValue));
        let mut rows = statement.query(values.as_slice())?;
        let mut key = NameKey::default();
        let mut count = 0_u32;
        while let Some(row) = rows.next()? {
            count = count.wrapping_add(1);
            if count.is_multiple_of(1_024) && Instant::now() >= until {
                return Ok(false);
            }
            key.clear();
            for at in (SUMS..).take(self.question.group_by.len()) {
                key.push(row.get(at)?);
            }
            let (at_ms, figures) = hour_figures(row)?;
            if !take(&key, at_ms, &Part::Sums(&figures)) {
                break;
            }
        }
        Ok(true)
    }

    fn sql(&self, grain: Grain) -> String {
        let table = if grain == Grain::Day { "usage_day" } else { "usage_hour" };
        let columns = self.question.group_by.iter().filter_map(Dimension::column);
        let names: String = columns.map(|column| format!(", {}", column.name())).collect();
        let filters = self.filter.names.iter().map(|(column, _)| column.name()).enumerate();
        let filters: String = filters.map(|(at, name)| format!(" AND {name} = :filter_{at}")).collect();
        let scope = self.filter.scope.sql();
        format!(
            "SELECT hour, outcome, requests, unpriced, cost_nano_usd, input_tokens, cache_read_tokens, output_tokens{names} \
             FROM {table} WHERE hour >= :from AND hour < :to{filters}{scope}"
        )
    }
}

/// The number of columns before the names.
const SUMS: usize = 8;

/// Returns the time and the figures of a row of sums.
fn hour_figures(row: Row<'_>) -> DbResult<(u64, PeriodFigures)> {
    let requests: u64 = row.get(2)?;
    let mut figures = PeriodFigures {
        requests,
        unpriced: row.get(3)?,
        cost_nano_usd: row.get(4)?,
        input: row.get(5)?,
        cache_read: row.get(6)?,
        output: row.get(7)?,
        ..PeriodFigures::default()
    };
    *match row.get::<&str>(1)? {
        "completed" => &mut figures.completed,
        "cancelled" => &mut figures.cancelled,
        "cut" | "interrupted" => &mut figures.cut,
        _ => &mut figures.failed,
    } = requests;
    Ok((row.get::<u64>(0)?.saturating_mul(HOUR_MS), figures))
}

/// Returns the grains that a source has, the longest first, each with the first moment since which it is kept.
fn grains(db: &Db, source: SeriesSource) -> DbResult<Vec<(Grain, u64)>> {
    let firsts = match source {
        SeriesSource::Records => return Ok(Vec::new()),
        SeriesSource::Hours => {
            let (hours, days) = first_hours(db)?;
            vec![(Grain::Day, days), (Grain::Hour, hours)]
        }
        SeriesSource::Periods(section) => {
            let minutes = matches!(section, Section::All | Section::Target).then_some(Section::Target);
            let of = [(Grain::Day, Some(section)), (Grain::Hour, Some(section)), (Grain::Minute, minutes)];
            let kept = of.into_iter().filter_map(|(grain, section)| Some((grain, section?)));
            kept.map(|(grain, section)| Ok((grain, first_period(db, grain, section)?)))
                .collect::<DbResult<_>>()?
        }
    };
    Ok(firsts.into_iter().filter_map(|(grain, first_ms)| Some((grain, first_ms?))).collect())
}

/// Returns the value of a dimension in a row of a section.
fn value_of<'a>(section: Section, row: &PeriodRow<'a>, dimension: &Dimension) -> &'a str {
    match (section, dimension) {
        (Section::All, _) => "",
        (Section::Target, Dimension::Column(Column::Model)) => row.model,
        _ => row.name,
    }
}
