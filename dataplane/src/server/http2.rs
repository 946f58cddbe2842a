//! HTTP/2 from clients; hyper handles the frames. A stream is reset if its client takes nothing of the answer for too
//! long, because it grants no window. A connection without streams counts as idle.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use shared::port::BoxError;
use tokio::time::{Instant, Sleep};

use super::body::Inbound;
use super::connections::run;
use super::io::{ConnectionState, Phase, ServerIo};
use super::service::{AnswerBody, Service};

/// Stream window: bytes of a request body that a client may send before the gateway reads them.
const WINDOW_BYTES: u32 = 256 << 10;
/// Maximum bytes of an answer that hyper buffers for each stream, if the client grants a window but does not read its socket:
/// two frames, so that one can be made while the other is written.
const BUFFER_BYTES_MAX: usize = 2 * PIECE_BYTES_MAX;
/// Maximum number of concurrent requests on one connection.
const STREAMS_MAX: u32 = 128;
/// Maximum bytes of a piece that is passed to hyper, which sends frames of at most this size. If a client's window
/// covers only a part of a piece, its progress cannot be observed.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// Serves a connection until it ends; a stream whose client takes nothing ends after `stall`.
pub(super) async fn serve<S: Service>(service: S, state: Rc<ConnectionState>, stall: Duration, io: ServerIo) {
    state.enter(Phase::Http2);
    let turn = Rc::<Cell<Turn>>::default();
    let streams = Streams { state: Rc::clone(&state), turn: Rc::clone(&turn), stall };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        answer(service.call(request.map(Inbound::of_stream)), Rc::clone(&turn))
    });
    let connection = http2::Builder::new(streams)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES * 4)
        .max_send_buf_size(BUFFER_BYTES_MAX)
        .max_header_list_size(32 << 10)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .serve_connection(TokioIo::new(io), service);
    run(&state, pin!(connection), |connection| connection.graceful_shutdown()).await;
}

async fn answer<B: AnswerBody>(
    mut answering: impl Future<Output = Response<B>> + Unpin,
    turn: Rc<Cell<Turn>>,
) -> Result<Response<Pieces<B>>, Infallible> {
    let response = std::future::poll_fn(|cx| {
        let response = Pin::new(&mut answering).poll(cx);
        turn.set(Turn::Gateway);
        response
    })
    .await;
    Ok(response.map(|body| Pieces { body, rest: Bytes::new(), turn }))
}

/// The side that the most recently polled stream waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// The client, which has taken nothing since the previous poll.
    #[default]
    Client,
    /// The client, which has taken a piece.
    ClientAgain,
    /// The gateway or the upstream: no piece is ready.
    Gateway,
}

/// Executor that runs the streams of one connection, each in a task of the worker.
#[derive(Clone, Debug)]
struct Streams {
    state: Rc<ConnectionState>,
    turn: Rc<Cell<Turn>>,
    stall: Duration,
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let streams = self.clone();
        streams.state.begin_stream();
        tokio::task::spawn_local(async move {
            streams.watch(stream).await;
            streams.state.end_stream();
        });
    }
}

impl Streams {
    /// Runs a stream to its end. If its client takes nothing for too long, it is dropped, which resets it and cancels
    /// its upstream request.
    async fn watch(&self, stream: impl Future<Output = ()>) {
        let mut stream = pin!(stream);
        let mut taken_at = Instant::now();
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        std::future::poll_fn(|cx| {
            self.turn.set(Turn::Client);
            if stream.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            match self.turn.get() {
                Turn::Gateway => {
                    timer = None;
                    return Poll::Pending;
                }
                Turn::ClientAgain => taken_at = Instant::now(),
                Turn::Client => {}
            }
            loop {
                let end = taken_at + self.stall;
                let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
                ready!(timer.as_mut().poll(cx));
                if Instant::now() >= end {
                    return Poll::Ready(());
                }
                timer.as_mut().reset(end);
            }
        })
        .await;
    }
}

/// An answer split into pieces of a bounded size; it records that a piece was taken.
#[derive(Debug)]
struct Pieces<B> {
    body: B,
    /// The rest of the previous piece.
    rest: Bytes,
    turn: Rc<Cell<Turn>>,
}

impl<B: AnswerBody> Body for Pieces<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.rest.is_empty() {
            self.turn.set(Turn::Gateway);
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(piece) => self.rest = piece,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        self.turn.set(Turn::ClientAgain);
        let length = self.rest.len().min(PIECE_BYTES_MAX);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}
