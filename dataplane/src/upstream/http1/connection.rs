//! One connection: a request goes out, the head of its answer comes back, the body is read piece by piece.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead as _, ReadBuf};

use super::head::{HEAD_BYTES_MAX, Head};
use crate::http1::{Fault, Out, Reader};
use crate::upstream::dial::UpstreamIo;

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    reader: Reader<UpstreamIo>,
    out: Out,
    /// The request went out whole and the answer allows another.
    reusable: bool,
    /// What has come before the head of the answer.
    interim: Interim,
}

/// Interim answers (1xx) to one request.
#[derive(Clone, Copy, Debug, Default)]
struct Interim {
    count: usize,
    bytes: usize,
}

/// Interim answers to one request: upstreams that send them to say that they are still at work do so every few seconds.
pub(crate) const INTERIM_MAX: usize = 100;
/// The fault of an upstream that sends more.
pub(crate) const INTERIM_WITHOUT_END: &str = "it sent interim answers (1xx) without end";

/// No head of an answer came.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) phase: Phase,
    pub(crate) fault: Fault,
}

/// How far a request came that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not a byte of it was written.
    Unsent,
    /// The upstream may have it, and has not sent a byte.
    Sent,
    /// Part of an answer has come.
    Answering,
}

/// Room once an upstream sends faster than it is read; also what a slow client makes the gateway hold.
const ROOM_MAX: usize = 64 << 10;

impl Connection {
    pub(crate) fn new(io: UpstreamIo) -> Self {
        Self {
            reader: Reader::new(io, ROOM_MAX),
            out: Out::default(),
            reusable: true,
            interim: Interim::default(),
        }
    }

    /// Where a request is written before it is [sent](Self::send).
    pub(crate) fn out(&mut self) -> &mut Out {
        &mut self.out
    }

    /// Sends what has been written and waits for the head of the answer. `each` sees its fields.
    pub(crate) async fn send(&mut self, each: &mut dyn FnMut(&str, &[u8])) -> Result<Head, Unanswered> {
        self.reusable = false;
        self.interim = Interim::default();
        self.reader.refresh();
        let unsent_bytes = self.out.bytes();
        let answered = std::future::poll_fn(|cx| {
            // An upstream may refuse a request before it has read all of it, so both directions are polled.
            let sent = match self.out.poll_flush(Pin::new(&mut self.reader.io), cx) {
                Poll::Ready(Ok(())) => true,
                // The answer that explains the refusal may be there to read.
                Poll::Ready(Err(_)) | Poll::Pending => false,
            };
            let answer = ready!(self.poll_head(each, cx))?;
            self.reusable = sent && answer.keep_alive;
            Poll::Ready(Ok(answer))
        })
        .await;
        answered.map_err(|fault| {
            let phase = match &self.reader.unread {
                unread if !unread.is_empty() || self.interim.count > 0 => Phase::Answering,
                _ if self.out.bytes() == unsent_bytes => Phase::Unsent,
                _ => Phase::Sent,
            };
            Unanswered { phase, fault }
        })
    }

    fn poll_head(
        &mut self,
        each: &mut dyn FnMut(&str, &[u8]),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, Fault>> {
        loop {
            if ready!(self.reader.poll_fill(cx))? == 0 {
                let nothing = self.reader.unread.is_empty();
                return Poll::Ready(Err(if nothing {
                    Fault::Closed
                } else {
                    io::Error::from(io::ErrorKind::UnexpectedEof).into()
                }));
            }
            while let Some(head) = Head::read(&self.reader.unread, each).map_err(Fault::Invalid)? {
                self.reader.unread.advance(head.bytes);
                match head.status {
                    101 => return Poll::Ready(Err(Fault::Invalid("it switched protocols unasked"))),
                    100..=199 => self.interim.add(head.bytes)?,
                    _ => {
                        self.reader.begin(head.body);
                        return Poll::Ready(Ok(head));
                    }
                }
            }
            if self.reader.unread.len() > HEAD_BYTES_MAX {
                return Poll::Ready(Err(Fault::Invalid("the head of its answer is too large")));
            }
        }
    }

    /// The next piece of the body: all that is there. `None` at its end.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        self.reader.poll_data(cx)
    }

    /// Whether the last answer ended well and allows another request, and nothing that was read came after it.
    pub(crate) fn is_finished(&self) -> bool {
        self.reusable && self.reader.has_ended() && self.reader.unread.is_empty()
    }

    /// Whether another request may be sent: besides, nothing has come since, and the upstream has not closed.
    pub(crate) fn is_reusable(&mut self) -> bool {
        let mut byte = [0];
        let mut probe = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        self.is_finished() && Pin::new(&mut self.reader.io).poll_read(&mut cx, &mut probe).is_pending()
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        self.reader.rest();
        self.out.rest();
    }
}

impl Interim {
    /// Counts one more, or refuses it.
    fn add(&mut self, bytes: usize) -> Result<(), Fault> {
        self.count += 1;
        self.bytes += bytes;
        if self.count > INTERIM_MAX || self.bytes > HEAD_BYTES_MAX {
            return Err(Fault::Invalid(INTERIM_WITHOUT_END));
        }
        Ok(())
    }
}
