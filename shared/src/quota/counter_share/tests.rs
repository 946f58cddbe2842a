//! Tests of shared counters against a model that keeps every entry, and under concurrent threads.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::thread;

use proptest::prelude::*;

use super::super::{Ask, Counter, Full, Hold};
use super::*;

/// A time in the middle of an hour, a day and a month.
const NOON: u64 = 1_795_262_400_000;

thread_local! {
    static NOW_MS: Cell<u64> = const { Cell::new(NOON) };
}

fn now_ms() -> u64 {
    NOW_MS.get()
}

fn pass(ms: u64) {
    NOW_MS.set(NOW_MS.get() + ms);
}

/// Returns a counter whose clocks are the test's, and which admits for ever.
fn counter(period: Option<Period>) -> Counter {
    NOW_MS.set(NOON);
    let counter = Counter::on_clock(period.unwrap_or(Period::Total), NOON, |_| now_ms())
        .shared_as(SharedLimit::on_clock(period, now_ms));
    counter.share().unwrap().admit_until(u64::MAX);
    counter
}

fn exactly(amount: u64) -> Ask {
    Ask { least: amount, wanted: amount, limit: Some(u64::MAX) }
}

fn start_of(period: Option<Period>, at_ms: u64) -> u64 {
    period.and_then(|period| period.window(at_ms)).map_or(0, |(start_ms, _)| start_ms)
}

/// What a counter must do: every amount with its time, and the state of each window.
#[derive(Default)]
struct Model {
    /// Time, amount, and whether it is settled.
    entries: Vec<(u64, u64, bool)>,
    windows: BTreeMap<u64, ModelWindow>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ModelWindow {
    allowed: u64,
    is_short_open: bool,
    is_short_out: bool,
}

impl Model {
    fn taken(&self, period: Option<Period>, start_ms: u64) -> u64 {
        let counts = |at_ms: u64| match period {
            Some(Period::Minute) => now_ms() / 1_000 - at_ms / 1_000 <= 60,
            _ => start_of(period, at_ms) == start_ms,
        };
        self.entries.iter().filter(|(at_ms, ..)| counts(*at_ms)).map(|(_, amount, _)| amount).sum()
    }

    fn window(&mut self, start_ms: u64) -> &mut ModelWindow {
        self.windows.entry(start_ms).or_default()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take { least: u64, more: u64 },
    Settle { place: usize, percent: u64 },
    Raise { ahead: u64, amount: u64 },
    Lower { most: u64 },
    OpenShort,
    CloseShort,
    Add { amount: u64 },
    TakeBack { amount: u64 },
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..30_u64, 0..30_u64).prop_map(|(least, more)| Step::Take { least, more }),
        4 => (0..8_usize, 0..250_u64).prop_map(|(place, percent)| Step::Settle { place, percent }),
        3 => (0..2_u64, 0..60_u64).prop_map(|(ahead, amount)| Step::Raise { ahead, amount }),
        2 => (0..60_u64).prop_map(|most| Step::Lower { most }),
        1 => Just(Step::OpenShort),
        1 => Just(Step::CloseShort),
        1 => (0..20_u64).prop_map(|amount| Step::Add { amount }),
        1 => (0..90_u64).prop_map(|amount| Step::TakeBack { amount }),
        2 => prop_oneof![0..3_000_u64, 0..130_000_u64, 0..4_000_000_u64].prop_map(Step::Pass),
    ]
}

const PERIODS: [Option<Period>; 5] =
    [None, Some(Period::Minute), Some(Period::Hour), Some(Period::Day), Some(Period::Total)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_shared_counter_admits_what_its_share_leaves(
        period in prop::sample::select(&PERIODS[..]),
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let counter = counter(period);
        let share = counter.share().unwrap();
        let mut model = Model::default();
        let mut holds: Vec<(Hold, usize, Option<u64>)> = Vec::new();
        for step in steps {
            let start_ms = start_of(period, now_ms());
            let taken = model.taken(period, start_ms);
            let window = *model.window(start_ms);
            let left = window.allowed.saturating_sub(taken);
            match step {
                Step::Take { least, more } => {
                    let wanted = least + more;
                    let may_be_short = window.is_short_open && !window.is_short_out;
                    let fits = wanted <= left || least <= left && may_be_short;
                    // The limit in the snapshot does not matter.
                    let ask = Ask { least, wanted, limit: Some(1) };
                    let hold = counter.take(ask, now_ms());
                    prop_assert_eq!(hold.is_ok(), fits, "{:?} of {}, {:?}", ask, left, window);
                    if let Ok(hold) = hold {
                        let is_short = wanted > left;
                        prop_assert_eq!(hold.amount(), wanted.min(left));
                        model.window(start_ms).is_short_out |= is_short;
                        model.entries.push((now_ms(), hold.amount(), false));
                        holds.push((hold, model.entries.len() - 1, is_short.then_some(start_ms)));
                    }
                }
                Step::Settle { place, percent } if !holds.is_empty() => {
                    let (hold, entry, short) = holds.swap_remove(place % holds.len());
                    let used = hold.amount() * percent / 100;
                    counter.settle(hold, used);
                    model.entries[entry].1 = used;
                    model.entries[entry].2 = true;
                    if let Some(start_ms) = short {
                        model.window(start_ms).is_short_out = false;
                    }
                }
                Step::Settle { .. } => {}
                Step::Raise { ahead, amount } => {
                    let next = period.and_then(|period| period.window(now_ms())).map_or(0, |(_, end)| end);
                    let start_ms = if ahead == 1 && next < u64::MAX && next > 0 { next } else { start_ms };
                    share.raise(start_ms, amount);
                    model.window(start_ms).allowed += amount;
                }
                Step::Lower { most } => {
                    let lowered = share.lower(start_ms, most);
                    prop_assert_eq!(lowered, most.min(left));
                    model.window(start_ms).allowed -= lowered;
                }
                Step::OpenShort => {
                    share.open_short(start_ms);
                    model.window(start_ms).is_short_open = true;
                }
                Step::CloseShort => {
                    prop_assert_eq!(share.close_short(start_ms), !window.is_short_out);
                    model.window(start_ms).is_short_open &= window.is_short_out;
                }
                Step::Add { amount } => {
                    counter.add(now_ms(), amount, now_ms());
                    model.entries.push((now_ms(), amount, true));
                }
                // The sliding minute takes back from the second alone.
                Step::TakeBack { .. } if period == Some(Period::Minute) => {}
                Step::TakeBack { amount } => {
                    counter.correct(now_ms(), -(amount as i64), now_ms());
                    let mut rest = amount;
                    for (at_ms, settled, is_settled) in &mut model.entries {
                        if *is_settled && start_of(period, *at_ms) == start_ms {
                            let less = rest.min(*settled);
                            (*settled, rest) = (*settled - less, rest - less);
                        }
                    }
                }
                Step::Pass(ms) => pass(ms),
            }
            let start_ms = start_of(period, now_ms());
            let taken = model.taken(period, start_ms);
            prop_assert_eq!(share.taken(start_ms), taken);
            share.set_elsewhere(start_ms, 5);
            let reading = counter.read(now_ms());
            prop_assert_eq!(reading.used + reading.reserved, taken + 5);
        }
    }
}

#[test]
fn nothing_is_admitted_before_a_share_is_granted_nor_at_a_limit_that_was_lowered_to_nothing() {
    for period in PERIODS {
        let counter = counter(period);
        let (share, start_ms) = (counter.share().unwrap(), start_of(period, NOON));
        assert_eq!(counter.take(exactly(1), NOON).err(), Some(Full), "{period:?}");
        share.raise(start_ms, 3);
        let hold = counter.take(exactly(1), NOON).unwrap();
        assert_eq!(share.lower(start_ms, 9), 2, "{period:?}: what a request holds stays");
        assert_eq!(counter.take(exactly(1), NOON).err(), Some(Full), "{period:?}");
        counter.settle(hold, 4);
        assert_eq!((share.taken(start_ms), share.lower(start_ms, 9)), (4, 0), "{period:?}");
    }
}

#[test]
fn a_timed_limit_admits_only_until_the_node_may_be_forgotten() {
    for period in PERIODS {
        let counter = counter(period);
        let share = counter.share().unwrap();
        share.raise(start_of(period, NOON), 3);
        share.admit_until(NOON + 1);
        assert!(counter.take(exactly(1), NOON).is_ok(), "{period:?}");
        pass(1);
        let is_timed = matches!(period, None | Some(Period::Minute));
        assert_eq!(counter.take(exactly(1), NOON + 1).is_err(), is_timed, "{period:?}");
        let counted = Ask { limit: None, ..exactly(9) };
        assert!(
            counter.take(counted, NOON + 1).is_ok(),
            "{period:?}: a limit that only counts rejects nothing"
        );
    }
    let unheard = Counter::of_shared(None, NOON);
    unheard.share().unwrap().raise(0, 1);
    assert!(unheard.take(exactly(1), NOON).is_err(), "it was never heard of");
}

#[test]
fn windows_that_are_long_over_are_forgotten() {
    let counter = counter(Some(Period::Hour));
    let share = counter.share().unwrap();
    for hour in 0..100 {
        share.raise(NOON + hour * 3_600_000, 1);
        counter.take(exactly(1), NOON + hour * 3_600_000).unwrap();
    }
    assert_eq!(share.limit.lock().len(), WINDOWS_MAX);
    assert_eq!(share.taken(NOON + 99 * 3_600_000), 1);
}

/// Requests take, settle and exceed their holds on several threads while another thread changes the share.
#[test]
fn threads_never_take_more_than_was_allowed_at_the_same_time() {
    for period in PERIODS {
        let counter = Counter::on_clock(period.unwrap_or(Period::Total), NOON, |_| NOON)
            .shared_as(SharedLimit::on_clock(period, || NOON));
        let (share, start_ms) = (counter.share().unwrap(), start_of(period, NOON));
        share.admit_until(u64::MAX);
        let (stop, moves, takes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        // What requests hold is counted apart: before it is given back, and after it was taken.
        let held = AtomicU64::new(0);
        let fault = thread::scope(|scope| {
            for worker in 0..4_u64 {
                let (counter, stop, held, takes) = (&counter, &stop, &held, &takes);
                scope.spawn(move || {
                    let mut turn = worker;
                    while !stop.load(Ordering::Relaxed) {
                        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(worker | 1);
                        if let Ok(hold) = counter.take(exactly(1 + (turn >> 61)), NOON) {
                            let amount = hold.amount();
                            held.fetch_add(amount, Ordering::SeqCst);
                            takes.fetch_add(1, Ordering::Relaxed);
                            if turn >> 40 & 1 == 1 {
                                thread::yield_now();
                            }
                            held.fetch_sub(amount, Ordering::SeqCst);
                            counter.settle(hold, 0);
                        }
                    }
                });
            }
            let (mut allowed, mut fault) = (0, None);
            while fault.is_none()
                && (moves.load(Ordering::Relaxed) < 400_000 || takes.load(Ordering::Relaxed) < 2_000)
            {
                let turn = moves.fetch_add(1, Ordering::Relaxed);
                let amount = 1 + turn * 7 % 13;
                if allowed < 20 {
                    share.raise(start_ms, amount);
                    allowed += amount;
                } else {
                    allowed -= share.lower(start_ms, amount);
                }
                let (held, taken) = (held.load(Ordering::SeqCst), share.taken(start_ms));
                if held.max(taken) > allowed {
                    fault = Some(format!("{held} held, {taken} taken, {allowed} allowed"));
                }
                if turn % 64 == 0 {
                    thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
            fault
        });
        assert_eq!(fault, None, "{period:?}");
        assert_eq!(share.taken(start_ms), 0, "{period:?}");
        let now = counter.read(NOON);
        assert_eq!((now.used, now.reserved), (0, 0), "{period:?}");
    }
}

#[test]
fn a_clock_that_was_ahead_and_is_right_again_counts_in_the_window_of_before() {
    const HOUR_MS: u64 = 3_600_000;
    let counter = counter(Some(Period::Hour));
    let share = counter.share().unwrap();
    let [now, later] = [NOON, NOON + 5 * HOUR_MS].map(|at_ms| start_of(Some(Period::Hour), at_ms));
    share.raise(now, 5);
    share.raise(later, 5);
    let _held = counter.take(exactly(3), NOON).unwrap();
    let _ahead = counter.take(exactly(4), NOON + 5 * HOUR_MS).unwrap();
    assert!(counter.take(exactly(3), NOON).is_err(), "3 of 5 are taken");
    let _rest = counter.take(exactly(2), NOON).unwrap();
    assert_eq!([share.taken(now), share.taken(later)], [5, 4]);
    assert!(counter.take(exactly(2), NOON + 5 * HOUR_MS).is_err(), "4 of 5 are taken");
}
