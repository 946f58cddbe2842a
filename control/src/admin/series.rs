//! `GET /admin/api/series`: figures over a time in steps, as columns, for charts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use http::{Method, Response};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::port::Body;

use super::query::{Choice, CommaList, LocalSpan, Named};
use super::requests::{RequestFilters, filter_in};
use super::steps::{SteppedTime, Steps};
use super::usage::{dimensions, names_of_group};
use super::{ApiError, Call, Route, json, route_of};
use crate::admin::permission::Permission;
use crate::common::money::MicroUsd;
use crate::db::HOUR_MS;
use crate::db::engine::{Db, DbResult};
use crate::db::names::Labels;
use crate::usage::dimension::Dimension;
use crate::usage::metrics::{Distribution, Scale};
use crate::usage::periods::PeriodFigures;
use crate::usage::report::calendar::{BucketLength, Calendar};
use crate::usage::requests::RequestFilter;
use crate::usage::series::{
    GROUPS_COUNTED_MAX, POINTS_MAX, ReadingTimes, Series, SeriesQuestion, SeriesSource, series,
};
use crate::writer::FLUSH_TIME_MAX;

pub(super) static ROUTES: &[Route] = &[route_of(Method::GET, "series", |call| Box::pin(show(call)))
    .answers::<SeriesAnswer>("Shows figures by steps of time, as columns.")
    .query::<(SeriesQuery, LocalSpan, RequestFilters)>()
    .permits(Permission::SeeUsage)];

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let app = call.app;
    let (SeriesQuery { step, group_by }, span, filters): (SeriesQuery, LocalSpan, RequestFilters) =
        call.query()?;
    let (bounds, zone) = span.ms()?;
    let filter = filter_in(&call, bounds, filters)?;
    let time = SeriesTime::of(&filter, step.map_or(Step::Fitting, |step| step.0), zone)?;
    let group_by = dimensions(group_by, DIMENSIONS_MAX)?;
    let question = SeriesQuestion { edges: time.edges.clone(), group_by, filter };
    app.writer.flush(FLUSH_TIME_MAX).await;
    let owned = question.clone();
    let found = app.readers.ask(move |db| {
        let now = Instant::now();
        let until =
            ReadingTimes { records: now + TRYING_TIME, all: now + READING_TIME, hours: now + SUMS_TIME };
        let found = series(db, &owned, until)?;
        found.map(|found| Ok((names(db, &owned, &found)?, found))).transpose()
    });
    let (names, found) = found.await?.ok_or_else(|| {
        let message = format!(
            "There are more than {GROUPS_COUNTED_MAX} groups; use fewer names in group_by, a shorter time or a filter."
        );
        ApiError::parameter("group_by", message)
    })?;
    json(&SeriesAnswer::of(&time, &question, names, found))
}

/// The steps that a query asks for.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The shortest length of which not too many fit into the time.
    Fitting,
    /// This length, in milliseconds.
    Length(u64),
    /// One step for the whole time, which compares groups.
    All,
}

impl Named for Step {
    fn named() -> Vec<(&'static str, Self)> {
        let lengths = STEPS.lengths.iter().map(|(name, step_ms)| (*name, Self::Length(*step_ms)));
        lengths.chain([(ALL, Self::All)]).collect()
    }
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SeriesQuery {
    /// The length of a step, in seconds; `all` is one step. The shortest that fits if absent.
    step: Option<Choice<Step>>,
    /// The dimensions of the groups. `tag:NAME` is a tag.
    group_by: Option<CommaList<String>>,
}

fn whole(from_ms: u64, to_ms: u64) -> Result<SteppedTime, ApiError> {
    if from_ms > to_ms {
        return Err(ApiError::parameter("from", "from must not be after to."));
    }
    let to_ms = to_ms.max(from_ms.saturating_add(1));
    Ok(SteppedTime { from_ms, to_ms, step_ms: to_ms.saturating_sub(from_ms) })
}

/// The time of a series.
struct SeriesTime {
    /// The starts of the points, and the end of the last one.
    edges: Vec<u64>,
    step_ms: u64,
    zone: TimeZone,
}

impl SeriesTime {
    /// Determines the time of a series and its steps.
    fn of(filter: &RequestFilter, step: Step, zone: TimeZone) -> Result<Self, ApiError> {
        let to_ms = filter.to_ms.unwrap_or_else(|| unix_ms().saturating_add(1));
        let from_ms = filter.from_ms.unwrap_or_else(|| {
            to_ms.saturating_sub(match step {
                Step::Length(step_ms) => step_ms.saturating_mul(POINTS_DEFAULT),
                Step::Fitting | Step::All => TIME_DEFAULT_MS,
            })
        });
        let time = match step {
            Step::Fitting => STEPS.divide(from_ms, to_ms, None)?,
            Step::Length(step_ms) => STEPS.divide(from_ms, to_ms, Some(step_ms))?,
            Step::All => whole(from_ms, to_ms)?,
        };
        let SteppedTime { step_ms, .. } = time;
        let is_of_days = !matches!(step, Step::All) && step_ms > HOUR_MS && zone != TimeZone::UTC;
        let edges = if is_of_days { edges_in(&zone, from_ms..to_ms, step_ms) } else { edges(&time) };
        if edges.len() > POINTS_PLUS_ENDS {
            let message = format!("At most {POINTS_MAX} points are returned; use a later from.");
            return Err(ApiError::parameter("from", message));
        }
        Ok(Self { edges, step_ms, zone })
    }
}

/// Returns the edges of equal steps.
fn edges(time: &SteppedTime) -> Vec<u64> {
    let step = usize::try_from(time.step_ms.max(1)).unwrap_or(usize::MAX);
    let starts = (time.from_ms..time.to_ms).step_by(step).take(POINTS_PLUS_ENDS);
    starts.chain([time.to_ms]).collect()
}

/// Returns the edges of steps that begin with the days of a time zone. Both ends are extended to whole steps. The last step of
/// a day is as long as the day is.
fn edges_in(zone: &TimeZone, time_ms: Range<u64>, step_ms: u64) -> Vec<u64> {
    let calendar = Calendar { bucket: Some(BucketLength::Day), zone: zone.clone() };
    let mut day = calendar.span(time_ms.start);
    let mut edges = vec![day.start_ms];
    while edges.len() <= POINTS_PLUS_ENDS && edges.last().is_some_and(|last| *last < time_ms.end) {
        let last = edges.last().copied().unwrap_or(day.start_ms);
        if last >= day.end_ms {
            day = calendar.span(last);
        }
        // A rest that is shorter than half a step belongs to the step before it.
        let next = last + step_ms;
        let next = if next + step_ms / 2 > day.end_ms { day.end_ms } else { next };
        if next <= time_ms.start {
            edges.clear();
        }
        edges.push(next);
    }
    edges
}

/// The names that belong to the ids of a group.
type GroupNames = BTreeMap<&'static str, Option<String>>;

/// Returns the names of each group, in the order of the groups.
fn names(db: &Db, question: &SeriesQuestion, found: &Series) -> DbResult<Vec<GroupNames>> {
    let mut labels = Labels::default();
    let mut of_group = |ids: &[String]| {
        names_of_group(db, &mut labels, question.group_by.iter().zip(ids.iter().map(String::as_str)))
    };
    found.groups.iter().map(|group| of_group(&group.names)).collect()
}

/// Figures by time.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Series"))]
struct SeriesAnswer {
    /// The start of the first point, in milliseconds since the Unix epoch.
    from_ms: u64,
    /// The end of the last point, in milliseconds since the Unix epoch.
    to_ms: u64,
    /// The length of a point, in milliseconds. A day of `tz` is shorter or longer where its clock changes.
    step_ms: u64,
    /// The start of each point, in milliseconds since the Unix epoch.
    starts_ms: Vec<u64>,
    /// The time zone in which days begin.
    tz: String,
    /// The source of the figures: `periods`, which have everything; `hours`, the sums of hours and days, for combinations
    /// of names of which no periods are kept and too many records to read; or `records`.
    source: &'static str,
    /// The columns that `source` does not have. They are null. Without `refused`, those requests are in `failed`.
    unknown: Vec<&'static str>,
    /// True if exchanges of this time are missing, because reading them took too long or they are no longer kept.
    partial: bool,
    /// The moment from which no exchange is missing; `from_ms` unless the answer is partial.
    complete_from_ms: u64,
    /// The requests of this time that are counted under the name `other`, because their day had more than 128 names.
    requests_merged: u64,
    /// The groups with the most requests, in that order, at most 50. One group without names if the query has no
    /// `group_by`.
    groups: Vec<GroupSeries>,
    /// The number of further groups.
    groups_omitted: usize,
}

/// The figures of a group.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GroupSeries {
    /// The ids of the group; null for exchanges without one.
    group: BTreeMap<String, Option<String>>,
    /// The names of the keys, projects and humans among the ids; null if unknown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, Option<String>>"))]
    names: GroupNames,
    points: SeriesPoints,
    /// The times of all exchanges of the series.
    whole: SeriesTimes,
}

/// How long the exchanges of a group took.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SeriesTimes {
    /// The time from the request to the first content, in microseconds, exact to 1.6 %; null if there was none.
    first_content_us_p50: Option<u64>,
    first_content_us_p99: Option<u64>,
    /// The duration of completed exchanges, in microseconds, exact to 1.6 %; null if there was none.
    duration_us_p50: Option<u64>,
    duration_us_p99: Option<u64>,
}

/// The figures of a group. Each list has one item for each point; null for figures that are `unknown`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SeriesPoints {
    /// The exchanges that started in the point: the sum of `completed`, `failed`, `cut`, `cancelled` and `refused`.
    requests: Vec<u64>,
    completed: Vec<u64>,
    /// The completed ones after a failover.
    failed_over: Option<Vec<u64>>,
    /// Failed for no fault of the client.
    failed: Vec<u64>,
    /// The answer broke off after output had started.
    cut: Vec<u64>,
    /// The client left.
    cancelled: Vec<u64>,
    /// Failed because of the request (400, 413, 415, 422), or rejected with 4xx before any target was tried.
    refused: Option<Vec<u64>>,
    /// Requests to upstreams. Grouped by provider or model, each counts for its own target.
    attempts: Option<Vec<u64>>,
    /// The attempts that failed for no fault of the client, and those whose answer broke off.
    attempt_failures: Option<Vec<u64>>,
    /// Tokens by disjoint classes.
    input: Vec<u64>,
    cache_read: Vec<u64>,
    output: Vec<u64>,
    /// The known cost, including failed attempts.
    cost_micro_usd: Vec<MicroUsd>,
    /// Attempts, failed ones included, whose cost is unknown and not in the sum.
    requests_unpriced: Vec<u64>,
    /// The time from the request to the first content, in microseconds, exact to 1.6 %; null if there was none.
    first_content_us_p50: Option<Vec<Option<u64>>>,
    first_content_us_p99: Option<Vec<Option<u64>>>,
    /// The duration of completed exchanges, in microseconds, exact to 1.6 %; null if there was none.
    duration_us_p50: Option<Vec<Option<u64>>>,
    duration_us_p99: Option<Vec<Option<u64>>>,
}

impl SeriesAnswer {
    fn of(time: &SeriesTime, question: &SeriesQuestion, names: Vec<GroupNames>, found: Series) -> Self {
        let columns = || question.group_by.iter().map(Dimension::name);
        let some = |name: String| Some(name).filter(|name| !name.is_empty());
        let has_all = found.source != SeriesSource::Hours;
        let groups = found.groups.into_iter().zip(names).map(|(group, names)| GroupSeries {
            group: columns().zip(group.names.into_iter().map(some)).collect(),
            names,
            points: SeriesPoints::of(&group.points, has_all),
            whole: SeriesTimes::of(&group.points),
        });
        let (from_ms, to_ms) =
            time.edges.first().zip(time.edges.last()).map_or((0, 0), |(from, to)| (*from, *to));
        let mut starts_ms = time.edges.clone();
        starts_ms.pop();
        Self {
            from_ms,
            to_ms,
            step_ms: time.step_ms,
            starts_ms,
            tz: time.zone.iana_name().unwrap_or("UTC").to_owned(),
            source: match found.source {
                SeriesSource::Periods(_) => "periods",
                SeriesSource::Hours => "hours",
                SeriesSource::Records => "records",
            },
            unknown: if has_all { Vec::new() } else { UNKNOWN_IN_HOURS.to_vec() },
            partial: found.complete_from_ms > from_ms,
            complete_from_ms: found.complete_from_ms,
            requests_merged: found.merged,
            groups: groups.collect(),
            groups_omitted: found.omitted,
        }
    }
}

impl SeriesTimes {
    fn of(points: &[PeriodFigures]) -> Self {
        let merged = |of: fn(&PeriodFigures) -> &Distribution| {
            let mut all = Distribution::default();
            points.iter().for_each(|point| all.merge(of(point)));
            all
        };
        let (first_content, duration) =
            (merged(|point| &point.first_content), merged(|point| &point.duration));
        Self {
            first_content_us_p50: first_content.percentile(Scale::Fine, 50),
            first_content_us_p99: first_content.percentile(Scale::Fine, 99),
            duration_us_p50: duration.percentile(Scale::Fine, 50),
            duration_us_p99: duration.percentile(Scale::Fine, 99),
        }
    }
}

impl SeriesPoints {
    fn of(points: &[PeriodFigures], all: bool) -> Self {
        let counts = |figure: fn(&PeriodFigures) -> u64| -> Vec<u64> { points.iter().map(figure).collect() };
        let of_times =
            |figure: fn(&PeriodFigures) -> Option<u64>| all.then(|| points.iter().map(figure).collect());
        Self {
            requests: counts(|point| point.requests),
            completed: counts(|point| point.completed),
            failed_over: all.then(|| counts(|point| point.failed_over)),
            failed: counts(|point| point.failed),
            cut: counts(|point| point.cut),
            cancelled: counts(|point| point.cancelled),
            refused: all.then(|| counts(|point| point.refused)),
            attempts: all.then(|| counts(|point| point.attempts)),
            attempt_failures: all.then(|| counts(|point| point.attempt_failures)),
            input: counts(|point| point.input),
            cache_read: counts(|point| point.cache_read),
            output: counts(|point| point.output),
            cost_micro_usd: points.iter().map(|point| MicroUsd(point.cost_nano_usd)).collect(),
            requests_unpriced: counts(|point| point.unpriced),
            first_content_us_p50: of_times(|point| point.first_content.percentile(Scale::Fine, 50)),
            first_content_us_p99: of_times(|point| point.first_content.percentile(Scale::Fine, 99)),
            duration_us_p50: of_times(|point| point.duration.percentile(Scale::Fine, 50)),
            duration_us_p99: of_times(|point| point.duration.percentile(Scale::Fine, 99)),
        }
    }
}

const STEPS: Steps = Steps {
    parameter: "step",
    lengths: &[
        ("1", 1_000),
        ("10", 10_000),
        ("60", 60_000),
        ("3600", 3_600_000),
        ("21600", 21_600_000),
        ("86400", 86_400_000),
    ],
    most: POINTS_MAX,
};
/// The length of a series without `from` and `step`.
const TIME_DEFAULT_MS: u64 = 3_600_000;
/// The number of points of a series without `from`.
const POINTS_DEFAULT: u64 = 60;
/// The `step` of one point for the whole time.
const ALL: &str = "all";
/// The maximum number of names in `group_by`.
const DIMENSIONS_MAX: usize = 2;
/// Reading records stops after this time.
const READING_TIME: Duration = Duration::from_secs(1);
/// Reading records stops after this time where the sums of hours can answer.
const TRYING_TIME: Duration = Duration::from_millis(250);
/// Reading sums of hours stops after this time.
const SUMS_TIME: Duration = Duration::from_secs(8);
/// The maximum number of edges of the points.
const POINTS_PLUS_ENDS: usize = 362;
const UNKNOWN_IN_HOURS: [&str; 8] = [
    "failed_over",
    "refused",
    "attempts",
    "attempt_failures",
    "first_content_us_p50",
    "first_content_us_p99",
    "duration_us_p50",
    "duration_us_p99",
];
