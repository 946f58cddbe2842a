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
pub(super) struct QuietWaker {
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
    pub(super) fn new() -> Self {
        Self { task: AtomicWaker::new(), state: AtomicU8::new(AGAIN) }
    }

    /// Sets the task that later wakes schedule. Returns false if every part is still pending since the last round.
    pub(super) fn begin(&self, task: &Waker) -> bool {
        self.task.register(task);
        self.state.load(Ordering::Acquire) != ASLEEP
    }

    pub(super) fn begin_round(&self) {
        self.state.store(POLLING, Ordering::Relaxed);
    }

    /// Returns true if no part was woken in this round, so that the task may wait.
    pub(super) fn end_round(&self) -> bool {
        self.state.compare_exchange(POLLING, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Makes the next call of [`begin`](Self::begin) return true.
    pub(super) fn ask_again(&self) {
        self.state.store(AGAIN, Ordering::Release);
    }

    /// Removes the task: an idle connection schedules no task, and keeps none in memory.
    pub(super) fn forget_task(&self) {
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
