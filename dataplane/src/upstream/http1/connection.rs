//! One connection: a request goes out, the head of its answer comes back, the body is read piece by piece.
//!
//! hyper hands on each chunk of a body as a frame of its own. Frames that are ready together become one piece here, and a
//! short frame is copied, because it would keep the whole read buffer in memory for as long as it is held.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode, response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper::ext::on_informational;
use hyper_util::rt::TokioIo;

use super::framing;
use super::quiet_waker::QuietWaker;
use super::socket::{TalliedSocket, Tally};
use crate::upstream::dial::UpstreamIo;
use crate::upstream::interim::INTERIM_WITHOUT_END;
use crate::upstream::outgoing::Outgoing;
use crate::upstream::{SendError, poll_incoming};

/// An HTTP/1.1 connection that is polled by the task of its request. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    sender: http1::SendRequest<Outgoing>,
    driver: Driver,
    /// The body of the current answer, until its end has come.
    body: Option<Incoming>,
    /// A frame that did not fit into the piece before it.
    next: Option<hyper::Result<Bytes>>,
}

/// hyper's side of the connection, and what polling it takes.
#[derive(Debug)]
struct Driver {
    /// `None` once the connection has ended.
    connection: Option<http1::Connection<TokioIo<TalliedSocket<UpstreamIo>>, Outgoing>>,
    quiet: Arc<QuietWaker>,
    waker: Waker,
    tally: Arc<Tally>,
}

type Answered = Result<Response<Incoming>, TrySendError<Request<Outgoing>>>;

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) progress: Progress,
    pub(crate) error: SendError,
}

/// How far a request came that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Not a byte of it was written.
    Unsent,
    /// The upstream may have it, and has not sent a byte.
    Sent,
    /// A part of an answer has come.
    Answering,
}

/// Bytes of the head of an answer, and of the interim answers before it.
pub(super) const HEAD_BYTES_MAX: usize = 32 << 10;
/// Bytes that hyper reads ahead of a client that does not read, and queues of a request before it writes.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// A frame up to this length is copied.
const COPIED_BYTES_MAX: usize = 4 << 10;

impl UpstreamConnection {
    /// Speaks HTTP/1.1 over `io`.
    pub(crate) async fn handshake(io: UpstreamIo) -> hyper::Result<Self> {
        let tally = Arc::<Tally>::default();
        let socket = TokioIo::new(TalliedSocket::new(io, Arc::clone(&tally)));
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .handshake(socket)
            .await?;
        let quiet = Arc::new(QuietWaker::new());
        let waker = Waker::from(Arc::clone(&quiet));
        let driver = Driver { connection: Some(connection), quiet, waker, tally };
        Ok(Self { sender, driver, body: None, next: None })
    }

    /// Sends a request and waits for the head of its answer. An upstream may answer before it has read all of the
    /// request; the rest goes out while the answer's body is read.
    pub(crate) fn send(
        &mut self,
        mut request: Request<Outgoing>,
    ) -> impl Future<Output = Result<response::Parts, Unanswered>> {
        self.driver.begin();
        let interim = Arc::clone(&self.driver.tally);
        on_informational(&mut request, move |answer| interim.add_interim(answer.headers()));
        // Boxed, because it has room for the request that it may hand back, which nothing else needs while it waits.
        let mut answering = Box::pin(self.sender.try_send_request(request));
        std::future::poll_fn(move |cx| {
            let answered = self.driver.poll_with(cx, |inner| answering.as_mut().poll(inner));
            answered.map(|answered| self.take_answer(answered))
        })
    }

    fn take_answer(&mut self, answered: Answered) -> Result<response::Parts, Unanswered> {
        let tally = &self.driver.tally;
        match answered {
            Ok(response) => {
                let (head, body) = response.into_parts();
                judge(tally, &head)?;
                self.body = Some(body);
                Ok(head)
            }
            Err(mut error) => {
                let is_unsent = error.take_message().is_some() || !tally.has_written();
                let error = match error.into_error() {
                    _ if tally.is_flooded() => SendError::Invalid(INTERIM_WITHOUT_END),
                    error => error.into(),
                };
                let progress = match tally.has_read() {
                    _ if is_unsent => Progress::Unsent,
                    false => Progress::Sent,
                    true => Progress::Answering,
                };
                Err(Unanswered { progress, error })
            }
        }
    }

    /// The next piece of the body: all frames that are there, as far as they are short. `None` at its end or after an
    /// error.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
        let mut piece = BytesMut::new();
        loop {
            match self.poll_next(cx) {
                Poll::Ready(Some(Ok(data))) if piece.is_empty() && data.len() > COPIED_BYTES_MAX => {
                    return Poll::Ready(Some(Ok(data)));
                }
                Poll::Ready(Some(Ok(data))) if piece.len() + data.len() <= BUFFER_BYTES_MAX => {
                    piece.extend_from_slice(&data);
                }
                other if piece.is_empty() => return other,
                Poll::Ready(next) => {
                    self.next = next;
                    return Poll::Ready(Some(Ok(piece.freeze())));
                }
                Poll::Pending => return Poll::Ready(Some(Ok(piece.freeze()))),
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
        if let Some(next) = self.next.take() {
            return Poll::Ready(Some(next));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let next = std::task::ready!(self.driver.poll_with(cx, |inner| poll_incoming(body, inner)));
        if !matches!(next, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(next)
    }

    /// Returns true if the last answer has ended and another request may follow.
    pub(crate) fn is_finished(&self) -> bool {
        self.body.is_none() && self.driver.connection.is_some() && self.sender.is_ready()
    }

    /// Prepares the connection for the time without a request.
    pub(crate) fn rest(&self) {
        self.driver.quiet.forget_task();
    }

    /// Returns true if another request may be sent: nothing has come since the last answer, and the upstream has not
    /// closed.
    pub(crate) fn is_reusable(&mut self) -> bool {
        self.driver.poll_connection();
        self.is_finished()
    }
}

/// Refuses an answer that may not be relayed.
fn judge(tally: &Tally, head: &response::Parts) -> Result<(), Unanswered> {
    let refuse = |why| Err(Unanswered { progress: Progress::Answering, error: SendError::Invalid(why) });
    if tally.is_flooded() {
        return refuse(INTERIM_WITHOUT_END);
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return refuse("it switched protocols unasked");
    }
    framing::check(&head.headers).or_else(refuse)
}

impl Driver {
    /// A request begins.
    fn begin(&self) {
        self.tally.begin();
        self.quiet.ask_again();
    }

    /// Polls `want` and the connection in turns until `want` is ready or both wait for the socket.
    fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut want: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if !self.quiet.begin(cx.waker()) {
            return Poll::Pending;
        }
        self.tally.begin_turn();
        loop {
            self.quiet.begin_round();
            if let Poll::Ready(value) = want(&mut Context::from_waker(&self.waker)) {
                return Poll::Ready(value);
            }
            self.poll_connection();
            if let Poll::Ready(value) = want(&mut Context::from_waker(&self.waker)) {
                return Poll::Ready(value);
            }
            if self.tally.turn_is_over() {
                self.quiet.ask_again();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.quiet.end_round() {
                return Poll::Pending;
            }
        }
    }

    /// Polls the connection once. One that has ended is dropped, which hands back a request that it has not begun.
    fn poll_connection(&mut self) {
        if let Some(connection) = &mut self.connection
            && connection.poll_without_shutdown(&mut Context::from_waker(&self.waker)).is_ready()
        {
            self.connection = None;
        }
    }
}
