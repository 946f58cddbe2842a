//! Compressed request bodies (LIM-2): which encodings are known, and the threads that unpack. They do nothing else, so
//! that neither a name server that hangs nor a slow listener of speech holds an unpacking up.

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

use super::body::{Held, too_large};
use crate::error::Fault;
use crate::plane::Plane;

/// How a body is compressed.
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
                "The Content-Encoding of the request is not one of gzip, deflate, zstd, br and identity.",
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

/// A frame may ask for a window of this many bits, 8 MiB: what RFC 9659 lets HTTP use.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Unpacks a body of at most `limit` bytes on one of the threads that do nothing else: the largest takes tens of
/// milliseconds, in which this worker serves others.
pub(super) async fn unpack(
    plane: &Arc<Plane>,
    encoding: Encoding,
    packed: Held,
    limit: u64,
) -> Result<Held, Fault> {
    let plain = Held::new(plane);
    let (sender, unpacked) = oneshot::channel();
    let job = Job { encoding, packed, plain, limit, sender };
    plane.unpackers.jobs.try_send(job).map_err(|_| {
        Fault::new(ErrorKind::Overloaded, "The gateway has as many bodies to unpack as it may. Try again.")
            .retry_after(RETRY_AFTER)
    })?;
    let failed = || Fault::new(ErrorKind::Internal, "The request body could not be decompressed.");
    unpacked.await.unwrap_or_else(|_| Err(failed()))
}

/// The threads that unpack bodies. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Unpackers {
    jobs: SyncSender<Job>,
}

#[derive(Debug)]
struct Job {
    encoding: Encoding,
    packed: Held,
    plain: Held,
    limit: u64,
    sender: oneshot::Sender<Result<Held, Fault>>,
}

/// Threads, at least and at most; between them there are as many as workers.
const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 16;
/// Bodies that wait for a thread.
const JOBS_MAX: usize = 1_024;
/// When it makes sense to try again where more would have to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Unpackers {
    /// Starts the threads for so many workers.
    pub(crate) fn start(workers: usize, alarm: &Alarm) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::sync_channel(JOBS_MAX);
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

fn work(inbox: &Mutex<Receiver<Job>>) {
    loop {
        // One thread waits for the next job, the others for the lock.
        let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { encoding, packed, plain, limit, sender }) = job else { return };
        if sender.is_closed() {
            continue;
        }
        // A fault of a decoder ends one request and no thread.
        let unpacking = AssertUnwindSafe(|| decode_now(encoding, &packed, plain, limit));
        if let Ok(outcome) = catch_unwind(unpacking) {
            sender.send(outcome).ok();
        }
    }
}

fn decode_now(encoding: Encoding, packed: &Held, mut plain: Held, limit: u64) -> Result<Held, Fault> {
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
