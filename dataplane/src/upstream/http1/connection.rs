//! One connection: a request goes out, the head of its answer comes back, the body is read piece by piece.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::chunked::Chunked;
use super::head::{Framing, HEAD_BYTES_MAX, Head};
use crate::upstream::dial::UpstreamIo;

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    io: UpstreamIo,
    /// What has been read and not been handed on.
    unread: BytesMut,
    /// How much to make room for before the next read.
    room: usize,
    body: Body,
    /// The request went out whole and the answer allows another.
    reusable: bool,
}

/// Where the body of the current answer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Ended,
}

/// Why a connection is of no more use.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It was closed before a byte of the answer came.
    Closed,
    /// It broke.
    Io(io::Error),
    /// What came is not an answer.
    Invalid(&'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Room for the first read: an answer's head and the first events of a stream.
const ROOM_MIN: usize = 4 << 10;
/// Room once an upstream sends faster than it is read; also what a slow client makes the gateway hold.
const ROOM_MAX: usize = 64 << 10;

impl Connection {
    pub(crate) fn new(io: UpstreamIo) -> Self {
        Self { io, unread: BytesMut::new(), room: ROOM_MIN, body: Body::Ended, reusable: true }
    }

    /// Sends `head` and `segments` and waits for the head of the answer. `each` sees its fields.
    pub(crate) async fn send(
        &mut self,
        head: Bytes,
        segments: &[Bytes],
        each: &mut dyn FnMut(&str, &[u8]),
    ) -> Result<Head, Fault> {
        let mut outgoing = Outgoing { head, segments, at: 0 };
        self.reusable = false;
        std::future::poll_fn(|cx| {
            // An upstream may refuse a request before it has read all of it, so both directions are polled.
            let sent = match self.poll_write(&mut outgoing, cx) {
                Poll::Ready(Ok(())) => true,
                // The answer that explains the refusal may be there to read.
                Poll::Ready(Err(_)) | Poll::Pending => false,
            };
            let answer = ready!(self.poll_head(each, cx))?;
            self.reusable = sent && answer.keep_alive;
            Poll::Ready(Ok(answer))
        })
        .await
    }

    fn poll_write(&mut self, outgoing: &mut Outgoing<'_>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !outgoing.is_sent() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let used = outgoing.slices(&mut slices);
            let slices = slices.get(..used).unwrap_or_default();
            let count = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            outgoing.advance(count);
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_head(
        &mut self,
        each: &mut dyn FnMut(&str, &[u8]),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, Fault>> {
        loop {
            if ready!(self.poll_fill(cx))? == 0 {
                let nothing = self.unread.is_empty();
                return Poll::Ready(Err(if nothing {
                    Fault::Closed
                } else {
                    io::Error::from(io::ErrorKind::UnexpectedEof).into()
                }));
            }
            while let Some(head) = Head::read(&self.unread, each).map_err(Fault::Invalid)? {
                self.unread.advance(head.bytes);
                match head.status {
                    101 => return Poll::Ready(Err(Fault::Invalid("it switched protocols unasked"))),
                    100..=199 => {}
                    _ => {
                        self.body = match head.framing {
                            Framing::Length(0) => Body::Ended,
                            Framing::Length(length) => Body::Length(length),
                            Framing::Chunked => Body::Chunked(Chunked::default()),
                            Framing::UntilClose => Body::UntilClose,
                        };
                        return Poll::Ready(Ok(head));
                    }
                }
            }
            if self.unread.len() > HEAD_BYTES_MAX {
                return Poll::Ready(Err(Fault::Invalid("the head of its answer is too large")));
            }
        }
    }

    /// The next piece of the body: all that is there. `None` at its end.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        loop {
            match self.decode() {
                Ok(Some(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(None) if self.body == Body::Ended => return Poll::Ready(None),
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
    fn decode(&mut self) -> Result<Option<Bytes>, &'static str> {
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
                if *chunked == Chunked::Ended {
                    self.body = Body::Ended;
                }
                let data = self.unread.split_to(decoded.data);
                self.unread.advance(decoded.used - decoded.data);
                return Ok((!data.is_empty()).then(|| data.freeze()));
            }
        };
        Ok((count > 0).then(|| self.unread.split_to(count).freeze()))
    }

    /// Reads once. The buffer grows while reads fill it and shrinks when they do not.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let spare = self.unread.capacity() - self.unread.len();
        if spare < self.room / 4 {
            self.unread.reserve(self.room);
        }
        let spare = self.unread.capacity() - self.unread.len();
        let count = ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut self.unread))?;
        if count == spare {
            self.room = (self.room * 2).min(ROOM_MAX);
        } else if count < self.room / 4 {
            self.room = (self.room / 2).max(ROOM_MIN);
        }
        Poll::Ready(Ok(count))
    }

    /// Whether the last answer ended well and allows another request, and nothing that was read came after it.
    pub(crate) fn is_finished(&self) -> bool {
        self.reusable && self.body == Body::Ended && self.unread.is_empty()
    }

    /// Whether another request may be sent: besides, nothing has come since, and the upstream has not closed.
    pub(crate) fn is_reusable(&mut self) -> bool {
        let mut byte = [0];
        let mut probe = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        self.is_finished() && Pin::new(&mut self.io).poll_read(&mut cx, &mut probe).is_pending()
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        self.unread = BytesMut::new();
        self.room = ROOM_MIN;
    }
}

/// Slices of one vectored write.
const SLICES_MAX: usize = 64;

/// What has not been written of a request.
struct Outgoing<'a> {
    head: Bytes,
    segments: &'a [Bytes],
    /// Bytes of the first segment that are out.
    at: usize,
}

impl Outgoing<'_> {
    fn is_sent(&self) -> bool {
        self.head.is_empty() && self.segments.is_empty()
    }

    fn slices<'s>(&'s self, slices: &mut [IoSlice<'s>]) -> usize {
        let first = self.segments.first().and_then(|first| first.get(self.at..));
        let rest = self.segments.iter().skip(1).map(|segment| &segment[..]);
        let all = std::iter::once(&self.head[..]).chain(first).chain(rest).filter(|slice| !slice.is_empty());
        let mut used = 0;
        for (slot, slice) in slices.iter_mut().zip(all) {
            *slot = IoSlice::new(slice);
            used += 1;
        }
        used
    }

    fn advance(&mut self, mut count: usize) {
        let of_head = count.min(self.head.len());
        self.head.advance(of_head);
        count -= of_head;
        while let Some((first, rest)) = self.segments.split_first() {
            let left = first.len() - self.at;
            if count < left {
                self.at += count;
                return;
            }
            count -= left;
            (self.segments, self.at) = (rest, 0);
        }
    }
}
