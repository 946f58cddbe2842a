//! The control thread: accepts requests for paths outside the data plane, answers them, and keeps the snapshot
//! current. It runs until [`Control::stop`], regardless of what any request does.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts as Head;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use shared::activity::Activity;
use shared::adaptation::AdaptationTable;
use shared::alarm::Alarm;
use shared::build::BuildIdentity;
use shared::error_kind::ErrorKind;
use shared::port::{Body, BoxFuture, Exchanges, Handler, HttpClient, KeyHolder, MetricsReader};
use shared::request_traces::RequestTraces;
use shared::snapshot::{SnapshotPublisher, SnapshotReader};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle as JoinTask;

use crate::admin::authorize::{Caller, authorize};
use crate::admin::backups::Backups;
use crate::admin::gate::Gate;
use crate::admin::gate::identity::IdentityBoundary;
use crate::admin::in_flight::InFlightRequests;
use crate::admin::live::hub::LiveHub;
use crate::admin::observer::Observer;
use crate::admin::run::recording::Recordings;
use crate::admin::usage::export::Exports;
use crate::admin::{self, ApiError, App, RequestId};
use crate::background::Jobs;
use crate::catalog::cache::CatalogCache;
use crate::config::Config;
use crate::connection::{ProviderStanding, ViewCell};
use crate::console::Asset;
use crate::credential::AccessTokens;
use crate::db;
use crate::db::checkpoints::Checkpoints;
use crate::db::lock::StateLock;
use crate::db::readers::{Readers, WeakReaders};
use crate::otlp::OtlpStatus;
use crate::periodic::{self, spawn_vital};
use crate::publish::{Publisher, PublisherParams, Reloader, Reloading};
use crate::refusals::{self, RefusalCounter, Refusals, RefusedRequest};
use crate::state::{Parts, State};
use crate::telemetry::TelemetryThread;
use crate::usage::journal::Journal;
use crate::usage::retention::RetentionPass;
use crate::vault::VaultKeys;
use crate::writer::{Writer, WriterHandle, WriterState};

/// Parameters of [`start`].
pub struct Params {
    /// The opened state.
    pub state: State,
    /// The configuration as of start-up.
    pub config: Arc<Config>,
    /// Raised when a thread of the control plane ends early.
    pub alarm: Alarm,
    /// The warnings of start-up, shown in `GET /admin/api/state`.
    pub warnings: Vec<String>,
    /// Publishes new snapshots.
    pub publisher: SnapshotPublisher,
    /// Reads the current snapshot.
    pub reader: SnapshotReader,
    /// The data plane, for requests from inside the process.
    pub plane: Arc<dyn Handler>,
    /// The HTTP client for outbound requests.
    pub http: Arc<dyn HttpClient>,
    /// The tracing of requests; `None` if they are not traced.
    pub traces: Option<Arc<RequestTraces>>,
    /// The running exchanges of the data plane.
    pub exchanges: Arc<dyn Exchanges>,
    /// The adaptations of the data plane.
    pub adaptations: Vec<AdaptationTable>,
    /// The activity of the data plane.
    pub activity: Arc<Activity>,
    /// Looks up a file of the console by name.
    pub asset: fn(&str) -> Option<Asset>,
    /// The version and build of this binary.
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
    door: Arc<ControlHandle>,
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    readers: Vec<JoinHandle<()>>,
    /// The export of telemetry.
    otlp: Arc<OtlpStatus>,
    reloading: Reloading,
    writer: Writer,
    checkpoints: Checkpoints,
    telemetry: TelemetryThread,
    lock: StateLock,
}

/// Publishes the first snapshot and starts the threads.
pub fn start(params: Params) -> io::Result<Control> {
    let Parts { lock, files, mut meter, counters, journal, keys, telemetry } = params.state.into_parts();
    meter.begin();
    let (keys, config) = (Arc::new(keys), Arc::clone(&params.config));
    let (telemetry, telemetry_thread) = telemetry.start((&config.state_dir, &keys), &params.alarm)?;
    let jobs = Jobs::after(db::jobs::all(meter.db_mut()).map_err(io::Error::other)?);
    let backups = Backups::of(&config, &jobs);
    let retention = retention(&config, &journal, &jobs);
    let (catalog, tokens) = (Arc::new(CatalogCache::load(&config.state_dir)), AccessTokens::default());
    let publisher = PublisherParams {
        config: Arc::clone(&config),
        keys: Arc::clone(&keys),
        catalog: Arc::clone(&catalog),
        tokens: tokens.clone(),
        counters: Arc::clone(&counters),
        out: params.publisher,
    };
    let publisher = Publisher::start(publisher, meter.db_mut()).map_err(io::Error::other)?;
    let (readers, reader_threads) = Readers::start(&files, &params.alarm).map_err(io::Error::other)?;
    let checkpoints = Checkpoints::start(files.clone(), &params.alarm)?;
    let (view, refreshes) = (publisher.view(), publisher.refreshes());
    log_unusable(&view);
    let (recent, metrics) = (Arc::clone(meter.recent()), Arc::clone(meter.metrics()));
    let state = WriterState { meter, publisher, keys: Arc::clone(&keys), retention };
    let writer = Writer::start(state, &params.alarm)?;
    let reloader = reloader(params.config, writer.handle());
    let gate = gate(&config, &keys, params.reader.clone());
    let observer = Arc::new(Observer::new(&params.reader, &readers, (&journal, recent), params.activity));
    let live = LiveHub::new(&observer, &params.exchanges, reloader.status());
    let otlp = Arc::<OtlpStatus>::default();
    let app = App {
        snapshot: params.reader,
        gate,
        readers,
        keys,
        counters,
        view,
        config,
        exports: Exports::new(files),
        live,
        observer,
        writer: writer.handle(),
        journal,
        metrics,
        backups,
        rehearsals: jobs.register("restore_rehearsal", "daily"),
        jobs,
        running: InFlightRequests::default(),
        catalog,
        tokens,
        refreshes,
        sign_ins: Arc::default(),
        reload: reloader.status(),
        warnings: params.warnings,
        build: params.build,
        asset: params.asset,
        started: Instant::now(),
        started_at_ms: shared::clock::unix_ms(),
        plane: params.plane,
        exchanges: params.exchanges,
        adaptations: params.adaptations,
        recordings: Recordings::default(),
        telemetry,
        http: params.http,
        traces: params.traces,
        otlp: Arc::clone(&otlp),
    };
    let reloading = reloader.start(&params.alarm)?;
    let (door, thread, stop) = open_door(app, &params.alarm)?;
    let (readers, telemetry) = (reader_threads, telemetry_thread);
    Ok(Control { door, thread, stop, readers, otlp, reloading, writer, checkpoints, telemetry, lock })
}

/// Starts the control thread. Returns the handle for requests, the thread, and the sender that ends it.
fn open_door(
    app: App,
    alarm: &Alarm,
) -> io::Result<(Arc<ControlHandle>, JoinHandle<()>, oneshot::Sender<()>)> {
    let (visits, arriving) = mpsc::channel(VISITS_MAX + STRANGERS_MAX + HOLDERS_MAX + SCRAPES_MAX);
    let (refusals, counter) = refusals::channel();
    let (stop, stopped) = oneshot::channel();
    let (gate, readers) = (Arc::clone(&app.gate), app.readers.weak());
    let thread = spawn(app, alarm, arriving, (counter, stopped))?;
    let door = ControlHandle { visits, gate, readers, refusals, rooms: Rooms::new() };
    Ok((Arc::new(door), thread, stop))
}

/// Builds the authentication of the admin API.
fn gate(config: &Config, keys: &VaultKeys, snapshot: SnapshotReader) -> Arc<Gate> {
    let boundary = IdentityBoundary::new(config.sso.clone(), keys.derived("single sign-on secrets"));
    Arc::new(Gate::new(snapshot, keys.derived("csrf tokens"), boundary, config.server.tls.is_some()))
}

/// Builds the watcher of the configuration file.
fn reloader(config: Arc<Config>, handle: WriterHandle) -> Reloader {
    Reloader::new(config, Box::new(move |routing, report| handle.replace_file(routing, report)))
}

/// Builds the job that deletes expired records.
fn retention(config: &Config, journal: &Journal, jobs: &Jobs) -> RetentionPass {
    let pass = RetentionPass::new(&config.lifetimes, Arc::clone(&journal.gauge().pruning));
    pass.reported_by(jobs.register("retention", "every 10 minutes"))
}

/// Logs the providers of the API that receive no requests. Those of the file, and stored ones that cannot be read, have
/// been logged before.
fn log_unusable(view: &ViewCell) {
    for connection in &view.read().providers {
        if let ProviderStanding::NotConnected(_) | ProviderStanding::Shadowed(_) = connection.standing {
            let reason = connection.standing.reason().unwrap_or_default();
            tracing::warn!(provider.id = connection.id, "a provider receives no requests: {reason}");
        }
    }
}

/// Starts the thread that answers requests and runs the periodic jobs.
fn spawn(
    app: App,
    alarm: &Alarm,
    arriving: mpsc::Receiver<ControlRequest>,
    stopping: (RefusalCounter, oneshot::Receiver<()>),
) -> io::Result<JoinHandle<()>> {
    let (runtime, guard) = (runtime()?, alarm.clone());
    alarm.spawn("llmgw-control", move || {
        runtime.block_on(run(Arc::new(app), guard, arriving, stopping));
        Ok(())
    })
}

/// Builds a runtime whose blocking thread is started up front. Without one, tokio panics if the system refuses a new
/// thread later.
fn runtime() -> io::Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().thread_keep_alive(Duration::MAX).build()?;
    runtime.block_on(runtime.spawn_blocking(|| ())).map_err(io::Error::other)?;
    Ok(runtime)
}

impl Control {
    /// Returns the handler for all paths that the data plane does not serve.
    pub fn handler(&self) -> Arc<dyn Handler> {
        Arc::<ControlHandle>::clone(&self.door)
    }

    /// Requests a reload of the configuration file even if it looks unchanged. Does not block the caller.
    pub fn reload(&self) {
        self.reloading.reload();
    }

    /// Exports the last telemetry, for a few seconds at most. Needs the data plane's HTTP client.
    pub async fn end_exports(&self) {
        self.otlp.end().await;
    }

    /// Stops the control plane: stores all queued usage, then releases the state directory. Blocks until that is
    /// done, a few seconds at most. Drop the data plane's usage logs first.
    pub fn stop(self) {
        let Self { door, thread, stop, readers, otlp: _, reloading, writer, checkpoints, telemetry, lock } =
            self;
        drop((door, reloading));
        let _ = stop.send(());
        for thread in std::iter::once(thread).chain(readers) {
            if thread.join().is_err() {
                tracing::error!("a thread of the control plane had ended unexpectedly");
            }
        }
        checkpoints.stop();
        telemetry.stop();
        writer.stop();
        drop(lock);
    }
}

/// The handle through which requests reach the control thread.
#[derive(Clone, Debug)]
struct ControlHandle {
    visits: mpsc::Sender<ControlRequest>,
    gate: Arc<Gate>,
    readers: WeakReaders,
    refusals: Refusals,
    rooms: Rooms,
}

/// Limits on concurrent requests, by stage and by kind of caller. Unauthenticated requests have their own limit, and
/// a body is read before its request takes a slot, so neither can use up the slots of administrators.
#[derive(Clone, Debug)]
struct Rooms {
    administrators: Arc<Semaphore>,
    /// Requests for public paths: the files of the console.
    strangers: Arc<Semaphore>,
    /// Requests of key holders about their own keys; these queue for a slot.
    holders: Arc<Semaphore>,
    /// Readers of the metrics.
    scrapes: Arc<Semaphore>,
    /// Runs whose answer has not begun.
    runs: Arc<Semaphore>,
    /// Bodies that are being received.
    bodies: Arc<Semaphore>,
}

#[derive(Debug)]
struct ControlRequest {
    request: admin::Request,
    reply: oneshot::Sender<Response<Body>>,
    /// Held until the response is ready.
    permit: OwnedSemaphorePermit,
}

impl Handler for ControlHandle {
    fn handle(&self, request: Request<Body>, peer: SocketAddr) -> BoxFuture<Response<Body>> {
        let door = self.clone();
        Box::pin(async move {
            let (id, method) = (RequestId::of(request.headers()), request.method().clone());
            let (mut head, body) = request.into_parts();
            door.gate.take_identity(&mut head, peer.ip());
            let answer = door.enter(head, body, peer).await.unwrap_or_else(|error| error.response(&id));
            admin::finish(&method, answer)
        })
    }
}

impl ControlHandle {
    /// Rejects an unauthenticated request before reading any of its body. A sign-in is the exception; its body is
    /// small.
    async fn enter(&self, parts: Head, body: Body, peer: SocketAddr) -> Result<Response<Body>, ApiError> {
        if parts.extensions.get::<KeyHolder>().is_some() {
            let request = admin::Request::new(parts, Bytes::new(), None);
            let turn = Arc::clone(&self.rooms.holders).acquire_owned();
            let turn = tokio::time::timeout(TURN_TIME_MAX, turn).await.ok().and_then(Result::ok);
            return self.send(request, turn.ok_or_else(|| refusal(NO_TURN).retry_after(1))?).await;
        }
        if parts.extensions.get::<MetricsReader>().is_some() {
            let request = admin::Request::new(parts, Bytes::new(), None);
            return self.visit(request, &self.rooms.scrapes).await;
        }
        if !admin::asks_who(parts.uri.path()) {
            let request = admin::Request::new(parts, Bytes::new(), None);
            return self.visit(request, &self.rooms.strangers).await;
        }
        if admin::reads_session(&parts) && self.gate.is_signed_out(&parts) {
            return admin::signed_out(&self.gate, &parts);
        }
        if admin::run::is_run(&parts) {
            let admitted = self.authorize(&parts, peer).await;
            let caller = admitted.inspect_err(|error| self.report(error, &parts, peer))?;
            let mut request = admin::Request::new(parts, Bytes::new(), Some(caller));
            request.unread = Mutex::new(Some(body));
            return self.visit(request, &self.rooms.runs).await;
        }
        let admitted = self.admit(&parts, body, peer).await;
        let (caller, body) = admitted.inspect_err(|error| self.report(error, &parts, peer))?;
        let request = admin::Request::new(parts, body, Some(caller));
        self.visit(request, &self.rooms.administrators).await
    }

    async fn admit(&self, parts: &Head, body: Body, peer: SocketAddr) -> Result<(Caller, Bytes), ApiError> {
        if admin::is_sign_in(parts) {
            admin::expect_json(&parts.headers, &body)?;
            let body = read(Body::new(Limited::new(body, SIGN_IN_BYTES_MAX)), SIGN_IN_TIME_MAX).await?;
            let actor = self.gate.admit_to_sign_in(parts, &body, peer.ip())?;
            return Ok((authorize(&self.readers, actor, parts).await?, body));
        }
        let caller = self.authorize(parts, peer).await?;
        admin::expect_json(&parts.headers, &body)?;
        Ok((caller, self.take_in(body).await?))
    }

    /// Authenticates the caller of a request, and decides about it by its head.
    async fn authorize(&self, parts: &Head, peer: SocketAddr) -> Result<Caller, ApiError> {
        let actor = self.gate.admit(parts, peer.ip())?;
        authorize(&self.readers, actor, parts).await
    }

    async fn take_in(&self, body: Body) -> Result<Bytes, ApiError> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let _permit = self.rooms.bodies.try_acquire().map_err(|_| refusal(FULL))?;
        read(body, BODY_TIME_MAX).await
    }

    async fn visit(
        &self,
        request: admin::Request,
        room: &Arc<Semaphore>,
    ) -> Result<Response<Body>, ApiError> {
        let permit = Arc::clone(room).try_acquire_owned().map_err(|_| refusal(FULL))?;
        self.send(request, permit).await
    }

    async fn send(
        &self,
        request: admin::Request,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<Body>, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.visits.try_send(ControlRequest { request, reply, permit }).map_err(|_| refusal(STOPPING))?;
        answer.await.map_err(|_| refusal(STOPPING))
    }

    /// Reports a request that failed authentication, authorization or rate limiting to the audit.
    fn report(&self, error: &ApiError, head: &Head, peer: SocketAddr) {
        if let Some(reason) = error.refusal() {
            let route = admin::route_name(&head.method, head.uri.path());
            let request_id = RequestId::of(&head.headers).text();
            self.refusals.report(RefusedRequest { address: peer.ip(), reason, route, request_id });
        }
    }
}

impl Rooms {
    fn new() -> Self {
        let room = |places| Arc::new(Semaphore::new(places));
        Self {
            administrators: room(VISITS_MAX),
            strangers: room(STRANGERS_MAX),
            holders: room(HOLDERS_MAX),
            scrapes: room(SCRAPES_MAX),
            runs: room(RUNS_MAX),
            bodies: room(BODIES_MAX),
        }
    }
}

/// Reads the whole body, whose size is bounded, within `time_max`.
async fn read(body: Body, time_max: Duration) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(time_max, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(ApiError::new(ErrorKind::BodyTooLarge, "The body is larger than the admin API's limit."))
        }
        Ok(Err(_)) => Err(ApiError::new(ErrorKind::BadHttp, "The body ended early.")),
        Err(_) => Err(ApiError::new(ErrorKind::RequestTimeout, "The body did not arrive in time.")),
    }
}

fn refusal((kind, message): (ErrorKind, &'static str)) -> ApiError {
    ApiError::new(kind, message)
}

async fn run(
    app: Arc<App>,
    alarm: Alarm,
    mut arriving: mpsc::Receiver<ControlRequest>,
    (counter, mut stopped): (RefusalCounter, oneshot::Receiver<()>),
) {
    let tasks = periodic::start(&app, &alarm);
    let (stop_counting, counting_stops) = oneshot::channel();
    let counting = counter.run(app.writer.clone(), counting_stops);
    let counting = spawn_vital(&alarm, "the audit of refused requests", counting);
    loop {
        let visit = tokio::select! {
            _ = &mut stopped => break,
            visit = arriving.recv() => visit,
        };
        let Some(visit) = visit else { break };
        tokio::spawn(receive(Arc::clone(&app), visit));
    }
    tasks.iter().for_each(JoinTask::abort);
    let _ = stop_counting.send(());
    let _ = counting.await;
}

async fn receive(app: Arc<App>, visit: ControlRequest) {
    let ControlRequest { request, mut reply, permit } = visit;
    let id = RequestId::of(&request.parts.headers);
    let time_max = admin::answer_time_max(request.parts.uri.path());
    let is_run = admin::run::is_run(&request.parts);
    let answer = tokio::select! {
        answer = tokio::time::timeout(time_max, admin::answer(&app, &request, &id)) => answer,
        // Other requests are completed even if their client has left.
        () = reply.closed(), if is_run => return,
    };
    drop(permit);
    let _ = reply.send(answer.unwrap_or_else(|_| refusal(TOO_SLOW).response(&id)));
}

/// Concurrent requests of administrators inside the control plane.
const VISITS_MAX: usize = 64;
const STRANGERS_MAX: usize = 32;
/// Requests of key holders run one at a time, so that they do not keep administrators from the database.
const HOLDERS_MAX: usize = 1;
const SCRAPES_MAX: usize = 4;
const TURN_TIME_MAX: Duration = Duration::from_secs(5);
const RUNS_MAX: usize = 16;
const BODIES_MAX: usize = 64;
const SIGN_IN_BYTES_MAX: usize = 4 << 10;
const SIGN_IN_TIME_MAX: Duration = Duration::from_secs(10);
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
const FULL: (ErrorKind, &str) = (ErrorKind::Overloaded, "Too many requests to the admin API are running.");
const NO_TURN: (ErrorKind, &str) =
    (ErrorKind::Overloaded, "Too many clients are querying their keys. Try again.");
const STOPPING: (ErrorKind, &str) = (ErrorKind::Draining, "The gateway is stopping.");
const TOO_SLOW: (ErrorKind, &str) = (ErrorKind::Overloaded, "The admin API did not answer in time.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_request_over_the_limit_is_rejected_at_once() {
        let (visits, mut arriving) = mpsc::channel(1);
        let (_, reader) = shared::snapshot::channel();
        let (refusals, _counter) = refusals::channel();
        let csrf_key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[0; 32]);
        let boundary = IdentityBoundary::new(None, csrf_key.clone());
        let gate = Arc::new(Gate::new(reader, csrf_key, boundary, false));
        let rooms = Rooms { strangers: Arc::new(Semaphore::new(1)), ..Rooms::new() };
        let door = ControlHandle { visits, gate, readers: WeakReaders::default(), refusals, rooms };
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let request = || Request::get("/console").body(shared::port::full("")).unwrap();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut waiting = door.handle(request(), peer);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let refused = runtime.block_on(door.handle(request(), peer));
        assert_eq!(refused.status(), 503);
        let visit = arriving.try_recv().unwrap();
        let _ = visit.reply.send(Response::new(shared::port::full("answer")));
        assert_eq!(runtime.block_on(waiting).status(), 200);
        drop(visit.permit);
        assert!(door.handle(request(), peer).as_mut().poll(&mut context).is_pending());
        assert!(arriving.try_recv().is_ok(), "there is room again");
    }
}
