//! `GET /admin/api/series`: figures over a time in equal steps, as columns, for charts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::{Method, Response};
use serde::Serialize;
use shared::clock::unix_ms;
use shared::port::Body;

use super::query::Query;
use super::requests::{FILTERS, filter};
use super::steps::{SteppedTime, Steps};
use super::usage::{group_by, names_of_group};
use super::{ApiError, Call, Route, json, route_of};
use crate::admin::permission::Permission;
use crate::common::money::MicroUsd;
use crate::db::engine::{Db, DbResult};
use crate::db::names::Labels;
use crate::usage::dimension::Dimension;
use crate::usage::requests::RequestFilter;
use crate::usage::series::figures::PeriodFigures;
use crate::usage::series::histogram::LatencyHistogram;
use crate::usage::series::{GROUPS_COUNTED_MAX, POINTS_MAX, Series, SeriesQuestion, series};
use crate::writer::FLUSH_TIME_MAX;

pub(super) static ROUTES: &[Route] = &[route_of(Method::GET, "series", |call| Box::pin(show(call)))
    .answers::<SeriesAnswer>("Shows figures by equal steps of time, as columns.")
    .query(&["step", "group_by"])
    .filters(FILTERS)
    .permits(Permission::SeeUsage)];

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let (app, mut query) = (call.app, call.query()?);
    let group_by = group_by(&mut query, DIMENSIONS_MAX)?;
    let step = step(&mut query)?;
    let question = question(filter(&call, &mut query)?, step, group_by)?;
    query.finish()?;
    app.writer.flush(FLUSH_TIME_MAX).await;
    let owned = question.clone();
    let found = app.readers.ask(move |db| {
        let found = series(db, &owned, Instant::now() + READING_TIME)?;
        found.map(|found| Ok((names(db, &owned, &found)?, found))).transpose()
    });
    let (names, found) = found.await?.ok_or_else(|| {
        let message = format!(
            "There are more than {GROUPS_COUNTED_MAX} groups; use fewer names in group_by, a shorter time or a filter."
        );
        ApiError::parameter("group_by", message)
    })?;
    json(&SeriesAnswer::of(&question, names, found))
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

fn step(query: &mut Query) -> Result<Step, ApiError> {
    let lengths = STEPS.lengths.iter().map(|(name, step_ms)| (*name, Step::Length(*step_ms)));
    let choices: Vec<(&str, Step)> = lengths.chain([(ALL, Step::All)]).collect();
    Ok(query.choice(STEPS.parameter, &choices)?.unwrap_or(Step::Fitting))
}

fn whole(from_ms: u64, to_ms: u64) -> Result<SteppedTime, ApiError> {
    if from_ms > to_ms {
        return Err(ApiError::parameter("from", "from must not be after to."));
    }
    let to_ms = to_ms.max(from_ms.saturating_add(1));
    Ok(SteppedTime { from_ms, to_ms, step_ms: to_ms.saturating_sub(from_ms) })
}

/// Determines the time of a series and its steps.
fn question(filter: RequestFilter, step: Step, group_by: Vec<Dimension>) -> Result<SeriesQuestion, ApiError> {
    let to_ms = filter.to_ms.unwrap_or_else(|| unix_ms().saturating_add(1));
    let from_ms = filter.from_ms.unwrap_or_else(|| {
        to_ms.saturating_sub(match step {
            Step::Length(step_ms) => step_ms.saturating_mul(POINTS_DEFAULT),
            Step::Fitting | Step::All => TIME_DEFAULT_MS,
        })
    });
    let SteppedTime { from_ms, to_ms, step_ms } = match step {
        Step::Fitting => STEPS.divide(from_ms, to_ms, None)?,
        Step::Length(step_ms) => STEPS.divide(from_ms, to_ms, Some(step_ms))?,
        Step::All => whole(from_ms, to_ms)?,
    };
    Ok(SeriesQuestion { from_ms, to_ms, step_ms, group_by, filter })
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
    /// The length of a point, in milliseconds.
    step_ms: u64,
    /// True if exchanges of this time are missing, because reading them took too long or they are no longer kept.
    partial: bool,
    /// The moment from which no exchange is missing; `from_ms` unless the answer is partial.
    complete_from_ms: u64,
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
    /// The time from the request to the first content, in microseconds with two digits; null if there was none.
    first_content_us_p50: Option<u64>,
    first_content_us_p99: Option<u64>,
    /// The duration of completed exchanges, in microseconds with two digits; null if there was none.
    duration_us_p50: Option<u64>,
    duration_us_p99: Option<u64>,
}

/// The figures of a group. Each list has one item for each point.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SeriesPoints {
    /// The exchanges that started in the point: the sum of `completed`, `failed`, `cut`, `cancelled` and `refused`.
    requests: Vec<u64>,
    completed: Vec<u64>,
    /// The completed ones after a failover.
    failed_over: Vec<u64>,
    /// Failed for no fault of the client.
    failed: Vec<u64>,
    /// The answer broke off after output had started.
    cut: Vec<u64>,
    /// The client left.
    cancelled: Vec<u64>,
    /// Failed because of the request (400, 413, 415, 422), or rejected with 4xx before any target was tried.
    refused: Vec<u64>,
    /// Requests to upstreams. Grouped by provider or model, each counts for its own target.
    attempts: Vec<u64>,
    /// The attempts that failed for no fault of the client, and those whose answer broke off.
    attempt_failures: Vec<u64>,
    /// Tokens by disjoint classes.
    input: Vec<u64>,
    cache_read: Vec<u64>,
    output: Vec<u64>,
    /// The known cost, including failed attempts.
    cost_micro_usd: Vec<MicroUsd>,
    /// Attempts, failed ones included, whose cost is unknown and not in the sum.
    requests_unpriced: Vec<u64>,
    /// The time from the request to the first content, in microseconds with two digits; null if there was none.
    first_content_us_p50: Vec<Option<u64>>,
    first_content_us_p99: Vec<Option<u64>>,
    /// The duration of completed exchanges, in microseconds with two digits; null if there was none.
    duration_us_p50: Vec<Option<u64>>,
    duration_us_p99: Vec<Option<u64>>,
}

impl SeriesAnswer {
    fn of(question: &SeriesQuestion, names: Vec<GroupNames>, found: Series) -> Self {
        let columns = || question.group_by.iter().map(Dimension::name);
        let some = |name: String| Some(name).filter(|name| !name.is_empty());
        let groups = found.groups.into_iter().zip(names).map(|(group, names)| GroupSeries {
            group: columns().zip(group.names.into_iter().map(some)).collect(),
            names,
            points: SeriesPoints::of(&group.points),
            whole: SeriesTimes::of(&group.points),
        });
        Self {
            from_ms: question.from_ms,
            to_ms: question.to_ms,
            step_ms: question.step_ms,
            partial: found.complete_from_ms > question.from_ms,
            complete_from_ms: found.complete_from_ms,
            groups: groups.collect(),
            groups_omitted: found.omitted,
        }
    }
}

impl SeriesTimes {
    fn of(points: &[PeriodFigures]) -> Self {
        let merged = |of: fn(&PeriodFigures) -> &LatencyHistogram| {
            let mut all = LatencyHistogram::default();
            points.iter().for_each(|point| all.merge(of(point)));
            all
        };
        let (first_content, duration) =
            (merged(|point| &point.first_content), merged(|point| &point.duration));
        Self {
            first_content_us_p50: first_content.percentile(50),
            first_content_us_p99: first_content.percentile(99),
            duration_us_p50: duration.percentile(50),
            duration_us_p99: duration.percentile(99),
        }
    }
}

impl SeriesPoints {
    fn of(points: &[PeriodFigures]) -> Self {
        let counts = |figure: fn(&PeriodFigures) -> u64| points.iter().map(figure).collect();
        let times = |figure: fn(&PeriodFigures) -> Option<u64>| points.iter().map(figure).collect();
        Self {
            requests: counts(|point| point.requests),
            completed: counts(|point| point.completed),
            failed_over: counts(|point| point.failed_over),
            failed: counts(|point| point.failed),
            cut: counts(|point| point.cut),
            cancelled: counts(|point| point.cancelled),
            refused: counts(|point| point.refused),
            attempts: counts(|point| point.attempts),
            attempt_failures: counts(|point| point.attempt_failures),
            input: counts(|point| point.input),
            cache_read: counts(|point| point.cache_read),
            output: counts(|point| point.output),
            cost_micro_usd: points.iter().map(|point| MicroUsd(point.cost_nano_usd)).collect(),
            requests_unpriced: counts(|point| point.unpriced),
            first_content_us_p50: times(|point| point.first_content.percentile(50)),
            first_content_us_p99: times(|point| point.first_content.percentile(99)),
            duration_us_p50: times(|point| point.duration.percentile(50)),
            duration_us_p99: times(|point| point.duration.percentile(99)),
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
