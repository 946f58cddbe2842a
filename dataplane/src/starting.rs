//! Answers on the listener of a gateway that waits for its database before it can serve: it lives, and is not ready.
//!
//! Connections that are not accepted when this ends stay in the queue of the listener, for the workers.

use std::future::{Ready, ready};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Request, Response};
use shared::alarm::Alarm;
use shared::answer_head::X_REQUEST_ID;
use shared::base_path::BasePath;
use shared::build::BuildIdentity;
use shared::error_kind::ErrorKind;
use shared::operation::Operation;
use tokio::net::TcpListener;
use tokio::runtime::LocalOptions;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::CoarseClock;
use crate::error::Fault;
use crate::exchange::family;
use crate::inbox::{Message, WorkerHandle};
use crate::operation::error_response::error_response;
use crate::operation::health;
use crate::relay::ResponseBody;
use crate::request_id::RequestIds;
use crate::route;
use crate::route::google::is_of_google;
use crate::server::accept;
use crate::server::body::Inbound;
use crate::server::connections::Connections;
use crate::server::io::{ConnectionState, Order, Phase};
use crate::server::service::{Connect, Service};
use crate::settings::Settings;

/// The running thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Starting {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Starting {
    /// Starts to answer on `listener`, which the workers serve later.
    pub fn start(
        listener: &StdListener,
        settings: Settings,
        build: BuildIdentity,
        alarm: &Alarm,
    ) -> io::Result<Self> {
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let (end, ended) = oneshot::channel();
        let thread = alarm.spawn("llmgw-starting", move || run(listener, settings, build, ended))?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn run(
    listener: StdListener,
    settings: Settings,
    build: BuildIdentity,
    ended: oneshot::Receiver<()>,
) -> io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let (total, clock) = (Arc::<AtomicUsize>::default(), CoarseClock::default());
        let base_path = settings.base_path.clone();
        let connections = Connections::new(Arc::new(settings), Arc::clone(&total), clock.clone());
        let server =
            StartingServer(Rc::new(Answers { connections, build, base_path, ids: RequestIds::new() }));
        // Nothing is sent to the worker: it is the one that accepts.
        let worker = WorkerHandle { inbox: mpsc::channel::<Message>(1).0, load: Arc::default() };
        // The listener is not closed: the workers go on with it.
        let (_open, close) = watch::channel(None);
        tokio::select! {
            () = accept::accept(listener, server.clone(), vec![worker], close) => {}
            () = sweep(&server.0.connections, &clock) => {}
            _ = ended => {}
        }
        server.0.connections.command_all(Order::Finish);
        let until = tokio::time::Instant::now() + END_TIME;
        while total.load(Ordering::Relaxed) > 0 && tokio::time::Instant::now() < until {
            tokio::time::sleep(END_LOOK).await;
        }
        Ok(())
    })
}

/// Closes connections with slow heads, once a second.
async fn sweep(connections: &Connections, clock: &CoarseClock) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        clock.advance();
        connections.sweep();
    }
}

/// What all connections answer by.
struct Answers {
    connections: Connections,
    build: BuildIdentity,
    base_path: BasePath,
    ids: RequestIds,
}

#[derive(Clone)]
struct StartingServer(Rc<Answers>);

#[derive(Clone)]
struct StartingCaller {
    answers: Rc<Answers>,
    connection: Rc<ConnectionState>,
}

impl Connect for StartingServer {
    type Service = StartingCaller;

    fn connections(&self) -> &Connections {
        &self.0.connections
    }

    fn connect(&self, connection: &Rc<ConnectionState>, _: SocketAddr) -> StartingCaller {
        StartingCaller { answers: Rc::clone(&self.0), connection: Rc::clone(connection) }
    }
}

impl Service for StartingCaller {
    type Body = ResponseBody;
    type Future = Ready<Response<ResponseBody>>;

    fn call(&self, request: Request<Inbound>) -> Self::Future {
        let (path, headers) = (self.answers.base_path.below(request.uri().path()), request.headers());
        if route::operation(path) == Some(Operation::Health) {
            return ready(self.complete(health::health(&self.answers.build)));
        }
        let fault = Fault::new(ErrorKind::DatabaseUnreachable, WAITS).retry_after(RETRY_AFTER);
        ready(self.fail(path, headers, fault))
    }

    fn refuse(&self, path: &str, fault: Fault) -> Response<ResponseBody> {
        self.fail(self.answers.base_path.below(path), &HeaderMap::new(), fault)
    }
}

impl StartingCaller {
    fn fail(&self, path: &str, headers: &HeaderMap, fault: Fault) -> Response<ResponseBody> {
        let id = self.answers.ids.next();
        let mut response =
            error_response(fault, family(path, headers, is_of_google(path)), id.to_str().unwrap_or_default());
        response.headers_mut().insert(X_REQUEST_ID, id);
        self.complete(response)
    }

    /// Ends the connection with its answer, so that the next request finds a worker.
    fn complete(&self, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
        if self.connection.phase() != Phase::Http2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

const WAITS: &str = "The gateway starts, and waits for its database, which cannot be reached or accepts no changes; see its log.";
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The time for answers that are being sent when the workers take over.
const END_TIME: Duration = Duration::from_secs(1);
const END_LOOK: Duration = Duration::from_millis(10);
