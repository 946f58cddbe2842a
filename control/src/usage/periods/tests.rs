//! Periods over a real database: what they count, what they survive, and their names.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use records::block;
use shared::error_kind::ErrorKind;
use shared::id::{ModelId, ProviderId};
use shared::prices::{Prices, Rates};
use shared::usage::{
    Class, Details, Gaps, Outcome, StepResult, TokenCounts, TraceStep, UsageEvent, UsageLog as _,
};
use tempfile::TempDir;

use super::tally::{PeriodKey, PeriodSums};
use super::*;
use crate::common::bounds::PERIOD_NAMES;
use crate::common::bounds::tests::passes;
use crate::db::engine::Db;
use crate::db::packed_row::PackedRow;
use crate::routing::catalog::facts::Priced;
use crate::routing::catalog::history::History;
use crate::usage::last_answers::LastAnswers;
use crate::usage::metrics::OTHER;
use crate::usage::reprice::{Repriced, Repricing, RowTime};
use crate::usage::tests::{Process, event};

/// The start of an hour.
const START_MS: u64 = 1_700_002_800_000;

fn at(n: u64, started_at_ms: u64) -> UsageEvent {
    UsageEvent { started_at_ms, ..event(n) }
}

fn store(process: &mut Process, events: impl IntoIterator<Item = UsageEvent>) {
    let mut log = process.journal.log().unwrap();
    events.into_iter().for_each(|event| assert!(log.append(&event)));
    drop(log);
    process.settle();
}

/// Counts all records, as a new process does.
pub(crate) fn follow(process: &mut Process) {
    let mut follower = Follower::new();
    let records = process.sql("SELECT CAST(coalesce(sum(exchanges), 0) AS BIGINT) FROM usage");
    (0..records / 256 + 2).for_each(|_| follower.step(process.meter.db_mut(), &LastAnswers::default(), 0));
}

/// Returns the rows of a section.
fn shown(db: &Db, grain: Grain, section: Section) -> BTreeMap<(u64, String), PeriodSums> {
    let mut all = BTreeMap::new();
    let span = PeriodSpan { grain, section, time_ms: 0..u64::MAX >> 1 };
    rows(db, &span, |row| {
        let place = (row.start_ms, format!("{}/{}", row.name, row.model));
        assert!(all.insert(place, row.sums().unwrap()).is_none());
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Returns all rows that the table must have: the sums of all records.
fn wanted(db: &Db) -> BTreeMap<PeriodKey, PeriodSums> {
    let mut tally = PeriodTally::default();
    let mut statement = db.prepare("SELECT * FROM usage").unwrap();
    let mut found = statement.query(()).unwrap();
    while let Some(row) = found.next().unwrap() {
        let row = PackedRow::read(row).unwrap();
        for (record, trace) in block::rows(row.rows().unwrap(), &row.names).flatten() {
            tally.add(&record, trace);
        }
    }
    tally.rolled_up(|_, names| Ok(names)).unwrap()
}

fn assert_whole(db: &Db, why: &str) {
    let mut found = BTreeMap::new();
    for section in Section::EVERY {
        for grain in [Grain::Minute, Grain::Hour, Grain::Day] {
            for ((start_ms, names), sums) in shown(db, grain, section) {
                let (name, model) = names.split_once('/').unwrap();
                let start = start_ms / MINUTE_MS;
                found.insert(
                    PeriodKey { grain, section, start, name: name.into(), model: model.into() },
                    sums,
                );
            }
        }
    }
    assert_eq!(found, wanted(db), "{why}");
}

#[test]
fn an_exchange_counts_in_the_minute_of_its_start_and_at_its_target() {
    let mut gaps = Gaps::default();
    gaps.add(40_000);
    let details = Details { gateway_us: Some(80), silence_us_max: Some(40_000), gaps, ..Details::default() };
    let long = UsageEvent { stream: true, duration_us: 90_000_000, details, ..at(1, START_MS + 61_000) };
    let step = |provider: &str, result| TraceStep::new(ProviderId::new(provider), ModelId::new("m"), result);
    let trace = vec![step("first", StepResult::Status), step("p", StepResult::Served)];
    let over = UsageEvent { trace, stream: false, ..at(3, START_MS) };
    let failed =
        UsageEvent { outcome: Outcome::Failed, error: Some(ErrorKind::ModelNotFound), ..at(5, START_MS) };
    let refused = UsageEvent { provider: None, model: None, outcome: Outcome::Failed, ..at(7, START_MS) };
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    store(&mut process, [long, over, failed, refused]);
    follow(&mut process);
    let all = shown(process.meter.db(), Grain::Minute, Section::Target);
    let places: Vec<_> = all
        .iter()
        .map(|((start_ms, target), sums)| (start_ms - START_MS, target.as_str(), sums.target.requests))
        .collect();
    assert_eq!(places, [(0, "/", 1), (0, "first/m", 0), (0, "p/m", 2), (60_000, "p/m", 1)]);
    let all: Vec<_> = all.into_values().map(|sums| sums.target).collect();
    let counts = |names: &target::NameCounts| -> Vec<(String, u64)> {
        names.iter().map(|(name, count)| (name.to_owned(), *count)).collect()
    };
    let one = |name: &str| vec![(name.to_owned(), 1)];
    assert_eq!(counts(&all[0].errors), one("failed"));
    assert_eq!((counts(&all[1].results), counts(&all[1].errors)), (one("status"), vec![]));
    assert_eq!((counts(&all[2].errors), counts(&all[2].results)), (one("model_not_found"), one("served")));
    let times = TargetTime::ALL.map(|time| (all[3].time(time).count(), all[3].time(time).sum));
    assert_eq!(times, [(1, 500), (1, 700), (1, 40_000), (1, 80)]);
    assert_eq!((all[3].silence_us_max, all[3].errors.sum()), (40_000, 0));
    assert_eq!(all[2].time(TargetTime::FirstContent).count(), 0, "neither of these is a stream");
    assert_whole(process.meter.db(), "all sections");
}

#[test]
fn each_record_counts_once_whatever_ends_the_process() {
    let home = TempDir::new().unwrap();
    let mut stored = 0;
    for round in 0..6_u64 {
        let mut process = Process::start(home.path());
        process.settle();
        // A new process counts what an earlier one has left, also in a row that is not full.
        let count = [1, 5, 70, 3_000, 2, 64][usize::try_from(round).unwrap()];
        let events = (stored..stored + count).map(|n| at(n, START_MS + n * 1_000));
        store(&mut process, events);
        stored += count;
        if round != 1 {
            follow(&mut process);
            assert_whole(process.meter.db(), &format!("round {round}"));
        }
        let mut log = process.journal.log().unwrap();
        assert!(log.append(&at(stored, START_MS + stored * 1_000)));
        stored += 1;
        std::mem::forget(log);
    }
    let mut process = Process::start(home.path());
    process.settle();
    follow(&mut process);
    assert_whole(process.meter.db(), "at the end");
    let all = shown(process.meter.db(), Grain::Day, Section::All);
    assert_eq!(all.values().map(|sums| sums.figures.requests).sum::<u64>(), stored);
}

#[test]
fn the_next_step_of_a_long_catching_up_is_due_after_three_times_the_last_one() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    store(&mut process, (0..1_000).map(|n| at(n, START_MS)));
    let mut follower = Follower::new();
    let mut steps = 0;
    while follower.until_due().is_some() {
        while !follower.is_due() {
            std::thread::yield_now();
        }
        let began = Instant::now();
        follower.step(process.meter.db_mut(), &LastAnswers::default(), 0);
        assert!(follower.until_due().is_none_or(|pause| pause <= 3 * began.elapsed()));
        steps += 1;
    }
    assert!((2..6).contains(&steps), "{steps}");
    assert_whole(process.meter.db(), "after all steps");
}

/// The names of models come from strangers.
#[test]
fn names_beyond_the_maximum_of_a_day_are_counted_together_in_all_its_periods() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let models = u64::try_from(PERIOD_NAMES.max()).unwrap() + 9;
    let day_ms = Grain::Day.ms();
    let model =
        |n: u64, start_ms| UsageEvent { model: Some(ModelId::new(format!("m{n:03}"))), ..at(n, start_ms) };
    let today = (0..models).map(|n| model(n, START_MS + n * 20_000));
    store(&mut process, today.chain([model(models, START_MS + day_ms)]));
    passes(&PERIOD_NAMES, || follow(&mut process));
    // A process that knows no names yet goes on with those of the table.
    store(&mut process, [model(models - 1, START_MS), model(0, START_MS + 1_000)]);
    follow(&mut process);
    let day = shown(process.meter.db(), Grain::Day, Section::Target);
    let others = format!("{OTHER}/{OTHER}");
    let today = START_MS - START_MS % day_ms;
    assert_eq!(day.keys().filter(|(start_ms, _)| *start_ms == today).count(), PERIOD_NAMES.max() + 1);
    assert_eq!(day[&(today, others.clone())].figures.requests, 10);
    assert_eq!(day[&(today, "p/m000".to_owned())].figures.requests, 2);
    assert_eq!(
        day[&(today + day_ms, format!("p/m{models}"))].figures.requests,
        1,
        "another day has other names"
    );
    for grain in [Grain::Minute, Grain::Hour] {
        let all = shown(process.meter.db(), grain, Section::Target);
        let sum =
            all.iter().filter(|((_, target), _)| *target == others).map(|(_, sums)| sums.figures.requests);
        assert_eq!(sum.sum::<u64>(), 10, "{grain:?}");
    }
}

#[test]
fn packed_sums_are_unpacked_and_malformed_ones_are_skipped() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let events = (0..9).map(|n| UsageEvent {
        outcome: if n < 3 { Outcome::Cancelled } else { Outcome::Completed },
        head_us: Some(n * n * 1_000_000),
        ..at(n, START_MS)
    });
    store(&mut process, events);
    let (_, mut sums) =
        wanted(process.meter.db()).into_iter().find(|(key, _)| key.section == Section::Target).unwrap();
    let packed = sums.pack(Section::Target);
    assert!(packed.len() < 120, "{}", packed.len());
    (sums.figures.cost_nano_usd, sums.figures.unpriced) = (0, 0);
    assert_eq!(PeriodSums::unpack(&packed), Some(sums));
    let whole = |end: &usize| PeriodSums::unpack(&packed[..*end]).is_some();
    assert!((0..packed.len()).filter(whole).count() <= 1, "only the figures alone are whole, too");
    assert_eq!(PeriodSums::unpack(&[&[2], &packed[1..]].concat()), None, "of another release");
    for place in 0..packed.len() {
        let mut damaged = packed.clone();
        damaged[place] = 0xff;
        // Any answer is right, as long as there is one.
        let _ = PeriodSums::unpack(&damaged);
    }
}

/// A change of these bounds needs another version of the packed form.
#[test]
fn the_bounds_of_the_packed_form_are_unchanged() {
    let shown = TargetTime::ALL.map(|time| (time.bounds_us().len(), time.bounds_us().iter().sum::<u64>()));
    assert_eq!(shown, [(19, 167_816_000), (19, 167_816_000), (16, 51_060_000), (14, 1_204_775)]);
}

#[test]
fn periods_expire_by_whole_days_the_shorter_ones_first() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    let (now_ms, day_ms) = (START_MS, Grain::Day.ms());
    let ages = [0, 14, 15, 100, 101, 400, 401];
    store(&mut process, (0..).zip(ages).map(|(n, age)| at(n, now_ms - age * day_ms)));
    follow(&mut process);
    let far = Instant::now() + Duration::from_secs(60);
    assert!(prune(process.meter.db_mut(), now_ms, 400, far).unwrap());
    let count = |grain| shown(process.meter.db(), grain, Section::Target).len();
    let grains = [Grain::Minute, Grain::Hour, Grain::Day];
    assert_eq!(grains.map(count), [2, 4, 6]);
    // Those that have expired are not even written.
    process.meter.usage_mut().batch("DELETE FROM usage_period; DELETE FROM usage_followed").unwrap();
    Follower::new().step(process.meter.db_mut(), &LastAnswers::default(), now_ms);
    let count = |grain| shown(process.meter.db(), grain, Section::Target).len();
    assert_eq!(grains.map(count), [2, 4, 7]);
    assert!(prune(process.meter.db_mut(), now_ms, 400, far).unwrap());
    assert_eq!(
        first_period(process.meter.db(), Grain::Day, Section::All).unwrap(),
        Some((now_ms - 400 * day_ms) / day_ms * day_ms)
    );
}

#[test]
fn a_new_row_never_has_a_place_that_is_counted() {
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    store(&mut process, [at(1, START_MS), at(2, START_MS)]);
    follow(&mut process);
    process.meter.usage_mut().execute("DELETE FROM usage", ()).unwrap();
    drop(process);
    let mut process = Process::start(home.path());
    store(&mut process, [at(3, START_MS)]);
    follow(&mut process);
    let day = shown(process.meter.db(), Grain::Day, Section::All);
    assert_eq!(day.into_values().next().unwrap().figures.requests, 3);
}

#[test]
fn repricing_corrects_only_what_is_counted_and_the_rest_is_counted_with_its_new_costs() {
    let tokens = TokenCounts { input: 3, ..TokenCounts::ZERO };
    let priced = |n: u64| UsageEvent { tokens, cost_nano_usd: Some(1), ..at(n, START_MS + n % 50 * 1_000) };
    // A state that was copied from nodes into files has sums of nodes.
    for node in [0, 3] {
        let home = TempDir::new().unwrap();
        let mut process = Process::start(home.path());
        store(&mut process, (0..20).map(priced));
        follow(&mut process);
        for table in ["usage_hour", "usage_day", "usage_period"] {
            process.meter.db_mut().execute(&format!("UPDATE {table} SET node = {node}"), ()).unwrap();
        }
        // They are in the same row of the records, and in the same minutes.
        store(&mut process, (20..119).map(priced));
        assert_eq!(process.sql("SELECT count(*) FROM usage"), 1);
        let prices = Prices::flat(Rates::default().with(Class::Input, 1_000_000_000_000)).by_operator();
        let prices = History::of_one("p", "m", Priced { prices, label: "new".into() });
        let mut repricing = Repricing {
            from_ms: 0,
            to_ms: START_MS * 2,
            provider: None,
            model: None,
            prices: Arc::new(prices),
            counters: Arc::default(),
            after: RowTime::default(),
        };
        let mut done = Repriced::default();
        while !repricing.step(process.meter.usage_mut(), &mut done, Instant::now()).unwrap() {}
        assert_eq!((done.changed, done.cost_after % 119), (119, 0));
        let cost = done.cost_after / 119;
        let costs = |process: &Process| -> Vec<u64> {
            let all = [
                (Grain::Minute, Section::Target),
                (Grain::Hour, Section::Endpoint),
                (Grain::Day, Section::All),
            ];
            let sum =
                |sums: BTreeMap<_, PeriodSums>| sums.values().map(|sums| sums.figures.cost_nano_usd).sum();
            all.into_iter().map(|(grain, section)| sum(shown(process.meter.db(), grain, section))).collect()
        };
        assert_eq!(costs(&process), [20 * cost; 3], "what is not counted yet is not corrected");
        follow(&mut process);
        assert_eq!(costs(&process), [119 * cost; 3]);
        for table in ["usage_hour", "usage_day"] {
            let sum = process.sql(&format!("SELECT CAST(sum(cost_nano_usd) AS BIGINT) FROM {table}"));
            assert_eq!(u64::try_from(sum).unwrap(), 119 * cost, "{table}");
        }
        assert_whole(process.meter.db(), "repriced, and counted");
    }
}

#[test]
fn the_last_answer_of_a_target_is_known_as_soon_as_it_is_stored_and_after_a_restart() {
    let unanswered =
        |n| UsageEvent { first_content_us: None, outcome: Outcome::Failed, ..at(n, START_MS + 90_000) };
    let served = vec![TraceStep::new(ProviderId::new("p"), ModelId::new("m"), StepResult::Served)];
    let cut = UsageEvent { duration_us: 70_000_000, outcome: Outcome::Cut, trace: served, ..at(3, START_MS) };
    let other = UsageEvent { provider: Some(ProviderId::new("q")), ..unanswered(4) };
    let home = TempDir::new().unwrap();
    let mut process = Process::start(home.path());
    store(&mut process, [at(1, START_MS), cut, at(2, START_MS + 5_000), unanswered(5), other]);
    let answers = process.meter.answers();
    assert_eq!(answers.of_model("p", "m"), Some(START_MS + 70_000));
    assert_eq!((answers.of_provider("p"), answers.of_provider("q")), (Some(START_MS + 70_000), None));
    follow(&mut process);
    let recalled = LastAnswers::default();
    Follower::new().step(process.meter.db_mut(), &recalled, 0);
    assert_eq!(
        (recalled.of_provider("p"), recalled.of_provider("q")),
        (Some(START_MS), None),
        "to the minute"
    );
}
