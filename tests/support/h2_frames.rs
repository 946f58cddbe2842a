//! An HTTP/2 upstream that reads and writes the frames itself, so that it can do what no library does for it: refuse a
//! stream, send GOAWAY across requests, announce a limit on streams, or go silent with its sockets open.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// Writes the bytes that the function makes for the stream, each piece by itself.
    Write(Arc<Writing>),
}

/// Returns what is written for a request, by the number of its stream.
type Writing = dyn Fn(u32) -> Vec<Vec<u8>> + Send + Sync;

impl Reaction {
    /// Writes these pieces, each by itself.
    pub(crate) fn write(pieces: impl Fn(u32) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self::Write(Arc::new(pieces))
    }
}

/// How an upstream behaves on every connection.
pub(crate) struct Manners {
    /// Where it listens; port 0 stands for a free one.
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsAcceptor>,
    /// The settings that it announces first.
    pub(crate) settings: Vec<(u16, u32)>,
    /// True if it reacts to the head of a request instead of to its end.
    pub(crate) reacts_to_heads: bool,
    /// True if it opens the windows again by what it has read.
    pub(crate) grants: bool,
}

impl Default for Manners {
    fn default() -> Self {
        let address = ([127, 0, 0, 1], 0).into();
        Self { address, tls: None, settings: Vec::new(), reacts_to_heads: false, grants: true }
    }
}

/// Returns the reaction to a request: the number of its connection and its number there, both counted from 0.
type React = dyn Fn(usize, usize) -> Reaction + Send + Sync;

/// A handwritten HTTP/2 upstream.
pub(crate) struct FrameUpstream {
    address: SocketAddr,
    scheme: &'static str,
    script: Arc<Script>,
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
    /// DATA frames, and the bytes in them.
    pub(crate) data_frames: usize,
    pub(crate) data_bytes: usize,
    /// Streams that the gateway has reset.
    pub(crate) resets: usize,
    /// Acknowledgements of settings.
    pub(crate) settings_acks: usize,
}

struct Script {
    react: Box<React>,
    manners: Manners,
    counts: watch::Sender<Counts>,
    connections: Mutex<Vec<Connection>>,
}

/// The observations of a connection.
struct Connection {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    /// The header blocks of its requests.
    heads: Vec<Vec<u8>>,
}

impl FrameUpstream {
    /// Listens on a free port in clear text.
    pub(crate) async fn start(react: impl Fn(usize, usize) -> Reaction + Send + Sync + 'static) -> Self {
        Self::with(Manners::default(), react).await
    }

    /// Like [`FrameUpstream::start`], with a limit on concurrent streams.
    pub(crate) async fn limited(
        streams_max: u32,
        react: impl Fn(usize, usize) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let settings = vec![(MAX_CONCURRENT_STREAMS, streams_max)];
        Self::with(Manners { settings, ..Manners::default() }, react).await
    }

    /// Like [`FrameUpstream::start`], behind TLS.
    pub(crate) async fn start_tls(
        acceptor: TlsAcceptor,
        react: impl Fn(usize, usize) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        Self::with(Manners { tls: Some(acceptor), ..Manners::default() }, react).await
    }

    /// Like [`FrameUpstream::start`], with these manners.
    pub(crate) async fn with(
        manners: Manners,
        react: impl Fn(usize, usize) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(manners.address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if manners.tls.is_some() { "https" } else { "http" };
        let counts = watch::Sender::new(Counts::default());
        let script = Script { react: Box::new(react), manners, counts, connections: Mutex::default() };
        let script = Arc::new(script);
        let listening = tokio::spawn(accept(listener, Arc::clone(&script)));
        Self { address, scheme, script, listening }
    }

    /// Returns the value for a provider's `base_url`.
    pub(crate) fn base_url(&self) -> String {
        let host = if self.scheme == "https" { "localhost" } else { "127.0.0.1" };
        format!("{}://{host}:{}/v1", self.scheme, self.address.port())
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> Counts {
        *self.script.counts.borrow()
    }

    /// Returns the port on which it listens.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Writes bytes on a connection, counted from 0.
    pub(crate) fn say(&self, connection: usize, bytes: Vec<u8>) {
        let connections = self.script.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = connections[connection].frames.send(bytes);
    }

    /// Returns the header blocks of the requests of a connection.
    pub(crate) fn heads(&self, connection: usize) -> Vec<Vec<u8>> {
        let connections = self.script.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections[connection].heads.clone()
    }

    /// Waits until the counts are as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Counts) -> bool) -> Counts {
        let mut counts = self.script.counts.subscribe();
        let met = counts.wait_for(|counts| wanted(counts));
        *wait::within(2 * wait::PATIENCE, what, met).await.unwrap()
    }

    /// Waits until `count` requests have arrived.
    pub(crate) async fn requests(&self, count: usize) {
        self.until(&format!("{count} requests at the upstream"), |counts| counts.requests >= count).await;
    }
}

impl Drop for FrameUpstream {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn accept(listener: TcpListener, script: Arc<Script>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let number = script.counts.borrow().connections;
        let (frames, queue) = mpsc::unbounded_channel();
        let connection = Connection { frames: frames.clone(), heads: Vec::new() };
        script.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        script.counts.send_modify(|counts| counts.connections += 1);
        let script = Arc::clone(&script);
        tokio::spawn(async move {
            match script.manners.tls.clone() {
                None => serve(stream, number, &script, (frames, queue)).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, number, &script, (frames, queue)).await;
                    }
                }
            }
            script.counts.send_modify(|counts| counts.closed += 1);
        });
    }
}

type Frames = (mpsc::UnboundedSender<Vec<u8>>, mpsc::UnboundedReceiver<Vec<u8>>);

/// Serves one connection until the gateway closes it.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    number: usize,
    script: &Script,
    (frames, mut queue): Frames,
) {
    let (mut read, mut write) = tokio::io::split(stream);
    let _ = frames.send(settings(&script.manners.settings));
    let writing = tokio::spawn(async move {
        while let Some(bytes) = queue.recv().await {
            if write.write_all(&bytes).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
    });
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
    let (mut requests, mut last, mut leaving) = (0, 0_u32, false);
    let live = watch::Sender::new(0_usize);
    loop {
        let mut head = [0; 9];
        read.read_exact(&mut head).await?;
        let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        read.read_exact(&mut payload).await?;
        let (kind, flags) = (head[3], head[4]);
        match kind {
            SETTINGS if flags & ACK == 0 => drop(frames.send(frame(SETTINGS, ACK, 0, &[]))),
            PING if flags & ACK == 0 => drop(frames.send(frame(PING, ACK, 0, &payload))),
            _ => {}
        }
        script.note(number, (kind, flags), &payload);
        if script.manners.grants && kind == DATA && length > 0 {
            let bytes = u32::try_from(length).unwrap().to_be_bytes();
            let _ = frames.send([0, stream].map(|stream| frame(WINDOW_UPDATE, 0, stream, &bytes)).concat());
        }
        if kind == HEADERS {
            live.send_modify(|live| *live += 1);
            let streams = *live.borrow();
            script.counts.send_modify(|counts| counts.streams_at_once = counts.streams_at_once.max(streams));
        }
        let is_awaited = match script.manners.reacts_to_heads {
            true => kind == HEADERS,
            false => matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0,
        };
        if !is_awaited {
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
            Reaction::Write(pieces) => {
                live.send_modify(|live| *live -= 1);
                pieces(stream).into_iter().for_each(|piece| drop(frames.send(piece)));
            }
            Reaction::Refuse => {
                live.send_modify(|live| *live -= 1);
                let _ = frames.send(frame(RST_STREAM, 0, stream, &REFUSED.to_be_bytes()));
            }
            Reaction::GoAway if leaving => {}
            Reaction::GoAway => {
                leaving = true;
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

impl Script {
    /// Counts a frame and keeps the block of a head.
    fn note(&self, number: usize, (kind, flags): (u8, u8), payload: &[u8]) {
        self.counts.send_modify(|counts| match kind {
            DATA => {
                counts.data_frames += 1;
                counts.data_bytes += payload.len();
            }
            RST_STREAM => counts.resets += 1,
            SETTINGS if flags & ACK != 0 => counts.settings_acks += 1,
            _ => {}
        });
        if kind == HEADERS {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections[number].heads.push(payload.to_vec());
        }
    }
}

fn answer(stream: u32, frames: &mpsc::UnboundedSender<Vec<u8>>, live: &watch::Sender<usize>) {
    live.send_modify(|live| *live -= 1);
    let _ = frames.send(completion(stream, "ok"));
}

/// Returns the frames of an answer with a completion.
pub(crate) fn completion(stream: u32, text: &str) -> Vec<u8> {
    let body = chat::completion(text);
    [head(stream, "application/json"), frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}

/// Returns the head of an answer with status 200.
pub(crate) fn head(stream: u32, content_type: &str) -> Vec<u8> {
    // `:status: 200` and `content-type`, entries 8 and 31 of the static table.
    let length = u8::try_from(content_type.len()).unwrap();
    frame(HEADERS, END_HEADERS, stream, &[&[0x88, 0x0f, 0x10, length][..], content_type.as_bytes()].concat())
}

/// Encodes a SETTINGS frame.
pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let entry = |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &values.iter().map(entry).collect::<Vec<_>>().concat())
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
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// The error code REFUSED_STREAM.
const REFUSED: u32 = 7;

/// Names of settings.
pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
