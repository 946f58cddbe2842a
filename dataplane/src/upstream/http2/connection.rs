//! One connection: its handshake, the requests that share it, and what is known of it.

use std::cell::Cell;
use std::rc::Rc;

use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use shared::routing::Origin;

use super::socket::Counted;
use crate::upstream::dial::UpstreamIo;
use crate::upstream::error::INTERIM_WITHOUT_END;
use crate::upstream::request::{SegmentedBody, UpstreamRequest};
use crate::upstream::{SendError, UpstreamBody, UpstreamResponse, Upstreams, tap};

/// An HTTP/2 connection, and the number of requests on it.
#[derive(Clone, Debug)]
pub(crate) struct SharedConnection {
    pub(crate) sender: http2::SendRequest<SegmentedBody>,
    pub(crate) live: Rc<Cell<u32>>,
    /// True if the connection was closed because of too many interim answers.
    pub(crate) flooded: Rc<Cell<bool>>,
}

/// Counts one request on a shared connection until it is dropped with the body.
#[derive(Debug)]
pub(crate) struct StreamLease(pub(in crate::upstream) Rc<Cell<u32>>);

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Reason why a request over HTTP/2 has no answer.
pub(in crate::upstream) enum NotSent {
    /// The request was not sent, because the connection is closing.
    Request,
    Error(SendError),
}

impl From<NotSent> for SendError {
    fn from(returned: NotSent) -> Self {
        match returned {
            NotSent::Request => Self::Broke("the connection closed before the request was sent".into()),
            NotSent::Error(error) => error,
        }
    }
}

pub(in crate::upstream) async fn send_http2(
    upstreams: &Upstreams,
    mut shared: SharedConnection,
    (origin, request): (&Origin, &UpstreamRequest<'_>),
) -> Result<UpstreamResponse, NotSent> {
    shared.live.set(shared.live.get() + 1);
    let lease = StreamLease(Rc::clone(&shared.live));
    let signature = request.signature(origin).await;
    shared.sender.ready().await.map_err(|_| NotSent::Request)?;
    let sent = shared.sender.try_send_request(tap::noted(request, request.http2(origin, signature))).await;
    let (head, incoming) = sent
        .map_err(|mut error| match error.take_message() {
            Some(_) => NotSent::Request,
            None if shared.flooded.get() => NotSent::Error(SendError::Invalid(INTERIM_WITHOUT_END)),
            None => NotSent::Error(error.into_error().into()),
        })?
        .into_parts();
    let kept = upstreams.keep(request, &head);
    let body = UpstreamBody::Http2 { incoming, _lease: lease };
    Ok(UpstreamResponse { status: head.status.as_u16(), head: kept, body })
}

pub(in crate::upstream) async fn handshake_http2(io: UpstreamIo) -> hyper::Result<SharedConnection> {
    let flooded = Rc::<Cell<bool>>::default();
    let io = Counted::new(io, Rc::clone(&flooded));
    let (sender, driver) = http2::Builder::new(LocalExecutor)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES * 16)
        .max_header_list_size(32 << 10)
        .handshake(TokioIo::new(io))
        .await?;
    // Ends when the last sender is dropped or the upstream disconnects; the requests themselves get its errors.
    tokio::task::spawn_local(async move { driver.await.ok() });
    Ok(SharedConnection { sender, live: Rc::default(), flooded })
}

/// Stream window: bytes of an answer that an upstream may send before the gateway reads them.
const HTTP2_WINDOW_BYTES: u32 = 256 << 10;

/// Runs hyper's HTTP/2 tasks on the worker's own thread.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
