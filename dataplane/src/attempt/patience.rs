//! Waiting for an upstream: one timer for all phases of an attempt, taken only when something must be waited
//! for, and kept for the next attempt.
//!
//! A timer that has been set stays set when it is given back: as a rule it rings before the next attempt's
//! patience ends, and whoever holds it then sets it anew. So an ordinary request neither makes, sets nor
//! removes a timer.

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
pub(super) struct Patience {
    worker: Rc<Worker>,
    budget_end: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    /// What the clock said after the last wait.
    now: Option<time::Instant>,
}

impl Patience {
    /// For an attempt that begins `now`.
    pub(super) fn new(worker: &Rc<Worker>, budget_end: Instant, now: time::Instant) -> Self {
        Self { worker: Rc::clone(worker), budget_end, timer: None, now: Some(now) }
    }

    /// When the last wait ended. What is not waited for takes no time worth a look at the clock.
    pub(super) fn now(&mut self) -> time::Instant {
        *self.now.get_or_insert_with(time::Instant::now)
    }

    /// Runs `future` for at most `limit`, and not past the failover budget. It stays where it is.
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
        // It was set for an earlier attempt.
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

impl Drop for Patience {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.worker.put_timer(timer);
        }
    }
}

const BUDGET: &str = "The failover budget ran out before any upstream answered.";
