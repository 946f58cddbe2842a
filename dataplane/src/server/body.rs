//! Request bodies: read under the limit, kept as the slices in which they came, counted against the process's
//! budget, decompressed where the client compressed them (LIM-1, LIM-2, LIM-5).

use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use shared::error_kind::ErrorKind;
use shared::port::{self, BoxError};
use tokio::time::Instant;

use crate::error::Fault;
use crate::http1::TURN_BYTES;
use crate::plane::Plane;
use crate::room::{NoRoom, Room};
use crate::server::http1::RequestBody;

/// Where the body of a request comes from.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// A client that speaks HTTP/1.
    Http1(RequestBody),
    /// A client that speaks HTTP/2.
    Http2(Incoming),
    /// Inside the process.
    Inside(port::Body),
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Http1(body) => Pin::new(body).poll_frame(cx),
            Self::Http2(body) => {
                Pin::new(body).poll_frame(cx).map(|item| item.map(|frame| frame.map_err(BoxError::from)))
            }
            Self::Inside(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Inside(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Inside(body) => body.size_hint(),
        }
    }
}

/// A request body.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) segments: Vec<Bytes>,
    /// The end of the body so far, while it comes in crumbs.
    crumbs: BytesMut,
    room: Room,
}

/// After this many segments small ones are copied together, so that a body sent byte by byte costs its size
/// and not a multiple of it.
const SEGMENTS_FREE: usize = 64;
/// What counts as small then.
const CRUMB_BYTES: usize = 4 << 10;
/// Bytes a second that a body brings on average, once its first [`ClientTimeouts::body`](shared::policy::ClientTimeouts::body) are over. It bounds the time of a
/// body that comes in crumbs; whoever sends slowly through a bad network is far above it.
const BYTES_PER_SECOND_MIN: u64 = 240;

impl Held {
    fn new(plane: &Arc<Plane>) -> Self {
        Self { segments: Vec::new(), crumbs: BytesMut::new(), room: Room::new(plane) }
    }

    fn push(&mut self, piece: Bytes) -> Result<(), Fault> {
        if !self.room.take(piece.len() as u64) {
            return Err(Fault::from(NoRoom).closing());
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

    /// How long it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.room.bytes()
    }

    fn finish(&mut self) {
        if !self.crumbs.is_empty() {
            self.segments.push(self.crumbs.split().freeze());
        }
    }
}

/// Reads a body of at most `limit` bytes. `each` sees every piece as it comes, decompressed.
pub(crate) async fn read(
    plane: &Arc<Plane>,
    headers: &HeaderMap,
    mut body: Inbound,
    limit: u64,
    each: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<Held, Fault> {
    let encoding = Encoding::of(headers)?;
    if body.size_hint().exact().is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let mut held = Held::new(plane);
    let mut turn = 0;
    let mut pace = Pace { limit: plane.settings.client_timeouts.body, began: None };
    while let Some(frame) = next(&mut body, &mut pace, held.bytes()).await? {
        let Ok(piece) = frame.into_data() else { continue };
        turn += piece.len();
        if held.bytes() + piece.len() as u64 > limit {
            return Err(too_large(limit));
        }
        if encoding == Encoding::Identity {
            each(&piece)?;
        }
        held.push(piece)?;
        if turn >= TURN_BYTES {
            turn = 0;
            tokio::task::yield_now().await;
        }
    }
    held.finish();
    if encoding == Encoding::Identity {
        return Ok(held);
    }
    let plain = decode(plane, encoding, held, limit).await?;
    for segment in &plain.segments {
        each(segment)?;
    }
    Ok(plain)
}

/// How long the pieces of a body may take.
struct Pace {
    limit: Duration,
    /// When a piece was first waited for: a body that is there already costs no look at the clock.
    began: Option<Instant>,
}

impl Pace {
    /// When the next piece must have come, after the first `bytes`.
    fn deadline(&mut self, bytes: u64) -> Instant {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        (now + self.limit).min(began + self.limit + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN))
    }
}

async fn next(body: &mut Inbound, pace: &mut Pace, bytes: u64) -> Result<Option<Frame<Bytes>>, Fault> {
    let frame = match futures_now(body).await {
        Some(frame) => frame,
        None => tokio::time::timeout_at(pace.deadline(bytes), body.frame()).await.map_err(|_| {
            let seconds = pace.limit.as_secs();
            let message = format!(
                "The request body comes too slowly: a pause of {seconds} s in it, or fewer than {BYTES_PER_SECOND_MIN} \
                 bytes a second on average after the first {seconds} s."
            );
            Fault::new(ErrorKind::RequestTimeout, message).closing()
        })?,
    };
    frame.transpose().map_err(|error| {
        Fault::new(ErrorKind::BadHttp, format!("The request body is broken: {error}.")).closing()
    })
}

/// The next frame if it is there already: then no timer is needed.
async fn futures_now(body: &mut Inbound) -> Option<Option<Result<Frame<Bytes>, BoxError>>> {
    std::future::poll_fn(|cx| {
        Poll::Ready(match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(frame) => Some(frame),
            Poll::Pending => None,
        })
    })
    .await
}

fn too_large(limit: u64) -> Fault {
    Fault::new(ErrorKind::BodyTooLarge, format!("The request body is larger than {limit} bytes.")).closing()
}

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    Deflate,
    Zstd,
    Brotli,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Result<Self, Fault> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(Self::Identity) };
        let name = value.as_bytes().trim_ascii().to_ascii_lowercase();
        let known = match name.as_slice() {
            b"" | b"identity" => Some(Self::Identity),
            b"gzip" | b"x-gzip" => Some(Self::Gzip),
            b"deflate" => Some(Self::Deflate),
            b"zstd" => Some(Self::Zstd),
            b"br" => Some(Self::Brotli),
            _ => None,
        };
        known.filter(|_| values.next().is_none()).ok_or_else(|| {
            Fault::new(
                ErrorKind::UnsupportedEncoding,
                "The Content-Encoding of the request is not one of gzip, deflate, zstd, br and identity.",
            )
            .closing()
        })
    }

    fn reader<'a>(self, source: impl Read + 'a) -> std::io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::Identity => Box::new(source),
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(source)),
            Self::Deflate => Box::new(flate2::read::ZlibDecoder::new(source)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(source)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            Self::Brotli => Box::new(brotli_decompressor::Decompressor::new(source, 4096)),
        })
    }
}

/// A frame may ask for a window of this many bits, 8 MiB: what RFC 9659 lets HTTP use.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Decompresses on the blocking pool, because a body of the largest size takes tens of milliseconds.
async fn decode(plane: &Arc<Plane>, encoding: Encoding, packed: Held, limit: u64) -> Result<Held, Fault> {
    let plain = Held::new(plane);
    tokio::task::spawn_blocking(move || decode_now(encoding, &packed, plain, limit)).await.unwrap_or_else(
        |_| Err(Fault::new(ErrorKind::Internal, "The request body could not be decompressed.")),
    )
}

fn decode_now(encoding: Encoding, packed: &Held, mut plain: Held, limit: u64) -> Result<Held, Fault> {
    let broken = |error: std::io::Error| {
        Fault::new(ErrorKind::InvalidRequest, format!("The request body cannot be decompressed: {error}."))
    };
    let source = Segments { left: &packed.segments, at: 0 };
    let mut reader = encoding.reader(source).map_err(broken)?;
    loop {
        let mut piece = vec![0; DECODED_PIECE_BYTES];
        let count = reader.read(&mut piece).map_err(broken)?;
        if count == 0 {
            plain.finish();
            return Ok(plain);
        }
        if plain.bytes() + count as u64 > limit {
            return Err(too_large(limit));
        }
        piece.truncate(count);
        plain.push(Bytes::from(piece))?;
    }
}

/// Reads segments one after the other.
struct Segments<'a> {
    left: &'a [Bytes],
    at: usize,
}

impl Read for Segments<'_> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        while let Some((first, rest)) = self.left.split_first() {
            let mut unread = first.get(self.at..).unwrap_or_default();
            if unread.is_empty() {
                (self.left, self.at) = (rest, 0);
                continue;
            }
            let count = unread.read(room)?;
            self.at += count;
            return Ok(count);
        }
        Ok(0)
    }
}

const DECODED_PIECE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;
    use crate::fixture::Fixture;

    const PIECE_BYTES: usize = TURN_BYTES / 2;

    /// So many pieces, all there already.
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
    async fn a_body_that_is_there_already_is_read_in_turns() {
        let fixture = Fixture::start(Vec::new());
        let (headers, body) = (HeaderMap::new(), Inbound::Inside(port::Body::new(Pieces(5))));
        let seen = Cell::new(0);
        let mut each = |piece: &[u8]| {
            seen.update(|seen| seen + piece.len());
            Ok(())
        };
        let mut reading = pin!(read(&fixture.dataplane.plane, &headers, body, u64::MAX, &mut each));
        let mut cx = Context::from_waker(Waker::noop());
        for turn in 1..=2 {
            assert!(reading.as_mut().poll(&mut cx).is_pending());
            assert_eq!(seen.get(), turn * TURN_BYTES);
        }
        assert!(reading.as_mut().poll(&mut cx).is_ready());
        assert_eq!(seen.get(), 5 * PIECE_BYTES);
    }
}
