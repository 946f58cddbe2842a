//! A client's socket, with or without TLS. The state of its connection is in [`ConnectionState`], which the sweeper and the
//! request share.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::clock::CoarseClock;

/// State of a connection, shared by its socket, its requests and the sweeper.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// Current phase.
    phase: Cell<Phase>,
    /// Start of the phase, in the worker's seconds.
    since: Cell<u32>,
    /// Number of open HTTP/2 streams.
    streams: Cell<u32>,
    /// Number of reads, writes and flushes since the last sweep, and in the second before it.
    work: Cell<[u32; 2]>,
    /// True if the last write to the client, or the last flush, was pending.
    pub(crate) write_blocked: Cell<bool>,
    /// True once a request that was sent while it arrived was not the one that its end asked for. Further requests of the
    /// client wait for their ends.
    pub(crate) was_misjudged: Cell<bool>,
    /// Set by the sweeper or by the drain; the connection's task acts on it.
    pub(crate) order: Cell<Order>,
    task: RefCell<Option<Waker>>,
    clock: CoarseClock,
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing of the next request has arrived.
    Idle,
    /// A part of a head has arrived.
    Head,
    /// A request is being served.
    Busy,
    /// An HTTP/2 connection. Without streams it is idle since its last stream ended.
    Http2,
    /// No connection: the request comes from inside the process.
    Inside,
}

/// Order to a connection's task. A later one of these overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Continue.
    None,
    /// Close after the next answer. An idle connection stays open, and so does one of HTTP/2.
    LastAnswer,
    /// Finish the requests in progress, then close.
    Finish,
    /// Close now.
    Close,
}

impl ConnectionState {
    /// Creates the state of a connection; `clock` is the worker's.
    pub(super) fn new(phase: Phase, clock: CoarseClock) -> Self {
        Self {
            phase: Cell::new(phase),
            since: Cell::new(clock.now()),
            streams: Cell::new(0),
            work: Cell::default(),
            write_blocked: Cell::new(false),
            was_misjudged: Cell::new(false),
            order: Cell::new(Order::None),
            task: RefCell::new(None),
            clock,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Returns the duration of the current phase in seconds.
    pub(crate) fn seconds_in_phase(&self) -> u32 {
        self.clock.now().wrapping_sub(self.since.get())
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.clock.now());
    }

    /// Counts a new HTTP/2 stream.
    pub(crate) fn begin_stream(&self) {
        self.streams.update(|streams| streams.saturating_add(1));
    }

    /// Removes an ended HTTP/2 stream and restarts the phase: without other streams, the connection is idle from now
    /// on.
    pub(crate) fn end_stream(&self) {
        self.streams.update(|streams| streams.saturating_sub(1));
        self.enter(Phase::Http2);
    }

    /// True if the connection has no HTTP/2 stream.
    pub(crate) fn has_no_stream(&self) -> bool {
        self.streams.get() == 0
    }

    /// Counts a read, a write or a flush.
    fn note_work(&self) {
        self.work.update(|[now, last]| [now.saturating_add(1), last]);
    }

    /// Ends a second of counting.
    pub(super) fn end_second(&self) {
        self.work.update(|[now, _]| [0, now]);
    }

    /// Returns the number of reads, writes and flushes in the last whole second.
    pub(super) fn recent_work(&self) -> usize {
        let [_, last] = self.work.get();
        usize::try_from(last).unwrap_or(usize::MAX)
    }

    /// Stores the waker of the connection's task, to be woken by orders.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut task = self.task.borrow_mut();
        match task.as_ref() {
            Some(known) if known.will_wake(waker) => {}
            _ => *task = Some(waker.clone()),
        }
    }

    /// Polls with the waker that was registered last.
    pub(crate) fn poll_as_task<T>(&self, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let task = self.task.borrow();
        poll(&mut Context::from_waker(task.as_ref().unwrap_or(Waker::noop())))
    }

    /// Sets an order, unless a later one is set, and wakes the connection's task.
    pub(crate) fn command(&self, order: Order) {
        self.order.set(self.order.get().max(order));
        if let Some(task) = self.task.borrow().as_ref() {
            task.wake_by_ref();
        }
    }
}

/// The socket, with or without TLS.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A client's socket that replays the bytes read to detect the protocol.
#[derive(Debug)]
pub(crate) struct ServerIo {
    socket: Socket,
    state: Rc<ConnectionState>,
    /// Bytes read to detect the protocol; they are returned by the next reads.
    first: Vec<u8>,
}

impl ServerIo {
    pub(crate) fn new(socket: Socket, state: Rc<ConnectionState>) -> Self {
        Self { socket, state, first: Vec::new() }
    }

    /// Returns true if the client starts with the HTTP/2 preface (RFC 9113 section 3.4). The bytes read to detect it,
    /// usually the whole first request, are kept for later reads.
    pub(crate) async fn begins_http2(&mut self) -> io::Result<bool> {
        use tokio::io::AsyncReadExt as _;
        self.first.reserve_exact(FIRST_BYTES_MAX);
        loop {
            let count = match &mut self.socket {
                Socket::Plain(tcp) => tcp.read_buf(&mut self.first).await?,
                Socket::Tls(tls) => tls.read_buf(&mut self.first).await?,
            };
            let known = self.first.len().min(PREFACE_MARK.len());
            let like_preface = self.first.get(..known) == PREFACE_MARK.get(..known);
            if count == 0 || !like_preface || known == PREFACE_MARK.len() {
                return Ok(like_preface && known == PREFACE_MARK.len());
            }
        }
    }

    /// Records if a write or a flush waits for the client. Over TLS it is the flush that waits: a write goes into the
    /// buffer of the session.
    fn note_write<T>(&self, outcome: Poll<T>) -> Poll<T> {
        self.state.note_work();
        self.state.write_blocked.set(outcome.is_pending());
        outcome
    }
}

/// Start of the preface; no HTTP/1 request line starts like this.
const PREFACE_MARK: &[u8; 4] = b"PRI ";
/// Buffer size of a connection's first read, in bytes.
const FIRST_BYTES_MAX: usize = 4 << 10;

impl AsyncRead for ServerIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let count = self.first.len().min(buf.remaining());
            buf.put_slice(self.first.split_at(count).0);
            self.first.drain(..count);
            if self.first.is_empty() {
                self.first = Vec::new();
            }
            return Poll::Ready(Ok(()));
        }
        let outcome = match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Socket::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buf),
        };
        if outcome.is_ready() {
            self.state.note_work();
        }
        outcome
    }
}

impl AsyncWrite for ServerIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Socket::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, buf),
        };
        self.note_write(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Socket::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, bufs),
        };
        self.note_write(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(tcp) => tcp.is_write_vectored(),
            Socket::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Socket::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        };
        self.note_write(outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}
