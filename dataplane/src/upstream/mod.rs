//! Upstreams: sending one request to one provider instance and reading its answer, over the network or
//! inside the process. Knows nothing of retries.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use shared::routing::{InstanceReach, Origin, ProviderInstance};

pub(crate) mod connection;
pub(crate) mod dial;
mod echo;
pub(crate) mod fetch;
pub(crate) mod outgoing;
pub(crate) mod pool;
pub(crate) mod request;

use self::connection::{Connection, poll_data};
use self::dial::{DialError, UpstreamIo, dial};
use self::outgoing::Outgoing;
use self::pool::Shared;
use crate::worker::Worker;

/// The head of an upstream's answer, with a body that is read piece by piece.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: AnswerBody,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// No connection.
    Dial(DialError),
    /// The connection broke or spoke something other than HTTP.
    Http(hyper::Error),
    /// The answer cannot be an answer.
    Invalid(&'static str),
}

/// The body of an answer. Dropping it before its end closes the connection or resets the stream, which is
/// how a request is cancelled.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    Http1 {
        connection: Box<Connection>,
        incoming: Incoming,
    },
    Http2 {
        incoming: Incoming,
        _lease: Lease,
    },
    Echo(Box<echo::EchoBody>),
    /// Nothing is left.
    Ended,
}

/// A body broke off.
#[derive(Debug)]
pub(crate) struct Broken;

impl AnswerBody {
    /// The next piece. After the end or a fault, `None`.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let outcome = match self {
            Self::Http1 { connection, incoming } => connection.poll_data(incoming, cx),
            Self::Http2 { incoming, .. } => poll_data(incoming, cx),
            Self::Echo(echo) => return echo.poll_data(cx),
            Self::Ended => Poll::Ready(None),
        };
        outcome.map(|item| item.map(|data| data.map_err(|_| Broken)))
    }

    pub(crate) async fn data(&mut self) -> Option<Result<Bytes, Broken>> {
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Ends the body after its last piece: a connection that can serve again goes back to the pool.
    pub(crate) fn recycle(&mut self, worker: &Worker, provider: &ProviderInstance) {
        let body = std::mem::replace(self, Self::Ended);
        if let (Self::Http1 { connection, .. }, InstanceReach::Network(origin)) = (body, &provider.reach) {
            worker.pool.put(origin, connection, worker.now());
        }
    }
}

/// Counts one request on a shared connection for as long as its body lives.
#[derive(Debug)]
pub(crate) struct Lease(Rc<Cell<u32>>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Sends `parts` with `segments` as its body to `provider`.
pub(crate) async fn send(
    worker: &Rc<Worker>,
    provider: &ProviderInstance,
    make: &request::Draft<'_>,
) -> Result<Answer, SendError> {
    match &provider.reach {
        InstanceReach::Network(origin) => send_network(worker, origin, make).await,
        InstanceReach::Echo(options) => Ok(echo::answer(&provider.id, options, make).await),
    }
}

async fn send_network(
    worker: &Rc<Worker>,
    origin: &Origin,
    draft: &request::Draft<'_>,
) -> Result<Answer, SendError> {
    if let Some(connection) = worker.pool.take(origin) {
        match send_http1(connection, draft.http1(origin)).await {
            // The upstream closed the idle connection while the request was on its way to it. No byte of an
            // answer had come, so the request goes out once more on a connection that is new.
            Err(SendError::Http(error)) if error.is_incomplete_message() || error.is_canceled() => {}
            outcome => return outcome,
        }
    }
    if let Some(shared) = worker.pool.share(origin) {
        return send_http2(shared, draft.http2(origin)).await;
    }
    let (io, is_http2) = dial(origin, &worker.plane.tls).await.map_err(SendError::Dial)?;
    if is_http2 {
        let shared = handshake_http2(io).await.map_err(SendError::Http)?;
        worker.pool.put_shared(origin, shared.clone());
        return send_http2(shared, draft.http2(origin)).await;
    }
    let connection = Connection::handshake(io).await.map_err(SendError::Http)?;
    send_http1(Box::new(connection), draft.http1(origin)).await
}

async fn send_http1(
    mut connection: Box<Connection>,
    request: Request<Outgoing>,
) -> Result<Answer, SendError> {
    let (head, incoming) = connection.send(request).await.map_err(SendError::Http)?.into_parts();
    check_head(head.status, &head.headers)?;
    let body = AnswerBody::Http1 { connection, incoming };
    Ok(Answer { status: head.status, headers: head.headers, body })
}

async fn send_http2(mut shared: Shared, request: Request<Outgoing>) -> Result<Answer, SendError> {
    shared.live.set(shared.live.get() + 1);
    let lease = Lease(Rc::clone(&shared.live));
    shared.sender.ready().await.map_err(SendError::Http)?;
    let (head, incoming) = shared.sender.send_request(request).await.map_err(SendError::Http)?.into_parts();
    check_head(head.status, &head.headers)?;
    let body = AnswerBody::Http2 { incoming, _lease: lease };
    Ok(Answer { status: head.status, headers: head.headers, body })
}

/// Refuses answers that leave in doubt where they end: nothing asked for a switch of protocols, and an answer
/// with two lengths may carry the start of somebody else's (LIM-5). The connection is dropped with it.
fn check_head(status: StatusCode, headers: &HeaderMap) -> Result<(), SendError> {
    if status.is_informational() {
        return Err(SendError::Invalid("it switched protocols unasked"));
    }
    let lengths = headers.get_all(http::header::CONTENT_LENGTH).iter().count();
    if lengths > 1 || (lengths == 1 && headers.contains_key(http::header::TRANSFER_ENCODING)) {
        return Err(SendError::Invalid("it states the length of its answer more than once"));
    }
    Ok(())
}

async fn handshake_http2(io: UpstreamIo) -> hyper::Result<Shared> {
    let (sender, driver) = http2::Builder::new(LocalExecutor)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES * 16)
        .max_header_list_size(32 << 10)
        .handshake(io)
        .await?;
    // Ends when the last sender is dropped or the upstream goes; its faults reach the requests themselves.
    tokio::task::spawn_local(async move { driver.await.ok() });
    Ok(Shared { sender, live: Rc::default() })
}

/// Bytes that an HTTP/2 peer may send ahead of a slow reader, per stream.
pub(crate) const HTTP2_WINDOW_BYTES: u32 = 256 << 10;

/// Runs hyper's HTTP/2 tasks on the worker's own thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
