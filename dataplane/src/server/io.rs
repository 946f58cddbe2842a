//! A client's socket, with or without TLS. What the connection is doing right now stands in [`Link`], which the
//! sweeper and the request share.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// What a connection is doing, shared by its socket, its requests and the sweeper.
#[derive(Debug)]
pub(crate) struct Link {
    /// What the next bytes from the client are.
    phase: Cell<Phase>,
    /// When the phase began.
    since: Cell<u32>,
    /// Streams of HTTP/2 that are open.
    streams: Cell<u32>,
    /// The last write to the client did not go through.
    pub(crate) write_blocked: Cell<bool>,
    /// Set by the sweeper or by the drain; the connection's task acts on it.
    pub(crate) order: Cell<Order>,
    task: RefCell<Option<Waker>>,
    clock: Rc<Cell<u32>>,
}

/// What is expected from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing has arrived of the next request.
    Idle,
    /// A part of a head has arrived.
    Head,
    /// A request is being served.
    Busy,
    /// An HTTP/2 connection. While it has no stream it is idle, since the last one ended.
    Http2,
    /// No connection: the request comes from inside the process.
    Inside,
}

/// What a connection's task has been told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Go on.
    None,
    /// Finish what is being served, then close.
    Finish,
    /// Close now.
    Close,
}

impl Link {
    /// `clock` counts the worker's seconds.
    pub(crate) fn new(phase: Phase, clock: Rc<Cell<u32>>) -> Self {
        Self {
            phase: Cell::new(phase),
            since: Cell::new(clock.get()),
            streams: Cell::new(0),
            write_blocked: Cell::new(false),
            order: Cell::new(Order::None),
            task: RefCell::new(None),
            clock,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// For how many seconds the phase has lasted.
    pub(crate) fn seconds_in_phase(&self) -> u32 {
        self.clock.get().wrapping_sub(self.since.get())
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.clock.get());
    }

    /// A stream of HTTP/2 was opened.
    pub(crate) fn begin_stream(&self) {
        self.streams.update(|streams| streams.saturating_add(1));
    }

    /// A stream of HTTP/2 has ended; without another the connection is idle from now on.
    pub(crate) fn end_stream(&self) {
        self.streams.update(|streams| streams.saturating_sub(1));
        self.enter(Phase::Http2);
    }

    /// True if the connection has no stream of HTTP/2.
    pub(crate) fn has_no_stream(&self) -> bool {
        self.streams.get() == 0
    }

    /// Remembers whom to wake when an order is given.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut task = self.task.borrow_mut();
        match task.as_ref() {
            Some(known) if known.will_wake(waker) => {}
            _ => *task = Some(waker.clone()),
        }
    }

    /// Gives an order to the connection's task.
    pub(crate) fn command(&self, order: Order) {
        self.order.set(order);
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

/// See the module.
#[derive(Debug)]
pub(crate) struct ServerIo {
    socket: Socket,
    link: Rc<Link>,
    /// Bytes read while the protocol was being told, to be read again.
    first: Vec<u8>,
}

impl ServerIo {
    pub(crate) fn new(socket: Socket, link: Rc<Link>) -> Self {
        Self { socket, link, first: Vec::new() }
    }

    /// Whether the client opens with the HTTP/2 preface (RFC 9113 section 3.4). What is read to find out, the
    /// whole first request as a rule, is read again.
    pub(crate) async fn begins_http2(&mut self) -> io::Result<bool> {
        use tokio::io::AsyncReadExt as _;
        self.first.reserve_exact(FIRST_BYTES_MAX);
        loop {
            let count = match &mut self.socket {
                Socket::Plain(tcp) => tcp.read_buf(&mut self.first).await?,
                Socket::Tls(tls) => tls.read_buf(&mut self.first).await?,
            };
            let told = self.first.len().min(PREFACE_MARK.len());
            let like_preface = self.first.get(..told) == PREFACE_MARK.get(..told);
            if count == 0 || !like_preface || told == PREFACE_MARK.len() {
                return Ok(like_preface && told == PREFACE_MARK.len());
            }
        }
    }

    fn note_write<T>(&self, outcome: Poll<T>) -> Poll<T> {
        self.link.write_blocked.set(outcome.is_pending());
        outcome
    }
}

/// How the preface begins; no HTTP/1 request line does.
const PREFACE_MARK: &[u8; 4] = b"PRI ";
/// Room for the first read of a connection.
const FIRST_BYTES_MAX: usize = 4 << 10;

impl AsyncRead for ServerIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let count = self.first.len().min(buf.remaining());
            buf.put_slice(self.first.get(..count).unwrap_or_default());
            self.first.drain(..count);
            if self.first.is_empty() {
                self.first = Vec::new();
            }
            return Poll::Ready(Ok(()));
        }
        match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Socket::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buf),
        }
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
        match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Socket::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}
