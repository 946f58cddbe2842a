//! Compressed request bodies (LIM-2): the supported encodings, and the decompression threads. These are separate from
//! other blocking work, so that neither a hanging name server nor a slow speech client can delay a decompression.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use shared::alarm::Alarm;
use shared::error_kind::ErrorKind;
use tokio::sync::oneshot;

use super::body::{BodyLimits, HeldBody, too_large};
use crate::bounds::WAITING_UNPACKS;
use crate::error::Fault;

/// Content encoding of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Deflate,
    Zstd,
    Brotli,
}

impl Encoding {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Fault> {
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
                "The Content-Encoding of the request must be gzip, deflate, zstd, br or identity.",
            )
            .closing()
        })
    }

    fn reader<'a>(self, source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
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

/// Maximum window of a zstd frame as a power of two: 8 MiB, the limit of RFC 9659 for HTTP.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Decompresses a body to at most `limit` bytes on a decompression thread: the largest bodies take tens of
/// milliseconds, during which the worker serves other requests.
pub(super) async fn unpack(
    limits: &BodyLimits,
    encoding: Encoding,
    packed: HeldBody,
    limit: u64,
) -> Result<HeldBody, Fault> {
    let plain = HeldBody::new(&limits.memory);
    let (sender, unpacked) = oneshot::channel();
    let job = UnpackJob { encoding, packed, plain, limit, sender };
    limits.unpackers.jobs.try_send(job).map_err(|_| {
        WAITING_UNPACKS.reach();
        Fault::new(ErrorKind::Overloaded, "The gateway is decompressing too many bodies. Try again.")
            .retry_after(RETRY_AFTER)
    })?;
    let failed = || Fault::new(ErrorKind::Internal, "The request body could not be decompressed.");
    unpacked.await.unwrap_or_else(|_| Err(failed()))
}

/// The decompression threads. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Unpackers {
    jobs: SyncSender<UnpackJob>,
}

#[derive(Debug)]
struct UnpackJob {
    encoding: Encoding,
    packed: HeldBody,
    plain: HeldBody,
    limit: u64,
    sender: oneshot::Sender<Result<HeldBody, Fault>>,
}

/// Minimum and maximum number of threads; within these bounds there is one per worker.
const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 16;
/// Delay in the `Retry-After` header if the queue is full.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Unpackers {
    /// Starts the threads for this number of workers.
    pub(crate) fn start(workers: usize, alarm: &Alarm) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::sync_channel(WAITING_UNPACKS.max());
        let inbox = Arc::new(Mutex::new(inbox));
        for index in 0..workers.clamp(THREADS_MIN, THREADS_MAX) {
            let inbox = Arc::clone(&inbox);
            alarm.spawn(&format!("unpack-{index}"), move || {
                work(&inbox);
                Ok(())
            })?;
        }
        Ok(Self { jobs })
    }
}

fn work(inbox: &Mutex<Receiver<UnpackJob>>) {
    loop {
        // One thread waits for the next job, the others wait for the lock.
        let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(UnpackJob { encoding, packed, plain, limit, sender }) = job else { return };
        if sender.is_closed() {
            continue;
        }
        // A panic of a decoder fails only one request, not the thread.
        let unpacking = AssertUnwindSafe(|| decode_now(encoding, &packed, plain, limit));
        if let Ok(outcome) = catch_unwind(unpacking) {
            sender.send(outcome).ok();
        }
    }
}

fn decode_now(
    encoding: Encoding,
    packed: &HeldBody,
    mut plain: HeldBody,
    limit: u64,
) -> Result<HeldBody, Fault> {
    let broken = |error: io::Error| {
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
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        while let Some((first, rest)) = self.left.split_first() {
            let mut unread = first.split_at(self.at).1;
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
