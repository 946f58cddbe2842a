//! HTTP/1.1 from clients, implemented by hyper in the connection's task, behind the [`Gate`]. If the client
//! disconnects, its request is cancelled, because the request's future is part of the connection's.
//!
//! hyper is polled with a waker of its own, and the service with that of the task: hyper wakes its task whenever a piece
//! of a request body is taken, and after the last piece that would be a turn for nothing.
//!
//! Upgrades need no further support here: after a 101, hyper leaves the socket open, and the parts of its connection
//! contain the gate and the bytes already read.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::answer::Answer;
use super::body::Inbound;
use super::gate::{Gate, GateState, HeadCheck, RejectedHead};
use super::io::{ConnectionState, Order};
use super::service::Service;
use crate::quiet_waker::QuietWaker;

/// Maximum bytes that hyper reads at once of a large body. The longest head must fit.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// Serves a connection until it ends.
pub(super) async fn serve<S: Service>(
    service: S,
    state: Rc<ConnectionState>,
    io: impl AsyncRead + AsyncWrite + Unpin + 'static,
) {
    let gate_state = Rc::<GateState>::default();
    let gate = Gate::new(io, Rc::clone(&state), Rc::clone(&gate_state));
    let quiet = Arc::new(QuietWaker::new());
    let waker = Waker::from(Arc::clone(&quiet));
    let requests = Requests {
        service,
        state: Rc::clone(&state),
        gate_state: Rc::clone(&gate_state),
        quiet: Arc::clone(&quiet),
    };
    // Slow heads are cut by the worker's sweeper, which needs no timer per request.
    let mut connection = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES_MAX)
        // While a request is served, the gate itself watches for the end of the client.
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(gate), requests);
    let outcome = poll_fn(|cx| {
        gate_state.begin_turn();
        state.register(cx.waker());
        quiet.begin(cx.waker());
        quiet.begin_round();
        let outcome = Pin::new(&mut connection).poll(&mut Context::from_waker(&waker));
        if outcome.is_pending() && !quiet.end_round() {
            cx.waker().wake_by_ref();
        }
        outcome
    })
    .await;
    // After an error the socket is closed as it is. Otherwise it is shut down here: hyper does not do so after a
    // request that asked for an upgrade, nor if another request was read after the last answer.
    if outcome.is_ok() || gate_state.is_ending() {
        let mut io = connection.into_parts().io;
        poll_fn(|cx| hyper::rt::Write::poll_shutdown(Pin::new(&mut io), cx)).await.ok();
    }
}

/// Passes hyper's requests to the service.
#[derive(Debug)]
struct Requests<S> {
    service: S,
    state: Rc<ConnectionState>,
    gate_state: Rc<GateState>,
    quiet: Arc<QuietWaker>,
}

impl<S: Service> hyper::service::Service<Request<Incoming>> for Requests<S> {
    type Response = Response<Answer<S::Body>>;
    type Error = Ended;
    type Future = Answering<S>;

    fn call(&self, request: Request<Incoming>) -> Answering<S> {
        let stage = match self.gate_state.take_head_check() {
            _ if self.gate_state.is_ending() => Stage::Ended,
            Some(HeadCheck::Passed) => Stage::Served {
                http10: request.version() == Version::HTTP_10,
                answering: self.service.call(request.map(|body| Inbound::of_connection(body, &self.quiet))),
            },
            Some(HeadCheck::Rejected(refused)) => {
                let RejectedHead { path, fault } = *refused;
                Stage::Refused(Some(Box::new(self.service.refuse(&path, fault.fault()))))
            }
            None => {
                tracing::error!(
                    "a request reached the service without a check by the gate; its \
                                 connection is closed"
                );
                Stage::Ended
            }
        };
        Answering { stage, state: Rc::clone(&self.state), gate_state: Rc::clone(&self.gate_state) }
    }
}

/// Error: the connection closes before this request is served.
#[derive(Debug)]
struct Ended;

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection closes before this request is served")
    }
}

impl std::error::Error for Ended {}

/// Future of a request's response.
struct Answering<S: Service> {
    stage: Stage<S>,
    state: Rc<ConnectionState>,
    gate_state: Rc<GateState>,
}

enum Stage<S: Service> {
    Served { http10: bool, answering: S::Future },
    Refused(Option<Box<Response<S::Body>>>),
    Ended,
}

impl<S: Service> Future for Answering<S> {
    type Output = Result<Response<Answer<S::Body>>, Ended>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stage, state, .. } = &mut *self;
        let (response, http10) = match stage {
            Stage::Served { http10, answering } => {
                (ready!(state.poll_as_task(|cx| Pin::new(answering).poll(cx))), *http10)
            }
            Stage::Refused(response) => match response.take() {
                Some(response) => (*response, false),
                None => return Poll::Ready(Err(Ended)),
            },
            Stage::Ended => return Poll::Ready(Err(Ended)),
        };
        Poll::Ready(Ok(self.finish(response, http10)))
    }
}

impl<S: Service> Answering<S> {
    /// Sets the `Connection` header, and the version for HTTP/1.0 clients.
    fn finish(&self, mut response: Response<S::Body>, http10: bool) -> Response<Answer<S::Body>> {
        let is_endless = http10 && response.body().size_hint().exact().is_none();
        let is_last =
            is_endless || self.state.order.get() != Order::None || !self.gate_state.has_complete_request();
        if is_last {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if http10 && closes(response.headers()) {
            // Unless the answer is HTTP/1.0 itself, hyper offers HTTP/1.0 clients to keep the connection open.
            *response.version_mut() = Version::HTTP_10;
        }
        response.map(|body| Answer::new(body, Rc::clone(&self.state), Rc::clone(&self.gate_state)))
    }
}

fn closes(headers: &HeaderMap) -> bool {
    headers.get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}
