//! A scripted upstream that speaks HTTP/2 with prior knowledge. hyper handles the frames. A test controls the answer,
//! its pace and its end, and observes when the gateway released a stream.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::upstream::{Gate, Received, Record};
use super::wait;

/// A scripted HTTP/2 upstream.
pub(crate) struct H2Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: tokio::task::JoinHandle<()>,
}

/// The answer to every request.
#[derive(Clone)]
pub(crate) struct H2Answer {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    /// Sent as one frame each; each waits for the gate if there is one.
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) gate: Option<Gate>,
    /// True to reset the stream after the last piece instead of ending it.
    pub(crate) reset: bool,
}

struct Shared {
    record: Record,
    answer: Mutex<H2Answer>,
    taken_bytes: AtomicU64,
    /// The number of connections accepted so far.
    connections: watch::Sender<usize>,
    /// The number of these connections that have been sent GOAWAY.
    leaving: watch::Sender<usize>,
}

impl H2Upstream {
    /// Listens on a free port and answers every request with `answer`.
    pub(crate) async fn start(answer: H2Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            record: Record::default(),
            answer: Mutex::new(answer),
            taken_bytes: AtomicU64::new(0),
            connections: watch::Sender::new(0),
            leaving: watch::Sender::new(0),
        });
        let listening = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, listening }
    }

    /// Returns the value for a provider's `base_url`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Sets the answer to all further requests.
    pub(crate) fn answer(&self, answer: H2Answer) {
        *self.shared.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// Returns the number of bytes of bodies that the frames have taken so far.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.shared.taken_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        *self.shared.connections.borrow()
    }

    /// Sends GOAWAY on every connection so far: no further request may be sent; running ones continue.
    pub(crate) fn go_away(&self) {
        self.shared.leaving.send_replace(self.connections());
    }

    /// Returns all requests so far. Their `connection` is the stream number.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.shared.record.requests()
    }

    /// Waits until request number `index` has arrived completely.
    pub(crate) async fn request(&self, index: usize) -> Received {
        wait::within(wait::PATIENCE, "a request over HTTP/2", self.shared.record.request(index)).await
    }

    /// Waits until stream number `index` has ended, or the gateway has reset it, and returns the time.
    pub(crate) async fn released(&self, index: usize) -> std::time::Instant {
        wait::within(wait::PATIENCE, "the release of a stream", self.shared.record.closed(index)).await
    }
}

impl Drop for H2Upstream {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let own = Arc::clone(&shared);
        let service = hyper::service::service_fn(move |request| {
            let shared = Arc::clone(&own);
            async move { Ok::<_, std::convert::Infallible>(answer(request, &shared).await) }
        });
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let number = *shared.connections.borrow() + 1;
        shared.connections.send_replace(number);
        let mut leaving = shared.leaving.subscribe();
        tokio::spawn(async move {
            let mut connection = std::pin::pin!(serving.serve_connection(TokioIo::new(stream), service));
            tokio::select! {
                _ = &mut connection => return,
                _ = leaving.wait_for(|&last| last >= number) => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        });
    }
}

async fn answer(request: http::Request<Incoming>, shared: &Arc<Shared>) -> http::Response<Pieces> {
    let (head, body) = request.into_parts();
    let mut text = format!("{} {} HTTP/2", head.method, head.uri);
    for (name, value) in &head.headers {
        text.push_str(&format!("\r\n{name}: {}", String::from_utf8_lossy(value.as_bytes())));
    }
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let stream = shared.record.requests().len();
    let at = std::time::Instant::now();
    shared.record.arrived(Received { connection: stream, at, head: text, body });
    let script = shared.answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let builder = http::Response::builder().status(script.status).header("content-type", script.content_type);
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        for piece in script.pieces {
            if let Some(gate) = &script.gate {
                gate.pass().await;
            }
            let _ = sender.send(Ok(piece)).await;
        }
        if script.reset {
            let _ = sender.send(Err(std::io::Error::other("scripted reset"))).await;
        }
    });
    builder.body(Pieces { receiver, shared: Arc::clone(shared), stream }).unwrap()
}

/// The body of an answer. Dropping it records the end of the stream.
struct Pieces {
    receiver: mpsc::Receiver<std::io::Result<Bytes>>,
    shared: Arc<Shared>,
    stream: usize,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let piece = std::task::ready!(self.receiver.poll_recv(context));
        if let Some(Ok(piece)) = &piece {
            self.shared.taken_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.shared.record.gone(self.stream);
    }
}
