//! An HTTP/2 upstream that reads and writes the frames itself, so that it can do what no library does for it: refuse a
//! stream, send GOAWAY across requests, announce a limit on streams, or go silent with its sockets open.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use super::upstream::Gate;
use super::{chat, wait};

/// What the upstream does with a request.
#[derive(Clone)]
pub(crate) enum Reaction {
    /// Answers with a completion.
    Answer,
    /// Answers once the gate lets it pass.
    Hold(Gate),
    /// Resets the stream with REFUSED_STREAM.
    Refuse,
    /// Sends GOAWAY(NO_ERROR): this request, and all later ones of the connection, are not processed.
    GoAway,
    /// Closes the connection without a word.
    Close,
    /// Reads and writes nothing more on this connection, and keeps it open.
    Freeze,
}

/// Returns the reaction to a request: the number of its connection and its number there, both counted from 0.
type React = dyn Fn(usize, usize) -> Reaction + Send + Sync;

/// A handwritten HTTP/2 upstream.
pub(crate) struct FrameUpstream {
    address: SocketAddr,
    scheme: &'static str,
    counts: watch::Sender<Counts>,
    listening: tokio::task::JoinHandle<()>,
}

/// The counts of an upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Connections accepted so far.
    pub(crate) connections: usize,
    /// Connections that the gateway has closed.
    pub(crate) closed: usize,
    /// Requests that have arrived completely, processed or not.
    pub(crate) requests: usize,
    /// The most streams that were open on one connection at the same time.
    pub(crate) streams_at_once: usize,
    /// Streams that were refused or lost to a GOAWAY.
    pub(crate) unprocessed: usize,
}

struct Script {
    react: Box<React>,
    /// The announced SETTINGS_MAX_CONCURRENT_STREAMS.
    streams_max: Option<u32>,
    counts: watch::Sender<Counts>,
}

impl FrameUpstream {
    /// Listens on a free port in clear text.
    pub(crate) async fn start(react: impl Fn(usize, usize) -> Reaction + Send + Sync + 'static) -> Self {
        Self::listen(None, None, Box::new(react)).await
    }

    /// Like [`FrameUpstream::start`], with a limit on concurrent streams.
    pub(crate) async fn limited(
        streams_max: u32,
        react: impl Fn(usize, usize) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        Self::listen(None, Some(streams_max), Box::new(react)).await
    }

    /// Like [`FrameUpstream::start`], behind TLS.
    pub(crate) async fn start_tls(
        acceptor: TlsAcceptor,
        react: impl Fn(usize, usize) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Some(acceptor), None, Box::new(react)).await
    }

    async fn listen(tls: Option<TlsAcceptor>, streams_max: Option<u32>, react: Box<React>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let counts = watch::Sender::new(Counts::default());
        let script = Arc::new(Script { react, streams_max, counts: counts.clone() });
        let listening = tokio::spawn(accept(listener, tls, script));
        Self { address, scheme, counts, listening }
    }

    /// Returns the value for a provider's `base_url`.
    pub(crate) fn base_url(&self) -> String {
        let host = if self.scheme == "https" { "localhost" } else { "127.0.0.1" };
        format!("{}://{host}:{}/v1", self.scheme, self.address.port())
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Waits until `count` requests have arrived.
    pub(crate) async fn requests(&self, count: usize) {
        let mut counts = self.counts.subscribe();
        let arrived = counts.wait_for(|counts| counts.requests >= count);
        let what = format!("{count} requests at the upstream");
        drop(wait::within(2 * wait::PATIENCE, &what, arrived).await.unwrap());
    }
}

impl Drop for FrameUpstream {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, script: Arc<Script>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let number = script.counts.borrow().connections;
        script.counts.send_modify(|counts| counts.connections += 1);
        let (script, tls) = (Arc::clone(&script), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(stream, number, &script).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, number, &script).await;
                    }
                }
            }
            script.counts.send_modify(|counts| counts.closed += 1);
        });
    }
}

/// Serves one connection until the gateway closes it.
async fn serve(stream: impl AsyncRead + AsyncWrite + Send + 'static, number: usize, script: &Script) {
    let (mut read, mut write) = tokio::io::split(stream);
    let (frames, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
    let writing = tokio::spawn(async move {
        while let Some(bytes) = queue.recv().await {
            if write.write_all(&bytes).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
    });
    let limit = script.streams_max.map_or(Vec::new(), |limit| [&[0, 3][..], &limit.to_be_bytes()].concat());
    let _ = frames.send(frame(SETTINGS, 0, 0, &limit));
    let _ = read_frames(&mut read, number, script, &frames).await;
    writing.abort();
}

async fn read_frames<S: AsyncRead>(
    read: &mut ReadHalf<S>,
    number: usize,
    script: &Script,
    frames: &mpsc::UnboundedSender<Vec<u8>>,
) -> std::io::Result<()> {
    read.read_exact(&mut [0; PREFACE_BYTES]).await?;
    let (mut requests, mut last, mut leaving) = (0, 0, false);
    let live = watch::Sender::new(0_usize);
    loop {
        let mut head = [0; 9];
        read.read_exact(&mut head).await?;
        let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        read.read_exact(&mut payload).await?;
        let (kind, flags) = (head[3], head[4]);
        if kind == SETTINGS && flags & ACK == 0 {
            let _ = frames.send(frame(SETTINGS, ACK, 0, &[]));
        } else if kind == PING && flags & ACK == 0 {
            let _ = frames.send(frame(PING, ACK, 0, &payload));
        }
        if kind == HEADERS {
            live.send_modify(|live| *live += 1);
            let streams = *live.borrow();
            script.counts.send_modify(|counts| counts.streams_at_once = counts.streams_at_once.max(streams));
        }
        if !matches!(kind, HEADERS | DATA) || flags & END_STREAM == 0 {
            continue;
        }
        let reaction = if leaving { Reaction::GoAway } else { (script.react)(number, requests) };
        requests += 1;
        script.counts.send_modify(|counts| {
            counts.requests += 1;
            counts.unprocessed += usize::from(matches!(reaction, Reaction::Refuse | Reaction::GoAway));
        });
        match reaction {
            Reaction::Answer => answer(stream, frames, &live),
            Reaction::Hold(gate) => {
                let (frames, live) = (frames.clone(), live.clone());
                tokio::spawn(async move {
                    gate.pass().await;
                    answer(stream, &frames, &live);
                });
            }
            Reaction::Refuse => {
                live.send_modify(|live| *live -= 1);
                let _ = frames.send(frame(RST_STREAM, 0, stream, &REFUSED.to_be_bytes()));
            }
            Reaction::GoAway if leaving => {}
            Reaction::GoAway => {
                leaving = true;
                let last: u32 = last;
                let _ = frames.send(frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat()));
            }
            Reaction::Close => return Ok(()),
            Reaction::Freeze => std::future::pending().await,
        }
        if !leaving {
            last = stream;
        }
    }
}

fn answer(stream: u32, frames: &mpsc::UnboundedSender<Vec<u8>>, live: &watch::Sender<usize>) {
    live.send_modify(|live| *live -= 1);
    // `:status: 200` and `content-type`, entries 8 and 31 of the static table.
    let head = [&[0x88, 0x0f, 0x10, 16][..], b"application/json"].concat();
    let body = chat::completion("ok");
    let answer =
        [frame(HEADERS, END_HEADERS, stream, &head), frame(DATA, END_STREAM, stream, body.as_bytes())];
    let _ = frames.send(answer.concat());
}

/// Encodes one HTTP/2 frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

const PREFACE_BYTES: usize = 24;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// The error code REFUSED_STREAM.
const REFUSED: u32 = 7;
