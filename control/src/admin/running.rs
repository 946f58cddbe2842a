//! `GET /admin/api/running` and `POST requests/{request_id}/cancel`: the exchanges that have not ended.

use std::collections::HashSet;
use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde::Serialize;
use shared::access::Access;
use shared::error_kind::ErrorKind;
use shared::id::KeyId;
use shared::port::Body;
use shared::running::{RunningExchange, Stage};
use shared::snapshot::Snapshot;

use super::reference::NoMembers;
use super::{ApiError, Call, Route, json, route_of};
use crate::admin::permission::Permission;
use crate::db::audit::AuditEntry;
use crate::routing::publish::Touched;
use crate::usage::scope::UsageScope;
use crate::writer::command::Done;
use crate::writer::command::audit_only::AuditOnly;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "running", |call| Box::pin(list(call)))
        .answers::<RunningPage>("Lists the requests that have not ended.")
        .permits(Permission::SeeUsage),
    route_of(Method::POST, "requests/{}/cancel", |call| Box::pin(cancel(call)))
        .answers::<CancelledRequest>("Cancels a running request. The audit records it.")
        .statuses(&[202])
        .takes::<NoMembers>(),
];

/// The running exchanges, those that have been silent longest first.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RunningPage {
    /// At most 200 exchanges.
    data: Vec<Running>,
    /// The number of running exchanges that are not listed.
    more: usize,
}

/// A running exchange.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RunningRequest"))]
pub(crate) struct Running {
    request_id: Box<str>,
    /// The time at which the request's head had arrived, in milliseconds since the Unix epoch.
    started_at_ms: u64,
    /// The key's ID, or `admin` or `local`.
    key: String,
    /// The family and version of the client's software, out of its `User-Agent`; may be empty.
    client: Box<str>,
    operation: &'static str,
    /// The client's selector; empty until the body has been read.
    selector: Box<str>,
    /// The provider of the latest attempt; null before the first.
    provider: Option<String>,
    /// The model of the latest attempt; null before the first.
    model: Option<String>,
    /// The number of attempts so far, over all targets.
    attempt: u32,
    /// `reading` the request, `waiting` for the upstream's head, `paused` between attempts, `held` until the first
    /// content, or `streaming`.
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["reading", "waiting", "paused", "held", "streaming"])))]
    stage: Stage,
    /// Bytes of the answer's body that have gone to the client.
    bytes_out: u64,
    /// Pieces of a relayed answer that have arrived from the upstream.
    pieces: u64,
    /// The time of the last piece, to the second, in milliseconds since the Unix epoch; null before the first.
    last_piece_at_ms: Option<u64>,
    /// The output tokens so far, estimated from the length of the text.
    output_tokens_estimate: u64,
}

impl From<RunningExchange> for Running {
    fn from(exchange: RunningExchange) -> Self {
        let (provider, model) = exchange.target.unzip();
        Self {
            request_id: exchange.request_id,
            started_at_ms: exchange.started_at_ms,
            key: exchange.key.to_string(),
            client: exchange.client,
            operation: exchange.operation.name(),
            selector: exchange.selector,
            provider: provider.map(|provider| provider.to_string()),
            model: model.map(|model| model.to_string()),
            attempt: exchange.attempt,
            stage: exchange.stage,
            bytes_out: exchange.bytes_out,
            pieces: exchange.pieces,
            last_piece_at_ms: exchange.last_piece_at_ms,
            output_tokens_estimate: exchange.output_tokens_estimate,
        }
    }
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let running = call.app.exchanges.running().await;
    if call.standing.human().is_none() {
        let more = running.more();
        return json(&RunningPage { data: running.listed.into_iter().map(Running::from).collect(), more });
    }
    let keys = keys_in_scope(&call.app.snapshot.load(), &call.usage_scope());
    // The number of those that are not listed would count the requests of others.
    let own = running.listed.into_iter().filter(|exchange| keys.contains(&exchange.key));
    json(&RunningPage { data: own.map(Running::from).collect(), more: 0 })
}

/// Returns the IDs of the usable keys of the projects in a scope.
pub(super) fn keys_in_scope(snapshot: &Snapshot, scope: &UsageScope) -> HashSet<KeyId> {
    let is_own = |access: &&Arc<Access>| {
        access.project.as_ref().is_some_and(|project| scope.has_project(project.as_str()))
    };
    snapshot.access.keys.values().filter(is_own).map(|access| access.key.clone()).collect()
}

/// The answer to a cancellation.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CancelledRequest {
    request_id: String,
}

async fn cancel(mut call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    // A repeated request finds that the exchange has ended.
    if let Some(answer) = call.replayed().await? {
        return Ok(answer);
    }
    let request_id = call.argument().to_owned();
    if !call.app.exchanges.cancel(&request_id).await {
        return Err(ApiError::new(ErrorKind::NotFound, "No request with this ID is running."));
    }
    let audit = AuditEntry::done("request.cancel", "request", &request_id);
    let done = Done::new(&CancelledRequest { request_id }, audit, Touched::NOTHING)?;
    call.execute(StatusCode::ACCEPTED, AuditOnly(done)).await
}
