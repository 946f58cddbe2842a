//! Series over a real database: equal to the records whatever they are read from, their time, and percentiles.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::id::{EndpointName, KeyId, ModelId, ProjectId, ProviderId};
use shared::operation::Operation;
use shared::prices::{Prices, Rates};
use shared::usage::{Class, Lost, Outcome, StepResult, TokenCounts, TraceStep, UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::*;
use crate::routing::catalog::facts::Priced;
use crate::routing::catalog::history::History;
use crate::usage::metrics::Scale;
use crate::usage::periods::follow;
use crate::usage::reprice::{Repriced, Repricing, RowTime};
use crate::usage::requests::Column;
use crate::usage::scope::UsageScope;
use crate::usage::tests::{Process, event};

/// The start of a UTC day.
const FROM: u64 = 1_700_006_400_000;
const DAY_MS: u64 = 24 * HOUR_MS;

fn question(step_ms: u64) -> SeriesQuestion {
    let edges = (0..=100).map(|n| FROM + n * step_ms).collect();
    SeriesQuestion { edges, group_by: Vec::new(), filter: RequestFilter::default() }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn until(records: Instant) -> ReadingTimes {
    ReadingTimes { records, all: records, hours: far() }
}

fn found(process: &Process, question: &SeriesQuestion) -> Series {
    series(process.meter.db(), question, until(far())).unwrap().unwrap()
}

fn store(process: &mut Process, events: impl IntoIterator<Item = UsageEvent>) {
    let mut log = process.journal.log().unwrap();
    events.into_iter().for_each(|event| assert!(log.append(&event)));
    drop(log);
    process.settle();
}

/// Returns a database with `count` exchanges, one a second.
fn filled(home: &TempDir, count: u64) -> Process {
    let mut process = Process::start(home.path());
    store(&mut process, (0..count).map(|n| UsageEvent { started_at_ms: FROM + n * 1_000, ..event(n) }));
    process
}

/// Numbers without a visible pattern, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Any exchange of some days.
fn any_event(numbers: &mut Numbers, n: u64) -> UsageEvent {
    let mut provider = || ProviderId::new(format!("p{}", numbers.below(3)));
    let (first, second) = (provider(), provider());
    let lost = Lost {
        tokens: TokenCounts { input: numbers.below(50), ..TokenCounts::ZERO },
        cost_nano_usd: Some(numbers.below(900)).filter(|cost| cost % 3 > 0),
        ..Lost::default()
    };
    let mut failed = TraceStep::new(first, ModelId::new("m0"), StepResult::Status);
    failed.status = Some(503);
    failed.lost = (numbers.below(3) == 0).then(|| Box::new(lost));
    let outcome = [Outcome::Completed, Outcome::Completed, Outcome::Cut, Outcome::Cancelled, Outcome::Failed]
        [usize::try_from(numbers.below(5)).unwrap()];
    let model = ModelId::new(format!("m{}", numbers.below(4)));
    let mut trace = vec![TraceStep::new(second.clone(), model.clone(), StepResult::Served)];
    if numbers.below(4) == 0 {
        trace.insert(0, failed);
    }
    UsageEvent {
        started_at_ms: FROM + numbers.below(3 * DAY_MS),
        duration_us: numbers.below(90_000_000),
        first_content_us: Some(numbers.below(9_000_000)).filter(|us| us % 4 > 0),
        project: Some(ProjectId::new(format!("prj{}", numbers.below(3)))).filter(|_| !n.is_multiple_of(5)),
        key: KeyId::new(format!("k{}", numbers.below(7))),
        endpoint: Some(EndpointName::new("line")).filter(|_| !n.is_multiple_of(3)),
        operation: if n.is_multiple_of(6) { Operation::Embeddings } else { Operation::ChatCompletions },
        provider: Some(second),
        model: Some(model),
        outcome,
        status: if outcome == Outcome::Failed { [400, 503][usize::from(!n.is_multiple_of(2))] } else { 200 },
        cost_nano_usd: Some(numbers.below(10_000)).filter(|cost| cost % 5 > 0),
        tokens: TokenCounts { input: numbers.below(999), output: 7, cache_read: n % 9, ..TokenCounts::ZERO },
        trace,
        ..event(n)
    }
}

/// Any cut of the time of [`any_event`].
fn any_edges(numbers: &mut Numbers) -> Vec<u64> {
    let step_ms = [MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS, 3 * DAY_MS]
        [usize::try_from(numbers.below(6)).unwrap()];
    let unit_ms = [1, MINUTE_MS, 30 * MINUTE_MS, HOUR_MS, DAY_MS][usize::try_from(numbers.below(5)).unwrap()];
    let start = FROM - HOUR_MS + numbers.below(2 * DAY_MS) / unit_ms * unit_ms;
    let points = 1 + numbers.below(3 * DAY_MS / step_ms).min(200);
    (0..=points).map(|n| start + n * step_ms).collect()
}

fn any_question(numbers: &mut Numbers) -> SeriesQuestion {
    let column = |column| Dimension::Column(column);
    let groups = [
        vec![],
        vec![column(Column::Provider)],
        vec![column(Column::Model), column(Column::Provider)],
        vec![column(Column::Project)],
        vec![column(Column::Endpoint)],
        vec![column(Column::Operation)],
        vec![column(Column::Outcome)],
        vec![Dimension::Client],
        vec![column(Column::Key)],
        vec![column(Column::Project), column(Column::Model)],
    ];
    let names = [
        vec![],
        vec![],
        vec![(Column::Provider, "p1".to_owned())],
        vec![(Column::Model, "m0".to_owned()), (Column::Provider, "p0".to_owned())],
        vec![(Column::Project, "prj1".to_owned())],
        vec![(Column::Key, "k3".to_owned())],
    ];
    let scope = match numbers.below(4) {
        0 => UsageScope::of(Some(vec!["prj0".to_owned(), "prj2".to_owned()])),
        _ => UsageScope::default(),
    };
    let names = names[usize::try_from(numbers.below(6)).unwrap()].clone();
    SeriesQuestion {
        edges: any_edges(numbers),
        group_by: groups[usize::try_from(numbers.below(10)).unwrap()].clone(),
        filter: RequestFilter { names, scope, ..RequestFilter::default() },
    }
}

/// Returns the groups with figures, and these; of hours, only those that hours have.
fn figures(found: &Series, known: SeriesSource) -> Vec<(Vec<String>, Vec<PeriodFigures>)> {
    let shown = |point: &PeriodFigures| match known {
        SeriesSource::Hours => PeriodFigures {
            requests: point.requests,
            completed: point.completed,
            failed: point.failed + point.refused,
            cut: point.cut,
            cancelled: point.cancelled,
            input: point.input,
            cache_read: point.cache_read,
            output: point.output,
            cost_nano_usd: point.cost_nano_usd,
            unpriced: point.unpriced,
            ..PeriodFigures::default()
        },
        SeriesSource::Periods(_) | SeriesSource::Records => point.clone(),
    };
    let mut all: Vec<_> = found
        .groups
        .iter()
        .map(|group| (group.names.clone(), group.points.iter().map(shown).collect::<Vec<_>>()))
        .filter(|(_, points)| points.iter().any(|point| *point != PeriodFigures::default()))
        .collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// Asks anything, and compares the answers with those from all records.
fn compare(process: &Process, numbers: &mut Numbers, rounds: usize, why: &str) {
    let db = process.meter.db();
    let mut sources = std::collections::BTreeSet::new();
    for round in 0..rounds {
        let question = any_question(numbers);
        let records = from(db, &question, SeriesSource::Records, far()).unwrap().unwrap();
        let section = question.section().map(SeriesSource::Periods);
        let hours = question.is_of_hours().then_some(SeriesSource::Hours);
        for source in section.into_iter().chain(hours) {
            let found = from(db, &question, source, far()).unwrap().unwrap();
            assert_eq!(found.complete_from_ms, question.start_ms(), "{why}, {round}: {question:?}");
            assert_eq!(
                figures(&found, source),
                figures(&records, source),
                "{why}, {round}: {source:?} {question:?}"
            );
            sources.insert(format!("{source:?}"));
        }
    }
    assert!(sources.len() >= 4, "{sources:?}");
}

#[test]
fn a_series_is_what_its_records_are_wherever_it_is_cut_and_read_from() {
    let home = TempDir::new().unwrap();
    let mut numbers = Numbers(7);
    let mut process = Process::start(home.path());
    compare_nothing(&process);
    let mut n = 0;
    for (count, is_followed) in [(900, true), (70, false), (500, true), (1, false)] {
        let events: Vec<_> = (n..n + count).map(|n| any_event(&mut numbers, n)).collect();
        n += count;
        store(&mut process, events);
        if is_followed {
            follow(&mut process);
        }
        compare(&process, &mut numbers, 120, &format!("after {n}"));
        // A kill.
        drop(process);
        process = Process::start(home.path());
        process.settle();
    }
    compare(&process, &mut numbers, 60, "after a kill");
    reprice(&mut process, &mut numbers);
}

/// Without any record, every answer is complete and empty.
fn compare_nothing(process: &Process) {
    let found = found(process, &question(HOUR_MS));
    assert_eq!((found.complete_from_ms, figures(&found, found.source)), (FROM, vec![]));
}

/// Other prices change what is counted already and what is not.
fn reprice(process: &mut Process, numbers: &mut Numbers) {
    let priced = Priced {
        prices: Prices::flat(
            Rates::default().with(Class::Input, 3_000_000_000).with(Class::Output, 5_000_000_000),
        )
        .by_operator(),
        label: "new".into(),
    };
    let mut repricing = Repricing {
        from_ms: FROM + DAY_MS / 2,
        to_ms: FROM + 2 * DAY_MS,
        provider: None,
        model: None,
        prices: Arc::new(History::of_one("p1", "m0", priced)),
        counters: Arc::default(),
        after: RowTime::default(),
    };
    let mut done = Repriced::default();
    while !repricing.step(process.meter.usage_mut(), &mut done, Instant::now()).unwrap() {}
    assert!(done.changed > 20, "{done:?}");
    compare(process, numbers, 120, "repriced");
    follow(process);
    compare(process, numbers, 120, "repriced, and counted");
}

#[test]
fn a_chart_of_90_days_is_complete_without_reading_records() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let events = (0..900).map(|n| UsageEvent { started_at_ms: FROM + n * DAY_MS / 10, ..event(n) });
    store(&mut process, events);
    follow(&mut process);
    process.meter.usage_mut().execute("DELETE FROM usage", ()).unwrap();
    let edges: Vec<u64> = (0..=90).map(|day| FROM + day * DAY_MS).collect();
    let in_berlin: Vec<u64> = edges.iter().map(|edge| edge - HOUR_MS).collect();
    for (edges, first) in [(edges, 10), (in_berlin, 10)] {
        let question = SeriesQuestion { edges, ..question(HOUR_MS) };
        let found = series(process.meter.db(), &question, until(Instant::now())).unwrap().unwrap();
        let points = &found.groups[0].points;
        assert_eq!(
            (found.complete_from_ms, points.len(), points[0].requests),
            (question.start_ms(), 90, first)
        );
        assert!(points[1..].iter().all(|point| point.requests == 10), "{points:?}");
    }
}

#[test]
fn a_combination_without_periods_is_answered_by_hours_if_there_are_many_records() {
    let home = TempDir::new().unwrap();
    let process = filled(&home, 300);
    let group_by = vec![Dimension::Column(Column::Key), Dimension::Column(Column::Model)];
    let question = SeriesQuestion { group_by, ..question(HOUR_MS) };
    assert_eq!(found(&process, &question).source, SeriesSource::Records);
    let late = series(process.meter.db(), &question, until(Instant::now())).unwrap().unwrap();
    assert_eq!((late.source, late.complete_from_ms), (SeriesSource::Hours, FROM));
    assert_eq!((late.groups[0].points[0].requests, late.groups[0].points[0].attempts), (300, 0));
}

#[test]
fn names_that_were_merged_are_counted_in_the_answer() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let model =
        |n: u64| UsageEvent { started_at_ms: FROM, model: Some(ModelId::new(format!("m{n}"))), ..event(n) };
    store(&mut process, (0..131).map(model));
    follow(&mut process);
    let by_model = SeriesQuestion { group_by: vec![Dimension::Column(Column::Model)], ..question(HOUR_MS) };
    let merged = found(&process, &by_model);
    assert_eq!((merged.merged, merged.groups[0].names[0].as_str(), merged.omitted), (3, "other", 79));
    assert_eq!(found(&process, &question(HOUR_MS)).merged, 0, "nothing is merged in the sum of all");
    let names = vec![(Column::Model, "m1".to_owned())];
    let one =
        SeriesQuestion { filter: RequestFilter { names, ..RequestFilter::default() }, ..question(HOUR_MS) };
    let one = found(&process, &one);
    assert_eq!((one.merged, one.groups[0].points[0].requests), (3, 1));
}

#[test]
fn a_series_that_timed_out_names_the_start_of_its_complete_part() {
    let home = TempDir::new().unwrap();
    let process = filled(&home, 300);
    let question = question(3_000);
    let whole = found(&process, &question);
    let requests =
        |found: &Series| found.groups[0].points.iter().map(|point| point.requests).collect::<Vec<_>>();
    assert_eq!((whole.complete_from_ms, requests(&whole)), (FROM, vec![3; 100]));
    let cut = series(process.meter.db(), &question, until(Instant::now())).unwrap().unwrap();
    assert!(cut.complete_from_ms > FROM + 200_000, "{}", cut.complete_from_ms);
    assert_eq!(requests(&cut), vec![0; 100], "nothing was read");
}

#[test]
fn a_series_whose_last_records_are_not_read_in_time_is_never_said_to_be_complete() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    // Later rows have earlier times, as the files of several workers have.
    for n in (0..20).rev() {
        store(
            &mut process,
            [UsageEvent { started_at_ms: FROM - 50 * HOUR_MS + n * 9 * HOUR_MS, ..event(n) }],
        );
        process.meter.usage_mut();
        if n == 19 {
            follow(&mut process);
        }
    }
    let found = series(process.meter.db(), &question(HOUR_MS), until(Instant::now())).unwrap().unwrap();
    assert_eq!(found.complete_from_ms, FROM + 100 * HOUR_MS);
}

#[test]
fn a_cut_series_is_complete_after_the_time_that_it_names() {
    let home = TempDir::new().unwrap();
    let process = filled(&home, 6_000);
    let question = question(60_000);
    for budget_us in (0..24).map(|power| 1 << power) {
        let end = Instant::now() + Duration::from_micros(budget_us);
        let found = series(process.meter.db(), &question, until(end)).unwrap().unwrap();
        let whole = (found.complete_from_ms - FROM).div_ceil(60_000);
        for (number, point) in (0..).zip(&found.groups[0].points) {
            assert!(point.requests == 60 || number < whole, "point {number} of a reading of {budget_us} us");
        }
    }
}

#[test]
fn a_point_has_the_percentiles_of_its_exchanges_and_null_without_any() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let events = (1..=100).map(|n| UsageEvent {
        started_at_ms: FROM + n,
        duration_us: n * 10,
        first_content_us: (n > 50).then_some(n * 1_000),
        ..event(n)
    });
    store(&mut process, events);
    for is_followed in [false, true] {
        if is_followed {
            follow(&mut process);
        }
        let found = found(&process, &question(60_000));
        let [first, second, ..] = found.groups[0].points.as_slice() else { panic!("{found:?}") };
        let near = |value: Option<u64>, want: u64| value.unwrap().abs_diff(want) * 63 <= want;
        let percentile = |percent| first.duration.percentile(Scale::Fine, percent);
        assert!(near(percentile(50), 500) && near(percentile(99), 990));
        assert!(near(first.first_content.percentile(Scale::Fine, 50), 75_000));
        assert_eq!((second.requests, second.duration.percentile(Scale::Fine, 50)), (0, None));
    }
}
