//! Waiting for an upstream: one timer for all phases of an attempt, made only when something must be waited
//! for.

use std::pin::Pin;
use std::time::Duration;

use shared::error_kind::ErrorKind;
use shared::usage::StepResult;
use tokio::time::Sleep;

use super::failure::Failure;
use super::verdict::Next;

/// Waits with one timer for all phases of an attempt.
pub(super) struct Patience {
    budget_end: tokio::time::Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub(super) fn new(budget_end: tokio::time::Instant) -> Self {
        Self { budget_end, timer: None }
    }

    /// Runs `future` for at most `limit`, and not past the failover budget. The timer is made only when the
    /// future does not answer at once.
    pub(super) async fn wait<T>(
        &mut self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let mut future = std::pin::pin!(future);
        let mut armed = false;
        std::future::poll_fn(|cx| {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(cx) {
                return std::task::Poll::Ready(Ok(value));
            }
            let end = tokio::time::Instant::now().checked_add(limit).unwrap_or(self.budget_end);
            let end = end.min(self.budget_end);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
            if !armed {
                armed = true;
                if timer.deadline() != end {
                    timer.as_mut().reset(end);
                }
            }
            timer.as_mut().poll(cx).map(|()| Err(()))
        })
        .await
        .map_err(|()| self.over())
    }

    fn over(&self) -> Failure {
        if tokio::time::Instant::now() >= self.budget_end {
            return Failure {
                next: Next::Stop,
                counts: false,
                ..Failure::new(StepResult::BudgetExhausted, ErrorKind::BudgetExhausted, BUDGET)
            };
        }
        Failure::new(StepResult::TimedOut, ErrorKind::UpstreamTimeout, "The upstream did not answer in time.")
    }
}

const BUDGET: &str = "The failover budget ran out before any upstream answered.";
