//! `GET /admin/api/running` and `POST requests/{request_id}/cancel`: the exchanges that have not ended.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::access::Access;
use shared::bounds::RUNNING_LISTED;
use shared::error_kind::ErrorKind;
use shared::id::KeyId;
use shared::port::Body;
use shared::running::{RunningExchange, RunningExchanges, Stage};
use shared::snapshot::Snapshot;

use super::reference::NoMembers;
use super::{ApiError, Call, Route, json, route_of};
use crate::admin::live::node_frame::NodeFrame;
use crate::admin::permission::Permission;
use crate::cluster::board::{NodeBoard, Replies, last_heard};
use crate::db::audit::AuditEntry;
use crate::db::cluster::nodes::{NodeLabel, NodeRow};
use crate::routing::publish::{CancelOrder, Touched};
use crate::usage::scope::UsageScope;
use crate::writer::command::Done;
use crate::writer::command::audit_only::AuditOnly;
use crate::writer::command::cancels::OrderCancel;

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "running", |call| Box::pin(list(call)))
        .answers::<RunningPage>(
            "Lists the requests that have not ended, at all nodes that share the database.",
        )
        .permits(Permission::SeeUsage),
    route_of(Method::POST, "requests/{}/cancel", |call| Box::pin(cancel(call)))
        .answers::<CancelledRequest>(
            "Cancels a running request, at whatever node it runs. The audit records it.",
        )
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
    /// The nodes that may run further ones and did not answer; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent_nodes: Vec<NodeLabel>,
}

/// The running exchanges of a node, or of several.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunningNow {
    /// At most 200, those that have been silent longest first.
    pub(crate) listed: Vec<Running>,
    pub(crate) total: usize,
    /// The attempts in flight at each provider instance.
    pub(crate) attempts: BTreeMap<String, u32>,
}

/// A running exchange.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    operation: Cow<'static, str>,
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
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["reading", "queued", "waiting", "paused", "held", "streaming"])))]
    stage: Stage,
    /// Bytes of the answer's body that have gone to the client.
    bytes_out: u64,
    /// Pieces of a relayed answer that have arrived from the upstream.
    pieces: u64,
    /// The time of the last piece, to the second, in milliseconds since the Unix epoch; null before the first.
    last_piece_at_ms: Option<u64>,
    /// The output tokens so far, estimated from the length of the text.
    output_tokens_estimate: u64,
    /// The node that runs it; absent for a gateway with its own database.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeLabel>,
}

impl RunningNow {
    /// Names the node that runs them.
    pub(crate) fn at(mut self, node: &NodeLabel) -> Self {
        self.listed.iter_mut().for_each(|running| running.node = Some(node.clone()));
        self
    }

    /// Adds those of another node.
    pub(crate) fn add(&mut self, other: Self) {
        self.total += other.total;
        for (provider, attempts) in other.attempts {
            *self.attempts.entry(provider).or_default() += attempts;
        }
        self.listed.extend(other.listed);
        self.listed.sort_by_key(Running::silent_since_ms);
        RUNNING_LISTED.cut(&mut self.listed);
    }

    /// Returns the number of those that are not listed.
    pub(crate) fn more(&self) -> usize {
        self.total.saturating_sub(self.listed.len())
    }
}

impl From<RunningExchanges> for RunningNow {
    fn from(running: RunningExchanges) -> Self {
        let RunningExchanges { listed, total, attempts } = running;
        let attempts = attempts.into_iter().map(|(provider, count)| (provider.to_string(), count));
        Self { listed: listed.into_iter().map(Running::from).collect(), total, attempts: attempts.collect() }
    }
}

impl Running {
    pub(crate) fn request_id(&self) -> &str {
        &self.request_id
    }

    pub(crate) fn key(&self) -> KeyId {
        KeyId::new(self.key.as_str())
    }

    /// Returns the time of the last piece of an answer, or of the start if none has arrived.
    fn silent_since_ms(&self) -> u64 {
        self.last_piece_at_ms.unwrap_or(self.started_at_ms)
    }
}

impl From<RunningExchange> for Running {
    fn from(exchange: RunningExchange) -> Self {
        let (provider, model) = exchange.target.unzip();
        Self {
            request_id: exchange.request_id,
            started_at_ms: exchange.started_at_ms,
            key: exchange.key.to_string(),
            client: exchange.client,
            operation: exchange.operation.name().into(),
            selector: exchange.selector,
            provider: provider.map(|provider| provider.to_string()),
            model: model.map(|model| model.to_string()),
            attempt: exchange.attempt,
            stage: exchange.stage,
            bytes_out: exchange.bytes_out,
            pieces: exchange.pieces,
            last_piece_at_ms: exchange.last_piece_at_ms,
            output_tokens_estimate: exchange.output_tokens_estimate,
            node: None,
        }
    }
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let mut running = RunningNow::from(call.app.exchanges.running().await);
    let mut silent_nodes = Vec::new();
    if let Some(board) = call.app.board() {
        running = running.at(board.me());
        let (frames, silent) = board.frames_of_all::<NodeFrame>().await?;
        frames.into_iter().for_each(|(node, frame)| running.add(frame.running.at(&node)));
        silent_nodes = silent.iter().map(NodeLabel::from).collect();
    }
    if call.standing.human().is_none() {
        let more = running.more();
        return json(&RunningPage { data: running.listed, more, silent_nodes });
    }
    let keys = keys_in_scope(&call.app.snapshot.load(), &call.usage_scope());
    // The number of those that are not listed would count the requests of others.
    let own = running.listed.into_iter().filter(|exchange| keys.contains(&exchange.key()));
    json(&RunningPage { data: own.collect(), more: 0, silent_nodes })
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
    /// The node that ran it; absent for a gateway with its own database.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeLabel>,
}

async fn cancel(mut call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    call.no_fields()?;
    // A repeated request finds that the exchange has ended.
    if let Some(answer) = call.replayed().await? {
        return Ok(answer);
    }
    let request_id = call.argument().to_owned();
    let is_here = call.app.exchanges.cancel(&request_id).await;
    let node = match call.app.board() {
        Some(board) if is_here => Some(board.me().clone()),
        Some(board) => Some(cancel_elsewhere(&call, board, &request_id).await?),
        None if is_here => None,
        None => return Err(ApiError::new(ErrorKind::NotFound, NOT_RUNNING)),
    };
    let audit = AuditEntry::done("request.cancel", "request", &request_id);
    let done = Done::new(&CancelledRequest { request_id, node }, audit, Touched::NOTHING)?;
    call.execute(StatusCode::ACCEPTED, AuditOnly(done)).await
}

/// Orders all other nodes to cancel a request, and returns the one that ran it.
async fn cancel_elsewhere(
    call: &Call<'_>,
    board: &NodeBoard,
    request_id: &str,
) -> Result<NodeLabel, ApiError> {
    let order = NodeBoard::new_id()?;
    let cancel = OrderCancel(CancelOrder { request_id: request_id.to_owned(), order: order.clone() });
    call.write(StatusCode::NO_CONTENT, cancel, None).await?;
    let Replies { found, silent } = board.replies(&order).await?;
    let (node, _) = found.ok_or_else(|| ApiError::new(ErrorKind::NotFound, not_running(&silent)))?;
    Ok(node)
}

/// Returns the message about a request that no node runs, as far as they answered.
fn not_running(silent: &[NodeRow]) -> String {
    let silent: Vec<String> = silent.iter().map(last_heard).collect();
    if silent.is_empty() {
        return NOT_RUNNING.to_owned();
    }
    format!(
        "{NOT_RUNNING} It is cancelled also if it runs at a node that did not answer: {}.",
        silent.join("; ")
    )
}

const NOT_RUNNING: &str = "No request with this ID is running.";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn running(request_id: &str, selector: &str) -> Running {
        Running {
            request_id: request_id.into(),
            started_at_ms: 1,
            key: "key_1".to_owned(),
            client: "".into(),
            operation: "chat_completions".into(),
            selector: selector.into(),
            provider: None,
            model: None,
            attempt: 0,
            stage: Stage::Waiting,
            bytes_out: 0,
            pieces: 0,
            last_piece_at_ms: None,
            output_tokens_estimate: 0,
            node: None,
        }
    }

    #[test]
    fn the_most_silent_of_all_nodes_are_listed_and_name_their_node() {
        let of = |count: usize, last_piece_at_ms: u64| RunningNow {
            listed: vec![Running { last_piece_at_ms: Some(last_piece_at_ms), ..running("r", "m") }; count],
            total: count,
            attempts: [("up".to_owned(), 2)].into(),
        };
        let node = |node: u32| NodeLabel { node, name: format!("n{node}") };
        let mut all = of(RUNNING_LISTED.max(), 9).at(&node(1));
        all.add(of(1, 7).at(&node(2)));
        assert_eq!((all.listed.len(), all.more(), all.attempts["up"]), (RUNNING_LISTED.max(), 1, 4));
        assert_eq!((&all.listed[0].node, &all.listed[1].node), (&Some(node(2)), &Some(node(1))));
    }
}
