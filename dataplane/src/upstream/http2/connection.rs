//! One connection: its handshake, the limits of both sides, and what is known of it.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::oneshot;

use super::socket::Counted;
use crate::upstream::dial::{DialError, UpstreamIo};
use crate::upstream::request::SegmentedBody;

/// A connection that the requests of a worker share.
#[derive(Clone, Debug)]
pub(crate) struct SharedConnection {
    pub(in crate::upstream) sender: http2::SendRequest<SegmentedBody>,
    /// hyper's connection, which its own task polls; `None` once it has ended.
    driver: Rc<RefCell<Option<Driver>>>,
    pub(super) state: Rc<SharedState>,
}

type Driver = http2::Connection<TokioIo<Counted>, SegmentedBody, LocalExecutor>;

/// What is known of a connection, shared by its socket, its requests and the pool.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    /// Number of requests on the connection.
    live: Cell<usize>,
    /// True if a request on the connection has been answered.
    has_answered: Cell<bool>,
    /// Number of reads that brought bytes; it wraps around.
    pub(super) reads: Cell<u32>,
    /// The reason if the gateway has closed the connection because of what the upstream sent, or did not send.
    pub(super) fault: Cell<Option<&'static str>>,
    /// Wakes the reader of a connection whose upstream has not sent its settings yet.
    pub(super) opening: RefCell<Option<Waker>>,
    /// The upstream's judgement of the client certificate, if that ended the connection.
    pub(super) rejection: RefCell<Option<DialError>>,
    /// True if the upstream has sent a GOAWAY.
    pub(super) is_leaving: Cell<bool>,
    /// True if the connection takes no further requests. Those on it continue.
    pub(super) retired: Cell<bool>,
    /// The time of the first sweep that met the connection, in the worker's seconds.
    known_since: Cell<Option<u32>>,
    /// The time since which the connection has no request, in the worker's seconds; unknown until the next sweep.
    idle_since: Cell<Option<u32>>,
}

/// Maximum requests on one connection before another is opened: the limit that most servers announce. A lower one that an
/// upstream announces takes precedence.
pub(super) const STREAMS_MAX: usize = 100;
/// Requests on a connection whose upstream has not announced its limit yet.
const STREAMS_AT_FIRST: usize = 1;
/// Stream window: bytes of an answer that an upstream may send before the gateway reads them.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Connection window. All streams together may use up theirs, so that clients that read nothing take nothing from the
/// others. It is four times as large as that, because h2 derives from it how much the overhead of small DATA frames may be that
/// nobody has read yet, and ends the connection above that. Frames of 100 bytes, as events of tokens are, stay below it.
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * 400;
const _: () = assert!(CONNECTION_WINDOW_BYTES as usize == STREAM_WINDOW_BYTES as usize * STREAMS_MAX * 4);
/// Pings of all connections.
const PINGS: Pings = Pings { after: Duration::from_secs(30), timeout: Duration::from_secs(10) };
/// Times after which a silent upstream is asked for a sign of life (PING), and after which its connection ends without
/// one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pings {
    pub(super) after: Duration,
    pub(super) timeout: Duration,
}

impl SharedConnection {
    /// Creates a connection over `io`, and reports the arrival of the upstream's settings.
    pub(in crate::upstream) async fn handshake(
        io: UpstreamIo,
    ) -> hyper::Result<(Self, oneshot::Receiver<()>)> {
        Self::with_pings(io, PINGS).await
    }

    pub(super) async fn with_pings(
        io: UpstreamIo,
        pings: Pings,
    ) -> hyper::Result<(Self, oneshot::Receiver<()>)> {
        let state = Rc::<SharedState>::default();
        let (settled, settings) = oneshot::channel();
        let io = Counted::new(io, Rc::clone(&state), settled);
        let (sender, driver) = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_max_send_streams(STREAMS_AT_FIRST)
            .max_header_list_size(32 << 10)
            .keep_alive_interval(pings.after)
            .keep_alive_timeout(pings.timeout)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(io))
            .await?;
        let driver = Rc::new(RefCell::new(Some(driver)));
        tokio::task::spawn_local(drive(Rc::clone(&driver)));
        Ok((Self { sender, driver, state }, settings))
    }

    /// Returns the number of requests that the connection takes at the same time. It is 0 while the upstream accepts none,
    /// as one does that is about to leave: requests then get another connection.
    pub(super) fn streams_max(&self) -> usize {
        let driver = self.driver.try_borrow().ok();
        let announced = driver.as_ref().and_then(|driver| Some(driver.as_ref()?.current_max_send_streams()));
        announced.unwrap_or(STREAMS_AT_FIRST).min(STREAMS_MAX)
    }

    /// True if the upstream has announced that it leaves (GOAWAY).
    pub(super) fn is_leaving(&self) -> bool {
        self.state.is_leaving.get()
    }

    /// True if the connection can take one more request.
    pub(super) fn has_room(&self) -> bool {
        self.is_usable() && self.state.live.get() < self.streams_max()
    }

    /// Records that a request has been answered.
    pub(super) fn note_answer(&self) {
        self.state.has_answered.set(true);
    }

    /// True if a request on the connection has been answered.
    pub(super) fn has_answered(&self) -> bool {
        self.state.has_answered.get()
    }

    /// True if there are requests on the connection.
    pub(super) fn has_requests(&self) -> bool {
        self.state.live.get() > 0
    }

    /// True unless the connection is retired or has ended.
    pub(super) fn is_usable(&self) -> bool {
        !self.state.retired.get() && !self.sender.is_closed()
    }

    /// Returns the upstream's judgement of the client certificate, if that ended the connection before the upstream sent
    /// anything, and so before it processed a request. The errors of h2 do not contain it.
    pub(super) fn rejection(&self) -> Option<DialError> {
        let rejection = self.state.rejection.borrow();
        rejection.as_ref().filter(|_| self.state.reads.get() == 0).map(DialError::again)
    }

    /// Closes a connection whose upstream has not sent its settings. The requests on it fail with `fault`.
    pub(super) fn give_up(&self, fault: &'static str) {
        self.retire();
        self.state.fault.set(Some(fault));
        if let Some(reader) = self.state.opening.take() {
            reader.wake();
        }
    }

    /// Takes the connection out of use: further requests get another one, those on it continue.
    pub(super) fn retire(&self) {
        self.state.retired.set(true);
    }

    /// True if the connection has had no request for `seconds_max`. `now` is the worker's coarse clock.
    pub(super) fn is_idle(&self, now: u32, seconds_max: u32) -> bool {
        let state = &self.state;
        if state.live.get() > 0 {
            return false;
        }
        let since = state.idle_since.get().unwrap_or(now);
        state.idle_since.set(Some(since));
        now.wrapping_sub(since) >= seconds_max
    }

    /// Retires a connection that has been in use for `seconds_max`, so that a changed address of the upstream is followed
    /// although the connection is never idle.
    pub(super) fn age(&self, now: u32, seconds_max: u32) {
        let since = self.state.known_since.get().unwrap_or(now);
        self.state.known_since.set(Some(since));
        if now.wrapping_sub(since) >= seconds_max {
            self.retire();
        }
    }

    /// Counts one more request on the connection.
    pub(super) fn begin_request(&self) {
        self.state.live.update(|live| live + 1);
        self.state.idle_since.set(None);
    }

    /// Counts one request less.
    pub(super) fn end_request(&self) {
        self.state.live.update(|live| live.saturating_sub(1));
    }
}

/// Polls hyper's connection until the last sender is dropped or the upstream disconnects. The requests get its errors.
async fn drive(driver: Rc<RefCell<Option<Driver>>>) {
    std::future::poll_fn(|cx| {
        let mut driver = driver.borrow_mut();
        let has_ended = driver.as_mut().is_none_or(|driver| Pin::new(driver).poll(cx).is_ready());
        if !has_ended {
            return Poll::Pending;
        }
        // From now on, `is_closed` of the senders is true.
        *driver = None;
        Poll::Ready(())
    })
    .await;
}

/// Runs hyper's HTTP/2 tasks on the worker's own thread.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        // A task would copy the whole future when it is made and when it ends, which costs more than the box.
        tokio::task::spawn_local(Box::pin(future));
    }
}
