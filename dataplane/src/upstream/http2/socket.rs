//! The socket below hyper. It records that something was read, reports the settings of the upstream, and repairs two things:
//!
//! - hyper skips interim answers (1xx) without a limit. They are counted here: each is a HEADERS frame without END_STREAM, and
//!   a stream has at most one other such frame.
//! - hyper takes a stream that is reset with NO_ERROR for complete, because a server may do so after its answer (RFC 9113
//!   section 8.1). Before the end of an answer it is an error, so the code becomes CANCEL then: part of an answer must not
//!   pass for the whole.

#![expect(clippy::indexing_slicing, reason = "positions are checked against the lengths right before")]

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::connection::SharedState;
use crate::upstream::dial::{UpstreamIo, rejected_certificate};
use crate::upstream::error::INTERIM_WITHOUT_END;

/// Maximum interim answers per request. Upstreams that use them as keep-alives send one every few seconds.
const INTERIM_MAX: u8 = 100;
/// Maximum bytes of a write that waits for more: the head of a request, or a short body.
const SHORT_BYTES_MAX: usize = 4 << 10;

/// A socket that fails when an upstream exceeds the limit on interim answers.
#[derive(Debug)]
pub(super) struct Counted {
    io: UpstreamIo,
    frames: Frames,
    state: Rc<SharedState>,
    /// Reports the arrival of the settings, once.
    settled: Option<oneshot::Sender<()>>,
    /// True if the writes before the next flush do not wait for more.
    has_waited: bool,
}

impl Counted {
    /// Wraps `io`; what it observes is recorded in `state`, and the arrival of the settings is sent to `settled`.
    pub(super) fn new(io: UpstreamIo, state: Rc<SharedState>, settled: oneshot::Sender<()>) -> Self {
        Self { io, frames: Frames::default(), state, settled: Some(settled), has_waited: false }
    }

    /// Lets the other tasks of the worker run before a short write, once until the next flush. hyper sends the body of a request
    /// from another task than its head: so both leave in one write and one record of TLS, with the requests of other clients.
    fn poll_more(&mut self, cx: &Context<'_>, bytes: usize) -> Poll<()> {
        if self.has_waited || bytes > SHORT_BYTES_MAX {
            return Poll::Ready(());
        }
        self.has_waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Records in the state what an error of the socket says about the client certificate.
    fn noting<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &outcome
            && let Some(rejection) = rejected_certificate(error)
        {
            *self.state.rejection.borrow_mut() = Some(rejection);
        }
        outcome
    }
}

/// Parser state within the frames, and what is observed of them.
#[derive(Debug)]
struct Frames {
    /// The header of the next frame, as far as it has arrived.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    payload_left: usize,
    settings: Settings,
    /// True if the payload is the code of a reset, and the answer of the stream has not ended.
    resets_unended: bool,
    /// True if a GOAWAY has arrived.
    is_leaving: bool,
    /// Streams that map to the same slot replace each other.
    streams: Box<[Stream; PLACES]>,
}

/// The observations of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    number: u32,
    /// HEADERS frames without END_STREAM.
    heads: u8,
    /// True if the answer has ended.
    has_ended: bool,
}

/// How far the first settings of the upstream have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settings {
    Missing,
    Arriving,
    Complete,
}

const HEAD_BYTES: usize = 9;
/// Number of slots: more than the concurrent streams of one connection.
const PLACES: usize = 256;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
/// The last byte of the code CANCEL.
const CANCEL: u8 = 8;

impl Default for Frames {
    fn default() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            payload_left: 0,
            settings: Settings::Missing,
            resets_unended: false,
            is_leaving: false,
            streams: Box::new([Stream::default(); PLACES]),
        }
    }
}

impl Frames {
    /// Parses further `bytes`; returns false once a stream has too many HEADERS frames.
    fn pass(&mut self, mut bytes: &mut [u8]) -> bool {
        while !bytes.is_empty() {
            let (payload, rest) = bytes.split_at_mut(self.payload_left.min(bytes.len()));
            self.payload_left -= payload.len();
            self.end_reset(payload);
            let room = &mut self.head[self.head_bytes..];
            let (head, rest) = rest.split_at_mut(room.len().min(rest.len()));
            room[..head.len()].copy_from_slice(head);
            self.head_bytes += head.len();
            bytes = rest;
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                if !self.begin() {
                    return false;
                }
            }
            if self.payload_left == 0 && self.settings == Settings::Arriving {
                self.settings = Settings::Complete;
            }
        }
        true
    }

    /// Turns NO_ERROR into CANCEL with the last byte of the code.
    fn end_reset(&mut self, payload: &mut [u8]) {
        if self.resets_unended
            && self.payload_left == 0
            && let Some(last) = payload.last_mut()
        {
            self.resets_unended = false;
            *last = if *last == 0 { CANCEL } else { *last };
        }
    }

    /// Parses a complete frame header; returns false if its stream has too many HEADERS frames.
    fn begin(&mut self) -> bool {
        let [a, b, c, kind, flags, number @ ..] = self.head;
        self.payload_left = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
        let ends = flags & END_STREAM != 0;
        let number = u32::from_be_bytes(number) & (u32::MAX >> 1);
        match kind {
            HEADERS if !ends => {
                let stream = self.stream(number);
                stream.heads = stream.heads.saturating_add(1);
                return stream.heads <= INTERIM_MAX + 1;
            }
            HEADERS | DATA if ends => self.stream(number).has_ended = true,
            RST_STREAM => self.resets_unended = !self.stream(number).has_ended,
            SETTINGS if self.settings == Settings::Missing => self.settings = Settings::Arriving,
            GOAWAY => self.is_leaving = true,
            _ => {}
        }
        true
    }

    fn stream(&mut self, number: u32) -> &mut Stream {
        let place = usize::try_from(number / 2).unwrap_or_default() % PLACES;
        let stream = &mut self.streams[place];
        if stream.number != number {
            *stream = Stream { number, ..Stream::default() };
        }
        stream
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.settled.is_some() {
            if self.state.fault.get().is_some() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            *self.state.opening.borrow_mut() = Some(cx.waker().clone());
        }
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(cx, buf));
        ready!(self.noting(Poll::Ready(read)))?;
        let bytes = &mut buf.filled_mut()[before..];
        if !bytes.is_empty() {
            self.state.reads.update(|reads| reads.wrapping_add(1));
        }
        if self.frames.pass(bytes) {
            self.state.is_leaving.set(self.frames.is_leaving);
            if self.frames.settings == Settings::Complete
                && let Some(settled) = self.settled.take()
            {
                settled.send(()).ok();
                self.state.opening.take();
            }
            return Poll::Ready(Ok(()));
        }
        self.state.fault.set(Some(INTERIM_WITHOUT_END));
        Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_more(cx, buf.len()));
        let outcome = Pin::new(&mut self.io).poll_write(cx, buf);
        self.noting(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_more(cx, bufs.iter().map(|buf| buf.len()).sum()));
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.noting(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(cx);
        self.has_waited &= outcome.is_pending();
        self.noting(outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::net::UnixStream;

    use super::*;

    fn headers(stream: u32, flags: u8) -> Vec<u8> {
        [&[0, 0, 2, HEADERS, flags][..], &stream.to_be_bytes(), &[HEADERS; 2]].concat()
    }

    fn passes(frames: &mut Frames, bytes: &[u8]) -> bool {
        frames.pass(&mut bytes.to_vec())
    }

    #[test]
    fn a_reset_without_an_error_before_the_end_of_an_answer_is_a_cancellation() {
        let reset = |stream: u32, code: u32| {
            [&[0, 0, 4, RST_STREAM, 0][..], &stream.to_be_bytes(), &code.to_be_bytes()].concat()
        };
        let data =
            |stream: u32, flags: u8| [&[0, 0, 1, DATA, flags][..], &stream.to_be_bytes(), &[3]].concat();
        let given = [
            [headers(1, 4), headers(3, 4), headers(5, 5), data(1, 0), data(3, 1)].concat(),
            [reset(1, 0), reset(3, 0), reset(5, 0), reset(7, 2), reset(9, 0)].concat(),
        ];
        let want = [reset(1, 8), reset(3, 0), reset(5, 0), reset(7, 2), reset(9, 8)].concat();
        let want = [given[0].clone(), want].concat();
        for piece in [1, 2, 3, 5, 7, 13, 1 << 20] {
            let (mut frames, mut bytes) = (Frames::default(), given.concat());
            assert!(bytes.chunks_mut(piece).all(|bytes| frames.pass(bytes)));
            assert_eq!(bytes, want, "{piece} bytes at a time");
        }
    }

    /// The head of a request and its body leave in one write.
    #[tokio::test]
    async fn a_short_write_waits_for_a_turn_once_until_the_next_flush() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut socket = Counted::new(UpstreamIo::Unix(near), Rc::default(), oneshot::channel().0);
        let mut socket = Pin::new(&mut socket);
        for _ in 0..2 {
            for (bytes, want) in [(SHORT_BYTES_MAX + 1, 1), (SHORT_BYTES_MAX, 2), (1, 1)] {
                let (sent, mut polls) = (vec![0; bytes], 0);
                let writing = poll_fn(|cx| {
                    polls += 1;
                    socket.as_mut().poll_write(cx, &sent)
                });
                assert_eq!((writing.await.unwrap(), polls), (bytes, want));
            }
            poll_fn(|cx| socket.as_mut().poll_flush(cx)).await.unwrap();
        }
    }

    #[test]
    fn the_first_settings_are_complete_with_their_last_byte() {
        let settings = [&[0, 0, 6, SETTINGS, 0, 0, 0, 0, 0][..], &[0, 3, 0, 0, 0, 4]].concat();
        for cut in 0..settings.len() {
            let mut frames = Frames::default();
            let (first, rest) = settings.split_at(cut);
            assert!(passes(&mut frames, first) && frames.settings != Settings::Complete, "{cut} bytes");
            assert!(passes(&mut frames, rest) && frames.settings == Settings::Complete, "after {cut} bytes");
        }
        let mut frames = Frames::default();
        assert!(
            frames.pass(&mut [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]) && frames.settings == Settings::Complete
        );
    }

    #[test]
    fn interim_heads_are_counted_per_stream_at_any_split() {
        let fits: Vec<u8> = (0..=INTERIM_MAX).flat_map(|_| [headers(1, 4), headers(3, 4)].concat()).collect();
        let ended = [fits.clone(), headers(1, 5), headers(3, 5)].concat();
        let too_many = [fits.clone(), headers(3, 4)].concat();
        for piece in [1, 2, 7, 9, 11, 13, 1 << 20] {
            for (bytes, want) in [(&fits, true), (&ended, true), (&too_many, false)] {
                let mut frames = Frames::default();
                assert_eq!(
                    bytes.chunks(piece).all(|bytes| passes(&mut frames, bytes)),
                    want,
                    "{piece} bytes at a time"
                );
            }
        }
    }
}
