//! The socket below hyper. It records the progress of the current exchange, writes long requests in turns, and keeps an
//! early answer readable after the upstream has stopped reading the request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::HEAD_BYTES_MAX;
use crate::turn::{TURN_BYTES, fitting};
use crate::upstream::interim::INTERIM_MAX;

/// Progress of a connection since the start of its current request. The connection, its socket and hyper's callback
/// share it, all on one thread.
#[derive(Debug, Default)]
pub(super) struct Tally {
    has_written: AtomicBool,
    has_read: AtomicBool,
    interim_answers: AtomicUsize,
    interim_bytes: AtomicUsize,
    /// Bytes written in the current turn.
    turn_bytes: AtomicUsize,
}

impl Tally {
    /// Resets the tally for a new request.
    pub(super) fn begin(&self) {
        self.has_written.store(false, Ordering::Relaxed);
        self.has_read.store(false, Ordering::Relaxed);
        self.interim_answers.store(0, Ordering::Relaxed);
        self.interim_bytes.store(0, Ordering::Relaxed);
    }

    /// Returns true if a byte of the request has been written.
    pub(super) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }

    /// Returns true if a byte of an answer has been read.
    pub(super) fn has_read(&self) -> bool {
        self.has_read.load(Ordering::Relaxed)
    }

    /// Counts an interim answer (1xx).
    pub(super) fn add_interim(&self, headers: &HeaderMap) {
        let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
        self.interim_answers.fetch_add(1, Ordering::Relaxed);
        self.interim_bytes.fetch_add(STATUS_LINE_BYTES + fields.sum::<usize>(), Ordering::Relaxed);
    }

    /// Returns true if the upstream has sent more interim answers than allowed for one request.
    pub(super) fn is_flooded(&self) -> bool {
        self.interim_answers.load(Ordering::Relaxed) > INTERIM_MAX
            || self.interim_bytes.load(Ordering::Relaxed) > HEAD_BYTES_MAX
    }

    pub(super) fn begin_turn(&self) {
        self.turn_bytes.store(0, Ordering::Relaxed);
    }

    /// Returns true if the connection must yield to the other connections of the worker.
    pub(super) fn turn_is_over(&self) -> bool {
        self.turn_bytes.load(Ordering::Relaxed) >= TURN_BYTES
    }

    fn turn_bytes_left(&self) -> usize {
        TURN_BYTES.saturating_sub(self.turn_bytes.load(Ordering::Relaxed))
    }

    fn wrote(&self, bytes: usize) {
        if bytes > 0 {
            self.has_written.store(true, Ordering::Relaxed);
            self.turn_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// Bytes of a header field besides its name and value, and of the shortest status line.
const FIELD_BYTES: usize = 4;
const STATUS_LINE_BYTES: usize = 15;

/// A socket to an upstream that updates a [`Tally`].
#[derive(Debug)]
pub(super) struct TalliedSocket<Io> {
    io: Io,
    tally: Arc<Tally>,
}

impl<Io> TalliedSocket<Io> {
    pub(super) fn new(io: Io, tally: Arc<Tally>) -> Self {
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
        if buf.filled().len() > before {
            self.tally.has_read.store(true, Ordering::Relaxed);
        }
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
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, whole);
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
