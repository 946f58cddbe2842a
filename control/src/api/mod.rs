//! The admin API: one table of routes. A request is authenticated before its path is looked at, so that nobody
//! else learns which paths there are.

mod error;
mod query;
mod requests;
mod session;
mod state;
mod usage;

#[cfg(test)]
mod tests;

use std::time::Instant;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use serde::Serialize;
use shared::error_kind::ErrorKind;
use shared::port::{Body, full};
use shared::snapshot::SnapshotReader;

pub(crate) use self::error::{ApiError, RequestId};
use self::query::Query;
use crate::console::{self, Asset};
use crate::meter::journal::Journal;
use crate::meter::writer::Flusher;
use crate::publish::StatusCell;
use crate::service::BuildIdentity;
use crate::store::readers::Readers;

/// What handlers work with.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) snapshot: SnapshotReader,
    pub(crate) readers: Readers,
    pub(crate) flusher: Flusher,
    pub(crate) journal: Journal,
    pub(crate) reload: StatusCell,
    pub(crate) warnings: Vec<String>,
    pub(crate) build: BuildIdentity,
    pub(crate) asset: fn(&str) -> Option<Asset>,
    pub(crate) started: Instant,
    pub(crate) started_at_ms: u64,
}

/// Answers one request outside the data plane.
pub(crate) async fn answer(app: &App, request: &Parts, id: &RequestId) -> Response<Body> {
    match route(app, request).await {
        Ok(response) => response,
        Err(error) => error.response(id),
    }
}

async fn route(app: &App, request: &Parts) -> Result<Response<Body>, ApiError> {
    let path = request.uri.path();
    if let Some(rest) = below(path, "/console") {
        return console::answer(app.asset, app.build.version, &request.method, rest);
    }
    if let Some(rest) = below(path, "/admin/api") {
        session::administrator(&request.headers, &app.snapshot.load())?;
        return admin(app, request, rest.trim_matches('/')).await;
    }
    if path == OAUTH_CALLBACK {
        return Err(not_yet());
    }
    Err(ApiError::new(ErrorKind::NotFound, "There is no such path."))
}

async fn admin(app: &App, request: &Parts, path: &str) -> Result<Response<Body>, ApiError> {
    let (route, argument) = find(path)?;
    if !route.methods.contains(&request.method) {
        let allowed: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
        return Err(ApiError::method_not_allowed(allowed.join(", ")));
    }
    let query = Query::parse(request.uri.query().unwrap_or_default())?;
    match route.action {
        Action::State => state::show(app, query),
        Action::Requests => requests::list(app, query).await,
        Action::Request => requests::show(app, query, argument).await,
        Action::Usage => usage::report(app, query).await,
        Action::NotYet => Err(not_yet()),
    }
}

/// The route of a path, and what stands in the place of its last `{}`.
fn find(path: &str) -> Result<(&'static Route, &str), ApiError> {
    let matching = |route: &&Route| {
        let mut parts = path.split('/');
        let fits = |pattern: &str| {
            parts.next().is_some_and(|part| pattern == part || (pattern == "{}" && !part.is_empty()))
        };
        route.pattern.split('/').all(fits) && parts.next().is_none()
    };
    // A pattern without a place comes before one with it: `usage/export` is no argument of anything.
    let found = ROUTES.iter().filter(matching).min_by_key(|route| route.pattern.matches("{}").count());
    let route = found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, "The admin API has no such path."))?;
    let argument = route
        .pattern
        .split('/')
        .zip(path.split('/'))
        .filter_map(|(pattern, part)| (pattern == "{}").then_some(part))
        .last();
    Ok((route, argument.unwrap_or_default()))
}

/// What follows `prefix` in a path that is the prefix or lies below it.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A JSON answer.
fn json(value: &impl Serialize) -> Result<Response<Body>, ApiError> {
    let bytes = serde_json::to_vec(value)
        .map_err(|_| ApiError::new(ErrorKind::Internal, "The answer could not be written as JSON."))?;
    let mut response = Response::new(full(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn not_yet() -> ApiError {
    ApiError::new(ErrorKind::NotImplemented, "This release does not serve this path yet.")
}

#[derive(Debug)]
struct Route {
    /// Below `/admin/api/`; `{}` stands for any one part.
    pattern: &'static str,
    methods: &'static [Method],
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    State,
    Requests,
    Request,
    Usage,
    /// A route of the specification that a later release serves.
    NotYet,
}

const fn later(pattern: &'static str, methods: &'static [Method]) -> Route {
    Route { pattern, methods, action: Action::NotYet }
}

const OAUTH_CALLBACK: &str = "/oauth/callback/partner";
const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const DELETE: &[Method] = &[Method::DELETE];
const COLLECTION: &[Method] = &[Method::GET, Method::POST];
const ITEM: &[Method] = &[Method::GET, Method::PATCH, Method::DELETE];
const CHANGE: &[Method] = &[Method::PATCH, Method::DELETE];
const PUT_ITEM: &[Method] = &[Method::GET, Method::PUT, Method::DELETE];
const MEMBER: &[Method] = &[Method::PUT, Method::DELETE];

static ROUTES: &[Route] = &[
    Route { pattern: "state", methods: GET, action: Action::State },
    Route { pattern: "requests", methods: GET, action: Action::Requests },
    Route { pattern: "requests/{}", methods: GET, action: Action::Request },
    Route { pattern: "usage", methods: GET, action: Action::Usage },
    later("usage/export", GET),
    later("principals", COLLECTION),
    later("principals/{}", ITEM),
    later("projects", COLLECTION),
    later("projects/{}", ITEM),
    later("projects/{}/members/{}", MEMBER),
    later("keys", COLLECTION),
    later("keys/{}", ITEM),
    later("keys/{}/reveal", POST),
    later("keys/{}/rotate", POST),
    later("providers", COLLECTION),
    later("providers/{}", ITEM),
    later("providers/{}/sync", POST),
    later("providers/{}/test", POST),
    later("providers/{}/oauth/start", POST),
    later("providers/{}/oauth", DELETE),
    later("registry", GET),
    later("explain", POST),
    later("catalog", GET),
    later("catalog/sync", POST),
    later("endpoints", COLLECTION),
    later("endpoints/{}", PUT_ITEM),
    later("endpoints/{}/test", POST),
    later("quotas", COLLECTION),
    later("quotas/{}", CHANGE),
    later("audit", GET),
    later("audit/export", GET),
    later("alerts", GET),
    later("alerts/{}/ack", POST),
    later("alert-rules", COLLECTION),
    later("alert-rules/{}", CHANGE),
    later("outbox", GET),
    later("outbox/claim", POST),
    later("outbox/{}/retry", POST),
    later("outbox/{}/delivered", POST),
    later("outbox/{}/failed", POST),
    later("webhooks", COLLECTION),
    later("webhooks/{}", CHANGE),
    later("webhooks/{}/test", POST),
    later("extensions", COLLECTION),
    later("extensions/{}", ITEM),
    later("extensions/{}/probe", POST),
    later("health/providers", GET),
    later("live", GET),
    later("backups", COLLECTION),
    later("config", GET),
];
