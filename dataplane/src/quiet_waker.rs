//! The waker of hyper's parts of one connection. One task polls all of them, so a part that wakes another during a poll
//! requests another round of polling instead of scheduling the task again.
//!
//! ```text
//!   Asleep <--no wake in this round-- Polling --wake--> Again --next round--> Polling
//!     '--wake: wakes the task--> Again
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

use atomic_waker::AtomicWaker;

/// The polling state of one connection, and the task that polls it.
#[derive(Debug)]
pub(crate) struct QuietWaker {
    task: AtomicWaker,
    state: AtomicU8,
}

/// Every part is pending; the next wake schedules the task.
const ASLEEP: u8 = 0;
/// A round of polling runs, and no part has been woken in it.
const POLLING: u8 = 1;
/// A part has been woken and must be polled again.
const AGAIN: u8 = 2;

impl QuietWaker {
    /// Returns a waker whose parts have not been polled yet.
    pub(crate) fn new() -> Self {
        Self { task: AtomicWaker::new(), state: AtomicU8::new(AGAIN) }
    }

    /// Sets the task that later wakes schedule. Returns false if every part is still pending since the last round.
    pub(crate) fn begin(&self, task: &Waker) -> bool {
        self.task.register(task);
        self.state.load(Ordering::Acquire) != ASLEEP
    }

    pub(crate) fn begin_round(&self) {
        self.state.store(POLLING, Ordering::Relaxed);
    }

    /// Returns true if no part was woken in this round, so that the task may wait.
    pub(crate) fn end_round(&self) -> bool {
        self.state.compare_exchange(POLLING, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns true during a round in which no part has been woken yet.
    pub(crate) fn is_calm(&self) -> bool {
        self.state.load(Ordering::Relaxed) == POLLING
    }

    /// Takes back the wakes of this round. No other thread may have the waker: its wake would be lost.
    pub(crate) fn calm(&self) {
        let _ = self.state.compare_exchange(AGAIN, POLLING, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Makes the next call of [`begin`](Self::begin) return true.
    pub(crate) fn ask_again(&self) {
        self.state.store(AGAIN, Ordering::Release);
    }

    /// Removes the task: an idle connection schedules no task, and keeps none in memory.
    pub(crate) fn forget_task(&self) {
        self.ask_again();
        drop(self.task.take());
    }
}

impl Wake for QuietWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(AGAIN, Ordering::AcqRel) == ASLEEP {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_wake_while_polling_requests_a_round_and_otherwise_wakes_the_task() {
        #[derive(Default)]
        struct Wakes(AtomicUsize);
        impl Wake for Wakes {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let wakes = Arc::<Wakes>::default();
        let task = Waker::from(Arc::clone(&wakes));
        let quiet = Arc::new(QuietWaker::new());
        let part = Waker::from(Arc::clone(&quiet));
        assert!(quiet.begin(&task), "nothing has been polled yet");
        quiet.begin_round();
        part.wake_by_ref();
        assert!(!quiet.end_round(), "a part asks for another round");
        quiet.begin_round();
        assert!(quiet.end_round());
        assert!(!quiet.begin(&task), "nothing can have changed");
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        part.wake_by_ref();
        part.wake_by_ref();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(quiet.begin(&task));
        quiet.begin_round();
        assert!(quiet.end_round());
        quiet.forget_task();
        part.wake_by_ref();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "an idle connection wakes no task");
    }
}
