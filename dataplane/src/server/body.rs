//! Request bodies: limited in size, kept as the slices in which they arrived, counted against the process's budget, and
//! decompressed (LIM-1, LIM-2, LIM-5).

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use shared::error_kind::ErrorKind;
use shared::port::{self, BoxError};
use tokio::time::{Instant, Sleep};

use crate::error::Fault;
use crate::memory_budget::{MemoryBudget, MemoryExhausted, MemoryReservation};
use crate::quiet_waker::QuietWaker;
use crate::server::unpack::{self, Encoding, Unpackers};
use crate::turn::TURN_BYTES;

/// Source of a request body.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// A client connection, and the waker that it is polled with if it is HTTP/1.1.
    Network(Incoming, Option<Arc<QuietWaker>>),
    /// A caller inside the process.
    Inside(port::Body),
}

impl Inbound {
    /// Returns the body of a request over HTTP/1.1, whose connection is polled with `quiet`.
    pub(super) fn of_connection(incoming: Incoming, quiet: &Arc<QuietWaker>) -> Self {
        Self::Network(incoming, Some(Arc::clone(quiet)))
    }

    /// Returns the body of an HTTP/2 stream.
    pub(super) fn of_stream(incoming: Incoming) -> Self {
        Self::Network(incoming, None)
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Network(body, quiet) => {
                let is_calm = quiet.as_ref().is_some_and(|quiet| quiet.is_calm());
                let item = ready!(Pin::new(&mut *body).poll_frame(cx));
                if let Some(quiet) = quiet
                    && is_calm
                    && body.is_end_stream()
                {
                    // hyper asks to be polled again for the next piece, but this was the last one.
                    quiet.calm();
                }
                Poll::Ready(item.map(|frame| frame.map_err(BoxError::from)))
            }
            Self::Inside(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Network(body, _) => body.is_end_stream(),
            Self::Inside(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Network(body, _) => body.size_hint(),
            Self::Inside(body) => body.size_hint(),
        }
    }
}

/// A request body in memory.
#[derive(Debug)]
pub(crate) struct HeldBody {
    pub(crate) segments: Vec<Bytes>,
    /// The time for which its pieces were waited for, in microseconds.
    pub(crate) waited_us: u64,
    /// The latest small pieces, which are copied together.
    crumbs: BytesMut,
    memory: MemoryReservation,
}

/// Segments kept as they arrive. Later small pieces are copied together: each segment keeps the whole buffer it was
/// read into alive, so a body sent byte by byte would cost a multiple of its size.
const SEGMENTS_FREE: usize = 8;
/// Size below which a piece is copied, in bytes.
const CRUMB_BYTES: usize = 4 << 10;
/// Minimum average rate of a body, in bytes per second, after its first seconds
/// ([`ClientTimeouts::body`](shared::policy::ClientTimeouts::body)). It bounds the time of a body that arrives in tiny
/// pieces; clients on bad networks are far above it.
const BYTES_PER_SECOND_MIN: u64 = 240;

impl HeldBody {
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Self {
        Self {
            segments: Vec::new(),
            waited_us: 0,
            crumbs: BytesMut::new(),
            memory: MemoryReservation::new(memory),
        }
    }

    pub(super) fn push(&mut self, piece: Bytes) -> Result<(), Fault> {
        if !self.memory.take(piece.len() as u64) {
            return Err(Fault::from(MemoryExhausted).closing());
        }
        if self.segments.len() >= SEGMENTS_FREE && piece.len() < CRUMB_BYTES {
            self.crumbs.extend_from_slice(&piece);
            if self.crumbs.len() >= CRUMB_BYTES {
                self.segments.push(self.crumbs.split().freeze());
            }
        } else {
            self.finish();
            self.segments.push(piece);
        }
        Ok(())
    }

    /// Returns the length of the body in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Adds a wait that began at `began`.
    fn end_wait(&mut self, began: Instant) {
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.waited_us = self.waited_us.saturating_add(us);
    }

    pub(super) fn finish(&mut self) {
        if !self.crumbs.is_empty() {
            self.segments.push(self.crumbs.split().freeze());
        }
    }
}

/// The limits on request bodies.
#[derive(Debug)]
pub(crate) struct BodyLimits {
    /// Maximum pause in a body.
    pub(crate) pause: Duration,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) unpackers: Unpackers,
}

/// Receives a body while it arrives.
pub(crate) trait BodyReader {
    /// Reads the next piece, decompressed.
    fn read(&mut self, piece: &[u8]) -> Result<(), Fault>;

    /// Called when a piece of a body that is not compressed has been read and kept in `body`, if the length of the rest is
    /// known.
    fn keep(&mut self, _body: &HeldBody, _bytes_left: u64) {}

    /// Called when the next piece has not arrived, and when other requests have their turn.
    fn poll(&mut self, _cx: &mut Context<'_>) {}
}

impl<F: FnMut(&[u8]) -> Result<(), Fault>> BodyReader for F {
    fn read(&mut self, piece: &[u8]) -> Result<(), Fault> {
        self(piece)
    }
}

/// Reads a body of at most `limit` bytes.
pub(crate) async fn read(
    limits: &BodyLimits,
    headers: &HeaderMap,
    mut body: Inbound,
    limit: u64,
    reader: &mut dyn BodyReader,
) -> Result<HeldBody, Fault> {
    let encoding = Encoding::of(headers)?;
    if body.size_hint().exact().is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let mut held = HeldBody::new(&limits.memory);
    let mut turn = 0;
    let mut pace = Pace { limit: limits.pause, began: None, timer: None };
    while let Some(frame) = next(&mut body, &mut pace, (&mut held, reader)).await? {
        let Ok(piece) = frame.into_data() else { continue };
        turn += piece.len();
        if held.bytes() + piece.len() as u64 > limit {
            return Err(too_large(limit));
        }
        if encoding == Encoding::Identity {
            reader.read(&piece)?;
        }
        held.push(piece)?;
        if body.is_end_stream() {
            break;
        }
        if encoding == Encoding::Identity
            && let Some(bytes_left) = body.size_hint().exact()
        {
            reader.keep(&held, bytes_left);
        }
        if turn >= TURN_BYTES {
            turn = 0;
            poll_fn(|cx| {
                reader.poll(cx);
                Poll::Ready(())
            })
            .await;
            tokio::task::yield_now().await;
        }
    }
    held.finish();
    if encoding == Encoding::Identity {
        return Ok(held);
    }
    let waited_us = held.waited_us;
    let mut plain = unpack::unpack(limits, encoding, held, limit).await?;
    for segment in &plain.segments {
        reader.read(segment)?;
    }
    plain.waited_us = waited_us;
    Ok(plain)
}

/// Time limit on the pieces of a body.
struct Pace {
    limit: Duration,
    /// Start of the first wait for a piece. A body that is ready at once never reads the clock.
    began: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// Returns the deadline of the next piece, after `bytes` have arrived, for a wait that begins at `now`.
    fn deadline(&mut self, now: Instant, bytes: u64) -> Instant {
        let began = *self.began.get_or_insert(now);
        (now + self.limit).min(began + self.limit + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN))
    }

    /// Ready once `deadline` has passed. The timer is not reset for every piece; when it fires early, it is reset to
    /// the deadline.
    fn poll_late(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        loop {
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }

    fn fault(&self) -> Fault {
        let seconds = self.limit.as_secs();
        let message = format!(
            "The request body is too slow: a pause of {seconds} s, or fewer than {BYTES_PER_SECOND_MIN} \
             bytes a second on average after the first {seconds} s."
        );
        Fault::new(ErrorKind::RequestTimeout, message).closing()
    }
}

/// Returns the next frame of the body that `held` has begun with, or a timeout error if it misses its deadline.
async fn next(
    body: &mut Inbound,
    pace: &mut Pace,
    (held, reader): (&mut HeldBody, &mut dyn BodyReader),
) -> Result<Option<Frame<Bytes>>, Fault> {
    let mut began = None;
    let frame = poll_fn(|cx| {
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            if let Some(began) = began {
                held.end_wait(began);
            }
            return Poll::Ready(Ok(frame));
        }
        reader.poll(cx);
        let deadline = pace.deadline(*began.get_or_insert_with(Instant::now), held.bytes());
        pace.poll_late(deadline, cx).map(|()| Err(pace.fault()))
    });
    frame.await?.transpose().map_err(|error| {
        let why = root_cause(&*error);
        Fault::new(ErrorKind::BadHttp, format!("The request body is invalid: {why}.")).closing()
    })
}

/// Returns the innermost source of `error`.
fn root_cause<'a>(mut error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

pub(super) fn too_large(limit: u64) -> Fault {
    Fault::new(ErrorKind::BodyTooLarge, format!("The request body is larger than {limit} bytes.")).closing()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;
    use crate::fixture::Fixture;

    const PIECE_BYTES: usize = TURN_BYTES / 2;

    /// A number of pieces that are all ready.
    struct Pieces(usize);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let left = self.0.checked_sub(1);
            Poll::Ready(left.map(|left| {
                self.0 = left;
                Ok(Frame::data(Bytes::from(vec![b'x'; PIECE_BYTES])))
            }))
        }
    }

    #[tokio::test]
    async fn a_buffered_body_is_read_in_turns() {
        let fixture = Fixture::start(Vec::new());
        let (headers, body) = (HeaderMap::new(), Inbound::Inside(port::Body::new(Pieces(5))));
        let seen = Cell::new(0);
        let mut each = |piece: &[u8]| {
            seen.update(|seen| seen + piece.len());
            Ok(())
        };
        let mut reading =
            pin!(read(&fixture.dataplane.process.body_limits, &headers, body, u64::MAX, &mut each));
        let mut cx = Context::from_waker(Waker::noop());
        for turn in 1..=2 {
            assert!(reading.as_mut().poll(&mut cx).is_pending());
            assert_eq!(seen.get(), turn * TURN_BYTES);
        }
        assert!(reading.as_mut().poll(&mut cx).is_ready());
        assert_eq!(seen.get(), 5 * PIECE_BYTES);
    }
}
