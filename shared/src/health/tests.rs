//! Tests of circuits: single cases, a property of random walks, and concurrent threads.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::id::ModelId;
use crate::policy::CircuitPolicy;
use crate::usage::StepResult;

const COOLDOWN: u64 = 100;
const POLICY: CircuitPolicy = CircuitPolicy {
    failure_threshold: 2,
    cooldown: Duration::from_millis(COOLDOWN),
    rest_max: Duration::ZERO,
};
const FAILED: Failed = Failed { at_ms: 7_000, result: StepResult::Status, status: Some(503) };

fn model(name: &str) -> ModelId {
    ModelId::new(name)
}

/// Tries `model` at `now_ms` and ends the attempt with `evidence`.
fn attempt(
    circuits: &Circuits,
    id: &ModelId,
    now_ms: u64,
    evidence: Evidence,
) -> Result<Option<Opened>, Refused> {
    let mut admission = circuits.ask(id, || now_ms, &POLICY)?;
    Ok(match evidence {
        Evidence::Served => {
            admission.served(|| now_ms);
            None
        }
        other => admission.failed((other, FAILED), now_ms, &POLICY),
    })
}

#[test]
fn opens_at_the_threshold_and_lets_one_probe_through() {
    let (circuits, m) = (Circuits::default(), model("m"));
    let fails = |now_ms| attempt(&circuits, &m, now_ms, Evidence::InstanceFailed);
    assert_eq!(fails(1_000), Ok(None), "below the threshold");
    assert_eq!(fails(1_000), Ok(Some(Opened::Instance)), "the second failure opens it");
    assert_eq!(circuits.ask(&m, || 1_050, &POLICY).unwrap_err(), Refused { wait_ms: 50 });
    assert_eq!(circuits.open_ms(&m, 1_050, &POLICY), Some(50));
    assert_eq!(circuits.open_ms(&m, 1_100, &POLICY), None, "looking starts no probe");
    let mut probe = circuits.ask(&m, || 1_100, &POLICY).unwrap();
    assert_eq!(circuits.ask(&m, || 1_100, &POLICY).unwrap_err(), Refused { wait_ms: 100 }, "only one probe");
    assert_eq!(probe.failed((Evidence::InstanceFailed, FAILED), 1_110, &POLICY), None, "it was open already");
    drop(probe);
    assert_eq!(circuits.ask(&m, || 1_200, &POLICY).unwrap_err(), Refused { wait_ms: 10 });
    assert_eq!(attempt(&circuits, &m, 1_210, Evidence::Served), Ok(None));
    assert!(circuits.ask(&m, || 1_211, &POLICY).is_ok());
    assert_eq!(circuits.instance().failures(), 0);
}

#[test]
fn a_retired_model_does_not_open_the_circuit_of_its_instance() {
    let (circuits, retired, fine) = (Circuits::default(), model("retired"), model("fine"));
    for opened in [None, Some(Opened::Model)] {
        assert_eq!(attempt(&circuits, &retired, 1_000, Evidence::ModelFailed), Ok(opened));
    }
    assert!(circuits.ask(&retired, || 1_010, &POLICY).is_err());
    assert_eq!(attempt(&circuits, &fine, 1_010, Evidence::Served), Ok(None));
    assert_eq!(circuits.open_ms(&fine, 1_010, &POLICY), None);
    assert_eq!(circuits.open_ms(&retired, 1_010, &POLICY), Some(90));
    assert_eq!(circuits.models(1_010, &POLICY).len(), 1);
    assert_eq!(attempt(&circuits, &retired, 1_100, Evidence::Served), Ok(None), "it is back");
    assert!(circuits.ask(&retired, || 1_101, &POLICY).is_ok());
    assert_eq!(circuits.models(1_101, &POLICY).len(), 0);
}

#[test]
fn a_probe_that_is_answered_closes_the_circuit() {
    let (circuits, m) = (Circuits::default(), model("m"));
    for _ in 0..2 {
        attempt(&circuits, &m, 1_000, Evidence::InstanceFailed).unwrap();
    }
    assert_eq!(attempt(&circuits, &m, 1_100, Evidence::Alive), Ok(None), "the probe's request was wrong");
    assert_eq!(circuits.instance().state(1_100, &POLICY), CircuitState::Closed);
}

#[test]
fn a_probe_without_an_outcome_frees_its_slot() {
    let (circuits, m) = (Circuits::default(), model("m"));
    for evidence in [Evidence::InstanceFailed, Evidence::ModelFailed] {
        for _ in 0..2 {
            attempt(&circuits, &m, 1_000, evidence).unwrap();
        }
        for _ in 0..3 {
            let probe = circuits.ask(&m, || 1_100, &POLICY).expect("the slot of the one before");
            assert!(circuits.ask(&m, || 1_100, &POLICY).is_err());
            drop(probe);
        }
        assert_eq!(attempt(&circuits, &m, 1_100, Evidence::Nothing), Ok(None));
        attempt(&circuits, &m, 1_100, Evidence::Served).unwrap();
    }
}

#[test]
fn a_probe_longer_than_a_cooldown_does_not_end_the_next_probe() {
    let (circuits, m) = (Circuits::default(), model("m"));
    for _ in 0..2 {
        attempt(&circuits, &m, 1_000, Evidence::InstanceFailed).unwrap();
    }
    let mut slow = circuits.ask(&m, || 1_100, &POLICY).unwrap();
    let next = circuits.ask(&m, || 1_200, &POLICY).unwrap();
    assert_eq!(slow.failed((Evidence::InstanceFailed, FAILED), 1_250, &POLICY), None);
    drop(slow);
    assert_eq!(circuits.ask(&m, || 1_299, &POLICY).unwrap_err(), Refused { wait_ms: 1 });
    drop(next);
    assert!(circuits.ask(&m, || 1_299, &POLICY).is_ok());
}

#[test]
fn attempts_that_began_before_the_circuit_closed_count_no_more() {
    let (circuits, m) = (Circuits::default(), model("m"));
    let mut late: Vec<_> = (0..5).map(|_| circuits.ask(&m, || 1_000, &POLICY).unwrap()).collect();
    let mut fail = |now_ms| late.pop().unwrap().failed((Evidence::InstanceFailed, FAILED), now_ms, &POLICY);
    assert_eq!((fail(1_000), fail(1_000)), (None, Some(Opened::Instance)));
    assert_eq!(fail(1_090), None);
    assert_eq!(
        circuits.open_ms(&m, 1_090, &POLICY),
        Some(10),
        "a late failure does not prolong the cooldown"
    );
    attempt(&circuits, &m, 1_100, Evidence::Served).unwrap();
    assert_eq!((fail(1_110), fail(1_110)), (None, None));
    assert!(circuits.ask(&m, || 1_111, &POLICY).is_ok(), "nor do they open the circuit again");
}

#[test]
fn circuit_state_and_last_failure_are_read_without_probing() {
    let (circuits, m) = (Circuits::default(), model("m"));
    let circuit = circuits.instance();
    assert_eq!((circuit.state(5, &POLICY), circuit.trouble()), (CircuitState::Closed, None));
    let fail = |now_ms, at_ms, result, status| {
        let mut admission = circuits.ask(&m, || now_ms, &POLICY).unwrap();
        admission.failed((Evidence::InstanceFailed, Failed { at_ms, result, status }), now_ms, &POLICY);
    };
    fail(1_000, 7_000, StepResult::Unreachable, None);
    assert_eq!(circuit.state(1_000, &POLICY), CircuitState::Closed);
    fail(1_010, 7_010, StepResult::Status, Some(503));
    assert_eq!(circuit.state(1_030, &POLICY), CircuitState::Open { wait_ms: 80 });
    assert_eq!(circuit.state(1_110, &POLICY), CircuitState::HalfOpen);
    fail(1_120, 7_120, StepResult::TimedOut, None);
    let last =
        Trouble { at_ms: 7_120, result: StepResult::TimedOut, status: None, opened_at_ms: Some(7_010) };
    assert_eq!(circuit.trouble(), Some(last), "it opened once and has not closed since");
    attempt(&circuits, &m, 1_220, Evidence::Served).unwrap();
    assert_eq!((circuit.state(1_230, &POLICY), circuit.trouble()), (CircuitState::Closed, Some(last)));
}

#[test]
fn threshold_zero_never_opens() {
    let off = CircuitPolicy { failure_threshold: 0, ..POLICY };
    let (circuits, m) = (Circuits::default(), model("m"));
    for evidence in [Evidence::InstanceFailed, Evidence::ModelFailed].repeat(5) {
        let mut admission = circuits.ask(&m, || 5, &off).unwrap();
        assert_eq!(admission.failed((evidence, FAILED), 5, &off), None);
    }
}

#[test]
fn models_that_fail_are_counted_up_to_a_bound() {
    let circuits = Circuits::default();
    for index in 0..2_000 {
        attempt(&circuits, &model(&format!("m{index}")), 1_000, Evidence::ModelFailed).unwrap();
        attempt(&circuits, &model(&format!("m{index}")), 1_000, Evidence::ModelFailed).unwrap();
    }
    assert_eq!(circuits.models(1_000, &POLICY).len(), 1_024);
    assert!(circuits.ask(&model("m0"), || 1_000, &POLICY).is_err());
    assert!(circuits.ask(&model("m1999"), || 1_000, &POLICY).is_ok(), "it is asked each time instead");
}

#[test]
fn board_keeps_circuits_by_instance_and_credential() {
    let board = Board::default();
    let fail = |id: &str, identity| {
        let circuits = board.circuits(&ProviderId::new(id), [identity; 32]);
        attempt(&circuits, &model("m"), 1, Evidence::InstanceFailed).unwrap();
    };
    let failures =
        |id: &str, identity| board.circuits(&ProviderId::new(id), [identity; 32]).instance().failures();
    fail("a", 1);
    assert_eq!(failures("a", 1), 1);
    assert_eq!(failures("b", 1), 0);
    assert_eq!(failures("a", 2), 0, "another credential");
    assert_eq!(failures("a", 1), 0, "forgotten");
    let rest_ms = |identity| {
        board
            .circuits(&ProviderId::new("a"), [identity; 32])
            .rests()
            .of(&model("m"), || 1)
            .map(|rest| rest.wait_ms)
    };
    let limit = RateLimit { wait: Some(Duration::from_secs(9)), status: Some(429), at_ms: 1 };
    let circuits = board.circuits(&ProviderId::new("a"), [1; 32]);
    circuits.rests().limit(&model("m"), limit, 1, (Duration::from_secs(600), 0.0));
    assert_eq!(rest_ms(1), Some(9_000), "a rest survives a publication");
    assert_eq!(rest_ms(2), None, "another credential");
    fail("b", 1);
    board.keep([]);
    assert_eq!(failures("b", 1), 0, "gone and come back");
}

#[test]
fn a_rate_limit_proves_that_the_upstream_lives() {
    let (circuits, m) = (Circuits::default(), model("m"));
    for _ in 0..9 {
        assert_eq!(attempt(&circuits, &m, 1_000, Evidence::RateLimited), Ok(None));
    }
    assert_eq!(circuits.instance().failures(), 0);
    attempt(&circuits, &m, 1_000, Evidence::InstanceFailed).unwrap();
    attempt(&circuits, &m, 1_000, Evidence::InstanceFailed).unwrap();
    assert_eq!(attempt(&circuits, &m, 1_100, Evidence::RateLimited), Ok(None), "the probe");
    assert_eq!(circuits.instance().state(1_100, &POLICY), CircuitState::Closed);
}

const MODELS: usize = 3;

/// An event for a provider with [`MODELS`] models, or for the requests to them.
#[derive(Clone, Debug)]
enum Event {
    /// A request asks for this model.
    Begin(usize),
    /// The attempt at this index, oldest first, ends: with an answer, or with a 4xx about the request if true.
    End(usize, bool),
    /// The attempt at this index, oldest first, ends without evidence: the client leaves, the adaptation rejects the
    /// request, memory is short, or the gateway itself has no socket.
    GiveUp(usize),
    /// Advances the clock by this many milliseconds.
    Pass(u64),
    /// The upstream breaks (connections fail, 5xx), or is repaired.
    Break(bool),
    /// The upstream retires this model or serves it again.
    Retire(usize, bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..MODELS).prop_map(Event::Begin),
        6 => (0..8_usize, any::<bool>()).prop_map(|(place, wrong)| Event::End(place, wrong)),
        2 => (0..8_usize).prop_map(Event::GiveUp),
        5 => prop_oneof![0..30_u64, 0..COOLDOWN + 20, Just(COOLDOWN)].prop_map(Event::Pass),
        1 => any::<bool>().prop_map(Event::Break),
        2 => (0..MODELS, any::<bool>()).prop_map(|(model, is)| Event::Retire(model, is)),
    ]
}

/// An attempt in flight. The state of the upstream at its start determines its end.
struct Walk<'a> {
    admission: Admission<'a>,
    model: usize,
    began_ms: u64,
    broken: bool,
    retired: bool,
}

/// The simulated environment of the circuits, and the time when each circuit last had a reason to refuse.
#[derive(Default)]
struct World<'a> {
    now_ms: u64,
    broken: bool,
    retired: [bool; MODELS],
    walks: Vec<Walk<'a>>,
    /// The last failure of the instance, then of each model.
    failed_at_ms: [Option<u64>; MODELS + 1],
    /// The time since when each model has been refused without a pass or a new failure.
    refused_since_ms: [Option<u64>; MODELS],
}

impl<'a> World<'a> {
    fn begin(&mut self, circuits: &'a Circuits, ids: &'a [ModelId], model: usize) {
        let now_ms = self.now_ms;
        match circuits.ask(&ids[model], || now_ms, &POLICY) {
            Ok(admission) => {
                self.refused_since_ms = [None; MODELS];
                let (broken, retired) = (self.broken, self.retired[model]);
                self.walks.push(Walk { admission, model, began_ms: now_ms, broken, retired });
            }
            Err(Refused { wait_ms }) => {
                assert!((1..=COOLDOWN).contains(&wait_ms), "{wait_ms}");
                self.assert_reason(model);
                let since = *self.refused_since_ms[model].get_or_insert(now_ms);
                assert!(now_ms - since < COOLDOWN, "refused for longer than one cooldown");
            }
        }
    }

    /// Asserts that a refusal has a cause in the target's own circuits that is younger than a cooldown: a failure, or
    /// a probe in flight.
    fn assert_reason(&self, model: usize) {
        let is_recent = |at_ms: u64| self.now_ms - at_ms < COOLDOWN;
        let failures = [self.failed_at_ms[0], self.failed_at_ms[model + 1]];
        assert!(failures.iter().any(Option::is_some), "refused without any failure");
        let has_failed = failures.into_iter().flatten().any(is_recent);
        let of_instance = self.failed_at_ms[0].is_some();
        let probes =
            self.walks.iter().any(|walk| (of_instance || walk.model == model) && is_recent(walk.began_ms));
        assert!(has_failed || probes, "refused without a recent cause");
    }

    fn end(&mut self, place: usize, wrong: bool) {
        let Some(mut walk) = self.take(place) else { return };
        let evidence = match (walk.broken, wrong, walk.retired) {
            (true, ..) => Evidence::InstanceFailed,
            (false, true, _) => Evidence::Alive,
            (false, false, true) => Evidence::ModelFailed,
            (false, false, false) => return walk.admission.served(|| self.now_ms),
        };
        walk.admission.failed((evidence, FAILED), self.now_ms, &POLICY);
        let failed = match evidence {
            Evidence::InstanceFailed => Some(0),
            Evidence::ModelFailed => Some(walk.model + 1),
            _ => None,
        };
        if let Some(failed) = failed {
            self.failed_at_ms[failed] = Some(self.now_ms);
            self.refused_since_ms = [None; MODELS];
        }
    }

    fn take(&mut self, place: usize) -> Option<Walk<'a>> {
        (place < self.walks.len()).then(|| self.walks.remove(place))
    }
}

proptest! {
    /// No healthy target is refused for longer than one cooldown, and no probe slot leaks.
    #[test]
    fn a_healthy_target_is_refused_for_at_most_one_cooldown(
        events in prop::collection::vec(event(), 0..200),
    ) {
        let circuits = Circuits::default();
        let ids: Vec<_> = (0..MODELS).map(|index| model(&format!("m{index}"))).collect();
        let mut world = World { now_ms: 1_000, ..World::default() };
        for event in events {
            match event {
                Event::Begin(model) => world.begin(&circuits, &ids, model),
                Event::End(place, wrong) => world.end(place, wrong),
                Event::GiveUp(place) => drop(world.take(place)),
                Event::Pass(ms) => world.now_ms += ms,
                Event::Break(is) => world.broken = is,
                Event::Retire(model, is) => world.retired[model] = is,
            }
        }
        // Every attempt is dropped: after one cooldown each target is tried, even if those attempts are dropped too.
        world.walks.clear();
        let now_ms = world.now_ms + COOLDOWN;
        for id in ids.iter().chain(&ids) {
            prop_assert!(circuits.ask(id, || now_ms, &POLICY).is_ok());
        }
        for id in &ids {
            prop_assert!(attempt(&circuits, id, now_ms, Evidence::Served).is_ok());
            prop_assert_eq!(circuits.open_ms(id, now_ms, &POLICY), None, "healthy, and served at once");
        }
        prop_assert!(circuits.models(now_ms, &POLICY).is_empty());
    }
}

#[test]
fn probes_of_many_threads_are_neither_doubled_nor_lost() {
    let (circuits, m) = (Circuits::default(), model("m"));
    for round in 1..50_u64 {
        let now_ms = round * 10 * COOLDOWN;
        for _ in 0..2 {
            attempt(&circuits, &m, now_ms, Evidence::InstanceFailed).unwrap();
            attempt(&circuits, &m, now_ms, Evidence::ModelFailed).ok();
        }
        for _ in 0..2 {
            attempt(&circuits, &m, now_ms, Evidence::InstanceFailed).ok();
        }
        let barrier = std::sync::Barrier::new(4);
        let passes = std::thread::scope(|scope| {
            let probing = || {
                barrier.wait();
                let admission = circuits.ask(&m, || now_ms + COOLDOWN, &POLICY).ok();
                barrier.wait();
                admission.is_some()
            };
            let threads = [(); 4].map(|()| scope.spawn(probing));
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|passed| *passed).count()
        });
        assert_eq!(passes, 1, "one probe at a time");
        attempt(&circuits, &m, now_ms + COOLDOWN, Evidence::Served)
            .expect("the probe that was given up is not lost");
    }
}

#[test]
fn the_circuits_of_a_key_are_kept_while_the_instance_has_it() {
    let (board, id) = (Board::default(), ProviderId::new("a"));
    let [one, two, three] = [1, 2, 3].map(|mark| [mark; 32]);
    let first = board.lanes(&id, &[one, two]);
    let second = board.lanes(&id, &[three, two]);
    assert!(Arc::ptr_eq(&first[1], &second[1]) && !Arc::ptr_eq(&first[0], &second[0]));
    let third = board.lanes(&id, &[one]);
    assert!(!Arc::ptr_eq(&third[0], &first[0]), "a removed key is forgotten");
    board.keep([&ProviderId::new("b")]);
    assert!(!Arc::ptr_eq(&board.lanes(&id, &[one])[0], &third[0]));
}
