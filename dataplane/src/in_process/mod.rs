//! The data plane's interface for the control service: it answers requests without a socket and makes outgoing
//! requests. A worker does both; the callers may be on any thread.
//!
//! Workers end when all senders of their inbox are dropped, so the types here hold only weak senders.

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use shared::error_kind::ErrorKind;
use shared::port::{self, BoxError, BoxFuture, Handler, HttpClient, HttpLimits, Insider};
use tokio::sync::{mpsc, oneshot};
use wire::envelope::{self, EnvelopeFamily};

use crate::admit::authenticate::LastKey;
use crate::exchange::{self, Caller};
use crate::server::accept::{Door, Message};
use crate::server::body::Inbound;
use crate::upstream::fetch;
use crate::worker::Worker;

/// Sends in-process requests to the workers, through weak senders.
#[derive(Debug)]
pub(crate) struct Inside {
    doors: Vec<WeakDoor>,
}

#[derive(Debug)]
struct WeakDoor {
    inbox: mpsc::WeakSender<Message>,
    live: Arc<AtomicUsize>,
}

/// A request for a worker to answer.
#[derive(Debug)]
pub(crate) struct Visit {
    request: Request<port::Body>,
    insider: Option<Insider>,
    peer: SocketAddr,
    reply: oneshot::Sender<Response<port::Body>>,
}

/// An outgoing request for a worker to make.
#[derive(Debug)]
pub(crate) struct Errand {
    request: Request<Bytes>,
    limits: HttpLimits,
    reply: oneshot::Sender<Result<Response<Bytes>, BoxError>>,
}

impl Inside {
    pub(crate) fn new(doors: &[Door]) -> Self {
        let weak = |door: &Door| WeakDoor { inbox: door.inbox.downgrade(), live: Arc::clone(&door.live) };
        Self { doors: doors.iter().map(weak).collect() }
    }

    /// Sends `message` to the worker with the fewest connections.
    fn send(&self, message: Message) -> Result<(), (ErrorKind, &'static str)> {
        let fewest = self.doors.iter().min_by_key(|door| door.live.load(Ordering::Relaxed));
        let inbox = fewest.and_then(|door| door.inbox.upgrade()).ok_or(STOPPING)?;
        inbox.try_send(message).map_err(|_| BUSY)
    }
}

const STOPPING: (ErrorKind, &str) = (ErrorKind::Draining, "The gateway is stopping.");
const BUSY: (ErrorKind, &str) = (ErrorKind::Overloaded, "The gateway is too busy for this. Try again.");

impl Handler for Inside {
    fn handle(&self, mut request: Request<port::Body>, peer: SocketAddr) -> BoxFuture<Response<port::Body>> {
        let insider = request.extensions_mut().remove::<Insider>();
        let (reply, answer) = oneshot::channel();
        let sent = self.send(Message::Visit(Box::new(Visit { request, insider, peer, reply })));
        Box::pin(async move {
            match sent {
                Ok(()) => answer.await.unwrap_or_else(|_| refusal(STOPPING)),
                Err(why) => refusal(why),
            }
        })
    }
}

fn refusal((kind, message): (ErrorKind, &str)) -> Response<port::Body> {
    let body = envelope::error_body(EnvelopeFamily::OpenAi, kind.row(), message, None, "");
    let mut response = Response::new(port::full(body));
    *response.status_mut() = StatusCode::from_u16(kind.row().status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl HttpClient for Inside {
    fn send(
        &self,
        request: Request<Bytes>,
        limits: HttpLimits,
    ) -> BoxFuture<Result<Response<Bytes>, BoxError>> {
        let (reply, answer) = oneshot::channel();
        let sent = Self::send(self, Message::Errand(Box::new(Errand { request, limits, reply })));
        Box::pin(async move {
            sent.map_err(|(_, why)| why)?;
            answer.await.map_err(|_| STOPPING.1)?
        })
    }
}

/// Answers a request on this worker. Ends when the answer has been read, or when its receiver is dropped.
pub(crate) async fn visit(worker: Rc<Worker>, visit: Visit) {
    let Visit { request, insider, peer, mut reply } = visit;
    let link = worker.detached_link();
    let caller = Rc::new(Caller { worker, link, peer, last_key: LastKey::default(), insider });
    let answering = exchange::respond(caller, request.map(Inbound::Inside));
    // Either arm may be dropped: if the receiver is gone, the answer is not needed; if the answer is ready, nothing
    // more is awaited.
    let response = tokio::select! {
        response = answering => response,
        () = reply.closed() => return,
    };
    let (head, body) = response.into_parts();
    let (pump, piped) = pipe(body);
    if reply.send(Response::from_parts(head, piped.boxed_unsync())).is_ok() {
        pump.await;
    }
}

/// Returns a future and a body that can be read on any thread. The future feeds that body from `body` while it is
/// polled on this thread.
pub(crate) fn pipe<B>(body: B) -> (impl Future<Output = ()>, Piped)
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Unpin,
{
    let (frames, piped) = mpsc::channel(1);
    let ended = body.is_end_stream();
    (pump(body, frames), Piped { frames: piped, ended })
}

/// Makes a request on this worker. Cancels it when the receiver of the answer is dropped.
pub(crate) async fn errand(worker: Rc<Worker>, errand: Errand) {
    let Errand { request, limits, mut reply } = errand;
    let answer = tokio::select! {
        answer = fetch::fetch(&worker, request, limits) => answer,
        () = reply.closed() => return,
    };
    reply.send(answer).ok();
}

type Item = Option<Result<Frame<Bytes>, BoxError>>;

/// Forwards the frames of `body` at the receiver's pace. Drops the body, which cancels it, when the receiver is dropped.
async fn pump<B>(mut body: B, frames: mpsc::Sender<Item>)
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Unpin,
{
    while let Ok(room) = frames.reserve().await {
        let item = tokio::select! {
            item = body.frame() => item,
            () = frames.closed() => return,
        };
        let more = matches!(item, Some(Ok(_)));
        room.send(item);
        if !more {
            return;
        }
    }
}

/// A body that a worker sends. If the channel closes before the end, the worker has ended and the body is an error.
#[derive(Debug)]
pub(crate) struct Piped {
    frames: mpsc::Receiver<Item>,
    ended: bool,
}

impl http_body::Body for Piped {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Item> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = ready!(self.frames.poll_recv(cx)).unwrap_or_else(|| Some(Err(STOPPING.1.into())));
        self.ended = !matches!(item, Some(Ok(_)));
        Poll::Ready(item)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests;
