//! Tests of the ledger against a model that keeps every entry, with a manual clock, and under concurrent threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::id::{EndpointName, ModelId, ProviderId};
use crate::usage::{Outcome, TokenCounts};

/// A time in the middle of an hour, a day and a month.
const NOON: u64 = 1_795_262_400_000;

/// Returns a counter whose sliding minute follows the times that the test passes.
fn counter_on_wall_clock(period: Period, since_ms: u64) -> Counter {
    Counter::on_clock(period, since_ms, |now_ms| now_ms)
}

fn exactly(amount: u64, limit: u64) -> Ask {
    Ask { least: amount, wanted: amount, limit: Some(limit) }
}

fn quota(metric: Metric, limit: u64, is_hard: bool) -> Arc<Quota> {
    Arc::new(Quota {
        id: "q".into(),
        subject: Subject::Key,
        scope: Scope::default(),
        metric,
        period: Some(Period::Hour),
        limit,
        is_hard,
        wait_ms: 0,
        counter: Arc::new(counter_on_wall_clock(Period::Hour, NOON)),
    })
}

/// Every entry ever made: its time, its amount, and whether it is settled.
#[derive(Default)]
struct Model {
    entries: Vec<(u64, u64, bool)>,
}

impl Model {
    /// Returns the (settled, reserved) amounts that count at `now_ms`.
    fn count(&self, period: Period, now_ms: u64) -> (u64, u64) {
        let counts = |at_ms: u64| match period.window(now_ms) {
            Some((start, end)) => (start..end).contains(&at_ms),
            None => now_ms / 1_000 - at_ms / 1_000 <= 60,
        };
        let mut sums = (0, 0);
        for (at_ms, amount, settled) in &self.entries {
            if counts(*at_ms) {
                *(if *settled { &mut sums.0 } else { &mut sums.1 }) += amount;
            }
        }
        sums
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take {
        least: u64,
        more: u64,
    },
    /// Settles the hold at this index with this percentage of it used.
    Settle {
        place: usize,
        percent: u64,
    },
    /// Advances the clock by this many milliseconds.
    Pass(u64),
    /// Counts an amount that was used this many milliseconds ago.
    Add {
        ago: u64,
        amount: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..60_u64, 0..60_u64).prop_map(|(least, more)| Step::Take { least, more }),
        (0..8_usize, 0..250_u64).prop_map(|(place, percent)| Step::Settle { place, percent }),
        prop_oneof![0..3_000_u64, 0..130_000_u64, 0..40 * 86_400_000_u64].prop_map(Step::Pass),
        (0..200_000_u64, 0..40_u64).prop_map(|(ago, amount)| Step::Add { ago, amount }),
    ]
}

#[derive(Clone, Debug)]
enum Turn {
    /// An exchange starts.
    Begin,
    /// The exchange at this index ends with this outcome.
    End { place: usize, outcome: Outcome },
    /// Advances the clock by this many milliseconds.
    Pass(u64),
}

fn turn() -> impl Strategy<Value = Turn> {
    let outcome = prop::sample::select(&[Outcome::Completed, Outcome::Failed, Outcome::Cancelled][..]);
    prop_oneof![
        3 => Just(Turn::Begin),
        2 => (0..8_usize, outcome).prop_map(|(place, outcome)| Turn::End { place, outcome }),
        1 => (0..40 * 86_400_000_u64).prop_map(Turn::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn concurrent_requests_never_exceed_their_limit(
        limit in 0..6_u64,
        turns in prop::collection::vec(turn(), 1..80),
    ) {
        let concurrent = Arc::new(Quota {
            period: None,
            counter: Arc::new(Counter::of_holds(NOON)),
            ..Arc::into_inner(quota(Metric::ConcurrentRequests, limit, true)).unwrap()
        });
        let quotas = [Arc::clone(&concurrent)];
        let mut running = Vec::new();
        let mut now_ms = NOON;
        for turn in turns {
            match turn {
                Turn::Begin => match Reservation::take(&quotas, &Claim::default(), now_ms) {
                    Ok(reservation) => running.push(reservation),
                    Err(exceeded) => {
                        prop_assert_eq!(running.len() as u64, limit);
                        prop_assert_eq!(exceeded.wait_ms, (limit > 0).then_some(0));
                    }
                },
                Turn::End { place, outcome } if !running.is_empty() => {
                    let tokens = TokenCounts { input: 7, ..TokenCounts::default() };
                    let ended = running.swap_remove(place % running.len());
                    ended.settle(&Spent::of(outcome, &tokens, None));
                }
                Turn::End { .. } => {}
                Turn::Pass(ms) => now_ms += ms,
            }
            let held = Reading { used: 0, reserved: running.len() as u64, resets_at_ms: None };
            prop_assert!(held.reserved <= limit);
            prop_assert_eq!(concurrent.counter.read(now_ms), held);
        }
    }

    #[test]
    fn a_counter_matches_a_model_that_keeps_every_entry(
        period in prop::sample::select(&Period::ALL[..]),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        const LIMIT: u64 = 100;
        let counter = counter_on_wall_clock(period, NOON);
        let mut model = Model::default();
        let mut holds: Vec<(Hold, usize)> = Vec::new();
        // The index of the entry whose hold is smaller than wanted.
        let mut short = None;
        let mut now_ms = NOON;
        for step in steps {
            match step {
                Step::Take { least, more } => {
                    let (settled, reserved) = model.count(period, now_ms);
                    let left = LIMIT.saturating_sub(settled + reserved);
                    let ask = Ask { least, wanted: least + more, limit: Some(LIMIT) };
                    let fits = ask.wanted <= left || (least <= left && short.is_none());
                    match counter.take(ask, now_ms) {
                        Ok(hold) => {
                            prop_assert!(fits);
                            prop_assert_eq!(hold.amount(), (least + more).min(left));
                            short = short.or_else(|| (ask.wanted > left).then_some(model.entries.len()));
                            holds.push((hold, model.entries.len()));
                            model.entries.push((now_ms, (least + more).min(left), false));
                        }
                        Err(Full) => {
                            prop_assert!(!fits);
                            let wait = counter.wait_ms(least, LIMIT, now_ms);
                            if period == Period::Minute && least > LIMIT.saturating_sub(settled) {
                                // There must be room at exactly that time, if no hold is settled before.
                                let at = now_ms + wait.unwrap();
                                let (settled, reserved) = model.count(period, at);
                                prop_assert!(settled + reserved + least <= LIMIT);
                                let (settled, reserved) = model.count(period, at - 1);
                                prop_assert!(settled + reserved + least > LIMIT);
                            }
                        }
                    }
                }
                Step::Settle { place, percent } if !holds.is_empty() => {
                    let (hold, entry) = holds.swap_remove(place % holds.len());
                    let used = hold.amount() * percent / 100;
                    counter.settle(hold, used);
                    short = short.filter(|its| *its != entry);
                    model.entries[entry].1 = used;
                    model.entries[entry].2 = true;
                }
                Step::Settle { .. } => {}
                Step::Pass(ms) => now_ms += ms,
                Step::Add { ago, amount } => {
                    counter.add(now_ms - ago, amount, now_ms);
                    model.entries.push((now_ms - ago, amount, true));
                }
            }
            let (settled, reserved) = model.count(period, now_ms);
            let reading = counter.read(now_ms);
            prop_assert_eq!((reading.used, reading.reserved), (settled, reserved));
        }
    }
}

#[test]
fn each_quota_window_ends_at_its_calendar_boundary() {
    for (period, last, next) in [
        (Period::Hour, 3_599_999, 3_600_000),
        (Period::Day, 43_199_999, 43_200_000),
        (Period::Month, 820_799_999, 820_800_000),
        (Period::Minute, 60_999, 61_000),
    ] {
        let counter = counter_on_wall_clock(period, NOON);
        let hold = counter.take(exactly(10, 10), NOON).unwrap();
        assert_eq!(counter.take(exactly(1, 10), NOON + last).err(), Some(Full), "{period:?}");
        counter.settle(hold, 10);
        assert_eq!(counter.wait_ms(1, 10, NOON), Some(next), "{period:?}");
        assert!(counter.take(exactly(10, 10), NOON + next).is_ok(), "{period:?}");
    }
    let total = counter_on_wall_clock(Period::Total, NOON);
    let hold = total.take(exactly(10, 10), NOON).unwrap();
    total.settle(hold, 10);
    assert_eq!((total.wait_ms(1, 10, NOON), total.read(NOON).resets_at_ms), (None, None));
}

#[test]
fn the_wait_for_a_reserved_amount_is_zero() {
    for period in Period::ALL {
        let counter = counter_on_wall_clock(period, NOON);
        let hold = counter.take(exactly(10, 10), NOON).unwrap();
        assert_eq!(counter.wait_ms(1, 10, NOON), Some(0), "{period:?}");
        assert_eq!(counter.wait_ms(11, 10, NOON), None, "{period:?} never leaves so much");
        counter.settle(hold, 0);
        assert_eq!(counter.read(NOON).used, 0);
    }
}

/// The wall clock jumps an hour ahead and is corrected: the minute goes on by the steady clock.
#[test]
fn a_sliding_minute_expires_in_time_though_the_clock_jumped_ahead() {
    static STEADY_MS: AtomicU64 = AtomicU64::new(NOON);
    let counter = Counter::on_clock(Period::Minute, NOON, |_| STEADY_MS.load(Ordering::Relaxed));
    let later = |ms: u64| STEADY_MS.fetch_add(ms, Ordering::Relaxed);
    let ahead_ms = NOON + 3_600_000;
    counter.take(exactly(1, 4), ahead_ms).unwrap();
    counter.add(ahead_ms, 1, ahead_ms);
    // Corrected, and a second later.
    later(1_000);
    counter.take(exactly(1, 4), NOON + 1_000).unwrap();
    counter.add(NOON + 1_000, 1, NOON + 1_000);
    counter.take(exactly(1, 4), NOON + 1_000).unwrap_err();
    assert_eq!(counter.read(NOON + 1_000).resets_at_ms, Some(NOON + 62_000));
    later(60_000);
    assert_eq!(counter.read(NOON + 61_000).used, 1, "what was used before the correction has expired");
    counter.take(exactly(1, 4), NOON + 61_000).unwrap();
    later(1_000);
    assert_eq!(counter.read(NOON + 62_000).used, 0);
    // An amount is taken back from the second in which it was counted.
    counter.add(NOON + 62_000, 2, NOON + 62_000);
    counter.correct(NOON + 62_000 + ahead_ms - NOON, -2, NOON + 62_000 + ahead_ms - NOON);
    assert_eq!(counter.read(NOON + 62_000).used, 0);
}

#[test]
fn a_clock_set_back_frees_no_quota() {
    for period in Period::ALL {
        let counter = counter_on_wall_clock(period, NOON);
        let later = NOON + 40 * 86_400_000;
        let hold = counter.take(exactly(10, 10), later).unwrap();
        assert_eq!(counter.take(exactly(1, 10), NOON).err(), Some(Full), "{period:?}");
        counter.settle(hold, 4);
        assert_eq!(counter.read(NOON).used, 4, "{period:?}");
    }
}

#[test]
fn a_settled_hold_counts_in_the_window_it_was_taken_in() {
    let counter = counter_on_wall_clock(Period::Hour, NOON);
    let early = counter.take(exactly(60, 100), NOON).unwrap();
    let next = NOON + 3_600_000;
    let late = counter.take(exactly(100, 100), next).unwrap();
    counter.settle(early, 90);
    assert_eq!(counter.read(next), Reading { used: 0, reserved: 100, resets_at_ms: Some(next + 3_600_000) });
    counter.settle(late, 120);
    assert_eq!(counter.read(next).used, 120, "what was used counts, also beyond the limit");
    assert_eq!(counter.take(exactly(0, 100), next).map(|hold| hold.amount()), Ok(0));
}

#[test]
fn absurd_amounts_do_not_overflow() {
    for period in Period::ALL {
        let counter = counter_on_wall_clock(period, NOON);
        let ask = Ask { least: u64::MAX, wanted: u64::MAX, limit: None };
        let holds: Vec<Hold> = (0..40).map(|_| counter.take(ask, NOON).unwrap()).collect();
        for hold in holds {
            counter.settle(hold, 1);
        }
        assert_eq!(counter.read(NOON).reserved, 0, "{period:?}");
        assert!(counter.read(NOON).used <= 40, "{period:?}");
    }
}

#[test]
fn threads_never_take_more_than_the_limit_together() {
    const LIMIT: u64 = 1_000;
    for period in Period::ALL {
        let counter = counter_on_wall_clock(period, NOON);
        let (clock, stop) = (AtomicU64::new(NOON), AtomicBool::new(false));
        let attempts = AtomicU64::new(0);
        let spent = thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker: u64| {
                    let (counter, clock, stop, attempts) = (&counter, &clock, &stop, &attempts);
                    scope.spawn(move || {
                        let mut spent = 0;
                        let mut turn = worker;
                        while !stop.load(Ordering::Relaxed) {
                            turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(worker | 1);
                            let now_ms = clock.load(Ordering::Relaxed);
                            let least = turn >> 61;
                            let ask = Ask { least, wanted: least + 5, limit: Some(LIMIT) };
                            if let Ok(hold) = counter.take(ask, now_ms) {
                                let used = hold.amount() * (turn >> 40 & 1);
                                spent += used;
                                counter.settle(hold, used);
                            }
                            attempts.fetch_add(1, Ordering::Relaxed);
                        }
                        spent
                    })
                })
                .collect();
            let pace = if period == Period::Minute { 1_700 } else { 1_700_000 };
            for _ in 0..30 {
                clock.fetch_add(pace, Ordering::Relaxed);
                // The threads may start slowly on a busy machine.
                let before = attempts.load(Ordering::Relaxed);
                while attempts.load(Ordering::Relaxed) < before + 4 {
                    thread::yield_now();
                }
                for _ in 0..3 {
                    let now_ms = clock.load(Ordering::Relaxed);
                    let reading = counter.read(now_ms);
                    assert!(reading.used + reading.reserved <= LIMIT + 64, "{period:?}: {reading:?}");
                    thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
            workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(spent.iter().sum::<u64>() > 0, "{period:?}: no request was served");
        let now_ms = clock.load(Ordering::Relaxed);
        assert_eq!(counter.read(now_ms).reserved, 0, "{period:?}");
        let used = counter.read(now_ms).used;
        if period == Period::Total {
            assert_eq!(used, spent.iter().sum::<u64>());
        }
        if period == Period::Minute {
            let quiet = now_ms + 62_000;
            assert_eq!(counter.read(quiet).used, 0, "every cell releases its reservations");
            assert!(counter.take(exactly(LIMIT, LIMIT), quiet).is_ok());
        }
    }
}

#[test]
fn a_reservation_takes_from_all_quotas_or_from_none() {
    let requests = quota(Metric::Requests, 5, true);
    let tokens = quota(Metric::TotalTokens, 100, true);
    let warned = quota(Metric::OutputTokens, 1, false);
    let quotas = [Arc::clone(&requests), Arc::clone(&warned), Arc::clone(&tokens)];
    let claim =
        Claim { input_least: 30, input_wanted: 30, output_least: 50, output_wanted: 50, ..Claim::default() };
    let first = Reservation::take(&quotas, &claim, NOON).unwrap();
    let exceeded = Reservation::take(&quotas, &claim, NOON).unwrap_err();
    assert_eq!((exceeded.quota.metric, exceeded.least, exceeded.wait_ms), (Metric::TotalTokens, 80, Some(0)));
    let reserved = |quota: &Quota| quota.counter.read(NOON).reserved;
    assert_eq!((reserved(&requests), reserved(&warned), reserved(&tokens)), (1, 50, 80), "given back");
    assert_eq!((first.held(Metric::TotalTokens), first.held(Metric::OutputTokens)), (Some(80), None));
    let tokens_used = TokenCounts { input: 20, cache_read: 5, output: 7, reasoning: 3, ..Default::default() };
    first.settle(&Spent::of(Outcome::Cancelled, &tokens_used, None));
    let used = |quota: &Quota| quota.counter.read(NOON).used;
    assert_eq!((used(&requests), used(&warned), used(&tokens)), (1, 10, 35));
    let free = Claim { output_least: 1, output_wanted: 4_096, ..claim };
    let last = Reservation::take(&quotas, &free, NOON).unwrap();
    assert_eq!(last.held(Metric::TotalTokens), Some(65), "no more than is left");
    last.settle(&Spent::of(Outcome::Failed, &TokenCounts::default(), Some(0)));
    assert_eq!((used(&requests), used(&tokens)), (1, 35), "what no target served does not count");
}

#[test]
fn a_warning_limit_is_reported_once_it_is_exceeded() {
    let counts = quota(Metric::TotalTokens, 100, false);
    let quotas = [Arc::clone(&counts)];
    let claim =
        Claim { input_least: 40, input_wanted: 40, output_least: 10, output_wanted: 90, ..Claim::default() };
    let take = || Reservation::take(&quotas, &claim, NOON).unwrap();
    let first = take();
    assert_eq!((first.warnings().count(), first.is_hard()), (0, false));
    assert_eq!(take().warnings().count(), 1, "the first one holds 130");
    first.settle(&Spent { input_tokens: 40, output_tokens: 10, ..Spent::default() });
    assert_eq!(counts.counter.read(NOON).used, 50);
}

#[test]
fn an_unknown_cost_settles_at_the_reserved_amount() {
    let cost = quota(Metric::CostMicroUsd, 1, true);
    let quotas = [Arc::clone(&cost)];
    let claim = Claim { cost_least: 400, cost_wanted: 600, ..Claim::default() };
    let held = Reservation::take(&quotas, &claim, NOON).unwrap();
    held.settle(&Spent::of(Outcome::Completed, &TokenCounts::default(), None));
    assert_eq!(cost.counter.read(NOON).used, 600);
    assert_eq!(Reservation::take(&quotas, &claim, NOON).unwrap().held(Metric::CostMicroUsd), Some(400));
}

#[test]
fn a_quota_is_displayed_as_a_phrase() {
    let mut quota =
        Quota { limit: 1_250_000, ..Arc::into_inner(quota(Metric::CostMicroUsd, 0, true)).unwrap() };
    assert_eq!(quota.to_string(), "1.250000 dollars an hour for this key");
    quota =
        Quota { metric: Metric::Requests, period: Some(Period::Total), subject: Subject::Project, ..quota };
    assert_eq!(quota.to_string(), "1250000 requests in total for this project");
    quota = Quota { metric: Metric::ConcurrentRequests, period: None, limit: 3, ..quota };
    assert_eq!(quota.to_string(), "3 concurrent requests for this project");
    let scope = Scope {
        endpoint: Some(EndpointName::new("line")),
        provider: Some(ProviderId::new("up")),
        model: Some(ModelId::new("vendor/m")),
    };
    for (subject, text) in [
        (Subject::Gateway, "3 concurrent requests for the whole gateway, model up/vendor/m, endpoint line"),
        (Subject::Provider, "3 concurrent requests for the provider up, model up/vendor/m, endpoint line"),
    ] {
        quota = Quota { subject, scope: scope.clone(), ..quota };
        assert_eq!(quota.to_string(), text);
    }
}

#[test]
fn only_one_hold_may_be_smaller_than_requested() {
    for period in Period::ALL {
        let counter = counter_on_wall_clock(period, NOON);
        let ask = Ask { least: 1, wanted: 60, limit: Some(100) };
        let whole = counter.take(ask, NOON).unwrap();
        let part = counter.take(ask, NOON).unwrap();
        assert_eq!((whole.amount(), part.amount()), (60, 40), "{period:?}");
        counter.settle(whole, 50);
        assert_eq!(counter.take(ask, NOON).err(), Some(Full), "{period:?}: another one is out");
        assert!(counter.take(exactly(10, 100), NOON).is_ok(), "{period:?}: what fits may run");
        counter.settle(part, 30);
        assert_eq!(counter.take(ask, NOON).unwrap().amount(), 10, "{period:?}");
    }
}

/// Returns a limit on cost of `limit` micro-dollars of which `used_nano_usd` are used at noon.
fn spent(period: Period, limit: u64, used_nano_usd: u64) -> Arc<Quota> {
    let counter = counter_on_wall_clock(period, NOON);
    counter.add(NOON, used_nano_usd, NOON);
    let of = Arc::into_inner(quota(Metric::CostMicroUsd, limit, true)).unwrap();
    Arc::new(Quota { period: Some(period), counter: Arc::new(counter), ..of })
}

#[test]
fn only_a_hard_limit_on_cost_caps_spending() {
    for (metric, is_hard, is_cap) in [
        (Metric::CostMicroUsd, true, true),
        (Metric::CostMicroUsd, false, false),
        (Metric::TotalTokens, true, false),
        (Metric::Requests, true, false),
    ] {
        let quota = quota(metric, 10, is_hard);
        assert_eq!(SpendCap::of(&quota, NOON).is_some(), is_cap, "{metric:?}, hard: {is_hard}");
    }
}

#[test]
fn a_cap_reports_the_used_share_and_rounds_against_the_caller() {
    for (limit, used_nano_usd, used_micro_usd, percent) in [
        (1_000, 0, 0, 0),
        // A part of a micro-dollar counts as one.
        (1_000, 1, 1, 0),
        (1_000, 750_000, 750, 75),
        // Percentages are rounded down: 74.9.
        (1_000, 749_000, 749, 74),
        (1_000, 949_999, 950, 95),
        (1_000, 1_500_000, 1_500, 150),
        // Nothing of a limit of nothing is left.
        (0, 0, 0, 100),
        (u64::MAX, 1_000, 1, 0),
    ] {
        let quota = spent(Period::Day, limit, used_nano_usd);
        let cap = SpendCap::of(&quota, NOON).unwrap();
        let seen = (cap.used_micro_usd, cap.used_percent());
        assert_eq!(seen, (used_micro_usd, percent), "{used_nano_usd} of {limit}");
    }
}

#[test]
fn the_fullest_cap_is_that_of_the_largest_share_not_of_the_largest_amount() {
    let (large, small) = (spent(Period::Month, 1_000_000, 500_000_000), spent(Period::Day, 100, 90_000));
    let tokens = quota(Metric::TotalTokens, 1, true);
    let all = [large, tokens, small];
    let cap = SpendCap::fullest(all.iter(), NOON).unwrap();
    assert_eq!((cap.used_micro_usd, cap.used_percent(), cap.quota.limit), (90, 90, 100));
    assert!(SpendCap::fullest(all.iter().skip(1).take(1), NOON).is_none(), "no limit on cost");
}

#[test]
fn a_cap_resets_at_the_end_of_its_period() {
    // NOON is 12:00 on 21 November 2026, a Saturday.
    for (period, at) in [
        (Period::Minute, Some("2026-11-21T12:01:00Z")),
        (Period::Hour, Some("2026-11-21T13:00:00Z")),
        (Period::Day, Some("2026-11-22T00:00:00Z")),
        (Period::Week, Some("2026-11-23T00:00:00Z")),
        (Period::Month, Some("2026-12-01T00:00:00Z")),
        (Period::Total, None),
    ] {
        let quota = spent(period, 10, 0);
        let resets_at_ms = SpendCap::of(&quota, NOON).unwrap().resets_at_ms;
        assert_eq!(resets_at_ms.map(SpendCap::utc).as_deref(), at, "{period:?}");
    }
    assert_eq!(SpendCap::utc(u64::MAX), "", "a time that no calendar has");
}
