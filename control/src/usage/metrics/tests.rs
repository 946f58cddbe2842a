//! Tests of the metrics of exchanges, through the journal and the table.

use shared::error_kind::ErrorKind;
use shared::id::{ModelId, ProviderId};
use shared::operation::Operation;
use shared::usage::{Gaps, Lost, Outcome, StepResult, TokenCounts, TraceStep, UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::{Count, ExchangeSums, Figure, METRIC_LABEL_SETS, METRIC_PROVIDER_SETS, NONE, OTHER};
use crate::common::bounds::tests::passes;
use crate::usage::ingest::Round;
use crate::usage::tests::{Process, event};

/// Stores exchanges, and returns the sums.
fn sums_of(events: impl IntoIterator<Item = UsageEvent>) -> ExchangeSums {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    for event in events {
        assert!(log.append(&event));
    }
    process.settle();
    process.meter.metrics().read()
}

/// Returns the labels, the number of values and the sum of each distribution of a figure.
fn shown(sums: &ExchangeSums, figure: Figure) -> Vec<(String, u64, u64)> {
    let distributions = sums.distributions(figure).into_iter();
    distributions
        .map(|(labels, variant, all)| {
            let place = format!("{} {}/{} {variant}", labels.operation, labels.provider, labels.model);
            (place.trim_end().to_owned(), all.count(), all.sum)
        })
        .collect()
}

fn counted(sums: &ExchangeSums, count: Count) -> Vec<(String, u64)> {
    let counts = sums.counts(count).into_iter();
    let place = |provider: &str, model: &str, variant: &str| format!("{provider}/{model} {variant}");
    counts
        .map(|(labels, variant, number)| (place(&labels.provider, &labels.model, variant), *number))
        .collect()
}

fn at(provider: &str, model: &str, n: u64) -> UsageEvent {
    UsageEvent { provider: Some(ProviderId::new(provider)), model: Some(ModelId::new(model)), ..event(n) }
}

#[test]
fn the_instruments_are_in_the_order_of_their_lists() {
    assert!(Figure::ALL.into_iter().enumerate().all(|(place, figure)| figure as usize == place));
    assert!(Count::ALL.into_iter().enumerate().all(|(place, count)| count as usize == place));
    assert!(Figure::ALL.into_iter().all(|figure| figure.bounds().is_sorted()));
    let names = Figure::ALL.map(|figure| figure.instrument().prometheus());
    assert_eq!(names[0], "gen_ai_server_request_duration_seconds");
    assert_eq!(names[5..], ["gen_ai_client_token_usage", "llmgw_attempt_cost_usd"]);
}

#[test]
fn a_stream_adds_its_times_gaps_tokens_and_cost() {
    let mut stream = UsageEvent { stream: true, duration_us: 190_700, ..event(1) };
    stream.details.gateway_us = Some(80);
    stream.details.gaps = Gaps { sum_us: 190_000, ..Gaps::default() };
    (stream.details.gaps.counts[0], stream.details.gaps.counts[5]) = (2, 1);
    stream.tokens = TokenCounts { input: 10, cache_read: 5, output: 18, reasoning: 2, ..TokenCounts::ZERO };
    let sums = sums_of([stream]);
    let set = "chat p/m";
    let want = |count, sum| vec![(set.to_owned(), count, sum)];
    assert_eq!(shown(&sums, Figure::Duration), want(1, 190_700));
    assert_eq!(shown(&sums, Figure::FirstContent), want(1, 700));
    assert_eq!(shown(&sums, Figure::PerOutputToken), want(1, 10_000), "190 ms for 19 tokens after the first");
    assert_eq!(shown(&sums, Figure::Gap), want(3, 190_000));
    assert_eq!(shown(&sums, Figure::Overhead), want(1, 80));
    assert_eq!(shown(&sums, Figure::Cost), want(1, 1_500));
    let tokens = [("input", 15), ("output", 20)].map(|(kind, sum)| (format!("{set} {kind}"), 1, sum));
    assert_eq!(shown(&sums, Figure::Tokens), tokens);
    let classes = [("cache_read", 5), ("input", 10), ("output", 18), ("reasoning", 2)];
    assert_eq!(counted(&sums, Count::Tokens), classes.map(|(class, count)| (format!("p/m {class}"), count)));
    let gap = sums.distributions(Figure::Gap);
    assert_eq!(gap[0].2.counts(Figure::Gap.bounds())[..6], [2, 0, 0, 0, 0, 1]);
}

#[test]
fn a_failover_counts_each_target_and_the_cost_of_the_failed_attempt() {
    let step = |provider: &str, result| TraceStep::new(ProviderId::new(provider), ModelId::new("m"), result);
    let lost = Lost { cost_nano_usd: Some(7), ..Lost::default() };
    let failed = TraceStep { lost: Some(Box::new(lost)), ..step("first", StepResult::Status) };
    let trace = vec![step("skipped", StepResult::CircuitOpen), failed, step("p", StepResult::Served)];
    let refused = UsageEvent {
        outcome: Outcome::Failed,
        error: Some(ErrorKind::ModelNotFound),
        provider: None,
        model: None,
        provenance: shared::usage::Provenance::None,
        ..event(3)
    };
    let embeddings = UsageEvent {
        operation: Operation::Embeddings,
        outcome: Outcome::Cancelled,
        cost_nano_usd: None,
        ..event(5)
    };
    let sums = sums_of([UsageEvent { trace, ..event(1) }, refused, embeddings]);
    let targets = [("first/m status", 1), ("p/m served", 1), ("skipped/m circuit_open", 1)];
    assert_eq!(counted(&sums, Count::Targets), targets.map(|(place, count)| (place.to_owned(), count)));
    assert_eq!(counted(&sums, Count::Failovers), [("p/m ".to_owned(), 1)]);
    assert_eq!(counted(&sums, Count::Unpriced), [("p/m ".to_owned(), 1)]);
    let costs = [("chat first/m", 1, 7), ("chat p/m", 1, 1_500)];
    assert_eq!(shown(&sums, Figure::Cost), costs.map(|(place, count, sum)| (place.to_owned(), count, sum)));
    let places: Vec<_> = shown(&sums, Figure::Duration).into_iter().map(|(place, ..)| place).collect();
    let refused = format!("chat {NONE}/{NONE} model_not_found");
    assert_eq!(places, [refused.as_str(), "chat p/m", "embeddings p/m cancelled"]);
}

/// The names of models come from strangers.
#[test]
fn models_and_providers_beyond_the_maximum_are_counted_together() {
    let models = u64::try_from(METRIC_LABEL_SETS.max()).unwrap() + 50;
    let of_one = (0..models).map(|n| at("p", &format!("m{n}"), n));
    let events = of_one.chain((0..models).map(|n| at(&format!("p{n}"), "m", models + n)));
    let sums = passes(&METRIC_LABEL_SETS, || passes(&METRIC_PROVIDER_SETS, || sums_of(events)));
    let all = shown(&sums, Figure::Duration);
    assert_eq!(all.len(), METRIC_PROVIDER_SETS.max() + 1);
    assert_eq!(all.iter().map(|(_, count, _)| count).sum::<u64>(), 2 * models, "none is left out");
    let count = |place: &str| all.iter().find(|(known, ..)| known == place).map(|(_, count, _)| *count);
    assert_eq!(count("chat p/m0"), Some(1));
    assert_eq!(count(&format!("chat p/{OTHER}")), Some(50));
    assert_eq!(count(&format!("chat p0/{OTHER}")), Some(1));
    assert_eq!(count(&format!("chat {OTHER}/{OTHER}")), Some(models - 27));
}

#[test]
fn records_count_once_if_storing_them_fails_at_first() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    assert!(log.append(&event(1)));
    process.meter.db().batch("ALTER TABLE usage_hour RENAME TO away").unwrap();
    assert!(matches!(process.meter.round(), Round::Failing(_)));
    assert_eq!(shown(&process.meter.metrics().read(), Figure::Duration), []);
    process.meter.db().batch("ALTER TABLE away RENAME TO usage_hour").unwrap();
    // A failed round is repeated after a pause.
    process.settle();
    assert_eq!(shown(&process.meter.metrics().read(), Figure::Duration), [("chat p/m".to_owned(), 1, 1_001)]);
}
