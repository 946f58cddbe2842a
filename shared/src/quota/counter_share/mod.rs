//! The share of this node in a limit that several nodes share, as the thread of the shares changes it.
//!
//! Each window has one [`Allowance`], which the thread may raise before the window begins. Requests find the current window
//! without a lock; the table of windows is locked when a window begins, and by that thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Period;
use super::allowance::Allowance;
use super::counter::{Kind, Window};
use crate::clock;

/// What a counter of a shared limit has in addition.
#[derive(Debug)]
pub(super) struct SharedLimit {
    /// The windows by their start.
    windows: Mutex<BTreeMap<u64, Arc<Window>>>,
    /// The share in the last minute of a sliding counter.
    pub(super) sliding: Allowance,
    /// The time on `clock` until which a counter admits requests, if it may only while the node is heard of.
    admit_until_ms: Option<AtomicU64>,
    clock: fn() -> u64,
}

/// The share of this node in the limit of a counter. Windows are named by their start in milliseconds since the Unix epoch;
/// a counter without windows has one, which starts at 0.
#[derive(Clone, Copy, Debug)]
pub struct CounterShare<'a> {
    pub(super) limit: &'a SharedLimit,
    pub(super) kind: &'a Kind,
}

impl SharedLimit {
    /// Creates the empty share of a limit with this period; `None` for concurrent requests.
    pub(super) fn new(period: Option<Period>) -> Self {
        Self::on_clock(period, clock::since_boot_ms)
    }

    pub(super) fn on_clock(period: Option<Period>, clock: fn() -> u64) -> Self {
        let is_timed = matches!(period, None | Some(Period::Minute));
        Self {
            windows: Mutex::default(),
            sliding: Allowance::default(),
            admit_until_ms: is_timed.then(AtomicU64::default),
            clock,
        }
    }

    /// Returns the window that contains `at_ms`.
    pub(super) fn window(&self, period: Period, at_ms: u64) -> Option<Arc<Window>> {
        let bounds = period.window(at_ms)?;
        let mut windows = self.lock();
        let new = || Arc::new(Window::new(bounds, Some(Box::default())));
        let window = Arc::clone(windows.entry(bounds.0).or_insert_with(new));
        if windows.len() > WINDOWS_MAX {
            // Nothing takes from the oldest any more; those who hold an amount of it have it.
            windows.pop_first();
        }
        Some(window)
    }

    /// Returns true if the node may believe that others have its share by now.
    pub(super) fn is_cut_off(&self) -> bool {
        let until_ms = self.admit_until_ms.as_ref().map(|until_ms| until_ms.load(Ordering::Relaxed));
        until_ms.is_some_and(|until_ms| (self.clock)() >= until_ms)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Window>>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CounterShare<'_> {
    /// Returns what was used and is held of a window, in counted units; of the sliding minute, in the last 61 s.
    pub fn taken(self, start_ms: u64) -> u64 {
        self.with(start_ms, |allowance, filled| allowance.taken(filled)).unwrap_or(0)
    }

    /// Allows `amount` more of a window, which may be the next one.
    pub fn raise(self, start_ms: u64, amount: u64) {
        self.with(start_ms, |allowance, filled| allowance.raise(filled, amount));
    }

    /// Takes up to `most` away that nothing has taken, in one atomic step with what requests take. Returns the amount.
    pub fn lower(self, start_ms: u64, most: u64) -> u64 {
        self.with(start_ms, |allowance, filled| allowance.lower(filled, most)).unwrap_or(0)
    }

    /// Lets one request hold less than it wants.
    pub fn open_short(self, start_ms: u64) {
        self.with(start_ms, |allowance, _| allowance.short.open());
    }

    /// Ends that permission. Returns false, and changes nothing, while such a hold is unsettled.
    pub fn close_short(self, start_ms: u64) -> bool {
        self.with(start_ms, |allowance, _| allowance.short.close()).unwrap_or(true)
    }

    /// Lets a limit by the minute or of concurrent requests admit until this time on
    /// [`since_boot_ms`](clock::since_boot_ms).
    pub fn admit_until(self, steady_ms: u64) {
        self.limit.admit_until_ms.iter().for_each(|until_ms| until_ms.store(steady_ms, Ordering::Relaxed));
    }

    /// Sets what other nodes have used of a window. It is shown with the use of this node, and decides nothing.
    pub fn set_elsewhere(self, start_ms: u64, amount: u64) {
        self.with(start_ms, |allowance, _| allowance.set_elsewhere(amount));
    }

    /// Calls `use_it` with the share in a window and the sum that admission compares with it.
    fn with<T>(self, start_ms: u64, use_it: impl FnOnce(&Allowance, &AtomicU64) -> T) -> Option<T> {
        match self.kind {
            Kind::Calendar(period, _) => {
                let window = self.limit.window(*period, start_ms)?;
                window.allowance.as_ref().map(|allowance| use_it(allowance, &window.taken))
            }
            Kind::Sliding(minute, clock) => {
                Some(use_it(&self.limit.sliding, minute.filled(clock(clock::unix_ms()))))
            }
        }
    }
}

/// The windows that are known at the same time: the current and the next one, and those that ended before them.
const WINDOWS_MAX: usize = 16;

#[cfg(test)]
mod tests;
