//! The gate between a client and hyper's HTTP/1.1 connection (LIM-5). hyper reads through it and gets no byte of a
//! request head until the head is complete and has passed the rules of `head`, which are stricter than hyper's own.
//! Instead of a rejected head, hyper reads a harmless request, which the service answers with the error: so hyper
//! writes every answer. Bodies are followed to their end, where the next head begins. While a request is served, the gate
//! watches for the end of the client.
//!
//! ```text
//!   Head --passes--> Body --complete--> Head
//!    |                '--bad chunk--> Broken   (hyper and the reader of the body get an error)
//!    '--fails--> Rejected                      (nothing more is read)
//! ```

#![expect(
    clippy::indexing_slicing,
    reason = "positions come from counts of the same bytes; a wrong one must fail in the fuzzer"
)]

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_util::io::poll_read_buf;

mod head;
mod remaining_body;
mod state;

use self::head::HeadFault;
use self::remaining_body::RemainingBody;
pub(super) use self::state::{GateState, HeadCheck, RejectedHead};
use super::io::{ConnectionState, Order, Phase};
use crate::turn::{SHORT_BYTES_MAX, fitting, joined};

/// The client's socket as seen by hyper's HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct Gate<Io> {
    io: Io,
    state: Rc<ConnectionState>,
    gate_state: Rc<GateState>,
    next: Next,
    /// The rest of a checked head that hyper has not read yet.
    head: Bytes,
    /// Bytes that are not checked yet or did not fit into hyper's buffer.
    unread: BytesMut,
    /// Bytes of `unread` already searched for the end of a head.
    searched: usize,
    /// The turn in which the watch last found the client silent.
    watched: Option<u32>,
    shutdown: Shutdown,
}

/// The state of the input, which determines how the next byte is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Head,
    Body(RemainingBody),
    /// The body is invalid, for this reason.
    Broken(&'static str),
    Rejected,
}

/// State of the shutdown: closing a socket with unread bytes resets it, and the last answer may be lost.
#[derive(Debug, Default)]
struct Shutdown {
    is_shut: bool,
    /// Bytes read and discarded.
    drained: usize,
    timer: Option<Pin<Box<Sleep>>>,
}

/// The request that hyper reads instead of a rejected head.
const PLACEHOLDER_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";
/// Minimum buffer space for each read of a head that arrives in parts, in bytes.
const READ_BYTES_MIN: usize = 4 << 10;
/// Maximum bytes behind a request that are read while it is served.
const WATCHED_BYTES_MAX: usize = 16 << 10;
/// Maximum bytes of one of these reads.
const WATCHED_READ_BYTES_MAX: usize = 256;
/// Time that a client gets to read the last answer before its connection is closed.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum bytes of a request's rest that are read and discarded during the shutdown.
const LEFT_BYTES_MAX: usize = 4 << 20;

impl<Io: AsyncRead + AsyncWrite + Unpin> Gate<Io> {
    pub(super) fn new(io: Io, state: Rc<ConnectionState>, gate_state: Rc<GateState>) -> Self {
        Self {
            io,
            state,
            gate_state,
            next: Next::Head,
            head: Bytes::new(),
            unread: BytesMut::new(),
            searched: 0,
            watched: None,
            shutdown: Shutdown::default(),
        }
    }

    /// Waits for the next head and checks it. A head that arrives as a whole stays in `buf`, followed by the start of
    /// its body; any other goes through `unread` and `head`. Returns false at the end of the connection.
    fn poll_head(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        if self.gate_state.has_pending_head() {
            // hyper already has a head; it reads again once the service has taken that request.
            return Poll::Pending;
        }
        if self.is_closing() {
            return Poll::Ready(Ok(false));
        }
        if self.unread.is_empty() {
            // Frees the buffer, so that an idle connection holds none.
            self.unread = BytesMut::new();
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
            let bytes = &buf.filled()[before..];
            if bytes.is_empty() {
                return Poll::Ready(Ok(false));
            }
            if let Some(count) = self.admit_at_once(bytes) {
                buf.set_filled(before + count);
                return Poll::Ready(Ok(true));
            }
            self.unread.extend_from_slice(bytes);
            buf.set_filled(before);
        }
        self.poll_head_in_parts(cx)
    }

    /// Admits the head at the start of `bytes` if it is complete and valid. Returns how many of the bytes hyper may
    /// read; the others are kept.
    fn admit_at_once(&mut self, bytes: &[u8]) -> Option<usize> {
        if bytes.starts_with(b"\r\n") {
            return None;
        }
        let end = head::end(bytes, 0).ok()??;
        let (head, rest) = bytes.split_at(end);
        let mut body = head::check(head).ok()?;
        let length = body.advance(rest).ok()?;
        self.admit(body);
        self.unread.extend_from_slice(&rest[length..]);
        Some(end + length)
    }

    fn poll_head_in_parts(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            // RFC 9112 section 2.2: an empty line before the request line is skipped.
            while self.unread.starts_with(b"\r\n") {
                self.unread.advance(2);
                self.searched = 0;
            }
            match head::end(&self.unread, self.searched) {
                Ok(Some(end)) => {
                    let head = self.unread.split_to(end).freeze();
                    match head::check(&head) {
                        Ok(body) => {
                            self.head = head;
                            self.admit(body);
                        }
                        Err(fault) => self.reject(fault, &head),
                    }
                    return Poll::Ready(Ok(true));
                }
                Ok(None) => self.searched = self.unread.len(),
                Err(fault) => {
                    let head = std::mem::take(&mut self.unread);
                    self.reject(fault, &head);
                    return Poll::Ready(Ok(true));
                }
            }
            if self.is_closing() {
                return Poll::Ready(Ok(false));
            }
            if !self.unread.is_empty() && self.state.phase() == Phase::Idle {
                self.state.enter(Phase::Head);
            }
            self.unread.reserve(READ_BYTES_MIN);
            if ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut self.unread))? == 0 {
                return Poll::Ready(Ok(false));
            }
        }
    }

    /// True if no further request is to be read. In a drain, a request whose first bytes have arrived is still read.
    fn is_closing(&self) -> bool {
        let finishes = self.state.order.get() == Order::Finish && self.unread.is_empty();
        (finishes || self.gate_state.is_ending()) && self.state.phase() != Phase::Busy
    }

    fn admit(&mut self, body: RemainingBody) {
        self.searched = 0;
        self.gate_state.set_head_check(HeadCheck::Passed);
        self.expect(body);
    }

    fn reject(&mut self, fault: HeadFault, head: &[u8]) {
        let path = head::path(head).to_owned();
        self.gate_state.set_head_check(HeadCheck::Rejected(Box::new(RejectedHead { path, fault })));
        self.gate_state.set_body_complete(false);
        self.state.enter(Phase::Busy);
        self.head = Bytes::from_static(PLACEHOLDER_REQUEST);
        self.next = Next::Rejected;
    }

    /// Sets the input state from the rest of the body.
    fn expect(&mut self, body: RemainingBody) {
        let is_complete = body.has_ended();
        self.next = if is_complete { Next::Head } else { Next::Body(body) };
        self.gate_state.set_body_complete(is_complete);
        if self.state.phase() != Phase::Busy {
            self.state.enter(Phase::Busy);
        }
    }

    /// Follows `bytes` of the body; returns how many of them belong to it.
    fn advance(&mut self, mut body: RemainingBody, bytes: &[u8]) -> io::Result<usize> {
        match body.advance(bytes) {
            Ok(count) => {
                self.expect(body);
                Ok(count)
            }
            Err(why) => {
                self.next = Next::Broken(why);
                Err(invalid(why))
            }
        }
    }

    /// Passes on the buffered part of the body, or reads directly into `buf`.
    fn poll_body(
        &mut self,
        body: RemainingBody,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let bytes = self.unread.split_to(self.unread.len().min(buf.remaining()));
            let count = self.advance(body, &bytes)?;
            buf.put_slice(&bytes[..count]);
            self.put_back(&bytes[count..]);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let bytes = &buf.filled()[before..];
        let count = self.advance(body, bytes)?;
        self.put_back(&bytes[count..]);
        buf.set_filled(before + count);
        Poll::Ready(Ok(()))
    }

    /// Prepends `bytes`, which belong to the next request, to `unread`.
    fn put_back(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let behind = std::mem::replace(&mut self.unread, BytesMut::from(bytes));
            self.unread.extend_from_slice(&behind);
        }
    }

    /// Updates the connection after an answer has been written completely.
    fn end_exchange(&self, cx: &Context<'_>) {
        self.state.enter(match (self.gate_state.has_pending_head(), self.unread.is_empty()) {
            (true, _) => Phase::Busy,
            (false, true) => Phase::Idle,
            (false, false) => Phase::Head,
        });
        if self.is_closing() {
            // hyper waits for the client; waking it makes it read once more and find the end.
            cx.waker().wake_by_ref();
        }
    }

    /// Counts the bytes of a write.
    fn note_write(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(count)) => self.gate_state.spend(*count),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.watch(cx)?,
        }
        written
    }

    /// Fails if the client disconnects while its request is served: then the answer has no reader. hyper does not read
    /// meanwhile, because it would hold a buffer for that. Bytes behind this request, such as the next one, are kept; the
    /// watch ends when they exceed [`WATCHED_BYTES_MAX`].
    fn watch(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let is_served = self.next == Next::Head && !self.gate_state.has_pending_head();
        let turn = Some(self.gate_state.turn());
        if !is_served || self.watched == turn || self.state.phase() != Phase::Busy {
            return Ok(());
        }
        while self.unread.len() < WATCHED_BYTES_MAX {
            let mut room = [const { MaybeUninit::uninit() }; WATCHED_READ_BYTES_MAX];
            let mut buf = ReadBuf::uninit(&mut room);
            match Pin::new(&mut self.io).poll_read(cx, &mut buf) {
                Poll::Pending => {
                    self.watched = turn;
                    break;
                }
                Poll::Ready(Ok(())) if buf.filled().is_empty() => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Poll::Ready(read) => {
                    self.unread.extend_from_slice(buf.filled());
                    read?;
                }
            }
        }
        Ok(())
    }

    /// Reads and discards what the client still sends.
    fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.shutdown.drained < LEFT_BYTES_MAX {
            self.unread.clear();
            self.unread.reserve(READ_BYTES_MIN);
            match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.unread) {
                Poll::Ready(Ok(1..)) => self.shutdown.drained += self.unread.len(),
                Poll::Ready(Ok(0) | Err(_)) => break,
                Poll::Pending => {
                    let timer =
                        self.shutdown.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
                    return timer.as_mut().poll(cx);
                }
            }
        }
        Poll::Ready(())
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gate<Io> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        let before = buf.filled().len();
        if gate.head.is_empty() && gate.next == Next::Head && !ready!(gate.poll_head(cx, buf))? {
            return Poll::Ready(Ok(()));
        }
        let count = gate.head.len().min(buf.remaining());
        buf.put_slice(&gate.head.split_to(count));
        if buf.filled().len() > before {
            return Poll::Ready(Ok(()));
        }
        match gate.next {
            Next::Body(body) => gate.poll_body(body, cx, buf),
            Next::Broken(why) => Poll::Ready(Err(invalid(why))),
            Next::Head | Next::Rejected => Poll::Pending,
        }
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Gate<Io> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let gate = self.get_mut();
        let left = ready!(gate.poll_turn(cx));
        let part = &buf[..left.min(buf.len())];
        let written = Pin::new(&mut gate.io).poll_write(cx, part);
        gate.note_write(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let gate = self.get_mut();
        let left = ready!(gate.poll_turn(cx));
        let whole = fitting(bufs, left);
        if let (true, Some(first)) = (whole.is_empty(), bufs.first()) {
            return Pin::new(gate).poll_write(cx, first);
        }
        let mut space = [const { MaybeUninit::uninit() }; SHORT_BYTES_MAX];
        let written = match joined(whole, &mut ReadBuf::uninit(&mut space)) {
            Some(short) => Pin::new(&mut gate.io).poll_write(cx, short),
            None => Pin::new(&mut gate.io).poll_write_vectored(cx, whole),
        };
        gate.note_write(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes once it has written everything it has, and whenever it waits for the service.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        ready!(Pin::new(&mut gate.io).poll_flush(cx))?;
        gate.gate_state.note_written();
        if gate.gate_state.take_ended_answer() {
            gate.end_exchange(cx);
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(gate.watch(cx))
    }

    /// Shuts the connection down so that the last answer reaches the client.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        if !gate.shutdown.is_shut {
            ready!(Pin::new(&mut gate.io).poll_shutdown(cx))?;
            gate.shutdown.is_shut = true;
        }
        let is_between =
            gate.next == Next::Head && gate.unread.is_empty() && !gate.gate_state.has_pending_head();
        if is_between { Poll::Ready(Ok(())) } else { gate.poll_drained(cx).map(Ok) }
    }
}

impl<Io> Gate<Io> {
    /// Returns how many bytes may still be written in this turn of the connection. If the turn is used up, it yields to
    /// the other connections of the worker.
    fn poll_turn(&self, cx: &Context<'_>) -> Poll<usize> {
        let left = self.gate_state.turn_bytes();
        if left == 0 {
            self.state.write_blocked.set(true);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(left)
    }
}

#[cfg(test)]
mod tests;
