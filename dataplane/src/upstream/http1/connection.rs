//! One connection: sends a request, receives the head of its answer, and reads the body piece by piece.
//!
//! hyper returns each chunk of a body as a separate frame. Frames that are ready together are joined into one piece
//! here. Short frames are copied, because each would keep the whole read buffer in memory.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Request, Response, StatusCode, Uri, response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use shared::proxy::Proxy;

use super::socket::{TalliedSocket, Tally};
use crate::quiet_waker::QuietWaker;
use crate::upstream::SendError;
use crate::upstream::dial::{DialError, UpstreamIo};
use crate::upstream::error::{INTERIM_WITHOUT_END, Progress, Unanswered};
use crate::upstream::incoming::poll_incoming;
use crate::upstream::request::SegmentedBody;
use crate::upstream::tunnel::ProxyFault;

/// An HTTP/1.1 connection that is polled by the task of its request. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    sender: http1::SendRequest<SegmentedBody>,
    driver: Driver,
    /// The body of the current answer, until its end has arrived.
    body: Option<Incoming>,
    /// A frame that did not fit into the previous piece.
    next: Option<hyper::Result<Bytes>>,
    /// The proxy at the other end, if it passes requests on.
    forwarder: Option<Arc<Proxy>>,
    /// The time of the first complete answer, in the worker's seconds.
    rested_first: Option<u32>,
}

/// hyper's connection, and the state needed to poll it.
#[derive(Debug)]
struct Driver {
    /// `None` once the connection has ended.
    connection: Option<http1::Connection<TokioIo<TalliedSocket<UpstreamIo>>, SegmentedBody>>,
    quiet: Arc<QuietWaker>,
    waker: Waker,
    tally: Rc<Tally>,
}

type Answered = Result<Response<Incoming>, TrySendError<Request<SegmentedBody>>>;

/// Maximum bytes of the head of an answer.
pub(super) const HEAD_BYTES_MAX: usize = 32 << 10;
/// Maximum bytes that hyper reads ahead of a slow client, and queues of a request before it writes.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a frame that is copied.
const COPIED_BYTES_MAX: usize = 4 << 10;

impl UpstreamConnection {
    /// Creates an HTTP/1.1 connection over `io`.
    pub(crate) async fn handshake(io: UpstreamIo) -> hyper::Result<Self> {
        let tally = Rc::<Tally>::default();
        let forwarder = io.forwarder().cloned();
        let socket = TokioIo::new(TalliedSocket::new(io, Rc::clone(&tally)));
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .handshake(socket)
            .await?;
        let quiet = Arc::new(QuietWaker::new());
        let waker = Waker::from(Arc::clone(&quiet));
        let driver = Driver { connection: Some(connection), quiet, waker, tally };
        Ok(Self { sender, driver, body: None, next: None, forwarder, rested_first: None })
    }

    /// Sends a request and waits for the head of its answer. An upstream may answer before it has read the whole
    /// request; the rest is sent while the body of the answer is read.
    pub(crate) fn send(
        &mut self,
        mut request: Request<SegmentedBody>,
    ) -> impl Future<Output = Result<response::Parts, Unanswered>> {
        self.driver.begin();
        if let Some(proxy) = &self.forwarder {
            address_by_proxy(&mut request, proxy);
        }
        // Boxed, because the future reserves space for the request that it may return, which is not needed while it
        // waits.
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
                tally.end_head();
                let (head, body) = response.into_parts();
                judge(&head)?;
                if self.forwarder.is_some() && head.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
                    let error = SendError::Dial(DialError::Proxy(ProxyFault::Status(head.status.as_u16())));
                    return Err(Unanswered { progress: Progress::Answering, error });
                }
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
                    _ if is_unsent => Progress::Unprocessed,
                    false => Progress::Sent,
                    true => Progress::Answering,
                };
                Err(Unanswered { progress, error })
            }
        }
    }

    /// Returns the next piece of the body: all short frames that are ready, or one long frame. Returns `None` at the
    /// end or after an error.
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
        let Some(body) = self.body.as_mut().filter(|body| !body.is_end_stream()) else {
            self.body = None;
            return Poll::Ready(None);
        };
        let next = std::task::ready!(self.driver.poll_with(cx, |inner| poll_incoming(body, inner)));
        if !matches!(next, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(next)
    }

    /// Returns true if the last answer has ended and the connection can take another request.
    pub(crate) fn is_finished(&self) -> bool {
        self.body.is_none() && self.driver.connection.is_some() && self.sender.is_ready()
    }

    /// Returns the time since the first complete answer. `now` is the worker's coarse clock.
    pub(crate) fn seconds_since_first_rest(&mut self, now: u32) -> u32 {
        now.wrapping_sub(*self.rested_first.get_or_insert(now))
    }

    /// Prepares the connection for the pool.
    pub(crate) fn rest(&self) {
        self.driver.quiet.forget_task();
    }

    /// Returns true if another request may be sent: nothing has arrived since the last answer, and the upstream has not
    /// closed the connection.
    pub(crate) fn is_reusable(&mut self) -> bool {
        self.driver.poll_connection();
        self.is_finished()
    }
}

/// Rejects an answer that must not be relayed.
fn judge(head: &response::Parts) -> Result<(), Unanswered> {
    let refuse = |why| Err(Unanswered { progress: Progress::Answering, error: SendError::Invalid(why) });
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return refuse("it switched protocols without a request to do so");
    }
    check_framing(&head.headers).or_else(refuse)
}

/// Rejects an answer whose header fields make its length ambiguous: another parser may read it differently (LIM-5). hyper
/// accepts repeated equal lengths, and codings before `chunked`.
fn check_framing(headers: &HeaderMap) -> Result<(), &'static str> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let (length, coding) = (lengths.next(), codings.next());
    if lengths.next().is_some() || (length.is_some() && coding.is_some()) {
        return Err("it sent more than one length (Content-Length, Transfer-Encoding)");
    }
    if length.is_some_and(|length| !length.as_bytes().iter().all(u8::is_ascii_digit)) {
        return Err("its Content-Length is not a number");
    }
    let is_chunked = coding.is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || codings.next().is_some() {
        return Err("its Transfer-Encoding is not a single 'chunked'");
    }
    Ok(())
}

/// Gives `request` its absolute URI and the credentials of the proxy that passes it on (RFC 9112 section 3.2.2).
fn address_by_proxy(request: &mut Request<SegmentedBody>, proxy: &Proxy) {
    let authority = request.headers().get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    if parts.path_and_query.is_none() {
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
    }
    if authority.is_some() {
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = authority;
    }
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    if let Some(value) = &proxy.authorization {
        request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
    }
}

impl Driver {
    /// Prepares for a new request.
    fn begin(&self) {
        self.tally.begin();
        self.quiet.ask_again();
    }

    /// Polls the connection and `want` alternately until `want` is ready or both wait for the socket. `want` gets only what
    /// the connection has brought.
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

    /// Polls the connection once. When it has ended it is dropped, which returns a request that it has not started.
    fn poll_connection(&mut self) {
        if let Some(connection) = &mut self.connection
            && connection.poll_without_shutdown(&mut Context::from_waker(&self.waker)).is_ready()
        {
            self.connection = None;
        }
    }
}
