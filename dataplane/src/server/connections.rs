//! The client connections of one worker: their states, the sweep that closes slow and idle ones (LIM-5), and one
//! connection from its first byte to its last: the TLS handshake, the detection of the HTTP version, and the orders of
//! the sweep and of the drain.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::balance;
use super::io::{ConnectionState, Order, Phase, ServerIo, Socket};
use super::service::Connect;
use super::{http1, http2};
use crate::clock::CoarseClock;
use crate::settings::Settings;

/// The client connections of one worker.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(super) settings: Arc<Settings>,
    /// Number of connections of all workers.
    pub(super) total: Arc<AtomicUsize>,
    clock: CoarseClock,
    states: RefCell<Vec<Weak<ConnectionState>>>,
    /// The last order to all connections. It holds for new ones too.
    order: Cell<Order>,
}

/// Maximum time for a complete request head, in seconds.
const HEAD_SECONDS_MAX: u64 = 28;
/// Maximum time between the GOAWAY of an idle HTTP/2 connection and its end, in seconds.
const GOAWAY_SECONDS_MAX: u64 = 10;

impl Connections {
    pub(crate) fn new(settings: Arc<Settings>, total: Arc<AtomicUsize>, clock: CoarseClock) -> Self {
        Self { settings, total, clock, states: RefCell::default(), order: Cell::new(Order::None) }
    }

    /// Creates the state of a connection; the sweep checks it until the connection ends.
    pub(super) fn open_state(&self) -> Rc<ConnectionState> {
        let state = Rc::new(ConnectionState::new(Phase::Idle, self.clock.clone()));
        state.command(self.order.get());
        self.states.borrow_mut().push(Rc::downgrade(&state));
        state
    }

    /// Returns a placeholder connection state for in-process requests.
    pub(crate) fn detached_state(&self) -> Rc<ConnectionState> {
        Rc::new(ConnectionState::new(Phase::Inside, self.clock.clone()))
    }

    /// Closes connections with slow heads and idle connections. Runs once a second.
    pub(crate) fn sweep(&self) {
        let idle = self.settings.client_timeouts.idle.as_secs();
        self.states.borrow_mut().retain(|state| {
            let Some(state) = state.upgrade() else { return false };
            state.end_second();
            let seconds = u64::from(state.seconds_in_phase());
            match state.phase() {
                Phase::Idle if seconds > idle => state.command(Order::Close),
                Phase::Head if seconds > HEAD_SECONDS_MAX => state.command(Order::Close),
                Phase::Http2 if state.has_no_stream() && seconds > idle + GOAWAY_SECONDS_MAX => {
                    state.command(Order::Close);
                }
                Phase::Http2
                    if state.has_no_stream() && seconds > idle && state.order.get() < Order::Finish =>
                {
                    state.command(Order::Finish);
                }
                Phase::Idle | Phase::Head | Phase::Busy | Phase::Http2 | Phase::Inside => {}
            }
            true
        });
    }

    /// Asks the clients of some busy connections to open new ones, if this worker has too much to do and another one, whose
    /// load is `least`, has not. Answers in progress are not affected. Returns the number of these connections.
    pub(crate) fn relieve(&self, busy: usize, least: usize) -> u64 {
        if self.order.get() != Order::None || !balance::is_too_busy(busy, least) {
            return 0;
        }
        let (mut states, mut works, mut leaving) = (Vec::new(), Vec::new(), 0);
        for state in self.states.borrow().iter().filter_map(Weak::upgrade) {
            match state.order.get() {
                Order::None => {
                    works.push(state.recent_work());
                    states.push(state);
                }
                Order::LastAnswer | Order::Finish | Order::Close => leaving += state.recent_work(),
            }
        }
        let leavers = balance::leavers(busy, least, &works, leaving);
        for state in leavers.iter().filter_map(|index| states.get(*index)) {
            state.command(if state.phase() == Phase::Http2 { Order::Finish } else { Order::LastAnswer });
        }
        leavers.len() as u64
    }

    /// Sends `order` to every connection, and to those that are opened later.
    pub(crate) fn command_all(&self, order: Order) {
        self.order.set(order);
        let states: Vec<_> = self.states.borrow().iter().filter_map(Weak::upgrade).collect();
        for state in states {
            state.command(order);
        }
    }
}

/// Time limit for the TLS handshake and the first bytes of a connection.
const OPENING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves a connection until it ends.
pub(super) async fn serve(server: impl Connect, tcp: TcpStream, peer: SocketAddr) {
    let connections = server.connections();
    let state = connections.open_state();
    let opening = tokio::time::timeout(OPENING_TIMEOUT, open(&connections.settings, tcp, &state));
    let Ok(Some((io, is_http2))) = obey(&state, opening).await.unwrap_or(Ok(None)) else { return };
    let service = server.connect(&state, peer);
    if is_http2 {
        let stall = connections.settings.client_timeouts.stall;
        http2::serve(service, state, stall, io).await;
    } else {
        // `finish` does nothing here: the gate and the service check the order themselves.
        run(&state, pin!(http1::serve(service, Rc::clone(&state), io)), |_| {}).await;
    }
}

/// Performs the TLS handshake and detects HTTP/2. Returns `None` if the client disconnected.
async fn open(settings: &Settings, tcp: TcpStream, state: &Rc<ConnectionState>) -> Option<(ServerIo, bool)> {
    let socket = match &settings.tls {
        Some(config) => {
            let acceptor = TlsAcceptor::from(Arc::clone(config));
            Socket::Tls(Box::new(acceptor.accept(tcp).await.ok()?))
        }
        None => Socket::Plain(tcp),
    };
    let mut io = ServerIo::new(socket, Rc::clone(state));
    let is_http2 = io.begins_http2().await.ok()?;
    Some((io, is_http2))
}

/// Runs a connection until it ends or is ordered to close. `finish` is called once if it is ordered to finish.
pub(super) async fn run<C: Future>(
    state: &ConnectionState,
    mut connection: Pin<&mut C>,
    finish: fn(Pin<&mut C>),
) {
    let mut finishing = false;
    std::future::poll_fn(|cx| {
        state.register(cx.waker());
        match state.order.get() {
            Order::None | Order::LastAnswer => {}
            Order::Close => return Poll::Ready(()),
            Order::Finish if finishing => {}
            Order::Finish => {
                finishing = true;
                finish(connection.as_mut());
            }
        }
        connection.as_mut().poll(cx).map(drop)
    })
    .await;
}

/// Runs `future`; returns `None` if the connection is ordered to close or finish first.
async fn obey<T>(state: &ConnectionState, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        state.register(cx.waker());
        if state.order.get() < Order::Finish { future.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) }
    })
    .await
}
