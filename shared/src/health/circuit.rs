//! One circuit: consecutive failures open it; after a cooldown, one attempt at a time may probe it.
//!
//! ```text
//!            threshold failures                cooldown over, one caller
//!  Closed ------------------------> Open ------------------------------> Probing
//!    ^                               ^ ^                                  | | |
//!    |                               | '----- the probe fails ------------' | |
//!    |                               '------- the probe ends without ------'  |
//!    |                                        an outcome (another may start)  |
//!    '------------------- any attempt finds the upstream alive ---------------'
//! ```
//!
//! A circuit is a few atomics. While it is open, only its probe can keep it open: an attempt that began earlier and
//! fails late is ignored, and so is one that began before the circuit closed.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::policy::CircuitPolicy;
use crate::usage::StepResult;

/// One circuit. Times are milliseconds on a monotonic clock of the caller's choice.
#[derive(Debug, Default)]
pub struct Circuit {
    failures: AtomicU32,
    /// Incremented whenever the circuit closes.
    closings: AtomicU32,
    /// 0 if the circuit is closed; otherwise the time until which it refuses requests.
    open_until_ms: AtomicU64,
    /// The last failure, for display only; written only on failures.
    trouble: Mutex<Option<Trouble>>,
}

/// The last failure that a circuit counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The time of the failure, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The result of the attempt.
    pub result: StepResult,
    /// The upstream's status, if it responded.
    pub status: Option<u16>,
    /// The time when the circuit last opened, in milliseconds since the Unix epoch; `None` if it never has.
    pub opened_at_ms: Option<u64>,
}

/// The state of a circuit, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// All requests pass.
    Closed,
    /// No request passes for this many more milliseconds.
    Open {
        /// The remaining cooldown.
        wait_ms: u64,
    },
    /// The cooldown is over; the next request is the probe.
    HalfOpen,
}

/// The circuit is open and refuses the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The remaining cooldown, or the time until another probe may start.
    pub wait_ms: u64,
}

/// A permission to try the upstream. Dropping a probe without an outcome lets the next caller probe at once.
#[derive(Debug)]
pub struct Pass<C: Deref<Target = Circuit>> {
    circuit: C,
    /// [`Circuit::closings`] at the start of the attempt.
    closings: u32,
    /// The end of the wait that this probe imposes on other requests; 0 if the pass is not a probe.
    probe_until_ms: u64,
}

/// A value of `open_until_ms` for a cooldown that is over.
const OVER_MS: u64 = 1;

impl Circuit {
    /// Requests a pass. `now_ms` is called only if the circuit is not closed. After a cooldown one caller passes as
    /// the probe; the others wait until the probe has an outcome, but no longer than another cooldown.
    pub fn ask<C: Deref<Target = Self>>(
        circuit: C,
        now_ms: impl FnOnce() -> u64,
        policy: &CircuitPolicy,
    ) -> Result<Pass<C>, Refused> {
        let open_until = circuit.open_until_ms.load(Ordering::Acquire);
        if open_until == 0 || policy.failure_threshold == 0 {
            return Ok(Pass::unchecked(circuit));
        }
        let now_ms = now_ms();
        if now_ms < open_until {
            return Err(Refused { wait_ms: open_until - now_ms });
        }
        let next = until(now_ms, policy);
        let taken =
            circuit.open_until_ms.compare_exchange(open_until, next, Ordering::AcqRel, Ordering::Acquire);
        match taken {
            Ok(_) => {
                let mut probe = Pass::unchecked(circuit);
                probe.probe_until_ms = next;
                Ok(probe)
            }
            Err(0) => Ok(Pass::unchecked(circuit)),
            Err(other) => Err(Refused { wait_ms: other.saturating_sub(now_ms) }),
        }
    }

    /// Returns true if a request would be refused now. Starts no probe.
    pub fn is_open(&self, now_ms: u64) -> bool {
        now_ms < self.open_until_ms.load(Ordering::Acquire)
    }

    /// Returns the remaining milliseconds for which no request passes, or `None` if a request would pass. Starts no probe.
    pub fn open_ms(&self, now_ms: u64, policy: &CircuitPolicy) -> Option<u64> {
        let left = self.open_until_ms.load(Ordering::Acquire).saturating_sub(now_ms);
        (left > 0 && policy.failure_threshold > 0).then_some(left)
    }

    /// Closes the circuit and resets the count of failures.
    pub(super) fn close(&self) {
        // Loads first, so that the common case writes to no shared cache line.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Release);
        }
        if self.open_until_ms.load(Ordering::Relaxed) != 0 {
            self.closings.fetch_add(1, Ordering::AcqRel);
            self.open_until_ms.store(0, Ordering::Release);
        }
    }

    /// Records the last failure for display. `opened` is the result of [`Pass::fail`].
    pub(super) fn note(&self, at_ms: u64, result: StepResult, status: Option<u16>, opened: bool) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let before = trouble.and_then(|trouble| trouble.opened_at_ms);
        let opened_at_ms = if opened { Some(at_ms) } else { before };
        *trouble = Some(Trouble { at_ms, result, status, opened_at_ms });
    }

    /// Returns the last failure, if any.
    pub fn trouble(&self) -> Option<Trouble> {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state for display. Starts no probe.
    pub fn state(&self, now_ms: u64, policy: &CircuitPolicy) -> CircuitState {
        match self.open_until_ms.load(Ordering::Acquire) {
            0 => CircuitState::Closed,
            _ if policy.failure_threshold == 0 => CircuitState::Closed,
            until if now_ms < until => CircuitState::Open { wait_ms: until - now_ms },
            _ => CircuitState::HalfOpen,
        }
    }

    /// Returns the number of consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }
}

impl<C: Deref<Target = Circuit>> Pass<C> {
    /// Returns a pass for an attempt that ignores the circuit's state.
    pub(super) fn unchecked(circuit: C) -> Self {
        Self { closings: circuit.closings.load(Ordering::Acquire), circuit, probe_until_ms: 0 }
    }

    /// Reports that the upstream is alive: the circuit closes.
    pub(super) fn succeed(&mut self) {
        self.probe_until_ms = 0;
        self.circuit.close();
    }

    /// Reports a failed attempt. Returns true if this opened the circuit, which was closed before.
    pub(super) fn fail(&mut self, now_ms: u64, policy: &CircuitPolicy) -> bool {
        let open_until = &self.circuit.open_until_ms;
        let probe = std::mem::take(&mut self.probe_until_ms);
        if probe != 0 {
            self.circuit.failures.fetch_add(1, Ordering::AcqRel);
            // Fails if the probe took so long that another one has started, or if the circuit has closed.
            let next = until(now_ms, policy);
            open_until.compare_exchange(probe, next, Ordering::AcqRel, Ordering::Acquire).ok();
            return false;
        }
        let is_late = self.circuit.closings.load(Ordering::Acquire) != self.closings;
        if is_late || open_until.load(Ordering::Acquire) != 0 {
            return false;
        }
        let failures = self.circuit.failures.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        if policy.failure_threshold == 0 || failures < policy.failure_threshold {
            return false;
        }
        let next = until(now_ms, policy);
        open_until.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn circuit(&self) -> &Circuit {
        &self.circuit
    }
}

impl<C: Deref<Target = Circuit>> Drop for Pass<C> {
    fn drop(&mut self) {
        if self.probe_until_ms != 0 {
            let open_until = &self.circuit.open_until_ms;
            let mine = self.probe_until_ms;
            open_until.compare_exchange(mine, OVER_MS, Ordering::AcqRel, Ordering::Acquire).ok();
        }
    }
}

fn until(now_ms: u64, policy: &CircuitPolicy) -> u64 {
    let cooldown = u64::try_from(policy.cooldown.as_millis()).unwrap_or(u64::MAX);
    now_ms.saturating_add(cooldown).max(OVER_MS)
}
