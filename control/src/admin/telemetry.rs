//! `GET /admin/api/telemetry`: times, errors and results of attempts at targets by minute, and changes of circuits, from
//! `telemetry.db`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::{Method, Response};
use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::port::Body;

use super::query::{Choice, Named, Span};
use super::steps::{SteppedTime, Steps};
use super::{ApiError, Call, Route, json, route_of};
use crate::common::bounds::{TELEMETRY_CHANGES, TELEMETRY_TARGETS};
use crate::db::circuit_changes::{CircuitChange, TargetFilter};
use crate::db::cluster::nodes::NodeLabel;
use crate::usage::metrics::Distribution;
use crate::usage::periods::{TargetSums, TargetTime};
use crate::usage::targets::{TargetFigures, TargetQuestion, target_figures};
use crate::usage::telemetry::ChangeQuestion;
use crate::writer::FLUSH_TIME_MAX;

pub(super) static ROUTES: &[Route] = &[route_of(Method::GET, "telemetry", |call| Box::pin(show(call)))
    .answers::<TelemetryAnswer>(
        "Shows times, errors and changes of circuits of targets: minutes of the last 14 days, hours of 100 days, and days.",
    )
    .query::<(TelemetryQuery, Span)>()];

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let app = call.app;
    let question = question(call.query()?)?;
    app.writer.flush(FLUSH_TIME_MAX).await;
    let TargetQuestion { time_ms, filter, .. } = question.clone();
    // One more than is returned, so that the answer tells that there are more.
    let changes = ChangeQuestion { time_ms, filter, max: TELEMETRY_CHANGES.max() + 1 };
    let changes = app.telemetry.changes(changes).await.ok_or_else(|| {
        ApiError::new(ErrorKind::Overloaded, "telemetry.db cannot be read now; the log has the reason.")
    })?;
    let owned = question.clone();
    let found = app.readers.ask(move |db| target_figures(db, &owned, Instant::now() + READING_TIME)).await?;
    let node = app.board().map(|board| board.me().clone());
    json(&TelemetryAnswer { node, ..TelemetryAnswer::of(&question, found, changes) })
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TelemetryQuery {
    /// Only those of this provider, by ID.
    provider: Option<String>,
    /// Only those of this model, by its ID at the provider.
    model: Option<String>,
    /// The length of a point, in seconds. The shortest that fits if absent.
    bucket: Option<Choice<BucketMs>>,
}

/// The length of a point, in milliseconds.
struct BucketMs(u64);

impl Named for BucketMs {
    fn named() -> Vec<(&'static str, Self)> {
        BUCKETS.lengths.iter().map(|(name, step_ms)| (*name, Self(*step_ms))).collect()
    }
}

/// Determines the targets, the time and its buckets.
fn question((query, span): (TelemetryQuery, Span)) -> Result<TargetQuestion, ApiError> {
    let TelemetryQuery { provider, model, bucket } = query;
    let filter = TargetFilter { provider, model };
    let (from_ms, to_ms) = span.ms()?;
    let to_ms = to_ms.unwrap_or_else(|| unix_ms().saturating_add(1));
    let from_ms = from_ms.unwrap_or_else(|| to_ms.saturating_sub(TIME_DEFAULT_MS));
    let bucket = bucket.map(|bucket| bucket.0.0);
    let SteppedTime { from_ms, to_ms, step_ms } = BUCKETS.divide(from_ms, to_ms, bucket)?;
    Ok(TargetQuestion { time_ms: from_ms..to_ms, step_ms, filter })
}

/// The times, errors and results of attempts at the targets of a query, and the changes of their circuits.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Telemetry"))]
struct TelemetryAnswer {
    /// The start of the time, in milliseconds since the Unix epoch.
    from_ms: u64,
    /// The end of the time, in milliseconds since the Unix epoch.
    to_ms: u64,
    /// The length of a point, in milliseconds.
    bucket_ms: u64,
    /// True if exchanges of this time are missing, because reading them took too long or they are no longer kept.
    partial: bool,
    /// The moment from which none is missing for this reason; `from_ms` unless the answer is partial.
    complete_from_ms: u64,
    /// The bounds of the buckets of all distributions.
    bounds_us: TelemetryBounds,
    /// The sums of all targets of the query, in the order of time, without points in which nothing started.
    points: Vec<TelemetryPoint>,
    /// The targets of the query with the most requests, in that order, at most 100.
    targets: Vec<TelemetryTarget>,
    /// The number of further targets.
    targets_omitted: usize,
    /// The circuits that opened and closed, the latest first, at most 500. A restart closes all circuits, and none of that
    /// is a change. Circuits that were open for less than a second may be missing.
    circuit_changes: Vec<ShownCircuitChange>,
    /// True if there are more changes in this time.
    circuit_changes_omitted: bool,
    /// The node that answers: `circuit_changes` are those of its circuits. Absent for a gateway with its own database.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeLabel>,
}

/// The upper bounds of the buckets, in microseconds. Each distribution has one bucket more, of values beyond all bounds.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TelemetryBounds {
    head: &'static [u64],
    first_content: &'static [u64],
    gap: &'static [u64],
    gateway: &'static [u64],
}

/// The times, errors and results of attempts of the exchanges that started in a point.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TelemetryPoint {
    /// The start of the point, in milliseconds since the Unix epoch.
    start_ms: u64,
    /// Exchanges that a target served, or was the last one to be tried for.
    requests: u64,
    /// Those that were not completed, by kind of error; by outcome (`cancelled`, `cut`) if they have none.
    errors: BTreeMap<String, u64>,
    /// Attempts at the targets by result, and reasons for skipping them, also of exchanges that other targets served.
    results: BTreeMap<String, u64>,
    /// The longest time without a piece of an answer, in microseconds; 0 if there was none.
    silence_us_max: u64,
    /// The time from the request to the head of the upstream's answer.
    head: TimeDistribution,
    /// The time from the request to the first content of a stream.
    first_content: TimeDistribution,
    /// The time between two pieces of a stream.
    gap: TimeDistribution,
    /// The time that the gateway itself took until the first content.
    gateway: TimeDistribution,
}

/// The distribution of a time.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TimeDistribution {
    /// The number of values.
    count: u64,
    /// The sum of the values, in microseconds.
    sum_us: u64,
    /// Percentiles in microseconds, estimated from the buckets; null if there are no values. Beyond all bounds it is the
    /// last bound.
    p50_us: Option<u64>,
    p90_us: Option<u64>,
    p99_us: Option<u64>,
    /// The number of values in each bucket, not cumulative; empty if there are no values.
    buckets: Vec<u64>,
}

/// A target with exchanges or attempts in the time.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TelemetryTarget {
    /// The provider instance; null for exchanges that reached none. `other` counts targets beyond 128 of a day.
    provider: Option<String>,
    /// The model of that instance; null for exchanges that reached none.
    model: Option<String>,
    /// Exchanges that the target served, or was the last one to be tried for.
    requests: u64,
    /// Those that were not completed.
    errors: u64,
}

/// A circuit that opened or closed.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CircuitChange"))]
struct ShownCircuitChange {
    /// In milliseconds since the Unix epoch; exact to a second for a circuit that closed.
    at_ms: u64,
    provider: String,
    /// The model whose circuit it is; null for the circuit of the provider instance itself.
    model: Option<String>,
    /// `open` or `closed`.
    state: &'static str,
    /// The result of the last failed attempt, such as `status` or `unreachable`; null for a circuit that closed.
    result: Option<String>,
    /// The upstream's status in that attempt; null if it did not respond.
    status: Option<u16>,
}

impl TelemetryAnswer {
    fn of(question: &TargetQuestion, found: TargetFigures, changes: Vec<CircuitChange>) -> Self {
        let TargetFigures { points, targets, complete_from_ms } = found;
        let some = |name: String| Some(name).filter(|name| !name.is_empty());
        let mut targets: Vec<_> = targets
            .into_iter()
            .map(|((provider, model), (requests, errors))| TelemetryTarget {
                provider: some(provider),
                model: some(model),
                requests,
                errors,
            })
            .collect();
        targets.sort_by_key(|target| std::cmp::Reverse(target.requests));
        let targets_omitted = TELEMETRY_TARGETS.cut(&mut targets);
        let bounds = TargetTime::bounds_us;
        Self {
            from_ms: question.time_ms.start,
            to_ms: question.time_ms.end,
            bucket_ms: question.step_ms,
            partial: complete_from_ms > question.time_ms.start,
            complete_from_ms,
            bounds_us: TelemetryBounds {
                head: bounds(TargetTime::Head),
                first_content: bounds(TargetTime::FirstContent),
                gap: bounds(TargetTime::Gap),
                gateway: bounds(TargetTime::Gateway),
            },
            points: points.into_iter().map(|(start_ms, sums)| TelemetryPoint::of(start_ms, &sums)).collect(),
            targets,
            targets_omitted,
            circuit_changes_omitted: TELEMETRY_CHANGES.excess(changes.len()) > 0,
            circuit_changes: changes
                .into_iter()
                .take(TELEMETRY_CHANGES.max())
                .map(ShownCircuitChange::of)
                .collect(),
            node: None,
        }
    }
}

impl TelemetryPoint {
    fn of(start_ms: u64, sums: &TargetSums) -> Self {
        let [head, first_content, gap, gateway] =
            TargetTime::ALL.map(|time| TimeDistribution::of(time, sums.time(time)));
        let counts = |(name, count): (&str, &u64)| (name.to_owned(), *count);
        Self {
            start_ms,
            requests: sums.requests,
            errors: sums.errors.iter().map(counts).collect(),
            results: sums.results.iter().map(counts).collect(),
            silence_us_max: sums.silence_us_max,
            head,
            first_content,
            gap,
            gateway,
        }
    }
}

impl TimeDistribution {
    fn of(time: TargetTime, values: &Distribution) -> Self {
        let percentile = |percent| values.percentile(time.bounds_us(), percent);
        Self {
            count: values.count(),
            sum_us: values.sum,
            p50_us: percentile(50),
            p90_us: percentile(90),
            p99_us: percentile(99),
            buckets: values.counts(time.bounds_us()),
        }
    }
}

impl ShownCircuitChange {
    fn of(change: CircuitChange) -> Self {
        let CircuitChange { at_ms, provider, model, is_open, result, status } = change;
        Self { at_ms, provider, model, state: if is_open { "open" } else { "closed" }, result, status }
    }
}

const BUCKETS: Steps = Steps {
    parameter: "bucket",
    lengths: &[("60", 60_000), ("300", 300_000), ("3600", 3_600_000), ("86400", 86_400_000)],
    // Six hours of minutes, and 15 days of hours.
    most: 361,
};
/// Reading records stops after this time.
const READING_TIME: Duration = Duration::from_secs(1);
/// The length of the time without `from`.
const TIME_DEFAULT_MS: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::common::bounds::tests::passes;

    #[test]
    fn targets_and_changes_beyond_their_maximum_are_left_out_and_counted() {
        let question =
            TargetQuestion { time_ms: 0..60_000, step_ms: 60_000, filter: TargetFilter::default() };
        let target = |n: usize| (("p".to_owned(), format!("m{n:03}")), (n as u64, 0));
        let change = CircuitChange {
            at_ms: 1,
            provider: "p".to_owned(),
            model: None,
            is_open: true,
            result: None,
            status: None,
        };
        let figures = |more: usize| TargetFigures {
            points: BTreeMap::new(),
            targets: (0..TELEMETRY_TARGETS.max() + more).map(target).collect(),
            complete_from_ms: 0,
        };
        let changes = |more: usize| vec![change.clone(); TELEMETRY_CHANGES.max() + more];
        let answer = |more: usize| TelemetryAnswer::of(&question, figures(more), changes(more));
        let whole = answer(0);
        assert_eq!((whole.targets_omitted, whole.circuit_changes_omitted), (0, false));
        let cut = passes(&TELEMETRY_TARGETS, || passes(&TELEMETRY_CHANGES, || answer(1)));
        assert_eq!((cut.targets_omitted, cut.circuit_changes_omitted), (1, true));
        assert_eq!((cut.targets.len(), cut.circuit_changes.len()), (100, 500));
        assert_eq!(cut.targets[99].requests, 1, "the one with the fewest requests is left out");
    }
}
