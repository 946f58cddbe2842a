//! The control thread: takes requests for paths outside the data plane, answers them, and keeps the snapshot
//! current. It runs until [`Control::stop`], whatever a request does.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts as Head;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use shared::build::BuildIdentity;
use shared::error_kind::ErrorKind;
use shared::port::{Body, BoxFuture, Handler, HttpClient};
use shared::snapshot::{SnapshotPublisher, SnapshotReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::api::backups::Backups;
use crate::api::session::Gate;
use crate::api::usage::export::Exports;
use crate::api::{self, ApiError, App, RequestId};
use crate::config::Config;
use crate::console::Asset;
use crate::meter::writer::{Desk, Writer};
use crate::publish::{Publisher, Reloader};
use crate::refusals::{self, Counter, Refusals, Refused};
use crate::retention::Retention;
use crate::state::{Parts, State};
use crate::store::lock::StateLock;
use crate::store::readers::Readers;

/// What [`start`] needs.
pub struct Params {
    /// The opened state.
    pub state: State,
    /// The configuration as it was at start-up.
    pub config: Arc<Config>,
    /// What start-up warned of; shown in `GET /admin/api/state`.
    pub warnings: Vec<String>,
    /// Where snapshots go.
    pub publisher: SnapshotPublisher,
    /// Where they are read.
    pub reader: SnapshotReader,
    /// The data plane, for requests from inside the process.
    pub plane: Arc<dyn Handler>,
    /// The way to the outside.
    pub http: Arc<dyn HttpClient>,
    /// The console's files.
    pub asset: fn(&str) -> Option<Asset>,
    /// What this binary is.
    pub build: BuildIdentity,
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Params")
            .field("config", &self.config)
            .field("build", &self.build)
            .finish_non_exhaustive()
    }
}

/// The running control plane.
#[derive(Debug)]
pub struct Control {
    door: Arc<Door>,
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    readers: Vec<JoinHandle<()>>,
    writer: Writer,
    lock: StateLock,
}

/// Publishes the first snapshot and starts the threads.
pub fn start(params: Params) -> io::Result<Control> {
    let Parts { lock, path, mut meter, journal, keys } = params.state.into_parts();
    let keys = Arc::new(keys);
    let config = Arc::clone(&params.config);
    let retention = Retention::new(&config.lifetimes, Arc::clone(&journal.gauge().pruning));
    let backups = Backups::new(config.state_dir.clone(), config.lifetimes.backups_kept);
    let publisher = Publisher::start(config, Arc::clone(&keys), params.publisher, meter.db_mut())
        .map_err(io::Error::other)?;
    let (readers, reader_threads) = Readers::start(&path).map_err(io::Error::other)?;
    let view = publisher.view();
    let writer = Writer::start(Desk { meter, publisher, keys, retention })?;
    let scribe = writer.scribe();
    let file = scribe.clone();
    let reloader = Reloader::new(params.config, Box::new(move |routing| file.replace_file(routing)));
    let gate = Arc::new(Gate::new(params.reader.clone()));
    let app = App {
        snapshot: params.reader,
        gate: Arc::clone(&gate),
        readers,
        scribe,
        view,
        exports: Exports::new(path),
        journal,
        backups,
        reload: reloader.status(),
        warnings: params.warnings,
        build: params.build,
        asset: params.asset,
        started: Instant::now(),
        started_at_ms: shared::clock::unix_ms(),
        plane: params.plane,
        http: params.http,
    };
    let (visits, arriving) = mpsc::channel(VISITS_MAX);
    let (refusals, counter) = refusals::channel();
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let thread = thread::Builder::new()
        .name("llmgw-control".into())
        .spawn(move || runtime.block_on(run(Arc::new(app), reloader, arriving, (counter, stopped))))?;
    let door = Arc::new(Door { visits, gate, refusals, room: Arc::new(Semaphore::new(VISITS_MAX)) });
    Ok(Control { door, thread, stop, readers: reader_threads, writer, lock })
}

impl Control {
    /// Answers what the data plane does not.
    pub fn handler(&self) -> Arc<dyn Handler> {
        Arc::<Door>::clone(&self.door)
    }

    /// Ends the control plane: stores all usage that is queued, then lets go of the state directory. Blocks for
    /// as long as that takes, a few seconds at most. The data plane's usage logs should be dropped before.
    pub fn stop(self) {
        let Self { door, thread, stop, readers, writer, lock } = self;
        drop(door);
        let _ = stop.send(());
        for thread in std::iter::once(thread).chain(readers) {
            if thread.join().is_err() {
                tracing::error!("a thread of the control plane had ended before its time");
            }
        }
        writer.stop();
        drop(lock);
    }
}

/// The way into the control thread.
#[derive(Clone, Debug)]
struct Door {
    visits: mpsc::Sender<Visit>,
    gate: Arc<Gate>,
    refusals: Refusals,
    /// Requests that may be inside at the same time.
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Visit {
    request: api::Request,
    reply: oneshot::Sender<Response<Body>>,
    /// Held until the answer is ready.
    permit: OwnedSemaphorePermit,
}

impl Handler for Door {
    fn handle(&self, request: Request<Body>, peer: SocketAddr) -> BoxFuture<Response<Body>> {
        let door = self.clone();
        Box::pin(async move {
            let id = RequestId::of(request.headers());
            let (head, body) = request.into_parts();
            door.enter(head, body, peer).await.unwrap_or_else(|error| error.response(&id))
        })
    }
}

impl Door {
    /// A stranger is turned away before anything of the body is read.
    async fn enter(&self, head: Head, body: Body, peer: SocketAddr) -> Result<Response<Body>, ApiError> {
        let asks = api::asks_who(head.uri.path());
        let admitted = asks.then(|| self.gate.admit(&head, peer.ip())).transpose();
        let actor = admitted.inspect_err(|error| self.tell(error, &head, peer))?;
        let permit = Arc::clone(&self.room).try_acquire_owned().map_err(|_| told(FULL))?;
        let body = match actor {
            Some(_) => read(body).await?,
            None => Bytes::new(),
        };
        let (reply, answer) = oneshot::channel();
        let request = api::Request { parts: head, body, actor };
        self.visits.try_send(Visit { request, reply, permit }).map_err(|_| told(STOPPING))?;
        answer.await.map_err(|_| told(STOPPING))
    }

    /// Lets the audit know of somebody who was refused.
    fn tell(&self, error: &ApiError, head: &Head, peer: SocketAddr) {
        if let Some(reason) = error.refusal() {
            let route = format!("{} {}", head.method, head.uri.path());
            let request_id = RequestId::of(&head.headers).text();
            self.refusals.tell(Refused { address: peer.ip(), reason, route, request_id });
        }
    }
}

/// The whole body, which the data plane has bounded.
async fn read(body: Body) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(BODY_TIME_MAX, body.collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(ApiError::new(ErrorKind::BodyTooLarge, "The body is larger than the admin API takes."))
        }
        Ok(Err(_)) => Err(ApiError::new(ErrorKind::BadHttp, "The body broke off.")),
        Err(_) => Err(ApiError::new(ErrorKind::RequestTimeout, "The body did not come in time.")),
    }
}

fn told((kind, message): (ErrorKind, &'static str)) -> ApiError {
    ApiError::new(kind, message)
}

async fn run(
    app: Arc<App>,
    reloader: Reloader,
    mut arriving: mpsc::Receiver<Visit>,
    (counter, mut stopped): (Counter, oneshot::Receiver<()>),
) {
    let reloading = tokio::spawn(reloader.run());
    let (stop_counting, counting_stops) = oneshot::channel();
    let counting = tokio::spawn(counter.run(app.scribe.clone(), counting_stops));
    loop {
        let visit = tokio::select! {
            _ = &mut stopped => break,
            visit = arriving.recv() => visit,
        };
        let Some(visit) = visit else { break };
        tokio::spawn(receive(Arc::clone(&app), visit));
    }
    reloading.abort();
    let _ = stop_counting.send(());
    let _ = counting.await;
}

async fn receive(app: Arc<App>, visit: Visit) {
    let id = RequestId::of(&visit.request.parts.headers);
    let answer = tokio::time::timeout(ANSWER_TIME_MAX, api::answer(&app, &visit.request, &id)).await;
    drop(visit.permit);
    let _ = visit.reply.send(answer.unwrap_or_else(|_| told(TOO_SLOW).response(&id)));
}

/// Requests inside the control plane at the same time.
const VISITS_MAX: usize = 64;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
const FULL: (ErrorKind, &str) =
    (ErrorKind::Overloaded, "Too many requests to the admin API at the same time.");
const STOPPING: (ErrorKind, &str) = (ErrorKind::Draining, "The gateway is stopping.");
const TOO_SLOW: (ErrorKind, &str) = (ErrorKind::Overloaded, "The admin API took too long to answer.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_too_many_is_refused_at_once() {
        let (visits, mut arriving) = mpsc::channel(1);
        let (_, reader) = shared::snapshot::channel();
        let (refusals, _counter) = refusals::channel();
        let gate = Arc::new(Gate::new(reader));
        let door = Door { visits, gate, refusals, room: Arc::new(Semaphore::new(1)) };
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let request = || Request::get("/console").body(shared::port::full("")).unwrap();
        let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
        let mut waiting = door.handle(request(), peer);
        assert!(waiting.as_mut().poll(&mut nobody).is_pending());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let refused = runtime.block_on(door.handle(request(), peer));
        assert_eq!(refused.status(), 503);
        let visit = arriving.try_recv().unwrap();
        let _ = visit.reply.send(Response::new(shared::port::full("answer")));
        assert_eq!(runtime.block_on(waiting).status(), 200);
        drop(visit.permit);
        assert!(door.handle(request(), peer).as_mut().poll(&mut nobody).is_pending());
        assert!(arriving.try_recv().is_ok(), "there is room again");
    }
}
