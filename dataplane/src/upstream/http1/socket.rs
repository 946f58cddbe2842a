//! The socket below hyper. It records the progress of the current exchange, writes long requests in turns, and keeps an
//! early answer readable after the upstream has stopped reading the request.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::HEAD_BYTES_MAX;
use crate::turn::{SHORT_BYTES_MAX, TURN_BYTES, fitting, joined};

/// Progress of a connection since the start of its current request, shared by the connection and its socket.
#[derive(Debug, Default)]
pub(super) struct Tally {
    has_written: Cell<bool>,
    /// Bytes read of the head of the answer and of the interim answers (1xx) before it; more may have been read than
    /// they have.
    head_bytes: Cell<usize>,
    has_head: Cell<bool>,
    /// Bytes written in the current turn.
    turn_bytes: Cell<usize>,
}

impl Tally {
    /// Resets the tally for a new request.
    pub(super) fn begin(&self) {
        self.has_written.set(false);
        self.head_bytes.set(0);
        self.has_head.set(false);
    }

    /// Returns true if a byte of the request has been written.
    pub(super) fn has_written(&self) -> bool {
        self.has_written.get()
    }

    /// Returns true if a byte of an answer has been read.
    pub(super) fn has_read(&self) -> bool {
        self.head_bytes.get() > 0
    }

    /// Records that the head of the answer is complete.
    pub(super) fn end_head(&self) {
        self.has_head.set(true);
    }

    /// Returns true if the upstream has sent so many interim answers (1xx) that the head of the answer is not awaited
    /// further. A single head of this size is rejected by hyper before.
    pub(super) fn is_flooded(&self) -> bool {
        !self.has_head.get() && self.head_bytes.get() >= INTERIM_BYTES_MAX
    }

    pub(super) fn begin_turn(&self) {
        self.turn_bytes.set(0);
    }

    /// Returns true if the connection must yield to the other connections of the worker.
    pub(super) fn turn_is_over(&self) -> bool {
        self.turn_bytes.get() >= TURN_BYTES
    }

    fn turn_bytes_left(&self) -> usize {
        TURN_BYTES.saturating_sub(self.turn_bytes.get())
    }

    fn wrote(&self, bytes: usize) {
        if bytes > 0 {
            self.has_written.set(true);
            self.turn_bytes.update(|written| written + bytes);
        }
    }

    fn read(&self, bytes: usize) {
        if !self.has_head.get() {
            self.head_bytes.update(|read| read + bytes);
        }
    }
}

/// Maximum bytes of the head of an answer and of the interim answers (1xx) before it.
const INTERIM_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;

/// A socket to an upstream that updates a [`Tally`].
#[derive(Debug)]
pub(super) struct TalliedSocket<Io> {
    io: Io,
    tally: Rc<Tally>,
}

impl<Io> TalliedSocket<Io> {
    pub(super) fn new(io: Io, tally: Rc<Tally>) -> Self {
        Self { io, tally }
    }

    /// Records the result of a write. An upstream that rejects a request may close before it has read all of it. Its
    /// answer can still be read, so such write errors are reported as pending; reading detects the end of the
    /// connection.
    fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.tally.wrote(bytes);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) if is_closed_by_peer(&error) => Poll::Pending,
            other => other,
        }
    }
}

fn is_closed_by_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}

impl<Io: AsyncRead + Unpin> AsyncRead for TalliedSocket<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.tally.is_flooded() {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        self.tally.read(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

/// A write beyond the turn is pending without a waker: the connection detects the end of the turn and wakes its task.
impl<Io: AsyncWrite + Unpin> AsyncWrite for TalliedSocket<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Some(left) = Some(self.tally.turn_bytes_left()).filter(|left| *left > 0) else {
            return Poll::Pending;
        };
        let written = Pin::new(&mut self.io).poll_write(cx, buf.get(..left).unwrap_or(buf));
        self.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let whole = fitting(bufs, self.tally.turn_bytes_left());
        if whole.is_empty() {
            return self.poll_write(cx, bufs.first().map_or(&[], |first| first));
        }
        let mut space = [const { MaybeUninit::uninit() }; SHORT_BYTES_MAX];
        let written = match joined(whole, &mut ReadBuf::uninit(&mut space)) {
            Some(short) => Pin::new(&mut self.io).poll_write(cx, short),
            None => Pin::new(&mut self.io).poll_write_vectored(cx, whole),
        };
        self.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(Err(error)) if is_closed_by_peer(&error) => Poll::Pending,
            flushed => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
