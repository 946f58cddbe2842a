//! The reading half of a connection: what has come and was not handed on, and where in a body that stands. All that
//! one read of the socket brought is decoded in place and handed on in one piece.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::chunked::Chunked;

/// See the module.
#[derive(Debug)]
pub(crate) struct Reader<Io> {
    pub(crate) io: Io,
    /// What has been read and not been handed on.
    pub(crate) unread: BytesMut,
    /// How much to make room for before the next read.
    room: usize,
    /// The most of it: what the other side is let send ahead of whoever reads.
    room_max: usize,
    body: Body,
}

/// What is left of the current message's body (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Ended,
}

impl Body {
    pub(crate) fn of_length(length: u64) -> Self {
        if length == 0 { Self::Ended } else { Self::Length(length) }
    }

    pub(crate) fn chunked() -> Self {
        Self::Chunked(Chunked::default())
    }
}

/// Why a connection is of no more use.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It was closed before all had come.
    Closed,
    /// It broke.
    Io(io::Error),
    /// What came is not HTTP.
    Invalid(&'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Room for the first read: a head and a short body, or the first events of a stream.
const ROOM_MIN: usize = 4 << 10;

impl<Io: AsyncRead + Unpin> Reader<Io> {
    pub(crate) fn new(io: Io, room_max: usize) -> Self {
        Self { io, unread: BytesMut::new(), room: ROOM_MIN, room_max, body: Body::Ended }
    }

    /// What is read next is a body.
    pub(crate) fn begin(&mut self, body: Body) {
        self.body = body;
    }

    /// Whether the last message has come as a whole.
    pub(crate) fn has_ended(&self) -> bool {
        self.body == Body::Ended
    }

    /// The next piece of the body: all that is there. `None` at its end.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        loop {
            match self.decode() {
                Ok(Some(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(None) if self.has_ended() => return Poll::Ready(None),
                Ok(None) => {}
                Err(fault) => return Poll::Ready(Some(Err(Fault::Invalid(fault)))),
            }
            match ready!(self.poll_fill(cx)) {
                Ok(0) if self.body == Body::UntilClose => self.body = Body::Ended,
                Ok(0) => return Poll::Ready(Some(Err(Fault::Closed))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    /// Takes out of `unread` what belongs to the body.
    pub(crate) fn decode(&mut self) -> Result<Option<Bytes>, &'static str> {
        if self.unread.is_empty() {
            return Ok(None);
        }
        let count = match &mut self.body {
            Body::Ended => 0,
            Body::UntilClose => self.unread.len(),
            Body::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(self.unread.len());
                *left -= count as u64;
                if *left == 0 {
                    self.body = Body::Ended;
                }
                count
            }
            Body::Chunked(chunked) => {
                let decoded = chunked.decode(&mut self.unread)?;
                if chunked.has_ended() {
                    self.body = Body::Ended;
                }
                let data = self.unread.split_to(decoded.data);
                self.unread.advance(decoded.used - decoded.data);
                // As a part of the buffer it would keep all the framing in memory, which nothing counts.
                let is_mostly_framing = data.len() < decoded.used / 2;
                return Ok(match data.is_empty() {
                    true => None,
                    false if is_mostly_framing => Some(Bytes::copy_from_slice(&data)),
                    false => Some(data.freeze()),
                });
            }
        };
        Ok((count > 0).then(|| self.unread.split_to(count).freeze()))
    }

    /// Reads once; 0 at the end. The buffer grows while reads fill it and shrinks when they do not.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let spare = self.unread.capacity() - self.unread.len();
        if spare < self.room / 4 {
            self.unread.reserve(self.room);
        }
        let spare = self.unread.capacity() - self.unread.len();
        let count = ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut self.unread))?;
        if count == spare {
            self.room = (self.room * 2).min(self.room_max);
        } else if count < self.room / 4 {
            self.room = (self.room / 2).max(ROOM_MIN);
        }
        Poll::Ready(Ok(count))
    }

    /// Makes room for the next message, in the memory of those before it if nobody holds that any more.
    pub(crate) fn refresh(&mut self) {
        if self.unread.is_empty() {
            self.unread.reserve(self.room);
        }
    }
}
