//! `POST /admin/api/run/{path}` and `GET run/{request_id}`: sends a request of the data plane as a key or a human, whose
//! permissions and quotas apply, and shows what was exchanged on both sides of the gateway.

pub(crate) mod recording;

use std::fmt::Write as _;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, ORIGIN, PROXY_AUTHORIZATION, REFERER,
    TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, Method, Request, Response, Uri};
use serde_json::json;
use shared::access::{Access, Role};
use shared::error_kind::ErrorKind;
use shared::id::{ModelId, ProviderId};
use shared::port::{Body, ExchangeTap, Insider, RUN_PATH, Side, full};

use super::authorize::key_object;
use super::reference::{DataPlaneAnswer, DataPlaneBody};
use super::requests::other_release;
use super::{ApiError, Call, Route, SlotKind, explain, json, route_of};
use crate::admin::permission::Permission;
use crate::cluster::board::{NodeBoard, NodeQuestion, Replies, last_heard};
use crate::common::recorded::RecordedExchange;
use crate::db::audit::AuditEntry;
use crate::db::engine::Db;
use crate::routing::catalog::test_completion::HERE;
use crate::routing::publish::AccessHolder;

pub(super) static ROUTES: &[Route] = &[
    run_of("run/{}"),
    run_of("run/{}/{}"),
    run_of("run/{}/{}/{}"),
    route_of(Method::GET, "run/{}", |call| Box::pin(show(call)))
        .answers::<RecordedExchange>(
            "Shows what a run exchanged on both sides of the gateway; to a human, the client's side of their own runs.",
        )
        .permits(Permission::RunRequests),
];

/// Returns the route of the paths of the data plane that have as many segments as `pattern` has placeholders.
const fn run_of(pattern: &'static str) -> Route {
    route_of(Method::POST, pattern, |call| Box::pin(run(call)))
        .answers::<DataPlaneAnswer>(
            "Sends the request of the data plane whose path follows `run/` as the key or human in `X-LLMGW-Run-As`, if wanted \
             to the one target in `X-LLMGW-Run-Only`.",
        )
        .takes::<DataPlaneBody>()
        .slot(SlotKind::Run)
        .time_max(BEGINNING_TIME_MAX)
        .acts_each_time()
        .permits(Permission::RunRequests)
}

/// The time limit until the answer begins, beyond any time limit of the data plane.
const BEGINNING_TIME_MAX: Duration = Duration::from_secs(3_600);

async fn run(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    let began = Instant::now();
    let uri = uri(&call)?;
    let (acting_as, access) = caller(&call).await?;
    let restricted_to = restriction(&call.parts.headers)?;
    let body = call.unread.lock().unwrap_or_else(PoisonError::into_inner).take();
    let body = body.unwrap_or_else(|| full(""));
    let request_id = call.actor.request_id.clone().unwrap_or_default();
    let after = json!({"path": uri.path(), "as": acting_as});
    call.record(AuditEntry::done("request.run", "request", &request_id).after(after)).await?;
    let recording = call.app.recordings.begin(request_id, call.standing.human(), began);
    let mut request = Request::post(uri).body(()).map_err(|_| no_path())?;
    *request.headers_mut() = forwarded(&call.parts.headers);
    let first = format!("POST {} HTTP/1.1", request.uri());
    recording.begin(Side::ClientRequest, head(first, request.headers()));
    let tap: Arc<dyn ExchangeTap> = Arc::clone(&recording) as _;
    let insider = Insider { restricted_to, tap: Some(tap), ..Insider::new(access) };
    request.extensions_mut().insert(insider);
    let request = request.map(|()| recording.around(Side::ClientRequest, body));
    let (parts, body) = call.app.plane.handle(request, HERE).await.into_parts();
    let first = format!("HTTP/1.1 {}", parts.status);
    recording.begin(Side::ClientResponse, head(first, &parts.headers));
    Ok(Response::from_parts(parts, recording.around(Side::ClientResponse, body)))
}

/// Returns the target of the request on the data plane, with its query.
fn uri(call: &Call<'_>) -> Result<Uri, ApiError> {
    let uri = &call.parts.uri;
    let path = uri.path().strip_prefix(RUN_PATH).unwrap_or_default().trim_end_matches('/');
    if !explain::is_client_path(&format!("/{path}")) {
        return Err(no_path());
    }
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    format!("/{path}{query}").parse().map_err(|_| no_path())
}

fn no_path() -> ApiError {
    let message =
        "There is no such path. Below run/ are the paths that clients post to, such as v1/chat/completions.";
    ApiError::new(ErrorKind::NotFound, message)
}

/// Returns the key or human in `X-LLMGW-Run-As`, and its access.
async fn caller(call: &Call<'_>) -> Result<(String, Arc<Access>), ApiError> {
    let id = text(&call.parts.headers, RUN_AS)?.ok_or_else(|| {
        let message = "Send X-LLMGW-Run-As with the ID of a key (key_…) or a human (prn_…): a run is never sent \
                       as the administrator.";
        ApiError::parameter(RUN_AS, message)
    })?;
    permit(call, id).await?;
    let access = if id.starts_with("prn_") {
        let (human, counters) = (id.to_owned(), Arc::clone(&call.app.counters));
        let read = move |db: &Db| AccessHolder::counted_human(db, (RUN_KEY, &human), &counters);
        call.app.readers.ask(read).await?.map(Arc::new)
    } else {
        let snapshot = call.app.snapshot.load();
        let found = snapshot.access.keys.values().find(|access| access.key.as_str() == id);
        found.filter(|access| access.role == Role::Project).cloned()
    };
    let message = "X-LLMGW-Run-As does not name a usable key or human: it does not exist, or it is disabled, \
                   revoked or expired.";
    let access = access.ok_or_else(|| ApiError::parameter(RUN_AS, message))?;
    Ok((id.to_owned(), access))
}

/// Refuses a human who may not use the key.
async fn permit(call: &Call<'_>, id: &str) -> Result<(), ApiError> {
    if call.standing.human().is_none() {
        return Ok(());
    }
    if id.starts_with("prn_") {
        let message =
            "Only administrators send runs as a human. Send X-LLMGW-Run-As with the ID of a key (key_…).";
        return Err(ApiError::new(ErrorKind::Forbidden, message));
    }
    let key = id.to_owned();
    let object = call.app.readers.ask(move |db| key_object(db, &key)).await?;
    call.permit(Permission::RunRequests, &object)
}

/// Returns the target in `X-LLMGW-Run-Only`.
fn restriction(headers: &HeaderMap) -> Result<Option<(ProviderId, ModelId)>, ApiError> {
    let Some(only) = text(headers, RUN_ONLY)? else { return Ok(None) };
    let (provider, model) = only.split_once('/').ok_or_else(|| {
        ApiError::parameter(RUN_ONLY, "X-LLMGW-Run-Only must be a target, such as openai-main/gpt-5.1.")
    })?;
    Ok(Some((ProviderId::new(provider), ModelId::new(model))))
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::parameter(name, "The value must be ASCII."))?;
    Ok(Some(text.trim()))
}

/// Returns the headers of the request on the data plane: without those that authenticate the administrator, and those of
/// the connection and of the page.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let own =
        [RUN_AS, RUN_ONLY, "x-api-key", "x-csrf-token", "idempotency-key", "keep-alive", "proxy-connection"];
    let is_own = |name: &HeaderName| NOT_FORWARDED.contains(name) || own.contains(&name.as_str());
    let is_forwarded = |name: &HeaderName| !is_own(name) && !name.as_str().starts_with("sec-");
    let kept = headers.iter().filter(|(name, _)| is_forwarded(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

static NOT_FORWARDED: [HeaderName; 12] = [
    AUTHORIZATION,
    CONNECTION,
    CONTENT_LENGTH,
    COOKIE,
    EXPECT,
    HOST,
    ORIGIN,
    PROXY_AUTHORIZATION,
    REFERER,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Returns a head as text, one line per field.
fn head(first: String, headers: &HeaderMap) -> String {
    let mut head = first;
    for (name, value) in headers {
        let _ = write!(head, "\n{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    head
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let human = call.standing.human();
    let found = call.app.recordings.find(call.argument(), human, Instant::now());
    let exchange = match (found, call.app.board()) {
        (Some(recording), _) => recording.exchange(),
        (None, Some(board)) => recorded_elsewhere(&call, board).await?,
        (None, None) => return Err(ApiError::new(ErrorKind::NotFound, NOT_RECORDED)),
    };
    json(&if human.is_some() { exchange.without_upstream() } else { exchange })
}

/// Returns the recording that another node has.
async fn recorded_elsewhere(call: &Call<'_>, board: &NodeBoard) -> Result<RecordedExchange, ApiError> {
    let human = call.standing.human().map(str::to_owned);
    let question = NodeQuestion::Run { request_id: call.argument().to_owned(), human };
    let Replies { found, silent } = board.ask(&question).await?;
    if let Some((_, exchange)) = found {
        return serde_json::from_slice(exchange.expose()).map_err(|_| other_release());
    }
    let silent: Vec<String> = silent.iter().map(last_heard).collect();
    let message = if silent.is_empty() {
        NOT_RECORDED.to_owned()
    } else {
        format!("{NOT_RECORDED} One of these did not answer: {}.", silent.join("; "))
    };
    Err(ApiError::new(ErrorKind::NotFound, message))
}

const NOT_RECORDED: &str =
    "There is no recording of a run with this ID: the latest 16 runs are kept for ten minutes.";
const RUN_AS: &str = "x-llmgw-run-as";
const RUN_ONLY: &str = "x-llmgw-run-only";
/// The key in the records of runs as a human.
const RUN_KEY: &str = "run";
