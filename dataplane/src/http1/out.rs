//! The writing half of a connection: heads and short pieces are copied into one buffer, so that an ordinary message is
//! one plain write; long pieces stay where they are.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;

use super::TURN_BYTES;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// What goes first.
    queue: Vec<Bytes>,
    /// What follows.
    tail: Vec<u8>,
    /// Bytes of the tail that are out.
    at: usize,
}

/// Pieces up to this size are copied.
const COPIED_BYTES_MAX: usize = 4 << 10;
/// Slices of one vectored write.
const SLICES_MAX: usize = 64;
/// A buffer that has grown over this is not kept.
const KEPT_BYTES_MAX: usize = 8 << 10;

impl Out {
    /// What has not been written.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.iter().map(Bytes::len).sum::<usize>() + self.tail.len() - self.at
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    pub(crate) fn field(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.put(part);
        }
    }

    /// Bytes that are copied if that is cheaper than to write them from where they are.
    pub(crate) fn data(&mut self, data: &Bytes) {
        if data.len() <= COPIED_BYTES_MAX {
            return self.put(data);
        }
        let mut before = Bytes::from(std::mem::take(&mut self.tail));
        before.advance(std::mem::take(&mut self.at));
        self.queue.extend([before, data.clone()].into_iter().filter(|bytes| !bytes.is_empty()));
    }

    /// The digits of `number`.
    pub(crate) fn number(&mut self, mut number: u64, base: u64) {
        let start = self.tail.len();
        loop {
            let digit = usize::try_from(number % base).unwrap_or_default();
            self.tail.push(*b"0123456789abcdef".get(digit).unwrap_or(&b'0'));
            number /= base;
            if number == 0 {
                break;
            }
        }
        self.tail.get_mut(start..).unwrap_or_default().reverse();
    }

    /// Writes all there is, in turns.
    pub(crate) fn poll_flush(
        &mut self,
        mut io: Pin<&mut impl AsyncWrite>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut turn = TURN_BYTES;
        while !self.queue.is_empty() || self.at < self.tail.len() {
            if turn == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let tail = self.tail.get(self.at..).unwrap_or_default();
            let count = if self.queue.is_empty() {
                ready!(io.as_mut().poll_write(cx, first(tail, turn)))?
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let all = self.queue.iter().map(|bytes| &bytes[..]).chain([tail]);
                let (mut used, mut left) = (0, turn);
                for (slot, bytes) in slices.iter_mut().zip(all) {
                    *slot = IoSlice::new(first(bytes, left));
                    left -= slot.len();
                    used += 1;
                    if left == 0 {
                        break;
                    }
                }
                ready!(io.as_mut().poll_write_vectored(cx, slices.get(..used).unwrap_or_default()))?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            turn = turn.saturating_sub(count);
            self.advance(count);
        }
        io.poll_flush(cx)
    }

    fn advance(&mut self, mut count: usize) {
        let mut gone = 0;
        for bytes in &mut self.queue {
            let part = count.min(bytes.len());
            bytes.advance(part);
            count -= part;
            if !bytes.is_empty() {
                break;
            }
            gone += 1;
        }
        self.queue.drain(..gone);
        self.at += count;
        if self.at == self.tail.len() {
            self.at = 0;
            self.tail.clear();
            if self.tail.capacity() > KEPT_BYTES_MAX {
                self.tail = Vec::new();
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }
}

/// At most so many bytes.
fn first(bytes: &[u8], count: usize) -> &[u8] {
    bytes.get(..count).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    /// Takes a few bytes at a time.
    struct Narrow(Vec<u8>, usize);

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn pieces_arrive_in_order_however_little_the_socket_takes() {
        let long = vec![b'x'; COPIED_BYTES_MAX + 1];
        let pieces = [b"abc".as_slice(), b"", &long, b"de", &long, &long, b"f"];
        for width in [1, 7, 4_096, 1 << 20] {
            let (mut out, mut socket) = (Out::default(), Narrow(Vec::new(), width));
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..2 {
                pieces.iter().for_each(|piece| out.data(&Bytes::copy_from_slice(piece)));
                assert_eq!(out.bytes(), pieces.concat().len());
                assert!(out.poll_flush(Pin::new(&mut socket), &mut cx).is_ready());
                assert_eq!(out.bytes(), 0);
            }
            assert!(socket.0 == pieces.concat().repeat(2), "{width} bytes at a time");
        }
    }

    #[test]
    fn a_long_body_is_written_in_turns() {
        #[derive(Default)]
        struct Wakes(AtomicUsize);
        impl Wake for Wakes {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let body = Bytes::from((0..3 * TURN_BYTES + 5).map(|at| (at % 251) as u8).collect::<Vec<_>>());
        let (mut out, mut socket) = (Out::default(), Narrow(Vec::new(), usize::MAX));
        out.put(b"head");
        out.data(&body);
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        for turn in 1..=3 {
            assert!(out.poll_flush(Pin::new(&mut socket), &mut Context::from_waker(&waker)).is_pending());
            assert_eq!(socket.0.len(), turn * TURN_BYTES);
            assert_eq!(wakes.0.load(Ordering::Relaxed), turn, "it comes back without the socket's word");
        }
        assert!(out.poll_flush(Pin::new(&mut socket), &mut Context::from_waker(&waker)).is_ready());
        assert!(socket.0 == [b"head", &body[..]].concat());
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for number in [0, 9, 10, 255, 1_234_567_890, u64::MAX] {
            let mut out = Out::default();
            out.number(number, 10);
            out.put(b" ");
            out.number(number, 16);
            assert_eq!(out.tail(), format!("{number} {number:x}").as_bytes());
        }
    }
}
