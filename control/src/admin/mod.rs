//! The admin API: a single route table. A request is authenticated before its path is matched, so that
//! unauthenticated callers cannot probe which paths exist.

mod access;
mod adaptations;
mod alerts;
mod anonymous;
mod audit;
pub(crate) mod authorize;
pub(crate) mod backups;
mod bindings;
mod call;
mod catalog;
mod config;
pub(crate) mod console;
mod csv;
pub(crate) mod cursor;
mod detect;
pub(crate) mod device;
mod dry_run;
mod endpoints;
mod error;
mod explain;
mod explanation;
mod extensions;
mod field;
pub(crate) mod gate;
mod health;
pub(crate) mod in_flight;
mod keys;
mod list;
pub(crate) mod live;
mod metrics;
pub(crate) mod node_answers;
mod nodes;
pub(crate) mod oauth;
pub(crate) mod observer;
mod openapi;
mod outbox;
mod overrides;
mod own_key;
pub(crate) mod permission;
mod principals;
mod projects;
mod providers;
mod query;
mod quotas;
mod reach;
mod reference;
pub(crate) mod refusals;
mod registry;
mod request_checks;
mod requests;
pub(crate) mod run;
mod running;
mod search;
mod series;
mod session;
mod setup;
pub(crate) mod shares;
mod spend;
mod state;
mod steps;
mod stream;
mod telemetry;
mod trials;
pub(crate) mod usage;
pub(crate) mod verdict;
mod webhooks;

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use shared::adaptation::AdaptationTable;
use shared::build::BuildIdentity;
use shared::error_kind::{ErrorKind, not_served};
use shared::port::{Body, Exchanges, Handler, HttpClient, KeyHolder, MetricsReader};
use shared::quota::Counters;
use shared::request_traces::RequestTraces;
use shared::snapshot::SnapshotReader;

use self::authorize::Caller;
pub(crate) use self::call::{Call, json, json_of_version};
use self::console::Asset;
pub(crate) use self::error::{ApiError, RequestId};
use self::gate::Gate;
use self::live::hub::LiveHub;
use self::observer::Observer;
use self::reference::{Reference, Shape};
pub(crate) use self::request_checks::{accepts, expect_json, finish};
pub(crate) use self::session::signed_out;
use self::usage::export::Exports;
use crate::admin::permission::Permission;
use crate::cluster::board::NodeBoard;
use crate::cluster::duty::Duty;
use crate::common::background::{Job, Jobs};
use crate::common::bounds::Bounds;
use crate::common::credential::AccessTokens;
use crate::common::credential::oauth::RefreshSchedule;
use crate::common::node_figures::NodeFigures;
use crate::common::vault::VaultKeys;
use crate::db::readers::Readers;
use crate::jobs::otlp::OtlpStatus;
use crate::routing::catalog::cache::CatalogCache;
use crate::routing::config::{Config, OAUTH_CALLBACK};
use crate::routing::connection::ViewCell;
use crate::routing::publish::{BegunSignIns, StatusCell};
use crate::state::affinity_file::AffinityFile;
use crate::state::log_lines::LogLines;
use crate::usage::journal::Journal;
use crate::usage::last_answers::LastAnswers;
use crate::usage::metrics::ExchangeMetrics;
use crate::usage::telemetry::Telemetry;
use crate::writer::WriterHandle;

/// State shared by all handlers.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) snapshot: SnapshotReader,
    pub(crate) gate: Arc<Gate>,
    pub(crate) readers: Readers,
    /// The keys of the vault, for reading what is signed with them.
    pub(crate) keys: Arc<VaultKeys>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) writer: WriterHandle,
    pub(crate) view: ViewCell,
    /// The configuration as of start-up.
    pub(crate) config: Arc<Config>,
    pub(crate) exports: Exports,
    pub(crate) observer: Arc<Observer>,
    pub(crate) live: Arc<LiveHub>,
    pub(crate) journal: Journal,
    /// The distributions and counts of exchanges.
    pub(crate) metrics: Arc<ExchangeMetrics>,
    /// The last answers of targets.
    pub(crate) answers: Arc<LastAnswers>,
    /// The bounds of the process, with how often each was reached.
    pub(crate) bounds: Bounds,
    /// Tells whether this node does what one does for all.
    pub(crate) duty: Duty,
    /// What this node has done in the database of all; `None` for a gateway with its own database.
    pub(crate) figures: Option<Arc<NodeFigures>>,
    pub(crate) backups: backups::Backups,
    /// The periodic jobs.
    pub(crate) jobs: Jobs,
    /// The job that rehearses restores.
    pub(crate) rehearsals: Job,
    pub(crate) running: in_flight::InFlightRequests,
    pub(crate) catalog: Arc<CatalogCache>,
    /// Access tokens of provider instances.
    pub(crate) tokens: AccessTokens,
    /// The refreshes of OAuth sign-ins.
    pub(crate) refreshes: RefreshSchedule,
    /// OAuth sign-ins that have begun or failed.
    pub(crate) sign_ins: BegunSignIns,
    pub(crate) reload: StatusCell,
    pub(crate) warnings: Vec<String>,
    /// The destinations of the log.
    pub(crate) log_lines: LogLines,
    pub(crate) build: BuildIdentity,
    pub(crate) asset: fn(&str) -> Option<Asset>,
    pub(crate) started: Instant,
    pub(crate) started_at_ms: u64,
    /// The data plane, for requests from inside the process.
    pub(crate) plane: Arc<dyn Handler>,
    /// The HTTP client for outbound requests.
    pub(crate) http: Arc<dyn HttpClient>,
    /// The tracing of requests; `None` if they are not traced.
    pub(crate) traces: Option<Arc<RequestTraces>>,
    /// The state of the export of telemetry.
    pub(crate) otlp: Arc<OtlpStatus>,
    /// The running exchanges of the data plane.
    pub(crate) exchanges: Arc<dyn Exchanges>,
    /// The adaptations of the data plane.
    pub(crate) adaptations: Vec<AdaptationTable>,
    /// The file that keeps the data plane's tables of affinity.
    pub(crate) affinity: Arc<AffinityFile>,
    pub(crate) recordings: run::recording::Recordings,
    /// The latest questions of clients that are signing in.
    pub(crate) polls: device::PollTimes,
    pub(crate) telemetry: Telemetry,
}

impl App {
    /// Returns the board of the nodes that share the database; `None` for a gateway with its own one.
    pub(crate) fn board(&self) -> Option<&NodeBoard> {
        self.observer.board.as_ref()
    }
}

/// A fully received request with its caller; `caller` is `None` on paths that need no authentication.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    /// The body of a [run](run), which is not read before the handler runs.
    pub(crate) unread: Mutex<Option<Body>>,
    pub(crate) caller: Option<Caller>,
    pub(crate) found: Result<FoundRoute, ApiError>,
}

impl Request {
    /// Creates a request outside the admin API, without a body.
    pub(crate) fn public(parts: Parts) -> Self {
        let found = Err(no_such_path());
        Self { parts, body: Bytes::new(), unread: Mutex::new(None), caller: None, found }
    }

    /// Returns the time limit of the response.
    pub(crate) fn answer_time_max(&self) -> Duration {
        self.found.as_ref().map_or(ANSWER_TIME_MAX, |found| found.route.time_max)
    }

    /// True for a [run](run).
    pub(crate) fn is_run(&self) -> bool {
        self.found.as_ref().is_ok_and(|found| found.slot() == SlotKind::Run)
    }
}

/// The route of a request, with the decoded segments that match the `{}` of its pattern.
#[derive(Debug)]
pub(crate) struct FoundRoute {
    route: &'static Route,
    arguments: Vec<String>,
}

impl FoundRoute {
    pub(crate) fn slot(&self) -> SlotKind {
        self.route.slot
    }
}

/// The kind of slot that a request of a caller takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// The slot of a request whose body has been read.
    Request,
    /// The slot of a [run](run), whose body has any type and is not read before the handler runs.
    Run,
}

/// True for a sign-in, the only request to the admin API whose key may be in the body.
pub(crate) fn is_sign_in(parts: &Parts) -> bool {
    parts.method == Method::POST && path_of(parts) == session::PATH
}

/// True if the request reads the session. Without one, it gets [`signed_out`] instead of an error.
pub(crate) fn reads_session(parts: &Parts) -> bool {
    let is_read = [Method::GET, Method::HEAD].contains(&parts.method);
    is_read && parts.uri.query().is_none() && path_of(parts) == session::PATH
}

/// True for a form of a client that signs in, which needs no authentication.
pub(crate) fn is_device_form(parts: &Parts) -> bool {
    parts.method == Method::POST && device::is_known(parts.uri.path())
}

/// True for telemetry of a client, which has a body.
pub(crate) fn is_telemetry(parts: &Parts) -> bool {
    device::takes_telemetry(parts.uri.path())
}

/// True if the path requires authentication.
pub(crate) fn asks_who(path: &str) -> bool {
    below(path, ADMIN_API).is_some()
}

/// Returns the method and route pattern of a request, without any client-supplied text, which could contain a key.
pub(crate) fn route_name(method: &Method, path: &str) -> String {
    let routes = below(path, ADMIN_API).and_then(|rest| fitting(rest.trim_matches('/')).ok());
    let Some(routes) = routes else { return "no such path".to_owned() };
    let known = routes.iter().find(|route| route.method == *method);
    let method = known.map_or("another method", |route| route.method.as_str());
    let pattern = routes.first().map_or("", |route| route.pattern);
    format!("{method} {ADMIN_API}/{pattern}")
}

/// Answers a request outside the data plane.
pub(crate) async fn answer(app: &App, request: &Request, id: &RequestId) -> Response<Body> {
    match route(app, request).await {
        Ok(response) => response,
        Err(error) => error.response(id),
    }
}

async fn route(app: &App, request: &Request) -> Result<Response<Body>, ApiError> {
    let path = request.parts.uri.path();
    if let Some(holder) = request.parts.extensions.get::<KeyHolder>() {
        return match device::answer_holder(app, holder, request).await {
            Some(answer) => answer,
            None => own_key::show(app, holder, &request.parts).await,
        };
    }
    if request.parts.extensions.get::<MetricsReader>().is_some() {
        return Ok(metrics::show(app).await);
    }
    if path == "/" {
        return console::root(&request.parts, &app.config.server.base_path);
    }
    if let Some(rest) = below(path, console::PATH) {
        return console::answer(app.asset, &request.parts, rest, &app.config.server.base_path);
    }
    if let Some(caller) = &request.caller {
        return admin(app, request, caller).await;
    }
    if device::is_known(path) {
        return device::answer(app, request).await;
    }
    if path == OAUTH_CALLBACK {
        return oauth::callback(app, &request.parts).await;
    }
    Err(ApiError::new(ErrorKind::NotFound, not_served(path)))
}

async fn admin(app: &App, request: &Request, caller: &Caller) -> Result<Response<Body>, ApiError> {
    let Caller { actor, standing } = caller;
    let (parts, body) = (&request.parts, &request.body);
    if parts.method == Method::OPTIONS {
        return request_checks::options(&methods(&fitting(path_of(parts))?));
    }
    let FoundRoute { route, arguments } = request.found.as_ref().map_err(ApiError::clone)?;
    let method = &route.method;
    if method != Method::GET && !route.reads_version {
        request_checks::expect_no_version(&parts.headers)?;
    }
    let dry_run = dry_run::is_wanted(method, parts.uri.query().unwrap_or_default(), route.has_dry_run)?;
    let unread = &request.unread;
    let call = Call { app, actor, standing, parts, body, unread, arguments, dry_run, under_way: None };
    (route.handle)(call).await
}

/// Returns the path of a request below that of the admin API.
fn path_of(parts: &Parts) -> &str {
    below(parts.uri.path(), ADMIN_API).unwrap_or_default().trim_matches('/')
}

/// Finds the route of a request.
pub(crate) fn find(parts: &Parts) -> Result<FoundRoute, ApiError> {
    find_route(&parts.method, path_of(parts))
}

fn find_route(method: &Method, path: &str) -> Result<FoundRoute, ApiError> {
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let routes = fitting(path)?;
    let Some(route) = routes.iter().copied().find(|route| route.method == *method) else {
        return Err(ApiError::method_not_allowed(methods(&routes)));
    };
    let parts = route.pattern.split('/').zip(path.split('/'));
    let arguments = parts.filter(|(pattern, _)| *pattern == "{}").map(|(_, part)| query::decode_part(part));
    Ok(FoundRoute { route, arguments: arguments.collect::<Result<_, _>>()? })
}

/// Returns the routes that match a path with the fewest `{}`, so `usage/export` takes precedence over a pattern such as
/// `usage/{}`.
fn fitting(path: &str) -> Result<Vec<&'static Route>, ApiError> {
    let places = |route: &Route| route.pattern.matches("{}").count();
    let fitting = || TABLES.iter().copied().flatten().filter(|route| fits(route.pattern, path));
    let fewest = fitting().map(places).min().ok_or_else(no_such_path)?;
    Ok(fitting().filter(|route| places(route) == fewest).collect())
}

fn no_such_path() -> ApiError {
    ApiError::new(ErrorKind::NotFound, "The admin API has no such path.")
}

/// Returns the methods of the routes in the form of an `Allow` header.
fn methods(routes: &[&Route]) -> String {
    let mut methods: Vec<&str> = Vec::new();
    for route in routes {
        methods.push(route.method.as_str());
        if route.method == Method::GET {
            methods.push("HEAD");
        }
    }
    methods.join(", ")
}

fn fits(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    let fits = |pattern: &str| {
        parts.next().is_some_and(|part| pattern == part || (pattern == "{}" && !part.is_empty()))
    };
    pattern.split('/').all(fits) && parts.next().is_none()
}

/// Returns the rest of a path after `prefix`, if the path equals the prefix or lies below it.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The future that a handler returns.
type Handling<'a> = Pin<Box<dyn Future<Output = Result<Response<Body>, ApiError>> + Send + 'a>>;

/// One method of one path. The routes of a resource are defined in its file.
#[derive(Debug)]
pub(crate) struct Route {
    method: Method,
    /// The path below `/admin/api/`; `{}` matches any single segment.
    pattern: &'static str,
    handle: for<'a> fn(Call<'a>) -> Handling<'a>,
    /// Decided about before the body of a request is read.
    permission: Permission,
    slot: SlotKind,
    /// The time limit of its response.
    time_max: Duration,
    /// True if the route is a write that takes `dry_run`.
    has_dry_run: bool,
    /// True if it compares `If-Match` with the version of its object.
    reads_version: bool,
    /// Its description in the documentation.
    reference: Reference,
}

impl Route {
    /// Names the permission that it needs; without this, only administrators may use it.
    const fn permits(mut self, permission: Permission) -> Self {
        self.permission = permission;
        self
    }

    /// Sets the kind of slot that its requests take.
    const fn slot(mut self, slot: SlotKind) -> Self {
        self.slot = slot;
        self
    }

    /// Sets the time limit of its response, which is [`ANSWER_TIME_MAX`] without this.
    const fn time_max(mut self, time_max: Duration) -> Self {
        self.time_max = time_max;
        self
    }

    /// Describes the route in a sentence, and its answer by the type `A`.
    const fn answers<A: Shape>(mut self, doc: &'static str) -> Self {
        self.reference = self.reference.answers::<A>(doc);
        self
    }

    /// Describes the body of its requests by the type `B`.
    const fn takes<B: Shape>(mut self) -> Self {
        self.reference = self.reference.takes::<B>();
        self
    }

    /// Describes its query parameters by a struct, or a tuple of structs.
    const fn query<Q: Shape>(mut self) -> Self {
        self.reference = self.reference.query::<Q>();
        self
    }

    /// Names the statuses of its success. Without this, it is 200, or 204 without content.
    const fn statuses(mut self, statuses: &'static [u16]) -> Self {
        self.reference = self.reference.statuses(statuses);
        self
    }

    /// Describes a write that compares `If-Match` with the version of its object.
    const fn reads_version(mut self) -> Self {
        self.reads_version = true;
        self
    }

    /// Describes a POST that ignores `Idempotency-Key`.
    const fn acts_each_time(mut self) -> Self {
        self.reference = self.reference.acts_each_time();
        self
    }
}

const fn route_of(
    method: Method,
    pattern: &'static str,
    handle: for<'a> fn(Call<'a>) -> Handling<'a>,
) -> Route {
    Route {
        method,
        pattern,
        handle,
        permission: Permission::Administer,
        slot: SlotKind::Request,
        time_max: ANSWER_TIME_MAX,
        has_dry_run: false,
        reads_version: false,
        reference: Reference::NONE,
    }
}

/// A write whose only effect is its command, so that it can be applied and rolled back.
const fn write_of(
    method: Method,
    pattern: &'static str,
    handle: for<'a> fn(Call<'a>) -> Handling<'a>,
) -> Route {
    let mut route = route_of(method, pattern, handle);
    route.has_dry_run = true;
    route
}

static TABLES: &[&[Route]] = &[
    session::ROUTES,
    config::ROUTES,
    health::ROUTES,
    setup::ROUTES,
    state::ROUTES,
    nodes::ROUTES,
    live::ROUTES,
    principals::ROUTES,
    projects::ROUTES,
    keys::ROUTES,
    access::ROUTES,
    providers::ROUTES,
    anonymous::ROUTES,
    bindings::ROUTES,
    oauth::ROUTES,
    device::ROUTES,
    detect::ROUTES,
    registry::ROUTES,
    adaptations::ROUTES,
    endpoints::ROUTES,
    extensions::ROUTES,
    catalog::ROUTES,
    overrides::ROUTES,
    trials::ROUTES,
    explain::ROUTES,
    requests::ROUTES,
    run::ROUTES,
    running::ROUTES,
    series::ROUTES,
    telemetry::ROUTES,
    search::ROUTES,
    usage::ROUTES,
    audit::ROUTES,
    backups::ROUTES,
    quotas::ROUTES,
    alerts::ROUTES,
    webhooks::ROUTES,
    outbox::ROUTES,
    openapi::ROUTES,
];

const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
pub(crate) const ADMIN_API: &str = "/admin/api";
