//! Clocks that are cheaper to read than `Instant::now`: that of a worker, in whole seconds, which is one load, and the
//! kernel's coarse one.

use std::cell::Cell;
use std::rc::Rc;

use rustix::time::{ClockId, clock_gettime};

/// Seconds that a worker has run. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoarseClock(Rc<Cell<u32>>);

impl CoarseClock {
    pub(crate) fn now(&self) -> u32 {
        self.0.get()
    }

    /// Adds a second.
    pub(crate) fn advance(&self) {
        self.0.set(self.0.get().wrapping_add(1));
    }
}

/// Returns a monotonic time in microseconds, exact to a few milliseconds.
pub(crate) fn coarse_us() -> u64 {
    let now = clock_gettime(COARSE);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000).saturating_add(nanos.unwrap_or(0) / 1_000)
}

#[cfg(target_os = "linux")]
const COARSE: ClockId = ClockId::MonotonicCoarse;
#[cfg(not(target_os = "linux"))]
const COARSE: ClockId = ClockId::Monotonic;
