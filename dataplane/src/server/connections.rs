//! The client connections of one worker: their states, the sweep that closes slow and idle ones (LIM-5), and one
//! connection from its first byte to its last: the TLS handshake, the detection of the HTTP version, and the orders of
//! the sweep and of the drain.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::io::{Link, Order, Phase, ServerIo, Socket};
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
    links: RefCell<Vec<Weak<Link>>>,
}

/// Maximum time for a complete request head, in seconds.
const HEAD_SECONDS_MAX: u64 = 28;
/// Maximum time between the GOAWAY of an idle HTTP/2 connection and its end, in seconds.
const GOAWAY_SECONDS_MAX: u64 = 10;

impl Connections {
    pub(crate) fn new(settings: Arc<Settings>, total: Arc<AtomicUsize>, clock: CoarseClock) -> Self {
        Self { settings, total, clock, links: RefCell::default() }
    }

    /// Creates the state of a connection; the sweep checks it until the connection ends.
    pub(super) fn link(&self) -> Rc<Link> {
        let link = Rc::new(Link::new(Phase::Idle, self.clock.clone()));
        self.links.borrow_mut().push(Rc::downgrade(&link));
        link
    }

    /// Returns a placeholder connection state for in-process requests.
    pub(crate) fn detached_link(&self) -> Rc<Link> {
        Rc::new(Link::new(Phase::Inside, self.clock.clone()))
    }

    /// Closes connections with slow heads and idle connections. Runs once a second.
    pub(crate) fn sweep(&self) {
        let idle = self.settings.client_timeouts.idle.as_secs();
        self.links.borrow_mut().retain(|link| {
            let Some(link) = link.upgrade() else { return false };
            let seconds = u64::from(link.seconds_in_phase());
            match link.phase() {
                Phase::Idle if seconds > idle => link.command(Order::Close),
                Phase::Head if seconds > HEAD_SECONDS_MAX => link.command(Order::Close),
                Phase::Http2 if link.has_no_stream() && seconds > idle + GOAWAY_SECONDS_MAX => {
                    link.command(Order::Close);
                }
                Phase::Http2 if link.has_no_stream() && seconds > idle && link.order.get() == Order::None => {
                    link.command(Order::Finish);
                }
                Phase::Idle | Phase::Head | Phase::Busy | Phase::Http2 | Phase::Inside => {}
            }
            true
        });
    }

    /// Sends `order` to every connection.
    pub(crate) fn command_all(&self, order: Order) {
        let links: Vec<_> = self.links.borrow().iter().filter_map(Weak::upgrade).collect();
        for link in links {
            link.command(order);
        }
    }
}

/// Time limit for the TLS handshake and the first bytes of a connection.
const OPENING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves a connection until it ends.
pub(super) async fn serve(server: impl Connect, tcp: TcpStream, peer: SocketAddr) {
    let connections = server.connections();
    let link = connections.link();
    let opening = tokio::time::timeout(OPENING_TIMEOUT, open(&connections.settings, tcp, &link));
    let Ok(Some((io, is_http2))) = obey(&link, opening).await.unwrap_or(Ok(None)) else { return };
    let service = server.connect(&link, peer);
    if is_http2 {
        let stall = connections.settings.client_timeouts.stall;
        http2::serve(service, link, stall, io).await;
    } else {
        // `finish` does nothing here: the gate and the service check the order themselves.
        run(&link, pin!(http1::serve(service, Rc::clone(&link), io)), |_| {}).await;
    }
}

/// Performs the TLS handshake and detects HTTP/2. Returns `None` if the client disconnected.
async fn open(settings: &Settings, tcp: TcpStream, link: &Rc<Link>) -> Option<(ServerIo, bool)> {
    let socket = match &settings.tls {
        Some(config) => {
            let acceptor = TlsAcceptor::from(Arc::clone(config));
            Socket::Tls(Box::new(acceptor.accept(tcp).await.ok()?))
        }
        None => Socket::Plain(tcp),
    };
    let mut io = ServerIo::new(socket, Rc::clone(link));
    let is_http2 = io.begins_http2().await.ok()?;
    Some((io, is_http2))
}

/// Runs a connection until it ends or is ordered to close. `finish` is called once if it is ordered to finish.
pub(super) async fn run<C: Future>(link: &Link, mut connection: Pin<&mut C>, finish: fn(Pin<&mut C>)) {
    let mut finishing = false;
    std::future::poll_fn(|cx| {
        link.register(cx.waker());
        match link.order.get() {
            Order::None => {}
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
async fn obey<T>(link: &Link, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        link.register(cx.waker());
        if link.order.get() == Order::None { future.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) }
    })
    .await
}
