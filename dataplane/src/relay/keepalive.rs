//! A stream whose head is sent before there is content, because a proxy between the gateway and the client cuts silent
//! connections (FAIL-6, `stream_keepalive_seconds`). The failover continues inside the body; until it ends, the client
//! gets its protocol's keep-alives: `ping` events in Messages, empty objects in Gemini, otherwise SSE comments, which every SSE
//! parser skips.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use shared::operation::Dialect;
use shared::port::BoxError;
use tokio::time::{Instant, Sleep};

use super::stream::Relay;

/// Result of the failover.
#[derive(Debug)]
pub(crate) enum FailoverResult {
    /// A target answers.
    Relay(Box<Relay>),
    /// The complete rest of the body: a short answer or an error event.
    Whole(Bytes),
}

/// Body that runs the failover, with keep-alives, and then relays its answer.
pub(crate) struct KeepaliveStream {
    state: State,
    dialect: Dialect,
    interval: Duration,
    timer: Pin<Box<Sleep>>,
}

enum State {
    Waiting(Pin<Box<dyn Future<Output = FailoverResult>>>),
    Relaying(Box<Relay>),
    Ended,
}

impl std::fmt::Debug for KeepaliveStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeepaliveStream").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// Returns the keep-alive of a dialect.
pub(super) fn keepalive(dialect: Dialect) -> Bytes {
    Bytes::from_static(match dialect {
        // Most of Gemini's SDKs fail at a comment.
        Dialect::Gemini => b"data: {}\r\n\r\n",
        Dialect::Messages => b"event: ping\ndata: {\"type\": \"ping\"}\n\n",
        _ => b": keep-alive\n\n",
    })
}

impl KeepaliveStream {
    /// Creates the body; its first keep-alive is sent immediately.
    pub(crate) fn new(
        failover: Pin<Box<dyn Future<Output = FailoverResult>>>,
        dialect: Dialect,
        interval: Duration,
    ) -> Self {
        Self {
            state: State::Waiting(failover),
            dialect,
            interval,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
        }
    }

    /// True if the answer ended with an error event, after which the connection closes.
    pub(super) fn is_cut(&self) -> bool {
        matches!(&self.state, State::Relaying(relay) if relay.is_cut())
    }

    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            match &mut self.state {
                State::Waiting(failover) => match failover.as_mut().poll(cx) {
                    Poll::Ready(FailoverResult::Relay(relay)) => self.state = State::Relaying(relay),
                    Poll::Ready(FailoverResult::Whole(event)) => {
                        self.state = State::Ended;
                        return Poll::Ready(Some(Ok(event)));
                    }
                    Poll::Pending => {
                        std::task::ready!(self.timer.as_mut().poll(cx));
                        self.timer.as_mut().reset(Instant::now() + self.interval);
                        return Poll::Ready(Some(Ok(keepalive(self.dialect))));
                    }
                },
                State::Relaying(relay) => return relay.poll_data(cx),
                State::Ended => return Poll::Ready(None),
            }
        }
    }
}
