//! The scripted upstream: answers from memory as fast as a socket accepts, with one script at a time for all
//! connections. It checks that each request arrived completely; only `model`, at its start, may differ.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{MissedTickBehavior, interval_at};

use super::payload::{self, STAMP_AT, STAMP_DIGITS, Stream};

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
    pub(crate) port: u16,
    shared: Rc<Shared>,
}

struct Shared {
    script: RefCell<Script>,
    request: RefCell<Bytes>,
    faults: Cell<u64>,
    epoch: Instant,
}

impl Upstream {
    /// Listens on a free port. Timestamps count from `epoch`.
    pub(crate) async fn start(epoch: Instant) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Rc::new(Shared {
            script: RefCell::new(Script::Whole(payload::completion())),
            request: RefCell::new(Bytes::new()),
            faults: Cell::new(0),
            epoch,
        });
        tokio::task::spawn_local(accept(listener, Rc::clone(&shared)));
        Self { port, shared }
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

async fn accept(listener: TcpListener, shared: Rc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::task::spawn_local(serve(stream, Rc::clone(&shared)));
    }
}

/// Serves one connection until the other side closes it.
async fn serve(mut stream: TcpStream, shared: Rc<Shared>) {
    let mut buffer = Vec::with_capacity(2 << 10);
    while read_request(&mut stream, &mut buffer, &shared).await.is_some() {
        let script = shared.script.borrow().clone();
        let written = match script {
            Script::Whole(body) => write_whole(&mut stream, &body).await,
            Script::Flow { stream: flow, per_write, pace } => {
                write_flow(&mut stream, &flow, per_write, pace, shared.epoch).await
            }
        };
        if written.is_err() {
            return;
        }
    }
}

/// Reads one request, compares it with the one sent, and removes it from `buffer`.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>, shared: &Shared) -> Option<()> {
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
    let sent = shared.request.borrow();
    // The start may differ in the name of the model; everything after it is the client's.
    let same = sent.len().saturating_sub(64).min(length);
    if buffer[head + length - same..head + length] != sent[sent.len() - same..] {
        shared.faults.set(shared.faults.get() + 1);
    }
    buffer.drain(..head + length);
    if buffer.capacity() > 64 << 10 && length < 16 << 10 {
        buffer.shrink_to(2 << 10);
    }
    Some(())
}

async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
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

async fn write_whole(stream: &mut TcpStream, body: &Bytes) -> std::io::Result<()> {
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ndate: Sat, 21 Nov 2026 00:00:00 GMT\r\n\
         x-request-id: req_bench\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    stream.write_all(&answer).await
}

async fn write_flow(
    stream: &mut TcpStream,
    flow: &Stream,
    per_write: usize,
    pace: Option<Duration>,
    epoch: Instant,
) -> std::io::Result<()> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
        date: Sat, 21 Nov 2026 00:00:00 GMT\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(HEAD).await?;
    let mut ticks = pace.map(|pace| {
        let mut ticks = interval_at(tokio::time::Instant::now() + pace, pace);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    });
    let mut piece = Vec::with_capacity(per_write * 256);
    let mut index = 0;
    while index < flow.events.len() {
        match &mut ticks {
            Some(ticks) if flow.is_stamped(index) => drop(ticks.tick().await),
            // Yields to the other connections, so that each write arrives separately.
            _ => tokio::task::yield_now().await,
        }
        // The last three events follow the last content at once, as from a real server.
        let until = if index > flow.content { flow.events.len() } else { index + per_write };
        piece.clear();
        for index in index..until.min(flow.events.len()) {
            let from = piece.len();
            piece.extend_from_slice(&flow.framed[index]);
            if pace.is_some() && flow.is_stamped(index) {
                stamp(&mut piece[from..], epoch);
            }
        }
        index = until;
        if index >= flow.events.len() {
            piece.extend_from_slice(b"0\r\n\r\n");
        }
        stream.write_all(&piece).await?;
    }
    Ok(())
}

/// Writes the time into a framed event. The chunk's size line takes four bytes.
fn stamp(framed: &mut [u8], epoch: Instant) {
    let digits = format!("{:0STAMP_DIGITS$}", epoch.elapsed().as_nanos());
    framed[4 + STAMP_AT..][..STAMP_DIGITS].copy_from_slice(digits.as_bytes());
}
