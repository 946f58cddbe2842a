//! The scripted upstream: answers from memory as fast as a socket accepts, with one script at a time for all
//! connections. It checks that each request arrived completely; only `model`, at its start, may differ.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_rustls::TlsAcceptor;

use super::http2;
use super::payload::{self, MODEL_WITHIN, STAMP_AT, STAMP_DIGITS, Stream};
use super::proxy::Reach;
use super::wire::{Certificate, Io, Wire};

/// The answer to every request.
#[derive(Clone, Debug)]
pub(crate) enum Script {
    /// A whole answer.
    Whole(Bytes),
    /// A stream with `per_write` events per write, and `pace`, or no pause, between two writes.
    Flow { stream: Rc<Stream>, per_write: usize, pace: Option<Duration> },
}

/// The upstream and the number of faults that it found.
pub(crate) struct Upstream {
    pub(crate) ports: Ports,
    /// The certificate of its TLS, and of proxies that serve TLS.
    pub(crate) certificate: Certificate,
    shared: Rc<Shared>,
    _folder: TempDir,
}

/// The ports of the upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// HTTP/1.1 in clear text.
    pub(crate) clear: u16,
    /// HTTP/1.1 by TLS.
    pub(crate) tls: u16,
    /// HTTP/2 by TLS.
    pub(crate) http2: u16,
}

/// The state that all connections share.
pub(crate) struct Shared {
    script: RefCell<Script>,
    request: RefCell<Bytes>,
    faults: Cell<u64>,
    pub(crate) epoch: Instant,
}

impl Upstream {
    /// Listens on a free port. Timestamps count from `epoch`.
    pub(crate) async fn start(epoch: Instant) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificate = Certificate::make(folder.path());
        let shared = Rc::new(Shared {
            script: RefCell::new(Script::Whole(payload::completion())),
            request: RefCell::new(Bytes::new()),
            faults: Cell::new(0),
            epoch,
        });
        let acceptor = |protocol| TlsAcceptor::from(certificate.server(&[protocol]));
        let ports = Ports {
            clear: listen(&shared, None, Protocol::Http1).await,
            tls: listen(&shared, Some(acceptor("http/1.1")), Protocol::Http1).await,
            http2: listen(&shared, Some(acceptor("h2")), Protocol::Http2).await,
        };
        Self { ports, certificate, shared, _folder: folder }
    }

    /// Returns how proxies of a wire reach it.
    pub(crate) fn reach(&self, wire: Wire) -> Reach<'_> {
        Reach { wire, ports: self.ports, certificate: &self.certificate }
    }

    /// Sets the expected request and its answer from now on.
    pub(crate) fn play(&self, request: Bytes, script: Script) {
        *self.shared.script.borrow_mut() = script;
        *self.shared.request.borrow_mut() = request;
    }

    /// Returns the number of requests that arrived changed since the last call.
    pub(crate) fn take_faults(&self) -> u64 {
        self.shared.faults.take()
    }
}

#[derive(Clone, Copy)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves a free port, and returns it.
async fn listen(shared: &Rc<Shared>, tls: Option<TlsAcceptor>, protocol: Protocol) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let shared = Rc::clone(shared);
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let (shared, tls) = (Rc::clone(&shared), tls.clone());
            tokio::task::spawn_local(async move {
                let stream: Box<dyn Io> = match tls {
                    None => Box::new(stream),
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => return,
                    },
                };
                match protocol {
                    Protocol::Http1 => serve(stream, shared).await,
                    Protocol::Http2 => http2::serve(stream, shared).await,
                }
            });
        }
    });
    port
}

impl Shared {
    /// Returns the answer to every request.
    pub(crate) fn script(&self) -> Script {
        self.script.borrow().clone()
    }

    /// Compares the body of a request with the one that was sent.
    pub(crate) fn compare(&self, body: &[u8]) {
        let sent = self.request.borrow();
        // The start may differ in the name of the model; everything after it is the client's.
        let same = sent.len().saturating_sub(MODEL_WITHIN.min(sent.len() / 8)).min(body.len());
        if body[body.len() - same..] != sent[sent.len() - same..] {
            self.faults.set(self.faults.get() + 1);
        }
    }
}

/// Serves one connection until the other side closes it.
async fn serve(mut stream: Box<dyn Io>, shared: Rc<Shared>) {
    let mut buffer = Vec::with_capacity(2 << 10);
    while read_request(&mut *stream, &mut buffer, &shared).await.is_some() {
        let written = match shared.script() {
            Script::Whole(body) => write_whole(&mut *stream, &body).await,
            Script::Flow { stream: flow, per_write, pace } => {
                write_head(&mut *stream).await.is_ok()
                    && flow
                        .play((per_write, pace), shared.epoch, Framing::Chunks, &mut Http1(&mut *stream))
                        .await
            }
        };
        if !written {
            return;
        }
    }
}

/// Reads one request, compares it with the one sent, and removes it from `buffer`.
async fn read_request(stream: &mut dyn Io, buffer: &mut Vec<u8>, shared: &Shared) -> Option<()> {
    let (head, length) = loop {
        if let Some(found) = head_of(buffer) {
            break found;
        }
        fill(stream, buffer).await?;
    };
    while buffer.len() < head + length {
        buffer.reserve(head + length - buffer.len());
        fill(stream, buffer).await?;
    }
    shared.compare(&buffer[head..head + length]);
    buffer.drain(..head + length);
    if buffer.capacity() > 64 << 10 && length < 16 << 10 {
        buffer.shrink_to(2 << 10);
    }
    Some(())
}

async fn fill(stream: &mut dyn Io, buffer: &mut Vec<u8>) -> Option<()> {
    buffer.reserve(1 << 10);
    stream.read_buf(buffer).await.ok().filter(|&length| length > 0).map(drop)
}

/// Returns the lengths of the head and of the body. `None` while the head is incomplete.
fn head_of(buffer: &[u8]) -> Option<(usize, usize)> {
    if buffer.is_empty() {
        return None;
    }
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(buffer).unwrap() else { return None };
    let length = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.expect("every request of the bench has a length");
    Some((head, std::str::from_utf8(length.value).unwrap().parse().unwrap()))
}

async fn write_whole(stream: &mut dyn Io, body: &Bytes) -> bool {
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ndate: Sat, 21 Nov 2026 00:00:00 GMT\r\n\
         x-request-id: req_bench\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    write(stream, &answer).await.is_ok()
}

async fn write_head(stream: &mut dyn Io) -> std::io::Result<()> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
        date: Sat, 21 Nov 2026 00:00:00 GMT\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
    write(stream, HEAD).await
}

async fn write(stream: &mut dyn Io, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The framing of the events of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Each event is a chunk of HTTP/1.1.
    Chunks,
    /// The protocol has frames of its own.
    None,
}

/// Where the writes of a stream go.
pub(crate) trait Sink {
    /// Sends a write. Returns false if the other side has left.
    async fn send(&mut self, piece: Vec<u8>) -> bool;
}

struct Http1<'a>(&'a mut dyn Io);

impl Sink for Http1<'_> {
    async fn send(&mut self, piece: Vec<u8>) -> bool {
        write(self.0, &piece).await.is_ok()
    }
}

impl Stream {
    /// Sends all events, so many in a write, and so far apart. Returns false if the other side has left.
    pub(crate) async fn play(
        &self,
        (per_write, pace): (usize, Option<Duration>),
        epoch: Instant,
        framing: Framing,
        to: &mut impl Sink,
    ) -> bool {
        let mut ticks = pace.map(|pace| {
            let mut ticks = interval_at(tokio::time::Instant::now() + pace, pace);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        // The size line of a chunk takes four bytes.
        let (events, stamp_at) = match framing {
            Framing::Chunks => (&self.framed, 4 + STAMP_AT),
            Framing::None => (&self.events, STAMP_AT),
        };
        let mut index = 0;
        while index < events.len() {
            match &mut ticks {
                Some(ticks) if self.is_stamped(index) => drop(ticks.tick().await),
                // Yields to the other connections, so that each write arrives separately.
                _ => tokio::task::yield_now().await,
            }
            // The last three events follow the last content at once, as from a real server.
            let until = if index > self.content { events.len() } else { index + per_write };
            let mut piece = Vec::with_capacity(per_write * 256);
            for (index, event) in events.iter().enumerate().take(until).skip(index) {
                let from = piece.len();
                piece.extend_from_slice(event);
                if pace.is_some() && self.is_stamped(index) {
                    stamp(&mut piece[from + stamp_at..], epoch);
                }
            }
            index = until;
            if index >= events.len() && framing == Framing::Chunks {
                piece.extend_from_slice(b"0\r\n\r\n");
            }
            if !to.send(piece).await {
                return false;
            }
        }
        true
    }
}

/// Writes the time over the digits of a timestamp.
fn stamp(digits: &mut [u8], epoch: Instant) {
    let now = format!("{:0STAMP_DIGITS$}", epoch.elapsed().as_nanos());
    digits[..STAMP_DIGITS].copy_from_slice(now.as_bytes());
}
