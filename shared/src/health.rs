//! Circuits: the process-local failure memory of each provider instance (FAIL-5).
//!
//! ```text
//!            threshold failures                cooldown over, one caller
//!  Closed ------------------------> Open ------------------------------> Probing
//!    ^  ^                            ^                                     |  |
//!    |  '---- success --------------(any)          failure ----------------'  |
//!    '---------------------------- success -----------------------------------'
//! ```
//!
//! A circuit is a few atomics; the data plane writes, anyone reads, nobody locks.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::ProviderId;
use crate::policy::CircuitPolicy;
use crate::routing::ProviderInstance;
use crate::usage::StepResult;

/// One circuit. Times are milliseconds on a monotonic clock of the caller's choice.
#[derive(Debug, Default)]
pub struct Circuit {
    failures: AtomicU32,
    /// 0: closed; else the time until which nothing passes.
    open_until_ms: AtomicU64,
    /// For people alone; written on failures only.
    trouble: Mutex<Option<Trouble>>,
}

/// The last failure of a provider instance that its circuit counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What came of the attempt.
    pub result: StepResult,
    /// The upstream's status, where it answered.
    pub status: Option<u16>,
    /// When the circuit opened last, in milliseconds since the Unix epoch; none if it never has.
    pub opened_at_ms: Option<u64>,
}

/// What a circuit would say, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// Everything passes.
    Closed,
    /// Nothing passes for this many milliseconds more.
    Open {
        /// Time left of the cooldown.
        wait_ms: u64,
    },
    /// The cooldown is over; the next request is the probe.
    HalfOpen,
}

/// What a circuit says to a request that wants to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Closed, or this caller is the probe.
    Pass,
    /// Open, for this many milliseconds more.
    Refuse {
        /// Time left of the cooldown.
        wait_ms: u64,
    },
}

impl Circuit {
    /// Asks to pass; the clock is read only if the circuit is not closed. When a cooldown has just ended, exactly one caller passes as the probe, and the others
    /// wait for another cooldown unless the probe succeeds first.
    pub fn ask(&self, now_ms: impl FnOnce() -> u64, policy: &CircuitPolicy) -> Passage {
        let open_until = self.open_until_ms.load(Ordering::Acquire);
        if open_until == 0 || policy.failure_threshold == 0 {
            return Passage::Pass;
        }
        let now_ms = now_ms();
        if now_ms < open_until {
            return Passage::Refuse { wait_ms: open_until - now_ms };
        }
        let next = Self::until(now_ms, policy);
        match self.open_until_ms.compare_exchange(open_until, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Passage::Pass,
            Err(0) => Passage::Pass,
            Err(other) => Passage::Refuse { wait_ms: other.saturating_sub(now_ms) },
        }
    }

    /// Whether a request would pass now, without becoming the probe.
    pub fn is_open(&self, now_ms: u64) -> bool {
        now_ms < self.open_until_ms.load(Ordering::Acquire)
    }

    /// For how many milliseconds more nothing passes, without becoming the probe; none where a request would pass.
    pub fn rests_ms(&self, now_ms: u64, policy: &CircuitPolicy) -> Option<u64> {
        let left = self.open_until_ms.load(Ordering::Acquire).saturating_sub(now_ms);
        (left > 0 && policy.failure_threshold > 0).then_some(left)
    }

    /// The attempt worked: the circuit closes.
    pub fn succeed(&self) {
        // Loads first, so that the common case writes to no shared cache line.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Release);
        }
        if self.open_until_ms.load(Ordering::Relaxed) != 0 {
            self.open_until_ms.store(0, Ordering::Release);
        }
    }

    /// The attempt failed in a way that says something about the upstream. True if this opened the circuit.
    pub fn fail(&self, now_ms: u64, policy: &CircuitPolicy) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        if policy.failure_threshold == 0 || failures < policy.failure_threshold {
            return false;
        }
        self.open_until_ms.swap(Self::until(now_ms, policy), Ordering::AcqRel) == 0
    }

    /// Keeps what the last failure was, for people. `opened` is what [`Circuit::fail`] said.
    pub fn note(&self, at_ms: u64, result: StepResult, status: Option<u16>, opened: bool) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let before = trouble.and_then(|trouble| trouble.opened_at_ms);
        let opened_at_ms = if opened { Some(at_ms) } else { before };
        *trouble = Some(Trouble { at_ms, result, status, opened_at_ms });
    }

    /// The last failure, if there was one.
    pub fn trouble(&self) -> Option<Trouble> {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it would say to a request now. Nobody becomes the probe by asking.
    pub fn state(&self, now_ms: u64, policy: &CircuitPolicy) -> CircuitState {
        match self.open_until_ms.load(Ordering::Acquire) {
            0 => CircuitState::Closed,
            _ if policy.failure_threshold == 0 => CircuitState::Closed,
            until if now_ms < until => CircuitState::Open { wait_ms: until - now_ms },
            _ => CircuitState::HalfOpen,
        }
    }

    /// Consecutive failures so far.
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    fn until(now_ms: u64, policy: &CircuitPolicy) -> u64 {
        let cooldown = u64::try_from(policy.cooldown.as_millis()).unwrap_or(u64::MAX);
        now_ms.saturating_add(cooldown).max(1)
    }
}

/// Tells one upstream and credential from another: a digest of address and headers.
pub type UpstreamIdentity = [u8; 32];

/// All circuits of the process, by provider instance. A new snapshot takes its circuits from here, so that a
/// reload forgets nothing; an instance with another address or credential starts with a closed circuit (FAIL-4).
#[derive(Debug, Default)]
pub struct Board {
    circuits: Mutex<HashMap<ProviderId, (UpstreamIdentity, Arc<Circuit>)>>,
}

impl Board {
    /// The circuit of `provider` as long as it is `identity`. Never called on the request path.
    pub fn circuit(&self, provider: &ProviderId, identity: UpstreamIdentity) -> Arc<Circuit> {
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, circuit) = circuits.entry(provider.clone()).or_insert_with(|| (identity, Arc::default()));
        if *known != identity {
            (*known, *circuit) = (identity, Arc::default());
        }
        Arc::clone(circuit)
    }

    /// Forgets the circuits of instances that are gone or switched off.
    pub fn keep(&self, providers: &[Arc<ProviderInstance>]) {
        let ids: HashSet<&ProviderId> = providers.iter().map(|provider| &provider.id).collect();
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        circuits.retain(|id, _| ids.contains(id));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const POLICY: CircuitPolicy =
        CircuitPolicy { failure_threshold: 2, cooldown: Duration::from_millis(100) };

    #[test]
    fn opens_at_the_threshold_and_lets_one_probe_through() {
        let circuit = Circuit::default();
        assert!(!circuit.fail(1_000, &POLICY));
        assert_eq!(circuit.ask(|| 1_000, &POLICY), Passage::Pass, "below the threshold");
        assert!(circuit.fail(1_000, &POLICY), "the second failure opens it");
        assert_eq!(circuit.ask(|| 1_050, &POLICY), Passage::Refuse { wait_ms: 50 });
        assert_eq!(circuit.rests_ms(1_050, &POLICY), Some(50));
        assert_eq!(circuit.rests_ms(1_100, &POLICY), None, "and nobody has become the probe");
        assert_eq!(circuit.ask(|| 1_100, &POLICY), Passage::Pass, "the probe");
        assert_eq!(circuit.ask(|| 1_100, &POLICY), Passage::Refuse { wait_ms: 100 }, "only one probe");
        assert!(!circuit.fail(1_110, &POLICY), "it was open already");
        assert_eq!(circuit.ask(|| 1_200, &POLICY), Passage::Refuse { wait_ms: 10 });
        assert_eq!(circuit.ask(|| 1_210, &POLICY), Passage::Pass);
        circuit.succeed();
        assert_eq!(circuit.ask(|| 1_211, &POLICY), Passage::Pass);
        assert_eq!(circuit.failures(), 0);
    }

    #[test]
    fn its_state_and_last_trouble_are_told_without_probing() {
        let circuit = Circuit::default();
        assert_eq!((circuit.state(5, &POLICY), circuit.trouble()), (CircuitState::Closed, None));
        let fail = |now_ms, at_ms, result, status| {
            let opened = circuit.fail(now_ms, &POLICY);
            circuit.note(at_ms, result, status, opened);
        };
        fail(1_000, 7_000, StepResult::Unreachable, None);
        assert_eq!(circuit.state(1_000, &POLICY), CircuitState::Closed);
        fail(1_010, 7_010, StepResult::Status, Some(503));
        assert_eq!(circuit.state(1_030, &POLICY), CircuitState::Open { wait_ms: 80 });
        assert_eq!(circuit.state(1_110, &POLICY), CircuitState::HalfOpen);
        assert_eq!(
            circuit.ask(|| 1_110, &POLICY),
            Passage::Pass,
            "asking for the state made nobody the probe"
        );
        fail(1_120, 7_120, StepResult::TimedOut, None);
        let last =
            Trouble { at_ms: 7_120, result: StepResult::TimedOut, status: None, opened_at_ms: Some(7_010) };
        assert_eq!(circuit.trouble(), Some(last), "it opened once and has not closed since");
        circuit.succeed();
        assert_eq!((circuit.state(1_130, &POLICY), circuit.trouble()), (CircuitState::Closed, Some(last)));
    }

    #[test]
    fn threshold_zero_never_opens() {
        let off = CircuitPolicy { failure_threshold: 0, ..POLICY };
        let circuit = Circuit::default();
        for _ in 0..10 {
            assert!(!circuit.fail(5, &off));
        }
        assert_eq!(circuit.ask(|| 5, &off), Passage::Pass);
    }

    #[test]
    fn board_keeps_one_circuit_an_instance_and_credential() {
        let board = Board::default();
        let failures = |id: &str, identity| board.circuit(&ProviderId::new(id), [identity; 32]).failures();
        board.circuit(&ProviderId::new("a"), [1; 32]).fail(1, &POLICY);
        assert_eq!(failures("a", 1), 1);
        assert_eq!(failures("b", 1), 0);
        assert_eq!(failures("a", 2), 0, "another credential");
        assert_eq!(failures("a", 1), 0, "forgotten");
        board.circuit(&ProviderId::new("b"), [1; 32]).fail(1, &POLICY);
        board.keep(&[]);
        assert_eq!(failures("b", 1), 0, "gone and come back");
    }
}
