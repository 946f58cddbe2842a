//! The data plane's interface for the control service: it answers requests without a socket, makes outgoing requests,
//! and lists and cancels the running exchanges. Workers do all of that; the callers may be on any thread.
//!
//! Workers end when all senders of their inbox are dropped, so the types here hold only weak senders.

mod running;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use shared::error_kind::ErrorKind;
use shared::port::{self, BoxError, BoxFuture, Handler, HttpClient, HttpLimits, Insider, Rehearsal};
use tokio::sync::{mpsc, oneshot};
use wire::envelope::{self, EnvelopeFamily, GatewayError};

use crate::admit::authenticate::LastKey;
use crate::admit::labels::LastClient;
use crate::bounds::WORKER_MESSAGES;
use crate::caller::Caller;
use crate::exchange;
use crate::inbox::{Message, WorkerHandle};
use crate::pipe::pipe;
use crate::server::balance::{self, WorkerLoad};
use crate::server::body::Inbound;
use crate::upstream::fetch;
use crate::worker::Worker;

/// Sends in-process requests to the workers, through weak senders.
#[derive(Debug)]
pub(crate) struct InProcess {
    workers: Vec<WeakHandle>,
}

#[derive(Debug)]
struct WeakHandle {
    inbox: mpsc::WeakSender<Message>,
    load: Arc<WorkerLoad>,
}

/// A request for a worker to answer.
#[derive(Debug)]
struct InProcessRequest {
    request: Request<port::Body>,
    insider: Option<Insider>,
    rehearsal: Option<Rehearsal>,
    peer: SocketAddr,
    reply: oneshot::Sender<Response<port::Body>>,
}

/// An outgoing request for a worker to make.
#[derive(Debug)]
struct OutgoingRequest {
    request: Request<Bytes>,
    limits: HttpLimits,
    reply: oneshot::Sender<Result<Response<Bytes>, BoxError>>,
}

impl InProcess {
    pub(crate) fn new(workers: &[WorkerHandle]) -> Self {
        let weak = |worker: &WorkerHandle| WeakHandle {
            inbox: worker.inbox.downgrade(),
            load: Arc::clone(&worker.load),
        };
        Self { workers: workers.iter().map(weak).collect() }
    }

    /// Sends `message` to a worker with room.
    fn send(&self, message: Message) -> Result<(), (ErrorKind, &'static str)> {
        let index = balance::choose(self.workers.iter().map(|worker| &worker.load));
        let worker = index.and_then(|index| self.workers.get(index));
        let inbox = worker.and_then(|worker| worker.inbox.upgrade()).ok_or(STOPPING)?;
        inbox.try_send(message).map_err(|_| {
            WORKER_MESSAGES.reach();
            BUSY
        })
    }
}

const STOPPING: (ErrorKind, &str) = (ErrorKind::Draining, "The gateway is stopping.");
const BUSY: (ErrorKind, &str) = (ErrorKind::Overloaded, "The gateway is busy. Try again.");

impl Handler for InProcess {
    fn handle(&self, mut request: Request<port::Body>, peer: SocketAddr) -> BoxFuture<Response<port::Body>> {
        let insider = request.extensions_mut().remove::<Insider>();
        let rehearsal = request.extensions_mut().remove::<Rehearsal>();
        let (reply, answer) = oneshot::channel();
        let received = InProcessRequest { request, insider, rehearsal, peer, reply };
        let sent = self.send(Message::run(|worker| received.serve(worker)));
        Box::pin(async move {
            match sent {
                Ok(()) => answer.await.unwrap_or_else(|_| refusal(STOPPING)),
                Err(why) => refusal(why),
            }
        })
    }
}

fn refusal((kind, message): (ErrorKind, &str)) -> Response<port::Body> {
    let body = envelope::error_body(EnvelopeFamily::OpenAi, &GatewayError::new(kind.row(), message));
    let mut response = Response::new(port::full(body));
    *response.status_mut() = StatusCode::from_u16(kind.row().status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl HttpClient for InProcess {
    fn send(
        &self,
        request: Request<Bytes>,
        limits: HttpLimits,
    ) -> BoxFuture<Result<Response<Bytes>, BoxError>> {
        let (reply, answer) = oneshot::channel();
        let outgoing = OutgoingRequest { request, limits, reply };
        let sent = Self::send(self, Message::run(|worker| outgoing.serve(worker)));
        Box::pin(async move {
            sent.map_err(|(_, why)| why)?;
            answer.await.map_err(|_| STOPPING.1)?
        })
    }
}

impl InProcessRequest {
    /// Answers a request on this worker. Ends when the answer has been read, or when its receiver is dropped.
    async fn serve(self, worker: Rc<Worker>) {
        let Self { request, insider, rehearsal, peer, mut reply } = self;
        let connection = worker.connections.detached_state();
        let (last_key, last_client) = (LastKey::default(), LastClient::default());
        let caller = Rc::new(Caller { worker, connection, peer, last_key, last_client, insider, rehearsal });
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
}

impl OutgoingRequest {
    /// Makes a request on this worker. Cancels it when the receiver of the answer is dropped.
    async fn serve(self, worker: Rc<Worker>) {
        let Self { request, limits, mut reply } = self;
        let answer = tokio::select! {
            answer = fetch::fetch(&worker.process.tls, request, limits) => answer,
            () = reply.closed() => return,
        };
        reply.send(answer).ok();
    }
}

#[cfg(test)]
mod tests;
