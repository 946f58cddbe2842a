//! The demand of a node for one window: its recent use, the usual amount of one request, and the requests that wait.

use std::collections::VecDeque;

use super::transaction::GrantNeed;
use super::{ShareTime, WAITERS_MAX};
use crate::quota::Period;

/// A request that waits for a larger share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The number by which the caller knows the request.
    pub id: u64,
    /// The least and the wanted amount of the request.
    pub need: GrantNeed,
    /// The steady time in milliseconds at which the request is refused: [`WAIT_MS`](super::WAIT_MS) after its first try.
    pub until_ms: u64,
}

#[derive(Debug)]
pub(super) struct Demand {
    waiters: VecDeque<Waiter>,
    /// The usual wanted amount of requests that had to wait; 0 before the first one.
    claim: u64,
    /// The sum at the last look.
    taken: u64,
    /// The sums at the starts of this and of the former interval, and the start of this one in steady milliseconds.
    marks: [u64; 2],
    marked_ms: u64,
    /// The last time at which the sum grew or a request waited.
    used_ms: u64,
}

impl Demand {
    /// Creates the demand of a window of which `taken` is used already.
    pub(super) fn new(taken: u64, steady_ms: u64) -> Self {
        let (waiters, claim) = (VecDeque::new(), 0);
        Self { waiters, claim, taken, marks: [taken; 2], marked_ms: steady_ms, used_ms: steady_ms }
    }

    /// Creates the demand of the next window: the usual request is the same.
    pub(super) fn of_next(&self, steady_ms: u64) -> Self {
        Self { claim: self.claim, ..Self::new(0, steady_ms) }
    }

    /// Notes the current sum.
    pub(super) fn look(&mut self, taken: u64, now: ShareTime) {
        if taken > self.taken || !self.waiters.is_empty() {
            self.used_ms = now.steady_ms;
        }
        self.taken = taken;
        let passed_ms = now.steady_ms.saturating_sub(self.marked_ms);
        if passed_ms >= INTERVAL_MS {
            // After a long gap the former interval is this one, too.
            let former = if passed_ms >= 2 * INTERVAL_MS { taken } else { self.marks[0] };
            self.marks = [taken, former];
            self.marked_ms = now.steady_ms;
        }
    }

    /// Returns the sum at the last look.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the expected use of the next 10 s.
    pub(super) fn of_ten_seconds(&self, period: Option<Period>) -> u64 {
        match period {
            None => self.taken.div_ceil(4),
            Some(Period::Minute) => self.taken.div_ceil(6),
            Some(Period::Hour | Period::Day | Period::Week | Period::Month | Period::Total) => {
                self.taken.saturating_sub(self.marks[1])
            }
        }
    }

    /// Returns the usual amount of one request, at least 1.
    pub(super) fn claim(&self) -> u64 {
        self.claim.max(1)
    }

    /// Returns true if the sum has not grown and no request has waited for `idle_ms`.
    pub(super) fn is_idle(&self, idle_ms: u64, now: ShareTime) -> bool {
        now.steady_ms.saturating_sub(self.used_ms) >= idle_ms
    }

    /// Adds a request unless [`WAITERS_MAX`] wait.
    pub(super) fn wait(&mut self, waiter: Waiter) -> bool {
        if self.waiters.len() >= WAITERS_MAX {
            return false;
        }
        let wanted = waiter.need.wanted;
        self.claim =
            if self.claim == 0 { wanted } else { self.claim.saturating_mul(3).saturating_add(wanted) / 4 };
        self.waiters.push_back(waiter);
        true
    }

    pub(super) fn first(&self) -> Option<&Waiter> {
        self.waiters.front()
    }

    pub(super) fn is_awaited(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Returns what all waiting requests want together.
    pub(super) fn awaited(&self) -> u64 {
        self.waiters.iter().fold(0, |sum, waiter| sum.saturating_add(waiter.need.wanted))
    }

    /// Removes and returns the waiting requests for which `is_meant` returns true.
    pub(super) fn release(&mut self, mut is_meant: impl FnMut(&Waiter) -> bool) -> Vec<u64> {
        let mut ids = Vec::new();
        self.waiters.retain(|waiter| {
            let goes = is_meant(waiter);
            if goes {
                ids.push(waiter.id);
            }
            !goes
        });
        ids
    }
}

/// The length of an interval of use; two of them are looked at.
const INTERVAL_MS: u64 = 5_000;
