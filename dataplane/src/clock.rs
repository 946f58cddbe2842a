//! The clock of a worker, in whole seconds. Reading it is one load, without a system call.

use std::cell::Cell;
use std::rc::Rc;

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
