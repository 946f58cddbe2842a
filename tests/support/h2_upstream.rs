//! A scripted upstream that speaks HTTP/2 with prior knowledge. Frames are hyper's; what a test decides is
//! the answer, its pace, and how it ends, and what it learns is when the gateway let go of a stream.

use std::net::SocketAddr;
use std::pin::Pin;
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

/// The upstream.
pub(crate) struct H2Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: tokio::task::JoinHandle<()>,
}

/// What every request gets.
#[derive(Clone)]
pub(crate) struct H2Answer {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    /// Written one frame each; each waits for the gate if there is one.
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) gate: Option<Gate>,
    /// Whether the stream is reset after the last piece instead of ended.
    pub(crate) reset: bool,
}

struct Shared {
    record: Record,
    answer: Mutex<H2Answer>,
    /// Connections so far.
    connections: watch::Sender<usize>,
    /// Of those, so many are told to go away.
    leaving: watch::Sender<usize>,
}

impl H2Upstream {
    /// Listens on a free port and answers everything with `answer`.
    pub(crate) async fn start(answer: H2Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            record: Record::default(),
            answer: Mutex::new(answer),
            connections: watch::Sender::new(0),
            leaving: watch::Sender::new(0),
        });
        let listening = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, listening }
    }

    /// What a provider's `base_url` should say.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Answers what follows with `answer`.
    pub(crate) fn answer(&self, answer: H2Answer) {
        *self.shared.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        *self.shared.connections.borrow()
    }

    /// Tells the other side of every connection so far, by GOAWAY, that no request may follow; those that run go on.
    pub(crate) fn go_away(&self) {
        self.shared.leaving.send_replace(self.connections());
    }

    /// Every request so far; `connection` counts streams here.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.shared.record.requests()
    }

    /// Request number `index`, as soon as it has arrived whole.
    pub(crate) async fn request(&self, index: usize) -> Received {
        wait::within(wait::PATIENCE, "a request over HTTP/2", self.shared.record.request(index)).await
    }

    /// When stream number `index` was over, be it by its end or by a reset from the gateway.
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

/// The body of an answer; its drop is the moment at which the stream is over.
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
        self.receiver.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.shared.record.gone(self.stream);
    }
}
