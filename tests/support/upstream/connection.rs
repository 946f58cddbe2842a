//! One connection of a scripted upstream: reads requests, writes answers, and detects at any time that the other side
//! has closed the connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::record::Received;
use super::{Answer, Shared, Step};

/// A second handle on the same socket, for operations that only the socket supports.
pub(crate) struct Handle(std::net::TcpStream);

/// Creates a second handle on `stream`.
pub(crate) fn handle(stream: TcpStream) -> (TcpStream, Handle) {
    let stream = stream.into_std().unwrap();
    let handle = Handle(stream.try_clone().unwrap());
    (TcpStream::from_std(stream).unwrap(), handle)
}

/// Serves `stream` until either side ends it.
pub(crate) async fn serve<S>(stream: S, handle: Handle, id: usize, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (read, mut write) = tokio::io::split(stream);
    let (arrivals, mut arrived) = mpsc::unbounded_channel();
    let (gone_sender, mut gone) = watch::channel(false);
    let reading = {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            read_requests(read, id, &shared, &arrivals).await;
            shared.record.gone(id);
            gone_sender.send_replace(true);
        })
    };
    let mut ending = Ending::Open;
    while ending == Ending::Open
        && let Some(request) = arrived.recv().await
    {
        let answer = shared.answer(&request);
        ending = tokio::select! {
            ending = carry_out(answer, &mut write, &shared) => ending,
            _ = gone.wait_for(|gone| *gone) => Ending::Close,
        };
    }
    if ending == Ending::Reset {
        let _ = socket2::SockRef::from(&handle.0).set_linger(Some(Duration::ZERO));
    } else {
        let _ = write.shutdown().await;
    }
    reading.abort();
    let _ = reading.await;
}

/// The state of a connection after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Open,
    Close,
    Reset,
}

async fn carry_out<S: AsyncWrite>(answer: Answer, write: &mut WriteHalf<S>, shared: &Shared) -> Ending {
    for step in answer.steps {
        match step {
            Step::Send(bytes) => {
                if send(write, &bytes, shared).await.is_err() {
                    return Ending::Close;
                }
            }
            Step::Wait(gate) => gate.pass().await,
            Step::Hang => std::future::pending().await,
            Step::Close => return Ending::Close,
            Step::Reset => return Ending::Reset,
            Step::Repeat(bytes) => while send(write, &bytes, shared).await.is_ok() {},
        }
    }
    Ending::Open
}

async fn send<S: AsyncWrite>(write: &mut WriteHalf<S>, bytes: &[u8], shared: &Shared) -> std::io::Result<()> {
    let mut left = bytes;
    while left.has_remaining() {
        let taken = write.write_buf(&mut left).await?;
        shared.sent_bytes.fetch_add(taken as u64, Ordering::Relaxed);
    }
    write.flush().await
}

/// Reads requests until the other side closes or resets the connection.
async fn read_requests<S: AsyncRead>(
    mut read: ReadHalf<S>,
    id: usize,
    shared: &Shared,
    arrivals: &mpsc::UnboundedSender<Received>,
) {
    let mut buffer = BytesMut::new();
    while let Some(received) = read_request(&mut read, &mut buffer, id).await {
        shared.record.arrived(received.clone());
        let _ = arrivals.send(received);
    }
}

async fn read_request<S: AsyncRead>(
    read: &mut ReadHalf<S>,
    buffer: &mut BytesMut,
    connection: usize,
) -> Option<Received> {
    let end = read_until(read, buffer, b"\r\n\r\n").await?;
    let head = String::from_utf8_lossy(&buffer[..end - 4]).into_owned();
    buffer.advance(end);
    let mut received = Received { connection, at: Instant::now(), head, body: Bytes::new() };
    received.body = if received.header("transfer-encoding") == Some("chunked") {
        read_chunks(read, buffer).await?
    } else {
        let length = received.header("content-length").map_or(0, |length| length.parse().unwrap());
        read_exact(read, buffer, length).await?
    };
    received.at = Instant::now();
    Some(received)
}

async fn read_chunks<S: AsyncRead>(read: &mut ReadHalf<S>, buffer: &mut BytesMut) -> Option<Bytes> {
    let mut body = BytesMut::new();
    loop {
        let end = read_until(read, buffer, b"\r\n").await?;
        let line = read_exact(read, buffer, end).await?;
        let length = usize::from_str_radix(std::str::from_utf8(&line[..end - 2]).ok()?, 16).ok()?;
        let chunk = read_exact(read, buffer, length + 2).await?;
        if length == 0 {
            return Some(body.freeze());
        }
        body.extend_from_slice(&chunk[..length]);
    }
}

async fn read_exact<S: AsyncRead>(
    read: &mut ReadHalf<S>,
    buffer: &mut BytesMut,
    length: usize,
) -> Option<Bytes> {
    while buffer.len() < length {
        fill(read, buffer).await?;
    }
    Some(buffer.split_to(length).freeze())
}

/// Returns the index after the first `end` in the stream.
async fn read_until<S: AsyncRead>(
    read: &mut ReadHalf<S>,
    buffer: &mut BytesMut,
    end: &[u8],
) -> Option<usize> {
    loop {
        if let Some(at) = buffer.windows(end.len()).position(|window| window == end) {
            return Some(at + end.len());
        }
        fill(read, buffer).await?;
    }
}

async fn fill<S: AsyncRead>(read: &mut ReadHalf<S>, buffer: &mut BytesMut) -> Option<()> {
    buffer.reserve(64 << 10);
    match read.read_buf(buffer).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}
