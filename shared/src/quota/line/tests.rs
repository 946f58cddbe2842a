//! Tests of the line with its counter: against a model of turns, with a manual clock, and under concurrent threads.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::task::Wake;
use std::thread;

use proptest::prelude::*;

use super::super::{Claim, Metric, Period, Reservation, Scope, Spent, Subject};
use super::*;

/// A time in the future, so that no clock of the machine is ahead of it.
const START: u64 = 4_000_000_000_000;

fn of_counter(metric: Metric, period: Option<Period>, limit: u64, counter: Counter) -> Arc<Quota> {
    let counter = Arc::new(counter);
    let (id, subject, scope) = ("q".into(), Subject::Gateway, Scope::default());
    Arc::new(Quota { id, subject, scope, metric, period, limit, is_hard: true, wait_ms: 60_000, counter })
}

fn concurrent(limit: u64) -> Arc<Quota> {
    of_counter(Metric::ConcurrentRequests, None, limit, Counter::of_holds(0))
}

fn a_minute(limit: u64) -> Arc<Quota> {
    let counter = Counter::on_clock(Period::Minute, START, |now_ms| now_ms);
    of_counter(Metric::Requests, Some(Period::Minute), limit, counter)
}

fn request(payer: &str) -> LineRequest {
    LineRequest { payer: Payer::Project(ProjectId::new(payer)), least: 1, wait_ms_max: u64::MAX }
}

/// Remembers that the task was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A request in the line and its task.
struct Waiter {
    payer: usize,
    number: usize,
    place: Place,
    woken: Arc<Woken>,
}

impl Waiter {
    fn enter(quota: &Arc<Quota>, payer: usize, number: usize, now_ms: u64) -> Self {
        let place = quota.enter_line(request(&payer.to_string()), now_ms).unwrap();
        let woken = Arc::new(Woken::default());
        let waiter = Self { payer, number, place, woken };
        waiter.poll();
        waiter
    }

    fn poll(&self) -> bool {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.place.poll_called(&Context::from_waker(&waker)).is_ready()
    }

    fn is_woken(&self) -> bool {
        self.woken.0.swap(false, Ordering::SeqCst)
    }

    fn take(&self, quota: &Arc<Quota>, now_ms: u64) -> Option<Reservation> {
        Reservation::take_called([quota], &Claim::default(), (Some(&self.place), now_ms)).ok()
    }
}

fn take(quota: &Arc<Quota>, now_ms: u64) -> Option<Reservation> {
    Reservation::take([quota], &Claim::default(), now_ms).ok()
}

#[derive(Clone, Debug)]
enum Event {
    /// A request of this payer arrives.
    Arrives(usize),
    /// The running request at this index ends.
    Ends(usize),
    /// The waiting request at this index gives up; a called one does so before it has taken anything.
    Leaves(usize),
    /// The limit is changed.
    Limit(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..4_usize).prop_map(Event::Arrives),
        4 => (0..8_usize).prop_map(Event::Ends),
        1 => (0..8_usize).prop_map(Event::Leaves),
        1 => (0..4_u64).prop_map(Event::Limit),
    ]
}

/// The order by which requests must be called, kept by the simplest means: a circle of payers and their numbers.
#[derive(Default)]
struct Circle(VecDeque<(usize, VecDeque<usize>)>);

impl Circle {
    fn arrives(&mut self, payer: usize, number: usize) {
        match self.0.iter_mut().find(|(other, _)| *other == payer) {
            Some((_, numbers)) => numbers.push_back(number),
            None => self.0.push_back((payer, [number].into())),
        }
    }

    fn leaves(&mut self, number: usize) {
        self.0.iter_mut().for_each(|(_, numbers)| numbers.retain(|other| *other != number));
        self.0.retain(|(_, numbers)| !numbers.is_empty());
    }

    fn next(&mut self) -> Option<usize> {
        let (payer, mut numbers) = self.0.pop_front()?;
        let next = numbers.pop_front();
        if !numbers.is_empty() {
            self.0.push_back((payer, numbers));
        }
        next
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_amount_is_idle_while_someone_waits_and_turns_go_round(
        limit in 1..4_u64,
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut quota = concurrent(limit);
        let (mut running, mut waiting) = (Vec::new(), Vec::<Waiter>::new());
        let mut circle = Circle::default();
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Event::Arrives(payer) => match take(&quota, START) {
                    Some(reservation) => {
                        prop_assert!(waiting.is_empty(), "a request has overtaken others");
                        running.push(reservation);
                    }
                    None => {
                        circle.arrives(payer, number);
                        waiting.push(Waiter::enter(&quota, payer, number, START));
                    }
                },
                Event::Ends(place) if place < running.len() => {
                    running.swap_remove(place).settle(&Spent::default());
                }
                Event::Leaves(place) if place < waiting.len() => {
                    circle.leaves(waiting[place].number);
                    waiting.remove(place);
                }
                Event::Ends(_) | Event::Leaves(_) => {}
                Event::Limit(limit) => {
                    quota = Arc::new(Quota { limit, ..Quota::clone(&quota) });
                    quota.prepare_line();
                }
            }
            // Those who are called take what they were promised, in the order of their turns; at a limit of 0 they learn
            // that nothing will ever fit.
            let mut called: Vec<Waiter> = waiting.extract_if(.., |waiter| waiter.poll()).collect();
            let order: Vec<usize> = called.iter().filter_map(|_| circle.next()).collect();
            called.sort_by_key(|waiter| order.iter().position(|number| *number == waiter.number));
            for (waiter, number) in called.iter().zip(order) {
                prop_assert_eq!(waiter.number, number, "of payer {}", waiter.payer);
                match waiter.take(&quota, START) {
                    Some(reservation) => running.push(reservation),
                    None => prop_assert_eq!(quota.limit, 0),
                }
            }
            drop(called);
            let left = usize::try_from(quota.limit).unwrap().saturating_sub(running.len());
            prop_assert!(waiting.is_empty() || left == 0, "{left} are left and {} wait", waiting.len());
            prop_assert_eq!(quota.counter.waiting(), waiting.len());
        }
        running.into_iter().for_each(|reservation| reservation.settle(&Spent::default()));
        drop(waiting);
        prop_assert_eq!((quota.counter.waiting(), quota.counter.read(START).reserved), (0, 0));
    }
}

#[test]
fn a_payer_with_500_in_the_line_delays_another_by_one_turn() {
    let quota = concurrent(1);
    let mut running = take(&quota, START).unwrap();
    let mut greedy: VecDeque<Waiter> =
        (0..500).map(|number| Waiter::enter(&quota, 0, number, START)).collect();
    for round in 0..20 {
        let modest = Waiter::enter(&quota, 1, 0, START);
        let mut turns = 0;
        while !modest.poll() {
            running.settle(&Spent::default());
            turns += 1;
            if !modest.poll() {
                let first = greedy.pop_front().unwrap();
                assert!(first.is_woken() && first.poll(), "first come, first served");
                running = first.take(&quota, START).unwrap();
                continue;
            }
            break;
        }
        assert!(turns <= 2, "{turns} requests of the other payer ended first, in round {round}");
        running = modest.take(&quota, START).unwrap();
    }
    assert_eq!(quota.counter.waiting(), greedy.len());
}

#[test]
fn a_called_request_that_leaves_or_is_too_late_passes_its_turn_on() {
    let quota = concurrent(1);
    let running = take(&quota, START).unwrap();
    let [first, second, third] = [0, 1, 2].map(|number| Waiter::enter(&quota, number, number, START));
    running.settle(&Spent::default());
    assert!(first.poll() && !second.poll());
    drop(first);
    assert!(second.is_woken() && second.poll() && !third.is_woken());
    // A reservation that does not respect the line is faster.
    let free = Arc::new(Quota { wait_ms: 0, ..Quota::clone(&quota) });
    let thief = take(&free, START).unwrap();
    assert!(second.take(&quota, START).is_none());
    second.place.put_back(START);
    assert!(!second.poll() && !third.poll(), "nothing is left");
    assert_eq!(second.place.look_at_ms(), Some(START + AGAIN_MS), "it does not rely on the others alone");
    thief.release();
    assert!(second.is_woken() && second.poll() && !third.poll(), "it has kept its turn");
}

#[test]
fn an_amount_that_is_freed_before_a_place_is_put_back_is_not_lost() {
    let quota = concurrent(1);
    let running = take(&quota, START).unwrap();
    let first = Waiter::enter(&quota, 0, 0, START);
    running.settle(&Spent::default());
    let free = Arc::new(Quota { wait_ms: 0, ..Quota::clone(&quota) });
    let thief = take(&free, START).unwrap();
    assert!(first.poll() && first.take(&quota, START).is_none());
    thief.release();
    first.place.put_back(START);
    assert!(first.poll());
}

#[test]
fn a_sliding_minute_lets_the_first_know_when_it_leaves_something() {
    let quota = a_minute(2);
    for at_ms in [START, START + 10_000] {
        take(&quota, at_ms).unwrap().settle(&Spent { requests: 1, ..Spent::default() });
    }
    let now_ms = START + 20_500;
    assert!(take(&quota, now_ms).is_none());
    let [first, second] = [0, 1].map(|payer| Waiter::enter(&quota, payer, payer, now_ms));
    assert_eq!((first.poll(), first.place.look_at_ms()), (false, Some(START + 61_000)));
    assert_eq!(second.place.look_at_ms(), None, "it is not the first");
    first.place.look(START + 60_999);
    assert!(!first.poll());
    first.place.look(START + 61_000);
    assert!(first.is_woken() && first.poll() && !second.poll());
    assert!(first.take(&quota, START + 61_000).is_some());
    assert!(second.is_woken(), "it is the first now");
    assert_eq!(second.place.look_at_ms(), Some(START + 71_000));
    // The first one leaves, and its clock is that of the machine, long before.
    drop(first);
    second.place.look(START + 71_000);
    assert!(second.poll() && second.take(&quota, START + 71_000).is_some());
}

#[test]
fn a_request_that_would_wait_longer_than_it_may_and_one_too_many_are_refused() {
    let quota = concurrent(2);
    let now_ms = clock::unix_ms();
    quota.prepare_line();
    take(&quota, now_ms - 6_000).unwrap().settle(&Spent::default());
    let _running = [take(&quota, now_ms).unwrap(), take(&quota, now_ms).unwrap()];
    let mut waiters = Vec::new();
    for (payer, expected_ms) in [(0, 3_000), (0, 6_000), (1, 6_000), (2, 9_000), (0, 15_000)] {
        let asked = request(&payer.to_string());
        let expected = quota.expected_wait_ms(&asked, now_ms).unwrap();
        assert!(expected.abs_diff(expected_ms) < 1_000, "{payer}: {expected}");
        let refused =
            quota.enter_line(LineRequest { wait_ms_max: expected - 1_000, ..asked.clone() }, now_ms);
        assert!(matches!(refused, Err(LineRefusal::TooLong { expected_ms }) if expected_ms > 1_000));
        waiters
            .push(quota.enter_line(LineRequest { wait_ms_max: expected + 1_000, ..asked }, now_ms).unwrap());
    }
    waiters.extend((waiters.len()..PLACES_MAX).map(|_| quota.enter_line(request("3"), now_ms).unwrap()));
    assert_eq!(quota.enter_line(request("4"), now_ms).unwrap_err(), LineRefusal::Full);
    waiters.pop();
    waiters.push(quota.enter_line(request("4"), now_ms).unwrap());
    drop(waiters);
    assert_eq!(quota.counter.waiting(), 0);

    let quota = a_minute(4);
    for _ in 0..4 {
        take(&quota, START).unwrap().settle(&Spent { requests: 1, ..Spent::default() });
    }
    let waiters: Vec<Place> =
        (0..4).map(|_| quota.enter_line(request("0"), START + 1_000).unwrap()).collect();
    assert_eq!(quota.expected_wait_ms(&request("1"), START + 1_000), Some(60_000), "the second turn");
    assert_eq!(quota.expected_wait_ms(&request("0"), START + 1_000), Some(60_000 + 61_000), "after four");
    drop(waiters);
}

#[test]
fn those_who_wait_are_called_when_the_quota_is_deleted_or_no_longer_rejects() {
    let counters = super::super::Counters::default();
    for ends in [0, 1, 2] {
        let quota = counters.put(Quota { id: ends.to_string().into(), ..Quota::clone(&concurrent(1)) });
        let running = take(&quota, START).unwrap();
        let waiters = [0, 1, 2].map(|payer| Waiter::enter(&quota, payer, 0, START));
        assert!(!waiters[0].poll());
        match ends {
            0 => counters.remove(&quota.id),
            1 => counters.retain(|_| false),
            _ => {
                let soft = Quota { is_hard: false, wait_ms: 0, ..Quota::clone(&quota) };
                counters.replace([Arc::new(soft)].into_iter());
            }
        }
        for waiter in &waiters {
            assert!(waiter.is_woken() && waiter.poll() && waiter.take(&quota, START).is_some());
        }
        running.release();
    }
}

#[test]
fn threads_share_a_limit_without_a_lost_call() {
    let quota = concurrent(3);
    let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let waker = |thread| Waker::from(Arc::new(Unpark(thread)));
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let work = |payer: usize| {
        for _ in 0..300 {
            let reservation = take(&quota, START).unwrap_or_else(|| {
                let waker = waker(thread::current());
                let place = quota.enter_line(request(&payer.to_string()), START).unwrap();
                loop {
                    while place.poll_called(&Context::from_waker(&waker)).is_pending() {
                        // Without a wake-up this test hangs.
                        thread::park();
                    }
                    let taken = Reservation::take_called([&quota], &Claim::default(), (Some(&place), START));
                    match taken {
                        Ok(taken) => break taken,
                        Err(_) => place.put_back(START),
                    }
                }
            });
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            reservation.settle(&Spent::default());
        }
    };
    let work = &work;
    thread::scope(|scope| (0..16).for_each(|number| drop(scope.spawn(move || work(number % 5)))));
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!((quota.counter.waiting(), quota.counter.read(START).reserved), (0, 0));
}
