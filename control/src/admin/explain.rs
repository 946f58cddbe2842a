//! `POST explain`: reports which targets would serve a given body with a given key, and why others would not, without
//! sending anything upstream (FAIL-8). It can assume an endpoint that is not stored, and targets that fail.

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::id::{EndpointName, ModelId, ProviderId};
use shared::port::{AssumedFault, Body, FaultKind, Insider, Rehearsal};
use shared::routing::{Endpoint, Target};
use shared::snapshot::Snapshot;

use super::endpoints::NewEndpoint;
use super::explanation::Explanation;
use super::trials::administrator;
use super::{ApiError, App, Call, Route, json, route_of};
use crate::db::endpoints::{EndpointContent, StoredMember};
use crate::db::engine::Db;
use crate::routing::catalog::test_completion::{HERE, request};
use crate::routing::config::WrittenOrder;
use crate::routing::publish::{AccessHolder, balance, content_timeouts, share};

pub(super) static ROUTES: &[Route] = &[route_of(Method::POST, "explain", |call| Box::pin(explain(call)))
    .answers::<Explained>("Shows which targets a request would try, without sending anything.")
    .takes::<ExplainRequest>()
    .acts_each_time()];

/// A request to explain.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ExplainRequest {
    /// The project key to explain for.
    #[serde(default)]
    key_id: Option<String>,
    /// The human to explain for: a caller without lists, bound by the limits of the human. With neither field, the
    /// administrator who asks.
    #[serde(default)]
    principal_id: Option<String>,
    /// A path of the data plane.
    #[serde(default)]
    path: Option<String>,
    /// The body that a client would send.
    #[serde(default)]
    body: Option<Value>,
    /// Several requests to explain, instead of `path` and `body`.
    #[serde(default)]
    cases: Option<Vec<ExplainCase>>,
    /// An endpoint that is assumed to be stored.
    #[serde(default)]
    draft: Option<NewEndpoint>,
    /// Providers and models that are assumed to fail.
    #[serde(default)]
    faults: Option<Vec<ExplainFault>>,
}

/// One of several requests to explain. Without a key or human of its own, it is explained for that of the whole request.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ExplainCase {
    name: String,
    #[serde(default)]
    key_id: Option<String>,
    #[serde(default)]
    principal_id: Option<String>,
    path: String,
    /// The body that a client would send.
    body: Value,
}

/// An assumed failure.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ExplainFault {
    provider: String,
    /// Absent for all models of the provider.
    #[serde(default)]
    model: Option<String>,
    fault: FaultName,
    /// The error status, for the fault `status` only.
    #[serde(default)]
    status: Option<u16>,
    /// The text of the error, which rules of the provider and the built-in table read as its message; for the fault `status`
    /// only.
    #[serde(default)]
    contains: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum FaultName {
    Status,
    Hang,
    Cut,
}

/// The answer: an explanation, or several.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
enum Explained {
    One(Box<Explanation>),
    Several(ExplainedCases),
}

/// The explanations of several requests, in their order.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainedCases {
    cases: Vec<ExplainedCase>,
}

/// The explanation of one of several requests.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ExplainedCase {
    name: String,
    #[serde(flatten)]
    explanation: Explanation,
}

async fn explain(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let ExplainRequest { key_id, principal_id, path, body, cases, draft, faults } = call.json()?;
    let snapshot = call.app.snapshot.load();
    let rehearsal = Rehearsal {
        draft: draft.map(|draft| endpoint(call.app, &snapshot, draft)).transpose()?,
        faults: faults.map(|faults| assumed(call.app, faults)).transpose()?,
    };
    match (path, body, cases) {
        (Some(path), Some(body), None) => {
            let access = access(&call, key_id, principal_id).await?;
            match plan(call.app, access, &rehearsal, (&path, &body)).await? {
                Ok(explanation) => json(&Explained::One(Box::new(explanation))),
                Err(answer) => Ok(answer),
            }
        }
        (None, None, Some(cases)) => several(&call, (key_id, principal_id), &rehearsal, cases).await,
        (None, _, None) => Err(ApiError::parameter("path", "Send path and body, or cases.")),
        (Some(_), None, None) => Err(ApiError::parameter("body", "body is missing.")),
        (_, _, Some(_)) => Err(ApiError::parameter("cases", "Send cases, or path and body, not both.")),
    }
}

async fn several(
    call: &Call<'_>,
    (key_id, principal_id): (Option<String>, Option<String>),
    rehearsal: &Rehearsal,
    cases: Vec<ExplainCase>,
) -> Result<Response<Body>, ApiError> {
    if cases.is_empty() || cases.len() > CASES_MAX {
        return Err(ApiError::parameter("cases", format!("cases must have 1 to {CASES_MAX} entries.")));
    }
    let mut explained = Vec::with_capacity(cases.len());
    for ExplainCase { name, key_id: own_key, principal_id: own_human, path, body } in cases {
        let is_own = own_key.is_some() || own_human.is_some();
        let (key, human) = match is_own {
            true => (own_key, own_human),
            false => (key_id.clone(), principal_id.clone()),
        };
        let access = access(call, key, human).await?;
        match plan(call.app, access, rehearsal, (&path, &body)).await? {
            Ok(explanation) => explained.push(ExplainedCase { name, explanation }),
            Err(answer) => return Ok(answer),
        }
    }
    json(&Explained::Several(ExplainedCases { cases: explained }))
}

/// Returns the plan of one request, from the data plane, or the data plane's answer if that is an error.
async fn plan(
    app: &App,
    access: Arc<Access>,
    rehearsal: &Rehearsal,
    (path, body): (&str, &Value),
) -> Result<Result<Explanation, Response<Body>>, ApiError> {
    if !is_client_path(path) {
        let message = "path must be a path for client POST requests, such as /v1/chat/completions.";
        return Err(ApiError::parameter("path", message));
    }
    let insider = Insider { explain: true, ..Insider::new(access) };
    let mut request = request(insider, path, body.to_string())
        .map_err(|_| ApiError::parameter("path", "path must be the path of a URL."))?;
    request.extensions_mut().insert(rehearsal.clone());
    let answer = app.plane.handle(request, HERE).await;
    if answer.status() != StatusCode::OK {
        return Ok(Err(answer));
    }
    let unreadable = || ApiError::new(ErrorKind::Internal, "The explanation could not be read.");
    let body = answer.into_body().collect().await.map_err(|_| unreadable())?;
    let mut explanation: Explanation = serde_json::from_slice(&body.to_bytes()).map_err(|_| unreadable())?;
    explanation.node = app.board().map(|board| board.me().clone());
    Ok(Ok(explanation))
}

/// Returns the access of the key or human, or that of the caller.
async fn access(
    call: &Call<'_>,
    key_id: Option<String>,
    principal_id: Option<String>,
) -> Result<Arc<Access>, ApiError> {
    match (key_id, principal_id) {
        (Some(_), Some(_)) => Err(ApiError::parameter("key_id", "Send key_id or principal_id, not both.")),
        (Some(id), None) => of_key(call.app, &id),
        (None, Some(id)) => of_human(call.app, id).await,
        (None, None) => Ok(Arc::new(administrator(call, None))),
    }
}

/// Returns the access of a human without a key.
async fn of_human(app: &App, id: String) -> Result<Arc<Access>, ApiError> {
    let counters = Arc::clone(&app.counters);
    let read = move |db: &Db| AccessHolder::counted_human(db, ("explain", &id), &counters);
    app.readers.ask(read).await?.map(Arc::new).ok_or_else(|| {
        let message = "principal_id does not name a usable human: the human does not exist, or is disabled.";
        ApiError::parameter("principal_id", message)
    })
}

/// Returns the access of a key in the snapshot. Disabled, revoked and expired keys are not in it.
fn of_key(app: &App, id: &str) -> Result<Arc<Access>, ApiError> {
    let snapshot = app.snapshot.load();
    let found = snapshot.access.keys.values().find(|access| access.key.as_str() == id).cloned();
    found.ok_or_else(|| {
        let message =
            "key_id does not name a usable key: the key does not exist, or it is disabled, revoked or \
             expired.";
        ApiError::parameter("key_id", message)
    })
}

/// Builds an endpoint that is not stored. As in routing, members of providers that are not in use are left out.
fn endpoint(app: &App, snapshot: &Snapshot, draft: NewEndpoint) -> Result<Arc<Endpoint>, ApiError> {
    let (name, EndpointContent { failover, preamble, also, order, sticky, cursor_bodies }) =
        draft.checked("draft.name")?;
    let (mut targets, mut shares) = (Vec::new(), Vec::new());
    let mut timeouts = Vec::new();
    for (index, member) in failover.into_iter().enumerate() {
        let content_limit = member.content_limit();
        let StoredMember { provider, model, weight, tier, .. } = member;
        let place = snapshot.providers.binary_search_by(|instance| instance.id.as_str().cmp(&provider)).ok();
        let Some(instance) = place.and_then(|place| snapshot.providers.get(place)) else {
            is_provider(app, &format!("draft.failover[{index}].provider"), &provider)?;
            continue;
        };
        let known = instance.models.binary_search_by(|known| known.id.as_str().cmp(&model)).ok();
        let known = known.and_then(|place| instance.models.get(place)).ok_or_else(|| {
            let message = format!("The provider '{provider}' does not list '{model}'.");
            ApiError::parameter(&format!("draft.failover[{index}].model"), message)
        })?;
        shares.push(share(instance, &known.id, weight, tier));
        timeouts.push(content_limit);
        targets.push(Target { provider: Arc::clone(instance), model: Arc::clone(known) });
    }
    Ok(Arc::new(Endpoint {
        preamble: preamble.map(Arc::from),
        also: also.into_iter().map(Box::from).collect(),
        balance: balance(WrittenOrder { order, sticky }, shares),
        first_content_timeouts: content_timeouts(timeouts),
        cursor_bodies,
        ..Endpoint::new(EndpointName::new(name.as_str()), targets)
    }))
}

/// Rejects the name of a provider that does not exist.
fn is_provider(app: &App, param: &str, id: &str) -> Result<(), ApiError> {
    if app.view.read().providers.iter().any(|connection| connection.id == id) {
        return Ok(());
    }
    Err(ApiError::parameter(param, format!("There is no provider '{id}'.")))
}

fn assumed(app: &App, faults: Vec<ExplainFault>) -> Result<Vec<AssumedFault>, ApiError> {
    if faults.len() > FAULTS_MAX {
        return Err(ApiError::parameter("faults", format!("faults must have at most {FAULTS_MAX} entries.")));
    }
    let assume = |(index, fault): (usize, ExplainFault)| {
        let ExplainFault { provider, model, fault, status, contains } = fault;
        is_provider(app, &format!("faults[{index}].provider"), &provider)?;
        if contains.is_some() && !matches!(fault, FaultName::Status) {
            let message = "contains is for the fault status only.";
            return Err(ApiError::parameter(&format!("faults[{index}].contains"), message));
        }
        let kind = match (fault, status) {
            (FaultName::Status, Some(status @ 400..=599)) => {
                FaultKind::Status { status, text: contains.map(String::into) }
            }
            (FaultName::Hang, None) => FaultKind::Hang,
            (FaultName::Cut, None) => FaultKind::Cut,
            (FaultName::Status, _) | (FaultName::Hang | FaultName::Cut, Some(_)) => {
                let message =
                    "status must be a number from 400 to 599 for the fault status, and absent for others.";
                return Err(ApiError::parameter(&format!("faults[{index}].status"), message));
            }
        };
        let provider = ProviderId::new(provider.as_str());
        Ok(AssumedFault { provider, model: model.as_deref().map(ModelId::new), kind })
    };
    faults.into_iter().enumerate().map(assume).collect()
}

/// True for a path of the data plane that clients post to.
pub(super) fn is_client_path(path: &str) -> bool {
    PATHS.contains(&path.strip_prefix("/v1").unwrap_or(path))
}

/// Paths that clients post to, after `/v1`.
const PATHS: &[&str] = &[
    "/chat/completions",
    "/completions",
    "/responses",
    "/messages",
    "/messages/count_tokens",
    "/embeddings",
    "/audio/transcriptions",
    "/audio/speech",
    "/images/generations",
    "/videos/generations",
];
/// The most requests of one explanation.
const CASES_MAX: usize = 50;
const FAULTS_MAX: usize = 100;
