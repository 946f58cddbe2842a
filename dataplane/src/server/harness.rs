//! HTTP/1.1 connections without sockets, for tests and for `fuzz/`: feeds client bytes to hyper, behind the gate or
//! without it, and records the requests and the writes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use shared::port::BoxError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::body::Inbound;
use super::io::{ConnectionState, Phase};
use super::service::{AnswerBody, Service};
use crate::clock::CoarseClock;
use crate::error::Fault;

/// A request as received by the service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// The complete body; `None` if it is invalid.
    pub(crate) body: Option<Bytes>,
}

/// Record of a connection after the client has sent everything.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Requests with their complete or broken bodies, in order.
    pub(crate) requests: Vec<ReceivedRequest>,
    /// Paths of rejected heads and the error messages.
    pub(crate) refused: Vec<(String, String)>,
    /// Each write of the server.
    pub(crate) writes: Vec<Vec<u8>>,
    /// The server has closed its side.
    pub(crate) is_shut: bool,
    /// How often the connection's task was polled.
    pub(crate) turns: usize,
}

impl Recording {
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.writes.concat()).into_owned()
    }
}

/// The client's socket: returns the pieces one after the other and records the writes. After the last piece, reads are
/// pending until the server closes, then report the end.
#[derive(Debug)]
pub(crate) struct Wire {
    pieces: VecDeque<Bytes>,
    recording: Rc<RefCell<Recording>>,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(mut piece) = self.pieces.pop_front() else {
            return if self.recording.borrow().is_shut { Poll::Ready(Ok(())) } else { Poll::Pending };
        };
        buf.put_slice(&piece.split_to(piece.len().min(buf.remaining())));
        if !piece.is_empty() {
            self.pieces.push_front(piece);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.recording.borrow_mut().writes.push(buf.to_vec());
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<_>>();
        let count = written.len();
        self.recording.borrow_mut().writes.push(written);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.recording.borrow_mut().is_shut = true;
        Poll::Ready(Ok(()))
    }
}

/// An answer whose pieces are all ready at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    pub(crate) left: VecDeque<Bytes>,
    pub(crate) is_cut: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.left.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.left.len() {
            0 | 1 => SizeHint::with_exact(self.left.iter().map(|piece| piece.len() as u64).sum()),
            _ => SizeHint::default(),
        }
    }
}

impl AnswerBody for Pieces {
    fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// Service that reads each request to its end, records it and answers.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) recording: Rc<RefCell<Recording>>,
    pub(crate) answer: fn(&ReceivedRequest) -> Pieces,
}

impl Recorder {
    async fn record(self, parts: Parts, body: Inbound) -> Response<Pieces> {
        let body = body.collect().await.ok().map(|body| body.to_bytes());
        let Parts { method, uri, version, headers, .. } = parts;
        let request = ReceivedRequest { method, uri, version, headers, body };
        let mut response = Response::new((self.answer)(&request));
        if request.body.is_none() {
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.recording.borrow_mut().requests.push(request);
        response
    }
}

impl Service for Recorder {
    type Body = Pieces;
    type Future = Pin<Box<dyn Future<Output = Response<Pieces>>>>;

    fn call(&self, request: Request<Inbound>) -> Self::Future {
        let (parts, body) = request.into_parts();
        Box::pin(self.clone().record(parts, body))
    }

    fn refuse(&self, path: &str, fault: Fault) -> Response<Pieces> {
        self.recording.borrow_mut().refused.push((path.to_owned(), fault.message.to_string()));
        let mut response = Response::new(Pieces::default());
        *response.status_mut() = StatusCode::from_u16(fault.status()).unwrap_or_default();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

/// Serves a connection with the input `pieces`, behind the gate.
pub(crate) fn through_gate(pieces: &[&[u8]], answer: fn(&ReceivedRequest) -> Pieces) -> Recording {
    let recording = Rc::<RefCell<Recording>>::default();
    let service = Recorder { recording: Rc::clone(&recording), answer };
    let state = Rc::new(ConnectionState::new(Phase::Idle, CoarseClock::default()));
    let turns = drive(super::http1::serve(service, state, wire(pieces, &recording)));
    Recording { turns, ..recording.take() }
}

/// Serves a connection with the input `bytes` by hyper without the gate.
pub(crate) fn without_gate(bytes: &[u8]) -> Vec<ReceivedRequest> {
    let recording = Rc::<RefCell<Recording>>::default();
    let service = Recorder { recording: Rc::clone(&recording), answer: |_| Pieces::default() };
    let service = service_fn(move |request: Request<Incoming>| {
        let answering = service.call(request.map(Inbound::of_stream));
        async { Ok::<_, Infallible>(answering.await) }
    });
    let io = TokioIo::new(wire(&[bytes], &recording));
    drive(http1::Builder::new().header_read_timeout(None).serve_connection(io, service));
    recording.take().requests
}

fn wire(pieces: &[&[u8]], recording: &Rc<RefCell<Recording>>) -> Wire {
    let pieces = pieces.iter().filter(|piece| !piece.is_empty());
    Wire {
        pieces: pieces.map(|piece| Bytes::copy_from_slice(piece)).collect(),
        recording: Rc::clone(recording),
    }
}

/// Waker that records that a future wants to be polled again.
#[derive(Debug, Default)]
struct Again(AtomicBool);

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls `future` until it ends or no longer wakes its task; returns the number of polls.
fn drive(future: impl Future) -> usize {
    let mut future = pin!(future);
    let again = Arc::<Again>::default();
    let waker = Waker::from(Arc::clone(&again));
    for turns in 1.. {
        let is_ready = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if is_ready || !again.0.swap(false, Ordering::Relaxed) {
            return turns;
        }
    }
    usize::MAX
}
