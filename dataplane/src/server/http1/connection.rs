//! One client's connection: requests are read from it and answers written to it, one after the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite as _;

use super::head::{self, Head, Refusal};
use crate::http1::{Body, Fault, Out, Reader};
use crate::server::io::{Link, Order, Phase, ServerIo};

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) reader: Reader<ServerIo>,
    pub(super) out: Out,
    /// Operations read the `Host` of their requests.
    keeps_host: bool,
    /// Bytes in which the end of a head was looked for.
    looked_at: usize,
    /// The client waits for a word before it sends the body.
    owes_continue: bool,
    /// Bytes of a refused request.
    thrown_away: usize,
}

/// A head that is refused, and the path that it asked for.
pub(super) struct Refused {
    pub(super) why: Refusal,
    pub(super) path: String,
}

/// Room while a large body comes: each read costs a call, and what is read counts as held.
const ROOM_MAX: usize = 256 << 10;
/// The longest rest of a request that is read and thrown away, so that the client reads why it was refused.
const LEFT_BYTES_MAX: usize = 4 << 20;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Connection {
    pub(super) fn new(io: ServerIo, keeps_host: bool) -> Self {
        Self {
            keeps_host,
            reader: Reader::new(io, ROOM_MAX),
            out: Out::default(),
            looked_at: 0,
            owes_continue: false,
            thrown_away: 0,
        }
    }

    /// The next head. `None` if there is none: the client has left, or has been waited for enough.
    pub(super) fn poll_head(
        &mut self,
        link: &Link,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Result<Head, Refused>>>> {
        loop {
            // RFC 9112 section 2.2: an empty line before the request line is skipped.
            while self.reader.unread.starts_with(b"\r\n") {
                self.reader.unread.advance(2);
                self.looked_at = 0;
            }
            if let Some(head) = self.head().transpose() {
                return Poll::Ready(Ok(Some(head)));
            }
            if !self.reader.unread.is_empty() {
                if link.phase() == Phase::Idle {
                    link.enter(Phase::Head);
                }
            } else if link.order.get() == Order::Finish {
                return Poll::Ready(Ok(None));
            }
            self.reader.refresh();
            if ready!(self.reader.poll_fill(cx))? == 0 {
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// The head that `unread` begins with, if all of it is there.
    fn head(&mut self) -> Result<Option<Head>, Refused> {
        let refused = |why, bytes: &[u8]| Refused { why, path: head::path(bytes).to_owned() };
        let unread = &mut self.reader.unread;
        let end = head::end(unread, self.looked_at).map_err(|why| refused(why, unread))?;
        let Some(end) = end else {
            self.looked_at = unread.len();
            return Ok(None);
        };
        self.looked_at = 0;
        let bytes = unread.split_to(end).freeze();
        let head = Head::read(&bytes, self.keeps_host).map_err(|why| refused(why, &bytes))?;
        self.reader.begin(head.body);
        self.owes_continue = head.expects_continue;
        Ok(Some(head))
    }

    /// The next piece of the request's body.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        if std::mem::take(&mut self.owes_continue) && self.reader.unread.is_empty() {
            self.out.put(CONTINUE);
        }
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            return Poll::Ready(Some(Err(error.into())));
        }
        self.reader.poll_data(cx)
    }

    /// Whether all of the request has come; what is there of it and was not asked for is thrown away.
    pub(super) fn skip_request(&mut self) -> bool {
        while let Ok(Some(_)) = self.reader.decode() {}
        self.reader.has_ended()
    }

    /// Ready when the client has left. What else comes from it is the next request, which can wait.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.reader.has_ended() || !self.reader.unread.is_empty() {
            return Poll::Pending;
        }
        match ready!(self.reader.poll_fill(cx)) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(_) => Poll::Pending,
        }
    }

    /// Writes all there is.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.out.poll_flush(Pin::new(&mut self.reader.io), cx)
    }

    /// Says that nothing more comes.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader.io).poll_shutdown(cx)
    }

    /// Reads what the client still sends, and throws it away.
    pub(super) fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.thrown_away < LEFT_BYTES_MAX {
            self.reader.unread.clear();
            match ready!(self.reader.poll_fill(cx))? {
                0 => break,
                count => self.thrown_away += count,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The head was refused: where its request ends is not known.
    pub(super) fn lose(&mut self) {
        self.reader.begin(Body::UntilClose);
    }
}
