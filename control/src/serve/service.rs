//! The control thread: answers the requests that its entrance admits, runs the periodic jobs, and keeps the snapshot
//! current. It runs until [`Control::stop`], regardless of what any request does.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shared::activity::Activity;
use shared::adaptation::AdaptationTable;
use shared::alarm::Alarm;
use shared::bound::Bound;
use shared::build::BuildIdentity;
use shared::clock::unix_ms;
use shared::error_kind::ErrorKind;
use shared::port::{Exchanges, Handler, HttpClient};
use shared::quota::Counters;
use shared::request_traces::RequestTraces;
use shared::snapshot::{SnapshotPublisher, SnapshotReader};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle as JoinTask;

use crate::admin::backups::Backups;
use crate::admin::console::Asset;
use crate::admin::device::PollTimes;
use crate::admin::gate::identity::IdentityBoundary;
use crate::admin::gate::{Gate, Sessions};
use crate::admin::in_flight::InFlightRequests;
use crate::admin::live::hub::LiveHub;
use crate::admin::observer::Observer;
use crate::admin::refusals::{self, RefusalCounter};
use crate::admin::run::recording::Recordings;
use crate::admin::usage::export::Exports;
use crate::admin::{self, App, RequestId};
use crate::cluster::board::NodeBoard;
use crate::cluster::follow::Follower;
use crate::cluster::listen::ListenThread;
use crate::cluster::shares::{ShareQueue, ShareThread};
use crate::common::actor::Actor;
use crate::common::background::Jobs;
use crate::common::bounds::Bounds;
use crate::common::credential::AccessTokens;
use crate::common::credential::oauth::RefreshSchedule;
use crate::common::vault::VaultKeys;
use crate::db;
use crate::db::engine::DbResult;
use crate::db::readers::{Readers, asking_as};
use crate::db::sqlite_state::checkpoints::Checkpoints;
use crate::db::sqlite_state::lock::StateLock;
use crate::db::storage::Storage;
use crate::jobs::otlp::OtlpStatus;
use crate::routing::catalog::cache::CatalogCache;
use crate::routing::catalog::documents::DocumentStore;
use crate::routing::config::Config;
use crate::routing::connection::{ProviderStanding, ViewCell};
use crate::routing::detect::Detected;
use crate::routing::publish::{EndedSessions, Publisher, PublisherParams, Reloader, Reloading};
use crate::serve::entrance::{AdmittedRequest, Entrance, refusal};
use crate::serve::periodic::{self, spawn_vital};
use crate::state::affinity_file::AffinityFile;
use crate::state::log_lines::LogLines;
use crate::state::{AmongNodes, Parts, State};
use crate::usage::ingest::Meter;
use crate::usage::journal::Journal;
use crate::usage::last_answers::LastAnswers;
use crate::usage::metrics::ExchangeMetrics;
use crate::usage::origins::{OriginQueue, OriginThread};
use crate::usage::recent::feed::RecentFeed;
use crate::usage::retention::RetentionPass;
use crate::usage::telemetry::TelemetryThread;
use crate::writer::command::AdminWrite;
use crate::writer::command::first_endpoint::{CreateFirstEndpoint, FIRST_ENDPOINT};
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
    /// The destinations of the log, whose missing lines are a metric.
    pub log_lines: LogLines,
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
    /// The bounds of the data plane.
    pub bounds: &'static [&'static Bound],
    /// The activity of the data plane.
    pub activity: Arc<Activity>,
    /// The file that keeps the data plane's tables of affinity.
    pub affinity: Arc<AffinityFile>,
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
    entrance: Arc<Entrance>,
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    outgoing: OutgoingWork,
    reloading: Reloading,
    writer: Writer,
    /// `None` if no other node makes changes.
    listen: Option<ListenThread>,
    threads: StateThreads,
    lock: StateLock,
}

/// The threads that use the state, besides the writer.
#[derive(Debug)]
struct StateThreads {
    /// `None` if this process alone uses its limits.
    shares: Option<ShareThread>,
    readers: Vec<JoinHandle<()>>,
    /// `None` if the state is not in files.
    checkpoints: Option<Checkpoints>,
    telemetry: TelemetryThread,
    origins: OriginThread,
}

/// The work that needs the data plane's HTTP client to its end.
#[derive(Debug)]
struct OutgoingWork {
    /// The export of telemetry.
    otlp: Arc<OtlpStatus>,
    /// The refreshes of OAuth sign-ins.
    refreshes: RefreshSchedule,
}

impl OutgoingWork {
    fn of(publisher: &Publisher) -> Self {
        Self { otlp: Arc::default(), refreshes: publisher.refreshes() }
    }
}

/// Publishes the first snapshot and starts the threads.
#[expect(clippy::too_many_lines, reason = "a line for each part of the service")]
pub fn start(params: Params) -> io::Result<Control> {
    let Parts { lock, storage, mut meter, counters, journal, keys, telemetry, origins, nodes } =
        params.state.into_parts();
    let AmongNodes { mut follower, freshness, duty, shares, figures } = nodes;
    let (keys, config) = (Arc::new(keys), Arc::clone(&params.config));
    let (telemetry, keeper) = telemetry.start((&config.state_dir, &keys), &params.reader, &params.alarm)?;
    let jobs = Jobs::after(db::jobs::all(meter.db_mut()).map_err(io::Error::other)?);
    let (backups, retention) = (Backups::of(&config, &jobs), retention(&config, &journal, &jobs));
    let (catalog, tokens) = (CatalogCache::load(&config.state_dir, meter.db_mut()), AccessTokens::default());
    let publisher = PublisherParams {
        config: Arc::clone(&config),
        keys: Arc::clone(&keys),
        catalog: Arc::clone(&catalog),
        tokens: tokens.clone(),
        counters: Arc::clone(&counters),
        freshness,
        out: params.publisher,
    };
    let publisher = first_snapshot(publisher, &mut meter, follower.as_mut()).map_err(io::Error::other)?;
    let (readers, threads) = start_threads(&storage, (origins, keeper), (shares, &counters), &params.alarm)?;
    let (view, sign_ins, ended) = (publisher.view(), publisher.sign_ins(), publisher.ended_sessions());
    let (outgoing, board) = (OutgoingWork::of(&publisher), board(&storage, &config, &readers, &publisher));
    let state = WriterState { meter, publisher, keys: Arc::clone(&keys), retention, follower };
    let (writer, listen, (recent, metrics, answers)) =
        start_writer(state, (&storage, &catalog), &params.alarm)?;
    let reloader = reloader(params.config, writer.handle());
    let observer = Observer::new(&params.reader, (&readers, board), (&journal, recent), params.activity);
    let app = App {
        bounds: Bounds::with(params.bounds),
        gate: gate(&config, &keys, ended, params.reader.clone()),
        snapshot: params.reader,
        readers,
        keys,
        counters,
        view,
        config,
        exports: Exports::new(storage),
        live: LiveHub::new(&observer, &params.exchanges, reloader.status()),
        observer,
        writer: writer.handle(),
        journal,
        metrics,
        answers,
        backups,
        duty,
        figures,
        rehearsals: jobs.register("restore_rehearsal", "daily"),
        jobs,
        running: InFlightRequests::default(),
        catalog,
        tokens,
        refreshes: outgoing.refreshes.clone(),
        sign_ins,
        reload: reloader.status(),
        warnings: params.warnings,
        log_lines: params.log_lines,
        build: params.build,
        asset: params.asset,
        started: Instant::now(),
        started_at_ms: unix_ms(),
        plane: params.plane,
        exchanges: params.exchanges,
        adaptations: params.adaptations,
        affinity: params.affinity,
        recordings: Recordings::default(),
        polls: PollTimes::default(),
        telemetry,
        http: params.http,
        traces: params.traces,
        otlp: Arc::clone(&outgoing.otlp),
    };
    let reloading = reloader.start(&params.alarm)?;
    let (entrance, thread, stop) = start_thread(app, &params.alarm)?;
    Ok(Control { entrance, thread, stop, outgoing, reloading, writer, listen, threads, lock })
}

/// The recent usage, the metrics of exchanges, and the last answers of targets.
type ShownByMeter = (Arc<RecentFeed>, Arc<ExchangeMetrics>, Arc<LastAnswers>);

/// Returns what the meter keeps for the admin API.
fn shown_by(meter: &Meter) -> ShownByMeter {
    (Arc::clone(meter.recent()), Arc::clone(meter.metrics()), Arc::clone(meter.answers()))
}

/// Publishes the first snapshot. What earlier processes left is stored before, or counted in its limits.
fn first_snapshot(
    params: PublisherParams,
    meter: &mut Meter,
    follower: Option<&mut Follower>,
) -> DbResult<Publisher> {
    meter.begin();
    let publisher = match follower {
        Some(follower) => {
            let (publisher, access) = follower.publish_first(meter.db_mut(), params)?;
            meter.access_changed(&access);
            publisher
        }
        None => Publisher::start(params, meter.db_mut())?,
    };
    log_unusable(&publisher.view());
    meter.count_rest().map(|()| publisher)
}

/// Starts the thread of the shares in limits, whose counters contain what earlier processes of this node have used.
fn start_shares(
    queue: Option<ShareQueue>,
    storage: &Storage,
    counters: &Arc<Counters>,
    alarm: &Alarm,
) -> io::Result<Option<ShareThread>> {
    let storage = storage.clone();
    let start =
        |queue: ShareQueue| queue.start(Arc::clone(counters), Box::new(move || storage.reader()), alarm);
    queue.map(start).transpose()
}

/// Starts the thread that wakes the writer when another node has made a change.
fn start_listening(
    storage: &Storage,
    writer: WriterHandle,
    alarm: &Alarm,
) -> io::Result<Option<ListenThread>> {
    let listener = storage.listener().map_err(io::Error::other)?;
    listener.map(|listener| ListenThread::start(listener, Box::new(move || writer.look()), alarm)).transpose()
}

/// Starts the threads that use the state besides the writer. Returns the readers of the admin API, and all these threads.
fn start_threads(
    storage: &Storage,
    (origins, telemetry): (OriginQueue, TelemetryThread),
    (shares, counters): (Option<ShareQueue>, &Arc<Counters>),
    alarm: &Alarm,
) -> io::Result<(Readers, StateThreads)> {
    let shares = start_shares(shares, storage, counters, alarm)?;
    let (handle, readers) = Readers::start(storage, alarm).map_err(io::Error::other)?;
    let origins = origins.start(storage, alarm)?;
    let checkpoints = storage.files().map(|files| Checkpoints::start(files.clone(), alarm)).transpose()?;
    Ok((handle, StateThreads { shares, readers, checkpoints, telemetry, origins }))
}

/// Starts the writer thread, which stores the documents of `catalog` from then on, and the thread that wakes it. Returns also
/// what its meter shows.
fn start_writer(
    state: WriterState,
    (storage, catalog): (&Storage, &CatalogCache),
    alarm: &Alarm,
) -> io::Result<(Writer, Option<ListenThread>, ShownByMeter)> {
    let shown = shown_by(&state.meter);
    let writer = Writer::start(state, alarm)?;
    catalog.store_in(document_store(writer.handle()));
    let listen = start_listening(storage, writer.handle(), alarm)?;
    Ok((writer, listen, shown))
}

/// Starts the control thread. Returns its entrance, the thread, and the sender that ends it.
fn start_thread(app: App, alarm: &Alarm) -> io::Result<(Arc<Entrance>, JoinHandle<()>, oneshot::Sender<()>)> {
    let (refusals, counter) = refusals::channel();
    let (stop, stopped) = oneshot::channel();
    let (entrance, admitted) = Entrance::new(Arc::clone(&app.gate), app.readers.weak(), refusals);
    let thread = spawn(app, alarm, admitted, (counter, stopped))?;
    Ok((Arc::new(entrance), thread, stop))
}

/// Builds the board of the nodes that share the database, if there may be any.
fn board(storage: &Storage, config: &Config, readers: &Readers, publisher: &Publisher) -> Option<NodeBoard> {
    let this = (storage.node()?, config.database.as_ref()?);
    Some(NodeBoard::new(readers, publisher.keys(), this, publisher.cancels()))
}

/// Builds the authentication of the admin API.
fn gate(config: &Config, keys: &VaultKeys, ended: EndedSessions, snapshot: SnapshotReader) -> Arc<Gate> {
    let boundary = IdentityBoundary::new(config.sso.clone(), keys.derived("single sign-on secrets"));
    let server = &config.server;
    let sessions = Sessions::new(keys, ended);
    Arc::new(Gate::new(snapshot, sessions, boundary, &server.base_path, server.tls.is_some()))
}

/// Builds the store of the catalog and the price list.
fn document_store(writer: WriterHandle) -> DocumentStore {
    DocumentStore::new(move |document| {
        let writer = writer.clone();
        Box::pin(async move { writer.store_document(document).await })
    })
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
    admitted: mpsc::Receiver<AdmittedRequest>,
    stopping: (RefusalCounter, oneshot::Receiver<()>),
) -> io::Result<JoinHandle<()>> {
    let (runtime, guard) = (runtime()?, alarm.clone());
    alarm.spawn("llmgw-control", move || {
        runtime.block_on(run(Arc::new(app), guard, admitted, stopping));
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
        Arc::<Entrance>::clone(&self.entrance)
    }

    /// Creates the endpoint of quickstart if there is no endpoint, and returns its name if requests can name it now. Blocks
    /// the caller, which must not be a thread of a runtime, until that is committed and published. `found` are the servers
    /// that were found on this machine.
    pub fn create_first_endpoint(&self, found: &[Detected]) -> Option<&'static str> {
        let create = CreateFirstEndpoint { found: found.to_vec() };
        let create = AdminWrite::unanswered(create, Actor::gateway());
        let outcome = self.writer.handle().queue(create).ok()?.blocking_recv().ok()?;
        match outcome {
            Ok(_) => Some(FIRST_ENDPOINT),
            Err(refusal) => {
                tracing::debug!("quickstart creates no endpoint: {refusal:?}");
                None
            }
        }
    }

    /// Requests a reload of the configuration file even if it looks unchanged. Does not block the caller.
    pub fn reload(&self) {
        self.reloading.reload();
    }

    /// Ends the work that needs the data plane's HTTP client: exports the last telemetry, and stores the tokens of sign-ins
    /// whose refresh has been sent. Takes as long as these calls may take, 15 s at most.
    pub async fn end_outgoing(&self) {
        let OutgoingWork { otlp, refreshes } = &self.outgoing;
        tokio::join!(otlp.end(), refreshes.end());
    }

    /// Stops the control plane: stores all queued usage, then releases the state directory. Blocks until that is
    /// done, a few seconds at most. Drop the data plane's usage logs first.
    pub fn stop(self) {
        let Self { entrance, thread, stop, outgoing: _, reloading, writer, listen, threads, lock } = self;
        let StateThreads { shares, readers, checkpoints, telemetry, origins } = threads;
        drop((entrance, reloading));
        let _ = stop.send(());
        for thread in std::iter::once(thread).chain(readers) {
            if thread.join().is_err() {
                tracing::error!("a thread of the control plane had ended unexpectedly");
            }
        }
        origins.stop();
        listen.into_iter().for_each(ListenThread::stop);
        shares.into_iter().for_each(ShareThread::stop);
        checkpoints.into_iter().for_each(Checkpoints::stop);
        writer.stop();
        // Stores what the last records were.
        telemetry.stop();
        drop(lock);
    }
}

async fn run(
    app: Arc<App>,
    alarm: Alarm,
    mut admitted: mpsc::Receiver<AdmittedRequest>,
    (counter, mut stopped): (RefusalCounter, oneshot::Receiver<()>),
) {
    let tasks = periodic::start(&app, &alarm);
    let (stop_counting, counting_stops) = oneshot::channel();
    let counting = counter.run(app.writer.clone(), counting_stops);
    let counting = spawn_vital(&alarm, "the audit of refused requests", counting);
    loop {
        let request = tokio::select! {
            _ = &mut stopped => break,
            request = admitted.recv() => request,
        };
        let Some(request) = request else { break };
        tokio::spawn(receive(Arc::clone(&app), request));
    }
    tasks.iter().for_each(JoinTask::abort);
    let _ = stop_counting.send(());
    let _ = counting.await;
}

async fn receive(app: Arc<App>, admitted: AdmittedRequest) {
    let AdmittedRequest { request, mut reply, permit } = admitted;
    let id = RequestId::of(&request.parts.headers);
    let (time_max, is_run) = (request.answer_time_max(), request.is_run());
    let human = request.caller.as_ref().and_then(|caller| caller.standing.human()).map(Arc::from);
    let answering = asking_as(human, admin::answer(&app, &request, &id));
    let answer = tokio::select! {
        answer = tokio::time::timeout(time_max, answering) => answer,
        // Other requests are completed even if their client has left.
        () = reply.closed(), if is_run => return,
    };
    drop(permit);
    let _ = reply.send(answer.unwrap_or_else(|_| refusal(TOO_SLOW).response(&id)));
}

const TOO_SLOW: (ErrorKind, &str) = (ErrorKind::Overloaded, "The admin API did not answer in time.");
