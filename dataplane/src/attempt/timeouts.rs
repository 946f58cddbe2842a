//! Timeouts of an upstream attempt: one timer for all phases, taken only when something must be waited for, and
//! reused by later attempts.
//!
//! A timer stays armed when it is returned to the pool. It usually fires before the end of the next attempt's wait,
//! and that attempt then resets it. So an ordinary request neither creates, arms nor removes a timer.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{self, Duration};

use shared::error_kind::ErrorKind;
use shared::health::Evidence;
use shared::usage::StepResult;
use tokio::time::{Instant, Sleep};

use super::failure::Failure;
use super::verdict::Next;
use crate::worker::Worker;

/// Waits with one timer for all phases of an attempt.
pub(super) struct AttemptTimeouts {
    worker: Rc<Worker>,
    budget_end: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    /// The time at the end of the last wait; `None` if the clock must be read again.
    now: Option<time::Instant>,
}

impl AttemptTimeouts {
    /// Creates the timeouts of an attempt that begins at `now`.
    pub(super) fn new(worker: &Rc<Worker>, budget_end: Instant, now: time::Instant) -> Self {
        Self { worker: Rc::clone(worker), budget_end, timer: None, now: Some(now) }
    }

    /// Returns the time at the end of the last wait. Operations without a wait are too short to read the clock again.
    pub(super) fn now(&mut self) -> time::Instant {
        *self.now.get_or_insert_with(time::Instant::now)
    }

    /// Awaits `future` for at most `limit`, and not beyond the failover budget. On a timeout the future can be
    /// awaited again.
    pub(super) async fn wait<T>(
        &mut self,
        limit: Duration,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Failure> {
        let mut end = None;
        std::future::poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            let end = *end.get_or_insert_with(|| {
                let now = Instant::from_std(self.now());
                now.checked_add(limit).unwrap_or(self.budget_end).min(self.budget_end)
            });
            self.now = None;
            self.poll_until(end, cx).map(Err)
        })
        .await
        .map_err(|()| self.over())
    }

    fn poll_until(&mut self, end: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let worker = &self.worker;
        let timer = self.timer.get_or_insert_with(|| {
            worker.take_timer().unwrap_or_else(|| Box::pin(tokio::time::sleep_until(end)))
        });
        if timer.deadline() > end {
            timer.as_mut().reset(end);
        }
        ready!(timer.as_mut().poll(cx));
        if Instant::now() >= end {
            return Poll::Ready(());
        }
        // The timer fired because an earlier attempt armed it.
        timer.as_mut().reset(end);
        timer.as_mut().poll(cx)
    }

    fn over(&self) -> Failure {
        if Instant::now() >= self.budget_end {
            return Failure {
                next: Next::Stop,
                evidence: Evidence::Nothing,
                ..Failure::new(StepResult::BudgetExhausted, ErrorKind::BudgetExhausted, BUDGET)
            };
        }
        Failure::new(StepResult::TimedOut, ErrorKind::UpstreamTimeout, "The upstream did not answer in time.")
    }
}

impl Drop for AttemptTimeouts {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.worker.put_timer(timer);
        }
    }
}

const BUDGET: &str = "The failover budget ran out before any upstream answered.";
