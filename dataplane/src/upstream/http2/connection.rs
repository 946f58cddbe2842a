//! One connection: its handshake, the requests that share it, and what is known of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use shared::routing::Origin;
use tokio::time::Instant;

use super::socket::Counted;
use crate::upstream::dial::UpstreamIo;
use crate::upstream::error::INTERIM_WITHOUT_END;
use crate::upstream::request::{SegmentedBody, UpstreamRequest};
use crate::upstream::{SendError, UpstreamBody, UpstreamResponse, Upstreams, tap};

/// A connection that the requests of a worker share.
#[derive(Clone, Debug)]
pub(crate) struct SharedConnection {
    pub(in crate::upstream) sender: http2::SendRequest<SegmentedBody>,
    pub(in crate::upstream) state: Rc<SharedState>,
}

/// What is known of a connection, shared by its socket, its requests and the pool.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SharedState {
    /// Number of requests on the connection.
    live: Cell<u32>,
    /// Number of reads that brought bytes; it wraps around.
    pub(super) reads: Cell<u32>,
    /// True if the connection was closed because of too many interim answers.
    pub(super) flooded: Cell<bool>,
    /// True if the connection takes no further requests. Those on it continue.
    retired: Cell<bool>,
    /// The time since which the connection has no request, in the worker's seconds; unknown until the next sweep.
    idle_since: Cell<Option<u32>>,
}

/// Maximum requests on one connection before another is opened: the limit that most servers announce.
pub(super) const STREAMS_MAX: u32 = 100;
/// Stream window: bytes of an answer that an upstream may send before the gateway reads them.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Connection window: all streams together may use up theirs, so that clients that read nothing take nothing from the
/// others.
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * STREAMS_MAX;
/// Pings of all connections.
const PINGS: Pings = Pings { after: Duration::from_secs(30), timeout: Duration::from_secs(10) };
/// Silence of a connection after which a request that ends without the head of an answer retires it; half the
/// provider's timeout if that is shorter.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Times after which a silent upstream is asked for a sign of life (PING), and after which its connection ends without
/// one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pings {
    pub(super) after: Duration,
    pub(super) timeout: Duration,
}

impl SharedConnection {
    /// Creates a connection over `io`.
    pub(in crate::upstream) async fn handshake(io: UpstreamIo) -> hyper::Result<Self> {
        Self::with_pings(io, PINGS).await
    }

    pub(super) async fn with_pings(io: UpstreamIo, pings: Pings) -> hyper::Result<Self> {
        let state = Rc::<SharedState>::default();
        let io = Counted::new(io, Rc::clone(&state));
        let (sender, driver) = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(32 << 10)
            .keep_alive_interval(pings.after)
            .keep_alive_timeout(pings.timeout)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(io))
            .await?;
        // Ends when the last sender is dropped or the upstream disconnects; the requests themselves get its errors.
        tokio::task::spawn_local(async move { driver.await.ok() });
        Ok(Self { sender, state })
    }

    /// True if the connection can take one more request.
    pub(in crate::upstream) fn has_room(&self) -> bool {
        self.is_usable() && self.state.live.get() < STREAMS_MAX
    }

    /// True unless the connection is retired or has ended.
    pub(in crate::upstream) fn is_usable(&self) -> bool {
        !self.state.retired.get() && !self.sender.is_closed()
    }

    /// Takes the connection out of use: further requests get another one, those on it continue.
    pub(in crate::upstream) fn retire(&self) {
        self.state.retired.set(true);
    }

    /// True if the connection has had no request for `seconds_max`. `now` is the worker's coarse clock.
    pub(in crate::upstream) fn is_idle(&self, now: u32, seconds_max: u32) -> bool {
        let state = &self.state;
        if state.live.get() > 0 {
            return false;
        }
        let since = state.idle_since.get().unwrap_or(now);
        state.idle_since.set(Some(since));
        now.wrapping_sub(since) >= seconds_max
    }

    /// Counts one more request on the connection.
    pub(in crate::upstream) fn lease(&self) -> StreamLease {
        self.state.live.update(|live| live + 1);
        self.state.idle_since.set(None);
        StreamLease(Rc::clone(&self.state))
    }
}

/// Counts one request on a shared connection until it is dropped with the body.
#[derive(Debug)]
pub(crate) struct StreamLease(Rc<SharedState>);

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.0.live.update(|live| live.saturating_sub(1));
    }
}

/// Reason why a request has no answer.
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

/// Sends a request and waits for the head of its answer.
pub(in crate::upstream) async fn send_http2(
    upstreams: &Upstreams,
    mut shared: SharedConnection,
    (origin, request): (&Origin, &UpstreamRequest<'_>),
) -> Result<UpstreamResponse, NotSent> {
    let lease = shared.lease();
    let signature = request.signature(origin).await;
    shared.sender.ready().await.map_err(|_| NotSent::Request)?;
    let watch = SilenceWatch::new(&shared.state, request.provider.timeout);
    let sent = shared.sender.try_send_request(tap::noted(request, request.http2(origin, signature))).await;
    drop(watch);
    let (head, incoming) = sent
        .map_err(|mut error| match error.take_message() {
            Some(_) => NotSent::Request,
            None if shared.state.flooded.get() => NotSent::Error(SendError::Invalid(INTERIM_WITHOUT_END)),
            None => NotSent::Error(error.into_error().into()),
        })?
        .into_parts();
    let kept = upstreams.keep(request, &head);
    let body = UpstreamBody::Http2 { incoming, _lease: lease };
    Ok(UpstreamResponse { status: head.status.as_u16(), head: kept, body })
}

/// Waits with a request for the head of its answer. If the request ends before, by a timeout or because its client
/// leaves, and the connection has been silent since the request was sent, the connection is retired: a load balancer or
/// a firewall may have forgotten it, and no request on it would ever be answered.
struct SilenceWatch {
    state: Rc<SharedState>,
    reads: u32,
    since: Instant,
    patience: Duration,
}

impl SilenceWatch {
    fn new(state: &Rc<SharedState>, timeout: Duration) -> Self {
        let patience = SILENCE_MAX.min(timeout / 2);
        Self { reads: state.reads.get(), state: Rc::clone(state), since: Instant::now(), patience }
    }
}

impl Drop for SilenceWatch {
    fn drop(&mut self) {
        if self.state.reads.get() == self.reads && self.since.elapsed() >= self.patience {
            self.state.retired.set(true);
        }
    }
}

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
