//! Timeouts of an upstream attempt: one timer for all phases, taken only when something must be waited for, and
//! reused by later attempts.
//!
//! A timer stays armed when it is returned to the pool. It usually fires before the end of the next attempt's wait,
//! and that attempt then resets it. So an ordinary request neither creates, arms nor removes a timer.

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{self, Duration};

use bytes::Bytes;
use shared::error_kind::ErrorKind;
use shared::health::Evidence;
use shared::routing::ProviderInstance;
use shared::usage::StepResult;
use tokio::time::{Instant, Sleep};

use super::budget::AttemptLimits;
use super::failure::Failure;
use super::verdict::Next;
use crate::upstream::{Broken, UpstreamBody};
use crate::worker::Worker;

/// Waits with one timer for all phases of an attempt.
pub(super) struct AttemptTimeouts<'a> {
    worker: Rc<Worker>,
    limits: AttemptLimits<'a>,
    /// The longest pause between two pieces of the answer.
    pause_max: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// The time at the end of the last wait; `None` if the clock must be read again.
    now: Option<time::Instant>,
}

/// The reason for the end of a wait.
#[derive(Clone, Copy, Debug)]
enum Over {
    /// The limit of the wait itself.
    Limit,
    /// The stream had no content within its time.
    Content,
    /// The attempt has used its share of the budget.
    Share,
    /// The attempt has reached its end.
    Budget,
}

impl<'a> AttemptTimeouts<'a> {
    /// Creates the timeouts of an attempt that begins at `now`.
    pub(super) fn new(worker: &Rc<Worker>, limits: AttemptLimits<'a>, now: time::Instant) -> Self {
        Self { worker: Rc::clone(worker), limits, pause_max: Duration::ZERO, timer: None, now: Some(now) }
    }

    /// Returns the time at the end of the last wait. Operations without a wait are too short to read the clock again.
    pub(super) fn now(&mut self) -> time::Instant {
        *self.now.get_or_insert_with(time::Instant::now)
    }

    /// Records the head of an answer with success. For a whole answer it is a sign of life. Nothing of a whole answer is
    /// sent before its end, so the timeout of the head bounds its pauses, too.
    pub(super) fn head(&mut self, provider: &ProviderInstance, is_streamed: bool) {
        self.pause_max = provider.stream_idle_timeout;
        if !is_streamed {
            self.pause_max = self.pause_max.min(provider.timeout);
            self.limits.share_end = None;
        }
    }

    /// Returns the next piece of an answer, or `None` after its end. The first event of a stream is a sign of life.
    pub(super) async fn piece(
        &mut self,
        body: &mut UpstreamBody,
    ) -> Result<Option<Result<Bytes, Broken>>, Failure> {
        let piece = self.wait(self.pause_max, pin!(body.data())).await?;
        if let (Some(Ok(bytes)), Some(_)) = (&piece, self.limits.share_end)
            && !is_comment(bytes)
        {
            self.limits.share_end = None;
        }
        Ok(piece)
    }

    /// Awaits `future` for at most `limit`, and not beyond the end of the attempt. On a timeout the future can be awaited
    /// again.
    pub(super) async fn wait<T>(
        &mut self,
        limit: Duration,
        mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Result<T, Failure> {
        let mut end = None;
        std::future::poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            let limit_end = *end.get_or_insert_with(|| {
                let now = Instant::from_std(self.now());
                now.checked_add(limit).unwrap_or(self.limits.end)
            });
            self.now = None;
            self.poll_end(limit_end, cx).map(Err)
        })
        .await
        .map_err(of_over)
    }

    /// Waits for the first of the ends. The share of the attempt ends it only if another candidate is ready by then.
    fn poll_end(&mut self, limit_end: Instant, cx: &mut Context<'_>) -> Poll<Over> {
        loop {
            let AttemptLimits { end, share_end, content_end, next } = self.limits;
            let first = share_end.unwrap_or(end).min(content_end.unwrap_or(end)).min(end).min(limit_end);
            ready!(self.poll_until(first, cx));
            if Some(first) == content_end {
                return Poll::Ready(Over::Content);
            }
            if first == limit_end {
                return Poll::Ready(Over::Limit);
            }
            if first == end {
                return Poll::Ready(Over::Budget);
            }
            if next.any_ready() {
                return Poll::Ready(Over::Share);
            }
            self.limits.share_end = None;
        }
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
}

fn of_over(over: Over) -> Failure {
    match over {
        Over::Limit => Failure::new(StepResult::TimedOut, ErrorKind::UpstreamTimeout, LIMIT),
        // The upstream lives, it is only too slow for this request.
        Over::Content => Failure {
            next: Next::FailOver,
            evidence: Evidence::Nothing,
            slow: true,
            ..Failure::new(StepResult::TimedOut, ErrorKind::UpstreamTimeout, CONTENT)
        },
        Over::Share => Failure {
            next: Next::FailOver,
            ..Failure::new(StepResult::TimedOut, ErrorKind::UpstreamTimeout, SHARE)
        },
        Over::Budget => exhausted(),
    }
}

/// Returns the failure for a budget that has ended.
pub(super) fn exhausted() -> Failure {
    Failure {
        next: Next::Stop,
        evidence: Evidence::Nothing,
        ..Failure::new(StepResult::BudgetExhausted, ErrorKind::BudgetExhausted, BUDGET)
    }
}

impl Drop for AttemptTimeouts<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.worker.put_timer(timer);
        }
    }
}

/// Returns true if a piece of a stream contains only white space and comments, which upstreams send to keep connections
/// open.
fn is_comment(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte == b'\n').all(|line| matches!(line.trim_ascii().first(), None | Some(b':')))
}

const LIMIT: &str = "The upstream did not answer in time.";
const CONTENT: &str = "The upstream sent no content within first_content_timeout.";
const SHARE: &str = "The upstream did not answer in half of the failover budget, and another target is left.";
const BUDGET: &str = "The failover budget ran out before any upstream answered.";
