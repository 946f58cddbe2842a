//! Tests of the figures of targets by minute, through the journal and the table.

use shared::error_kind::ErrorKind;
use shared::id::{ModelId, ProviderId};
use shared::usage::{Details, Gaps, Outcome, StepResult, TraceStep, UsageEvent, UsageLog as _};
use tempfile::TempDir;

use super::target::{NameCounts, TargetTime};
use super::*;
use crate::db::telemetry_targets::MINUTE_MS;
use crate::usage::ingest::Round;
use crate::usage::tests::{Process, event};

/// The start of a minute.
const START_MS: u64 = 1_700_000_040_000;

fn at(n: u64, started_at_ms: u64) -> UsageEvent {
    UsageEvent { started_at_ms, ..event(n) }
}

/// Returns the minutes after [`START_MS`], targets, and sums, in order.
fn shown(minutes: &TargetMinutes) -> Vec<(u64, String, TargetSums)> {
    let mut all = Vec::new();
    minutes.read(|minute, (provider, model), sums| {
        all.push((minute - START_MS / MINUTE_MS, format!("{provider}/{model}"), sums.clone()));
    });
    all.sort_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
    all
}

fn counts(names: &NameCounts) -> Vec<(&str, u64)> {
    names.iter().map(|(name, count)| (name, *count)).collect()
}

fn stored(events: impl IntoIterator<Item = UsageEvent>) -> Process {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    events.into_iter().for_each(|event| assert!(log.append(&event)));
    process.settle();
    process
}

#[test]
fn an_exchange_counts_in_the_minute_of_its_end_and_at_its_target() {
    let mut gaps = Gaps::default();
    gaps.add(40_000);
    let details = Details { gateway_us: Some(80), silence_us_max: Some(40_000), gaps, ..Details::default() };
    let long = UsageEvent { stream: true, duration_us: 60_000_000, details, ..at(1, START_MS + 1_000) };
    let step = |provider: &str, result| TraceStep::new(ProviderId::new(provider), ModelId::new("m"), result);
    let trace = vec![step("first", StepResult::Status), step("p", StepResult::Served)];
    let over = UsageEvent { trace, stream: false, ..at(3, START_MS) };
    let failed =
        UsageEvent { outcome: Outcome::Failed, error: Some(ErrorKind::ModelNotFound), ..at(5, START_MS) };
    let refused = UsageEvent { provider: None, model: None, outcome: Outcome::Failed, ..at(7, START_MS) };
    let process = stored([long, over, failed, refused]);
    let all = shown(process.meter.minutes());
    let places: Vec<_> =
        all.iter().map(|(minute, target, sums)| (*minute, target.as_str(), sums.requests)).collect();
    assert_eq!(places, [(0, "/", 1), (0, "first/m", 0), (0, "p/m", 2), (1, "p/m", 1)]);
    assert_eq!(counts(&all[0].2.errors), [("failed", 1)]);
    assert_eq!((counts(&all[1].2.results), counts(&all[1].2.errors)), (vec![("status", 1)], vec![]));
    assert_eq!(counts(&all[2].2.errors), [("model_not_found", 1)]);
    assert_eq!(counts(&all[2].2.results), [("served", 1)]);
    let sums = &all[3].2;
    let times = TargetTime::ALL.map(|time| (sums.time(time).count(), sums.time(time).sum));
    assert_eq!(times, [(1, 500), (1, 700), (1, 40_000), (1, 80)]);
    assert_eq!((sums.silence_us_max, sums.errors.sum()), (40_000, 0));
    assert_eq!(all[2].2.time(TargetTime::FirstContent).count(), 0, "neither of these is a stream");
}

#[test]
fn the_last_answer_of_a_target_is_known_as_soon_as_it_is_stored() {
    let unanswered =
        |n| UsageEvent { first_content_us: None, outcome: Outcome::Failed, ..at(n, START_MS + 90_000) };
    let cut = UsageEvent { duration_us: 70_000_000, outcome: Outcome::Cut, ..at(3, START_MS) };
    let other = UsageEvent { provider: Some(ProviderId::new("q")), ..unanswered(4) };
    let process = stored([at(1, START_MS), cut, at(2, START_MS + 5_000), unanswered(5), other]);
    let answers = process.meter.minutes().answers();
    assert_eq!(answers.of_model("p", "m"), Some(START_MS + 70_000));
    assert_eq!((answers.of_provider("p"), answers.of_provider("q")), (Some(START_MS + 70_000), None));
    process.meter.minutes().take_before(u64::MAX);
    assert!(answers.of_model("p", "m").is_some(), "storing the minutes forgets nothing");
}

#[test]
fn packed_sums_are_unpacked_and_malformed_ones_are_skipped() {
    let process = stored((0..9).map(|n| UsageEvent {
        outcome: if n < 3 { Outcome::Cancelled } else { Outcome::Completed },
        head_us: Some(n * n * 1_000_000),
        ..at(n, START_MS)
    }));
    let (_, _, mut sums) = shown(process.meter.minutes()).remove(0);
    let packed = sums.pack();
    assert!(packed.len() < 60, "{}", packed.len());
    assert!(sums.answered_at_ms > START_MS);
    sums.answered_at_ms = 0;
    assert_eq!(TargetSums::unpack(&packed), Some(sums));
    assert!((0..packed.len()).all(|end| TargetSums::unpack(&packed[..end]).is_none()));
    let of_another_release = [&[2], &packed[1..]].concat();
    assert_eq!(TargetSums::unpack(&of_another_release), None);
    for place in 0..packed.len() {
        let mut damaged = packed.clone();
        damaged[place] = 0xff;
        // Any answer is right, as long as there is one.
        let _ = TargetSums::unpack(&damaged);
    }
}

/// A change of these bounds needs another version of the packed form.
#[test]
fn the_bounds_of_the_packed_form_are_unchanged() {
    let shown = TargetTime::ALL.map(|time| (time.bounds_us().len(), time.bounds_us().iter().sum::<u64>()));
    assert_eq!(shown, [(19, 167_816_000), (19, 167_816_000), (16, 51_060_000), (14, 1_204_775)]);
}

#[test]
fn targets_and_minutes_beyond_their_maximum_are_bounded() {
    let targets = u64::try_from(TARGETS_MAX).unwrap() + 9;
    let of_one_minute =
        (0..targets).map(|n| UsageEvent { model: Some(ModelId::new(format!("m{n:03}"))), ..at(n, START_MS) });
    let all = shown(stored(of_one_minute).meter.minutes());
    assert_eq!((all.len(), all.iter().map(|(.., sums)| sums.requests).sum()), (TARGETS_MAX + 1, targets));
    let others = all.iter().find(|(_, target, _)| target == "other/other").unwrap();
    assert_eq!(others.2.requests, 9);

    let minutes = u64::try_from(MINUTES_MAX).unwrap() + 5;
    let of_one_target = (0..minutes).map(|n| at(n, START_MS + n * MINUTE_MS));
    let all = shown(stored(of_one_target).meter.minutes());
    assert_eq!((all.len(), all[0].0), (MINUTES_MAX, 5), "the earliest ones are dropped");
}

#[test]
fn minutes_are_taken_once_and_can_be_returned() {
    let process = stored([at(1, START_MS), at(3, START_MS + MINUTE_MS)]);
    let minutes = process.meter.minutes();
    let taken = minutes.take_before(START_MS / MINUTE_MS + 1);
    assert_eq!((taken.rows().len(), shown(minutes).len()), (1, 1));
    minutes.add(&taken);
    assert_eq!(shown(minutes).len(), 2);
    assert!(!minutes.take_before(u64::MAX).is_empty() && minutes.take_before(u64::MAX).is_empty());
}

#[test]
fn an_exchange_counts_once_if_storing_it_fails_at_first() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let mut log = process.journal.log().unwrap();
    assert!(log.append(&at(1, START_MS)));
    process.meter.db().batch("ALTER TABLE usage_hour RENAME TO away").unwrap();
    assert!(matches!(process.meter.round(), Round::Failing(_)));
    assert!(shown(process.meter.minutes()).is_empty());
    process.meter.db().batch("ALTER TABLE away RENAME TO usage_hour").unwrap();
    process.settle();
    assert_eq!(shown(process.meter.minutes())[0].2.requests, 1);
}
