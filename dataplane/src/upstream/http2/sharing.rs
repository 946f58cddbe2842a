//! The connections of one worker to one origin that requests share, and the requests that wait for a place on one.
//!
//! A request without a place does not dial for itself. It waits, and there are as many dials as the waiting requests need
//! connections. Places go to the waiting requests in the order of their arrival, whether a dial has brought them or the
//! end of another request. While a request waits, a dial is in progress.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use shared::routing::{HttpVersion, Origin};
use tokio::sync::oneshot;

use super::connection::{STREAMS_MAX, SharedConnection};
use crate::upstream::SendError;
use crate::upstream::dial::{DialError, Tls, dial};
use crate::upstream::error::{WITHOUT_SETTINGS, broken_dial};
use crate::upstream::http1::UpstreamConnection;

/// The connections to one origin.
#[derive(Debug)]
pub(crate) struct SharedConnections {
    connections: RefCell<Vec<SharedConnection>>,
    waiting: RefCell<VecDeque<oneshot::Sender<Grant>>>,
    /// Number of dials in progress.
    dials: Cell<usize>,
    /// Number of requests that a new connection is expected to take: the limit that the last one announced.
    streams_expected: Cell<usize>,
    /// True if TLS has chosen HTTP/1.1. Each request then dials for itself, because no connection can be shared.
    is_http1: Cell<bool>,
}

/// What a waiting request gets; `None` if it has to dial for itself.
type Grant = Result<Option<Place>, SendError>;

/// What a request is sent on.
#[derive(Debug)]
pub(in crate::upstream) enum Place {
    /// A stream of a shared connection.
    Stream(StreamLease),
    /// A new connection of its own.
    Http1(Box<UpstreamConnection>),
}

/// Maximum dials to one origin at the same time.
pub(super) const DIALS_MAX: usize = 8;
/// Time limit for the settings of an upstream, which are the first frame that it sends.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(10);

impl Default for SharedConnections {
    fn default() -> Self {
        Self {
            connections: RefCell::default(),
            waiting: RefCell::default(),
            dials: Cell::new(0),
            streams_expected: Cell::new(STREAMS_MAX),
            is_http1: Cell::new(false),
        }
    }
}

/// True if a connection to `origin` may turn out to speak HTTP/2.
pub(in crate::upstream) fn may_be_shared(origin: &Origin) -> bool {
    match origin.http {
        HttpVersion::Auto => origin.tls,
        HttpVersion::Http1 => false,
        HttpVersion::Http2 => true,
    }
}

impl SharedConnections {
    /// Returns a place for a request, as soon as there is one.
    pub(in crate::upstream) async fn place(
        self: &Rc<Self>,
        origin: &Origin,
        tls: &Arc<Tls>,
    ) -> Result<Place, SendError> {
        if let Some(stream) = self.free_stream() {
            return Ok(Place::Stream(stream));
        }
        if !self.is_http1.get() {
            let (sender, grant) = oneshot::channel();
            self.waiting.borrow_mut().push_back(sender);
            self.dial_for_waiting(origin, tls);
            if let Some(place) = grant.await.unwrap_or_else(|_| Err(lost()))? {
                return Ok(place);
            }
        }
        match connect(origin, tls).await.map_err(SendError::Dial)? {
            Dialled::Http1(connection) => Ok(Place::Http1(connection)),
            Dialled::Http2(connection, _) => {
                self.is_http1.set(false);
                let stream = StreamLease::new(&connection, Rc::downgrade(self));
                self.connections.borrow_mut().push(connection);
                Ok(Place::Stream(stream))
            }
        }
    }

    /// Closes idle connections, retires old ones and forgets those that have ended. `now` is the worker's coarse clock.
    pub(in crate::upstream) fn sweep(&self, now: u32, idle_seconds_max: u32, age_seconds_max: u32) {
        let is_kept = |shared: &SharedConnection| {
            shared.age(now, age_seconds_max);
            shared.is_usable() && !shared.is_idle(now, idle_seconds_max)
        };
        self.connections.borrow_mut().retain(is_kept);
    }

    /// True if there is no connection, and no request waits for one.
    pub(in crate::upstream) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty() && self.dials.get() == 0
    }

    /// Takes a place on a connection that has one left.
    fn free_stream(self: &Rc<Self>) -> Option<StreamLease> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(SharedConnection::is_usable);
        let connection = connections.iter().find(|connection| connection.has_room())?;
        Some(StreamLease::new(connection, Rc::downgrade(self)))
    }

    /// Gives free places to waiting requests.
    fn serve_waiting(self: &Rc<Self>) {
        while let Some(waiting) = self.next_waiting() {
            let Some(stream) = self.free_stream() else {
                return self.waiting.borrow_mut().push_front(waiting);
            };
            drop(waiting.send(Ok(Some(Place::Stream(stream)))));
        }
    }

    /// Takes the request that has waited longest; those that have ended are dropped.
    fn next_waiting(&self) -> Option<oneshot::Sender<Grant>> {
        let mut waiting = self.waiting.borrow_mut();
        std::iter::from_fn(|| waiting.pop_front()).find(|waiting| !waiting.is_closed())
    }

    /// Starts the dials that the waiting requests need in addition to those in progress.
    fn dial_for_waiting(self: &Rc<Self>, origin: &Origin, tls: &Arc<Tls>) {
        let connections = self.waiting.borrow().len().div_ceil(self.streams_expected.get());
        while self.dials.get() < connections.min(DIALS_MAX) {
            self.dials.update(|dials| dials + 1);
            let (shared, origin, tls) = (Rc::clone(self), origin.clone(), Arc::clone(tls));
            // Not a part of the request that waits: if that ends, others wait for the same dial. It ends by its time limits.
            tokio::task::spawn_local(async move {
                shared.dial(&origin, &tls).await;
                shared.dials.update(|dials| dials.saturating_sub(1));
                shared.dial_for_waiting(&origin, &tls);
            });
        }
    }

    async fn dial(self: &Rc<Self>, origin: &Origin, tls: &Tls) {
        match connect(origin, tls).await {
            Ok(Dialled::Http1(connection)) => self.found_http1(connection),
            Ok(Dialled::Http2(connection, settings)) => self.found_http2(connection, settings).await,
            Err(error) => self.fail(&error, Report::First),
        }
    }

    /// Gives the connection to a waiting request. The others have to dial for themselves.
    fn found_http1(&self, connection: Box<UpstreamConnection>) {
        self.is_http1.set(true);
        let mut place = Some(Place::Http1(connection));
        while let Some(waiting) = self.next_waiting() {
            drop(waiting.send(Ok(place.take())));
        }
    }

    /// Gives the places of a new connection to waiting requests: one at once, and the others when the upstream has stated
    /// its limit.
    async fn found_http2(self: &Rc<Self>, connection: SharedConnection, settings: oneshot::Receiver<()>) {
        self.connections.borrow_mut().push(connection.clone());
        self.serve_waiting();
        let report = if connection.has_requests() { Report::None } else { Report::First };
        let error = match tokio::time::timeout(SETTINGS_TIMEOUT, settings).await {
            Ok(Ok(())) => {
                // Even a connection that accepts none now has taken one.
                self.streams_expected.set(connection.streams_max().max(1));
                return self.serve_waiting();
            }
            Ok(Err(_)) => {
                connection.rejection().unwrap_or_else(|| DialError::Io(io::ErrorKind::ConnectionReset.into()))
            }
            Err(_) => {
                connection.give_up(WITHOUT_SETTINGS);
                DialError::TimedOut
            }
        };
        connection.retire();
        self.fail(&error, report);
    }

    /// Fails the requests that wait for a dial that failed: all if it was the only one, otherwise those that its connection
    /// would have taken.
    fn fail(&self, error: &DialError, report: Report) {
        let others = self.dials.get() > 1;
        let mut failed = 0;
        while (!others || failed < self.streams_expected.get())
            && let Some(waiting) = self.next_waiting()
        {
            let error = error.again();
            let is_reported = failed == 0 && report == Report::First;
            let error = if is_reported { SendError::Dial(error) } else { SendError::Followed(error) };
            drop(waiting.send(Err(error)));
            failed += 1;
        }
    }
}

/// Which of the requests that shared a failed dial reports the failure as one of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    First,
    /// None: the request that the connection has taken will.
    None,
}

/// A new connection, and for HTTP/2 the arrival of the upstream's settings.
enum Dialled {
    Http1(Box<UpstreamConnection>),
    Http2(SharedConnection, oneshot::Receiver<()>),
}

async fn connect(origin: &Origin, tls: &Tls) -> Result<Dialled, DialError> {
    let (io, is_http2) = dial(origin, tls).await?;
    if is_http2 {
        let (connection, settings) = SharedConnection::handshake(io).await.map_err(broken_dial)?;
        return Ok(Dialled::Http2(connection, settings));
    }
    UpstreamConnection::handshake(io).await.map_err(broken_dial).map(Box::new).map(Dialled::Http1)
}

fn lost() -> SendError {
    SendError::Followed(DialError::Io(io::ErrorKind::ConnectionAborted.into()))
}

/// A request's place on a shared connection, until it is dropped with the body of the answer.
#[derive(Debug)]
pub(crate) struct StreamLease {
    pub(super) connection: SharedConnection,
    /// The connections whose waiting requests get the place afterwards.
    home: Weak<SharedConnections>,
}

impl StreamLease {
    fn new(connection: &SharedConnection, home: Weak<SharedConnections>) -> Self {
        connection.begin_request();
        Self { connection: connection.clone(), home }
    }

    /// True if the upstream has announced that it leaves (GOAWAY).
    pub(in crate::upstream) fn is_leaving(&self) -> bool {
        self.connection.is_leaving()
    }

    /// Returns the place of the only request of a connection.
    pub(in crate::upstream) fn of_single_request(connection: &SharedConnection) -> Self {
        Self::new(connection, Weak::new())
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.connection.end_request();
        if let Some(home) = self.home.upgrade() {
            home.serve_waiting();
        }
    }
}
