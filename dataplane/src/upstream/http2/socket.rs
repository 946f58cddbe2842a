//! The socket below hyper. It records that something was read, reports the settings of the upstream, and limits interim answers (1xx). hyper skips these without
//! a limit, so they are counted here: each is a HEADERS frame without END_STREAM, and a stream has at most one other such
//! frame.

#![expect(clippy::indexing_slicing, reason = "positions are checked against the lengths right before")]

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::connection::SharedState;
use crate::upstream::dial::{UpstreamIo, rejected_certificate};

/// Maximum interim answers per request. Upstreams that use them as keep-alives send one every few seconds.
const INTERIM_MAX: usize = 100;

/// A socket that fails when an upstream exceeds the limit on interim answers.
#[derive(Debug)]
pub(super) struct Counted {
    io: UpstreamIo,
    frames: Frames,
    state: Rc<SharedState>,
    /// Reports the arrival of the settings, once.
    settled: Option<oneshot::Sender<()>>,
}

impl Counted {
    /// Wraps `io`; what it observes is recorded in `state`, and the arrival of the settings is sent to `settled`.
    pub(super) fn new(io: UpstreamIo, state: Rc<SharedState>, settled: oneshot::Sender<()>) -> Self {
        Self { io, frames: Frames::default(), state, settled: Some(settled) }
    }
}

impl Counted {
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
    /// Stream number and its count of HEADERS frames. Streams that map to the same slot replace each other.
    streams: Box<[(u32, usize); PLACES]>,
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
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;

impl Default for Frames {
    fn default() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            payload_left: 0,
            settings: Settings::Missing,
            streams: Box::new([(0, 0); PLACES]),
        }
    }
}

impl Frames {
    /// Parses further `bytes`; returns false once a stream has too many HEADERS frames.
    fn pass(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let skipped = self.payload_left.min(bytes.len());
            self.payload_left -= skipped;
            bytes = &bytes[skipped..];
            let room = &mut self.head[self.head_bytes..];
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.head_bytes += count;
            bytes = &bytes[count..];
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

    /// Parses a complete frame header; returns false if its stream has too many HEADERS frames.
    fn begin(&mut self) -> bool {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.payload_left = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
        if kind == SETTINGS && self.settings == Settings::Missing {
            self.settings = Settings::Arriving;
        }
        if kind != HEADERS || flags & END_STREAM != 0 {
            return true;
        }
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        let place = usize::try_from(stream / 2).unwrap_or_default() % PLACES;
        let (known, heads) = &mut self.streams[place];
        *heads = if *known == stream { *heads + 1 } else { 1 };
        *known = stream;
        *heads <= INTERIM_MAX + 1
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(cx, buf));
        ready!(self.noting(Poll::Ready(read)))?;
        let bytes = &buf.filled()[before..];
        if !bytes.is_empty() {
            self.state.reads.update(|reads| reads.wrapping_add(1));
        }
        if self.frames.pass(bytes) {
            if self.frames.settings == Settings::Complete
                && let Some(settled) = self.settled.take()
            {
                settled.send(()).ok();
            }
            return Poll::Ready(Ok(()));
        }
        self.state.flooded.set(true);
        Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, buf);
        self.noting(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.noting(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(cx);
        self.noting(outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(stream: u32, flags: u8) -> Vec<u8> {
        [&[0, 0, 2, HEADERS, flags][..], &stream.to_be_bytes(), &[HEADERS; 2]].concat()
    }

    #[test]
    fn the_first_settings_are_complete_with_their_last_byte() {
        let settings = [&[0, 0, 6, SETTINGS, 0, 0, 0, 0, 0][..], &[0, 3, 0, 0, 0, 4]].concat();
        for cut in 0..settings.len() {
            let mut frames = Frames::default();
            let (first, rest) = settings.split_at(cut);
            assert!(frames.pass(first) && frames.settings != Settings::Complete, "{cut} bytes");
            assert!(frames.pass(rest) && frames.settings == Settings::Complete, "after {cut} bytes");
        }
        let mut frames = Frames::default();
        assert!(frames.pass(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]) && frames.settings == Settings::Complete);
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
                    bytes.chunks(piece).all(|bytes| frames.pass(bytes)),
                    want,
                    "{piece} bytes at a time"
                );
            }
        }
    }
}
