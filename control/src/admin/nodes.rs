//! `nodes`: the gateways that share the database.

use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use shared::error_kind::ErrorKind;
use shared::port::Body;
use shared::quota::{Metric, Period};

use super::{ApiError, Call, Route, json, route_of, write_of};
use crate::db::cluster::nodes::{self, NodeRow, NodeStanding};
use crate::db::engine::DbResult;
use crate::db::names::{Labels, object_name};
use crate::db::quotas::shares::lost::{self, NodeShare};
use crate::db::record_id::NodeId;
use crate::writer::command::nodes::{ForgetNode, ForgottenNode, Unused};

pub(super) static ROUTES: &[Route] = &[
    route_of(Method::GET, "nodes", |call| Box::pin(list(call))).answers::<NodePage>(
        "Lists the gateways that share the database of `LLMGW_DATABASE_URL`, by number. Empty for a gateway with its own \
         database.",
    ),
    route_of(Method::GET, "nodes/{}", |call| Box::pin(show(call)))
        .answers::<DetailedNode>("Shows a node, by its number, with the limits of which it has a share."),
    write_of(Method::POST, "nodes/{}/forget", |call| Box::pin(forget(call)))
        .answers::<ForgottenNode>(
            "Declares a node lost whose disk is gone, or which does not return: it is neither listed nor waited for. Refused for \
             a live node.",
        )
        .takes::<Forgetting>(),
];

/// The gateways that share a database.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Nodes"))]
struct NodePage {
    /// All nodes, also those that have stopped, but not those that were forgotten.
    data: Vec<ShownNode>,
    /// Always null: the list has one page.
    next_cursor: Option<String>,
    /// The number of the newest change of the state; null for a gateway with its own database.
    newest_version: Option<u64>,
}

/// A gateway that shares the database.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Node"))]
struct ShownNode {
    /// Its number, also in `X-LLMGW-Silent-Nodes`.
    node: u32,
    /// `LLMGW_NODE_NAME`.
    name: String,
    /// True for the gateway that answers.
    is_this: bool,
    /// Whether it is heard of, and serves.
    standing: ShownStanding,
    /// The version of the gateway.
    release: String,
    /// SHA-256 of its configuration file as hexadecimal digits; `absent` or `unreadable` without one.
    file_digest: String,
    /// The number of the newest change that it serves by.
    seen_version: u64,
    /// The end of its sign of life, in milliseconds since the Unix epoch by the clock of the database; null if it has stopped.
    alive_until_ms: Option<u64>,
    /// The time at which it was last heard of, in milliseconds since the Unix epoch by the clock of the database; null if it has
    /// stopped, or never served.
    heard_at_ms: Option<u64>,
    /// The time at which it stopped in order, in milliseconds since the Unix epoch by the clock of the database; null if it has not.
    left_at_ms: Option<u64>,
    /// By how much its clock is ahead of that of the database, in milliseconds; negative if it is behind.
    clock_ahead_ms: i64,
    /// The age of its oldest usage record that is not in the database, in milliseconds; null if there is none.
    unstored_for_ms: Option<u64>,
}

/// A gateway that shares the database, with what it has of limits.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DetailedNode {
    #[serde(flatten)]
    node: ShownNode,
    /// The limits of whose current window it has a share, by ID.
    shares: Vec<ShownShare>,
}

/// The share of a node in a limit. Amounts are in the unit of the metric, money in micro-dollars.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "NodeShare"))]
struct ShownShare {
    /// The ID of the limit.
    quota: String,
    /// The name of the subject of the limit; the ID if it has no name.
    name: String,
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::Metric"))]
    metric: Metric,
    /// Null for concurrent requests.
    #[cfg_attr(test, schemars(with = "Option<crate::common::shared_shapes::Period>"))]
    window: Option<Period>,
    limit: u64,
    /// The amount that the node may use in this window, including what it has used. The rest is unused, and counts as used for
    /// other nodes.
    granted: u64,
    /// The amount that the stored records of the node have used. Limits by the minute and of concurrent requests have none.
    used: u64,
}

/// Whether a node is heard of, and serves.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "NodeStanding"))]
#[serde(rename_all = "snake_case")]
enum ShownStanding {
    /// It is heard of.
    Live,
    /// It was not heard of for some seconds, and may still serve by an earlier state.
    Silent,
    /// It was not heard of for so long that it refuses project keys.
    Stale,
    /// It has stopped in order.
    Left,
}

impl From<NodeStanding> for ShownStanding {
    fn from(standing: NodeStanding) -> Self {
        match standing {
            NodeStanding::Live => Self::Live,
            NodeStanding::Silent => Self::Silent,
            NodeStanding::Stale => Self::Stale,
            NodeStanding::Left => Self::Left,
        }
    }
}

impl ShownNode {
    fn of(row: NodeRow, this: u32) -> Self {
        let alive_until_ms = (row.standing != NodeStanding::Left).then_some(row.alive_until_ms);
        Self {
            node: row.node.number(),
            name: row.name,
            is_this: row.node.number() == this,
            standing: row.standing.into(),
            release: row.release,
            file_digest: row.file_digest,
            seen_version: row.seen_version,
            alive_until_ms,
            heard_at_ms: alive_until_ms.and_then(|until_ms| until_ms.checked_sub(nodes::ALIVE_MS)),
            left_at_ms: row.left_at_ms,
            clock_ahead_ms: row.clock_ahead_ms,
            unstored_for_ms: row.unstored_for_ms,
        }
    }
}

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let Some(database) = &call.app.config.database else {
        return json(&NodePage { data: Vec::new(), next_cursor: None, newest_version: None });
    };
    let stale_after = database.stale_after;
    let asked = call.app.readers.ask(move |db| {
        let rows = nodes::all(db, stale_after)?.into_iter();
        let data = rows.map(|row| ShownNode::of(row, db.node())).collect();
        Ok(NodePage { data, next_cursor: None, newest_version: Some(nodes::newest_version(db)?) })
    });
    json(&asked.await?)
}

async fn show(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let node = number(&call)?;
    let Some(database) = &call.app.config.database else { return Err(missing(&call)) };
    let stale_after = database.stale_after;
    let asked = call.app.readers.ask(move |db| {
        let Some(row) = nodes::find(db, node, stale_after)? else { return Ok(None) };
        let mut labels = Labels::default();
        let shown = |share: NodeShare| -> DbResult<ShownShare> {
            let NodeShare { quota, metric, period, limit, granted, used } = share;
            let name = object_name(db, &mut labels, &quota)?;
            Ok(ShownShare { quota, name, metric, window: period, limit, granted, used })
        };
        let shares = lost::of_node(db, node)?.into_iter().map(shown).collect::<DbResult<_>>()?;
        Ok(Some(DetailedNode { node: ShownNode::of(row, db.node()), shares }))
    });
    json(&asked.await?.ok_or_else(|| missing(&call))?)
}

/// The treatment of a lost node.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Forgetting {
    /// `count` by default.
    #[serde(default)]
    unused: Unused,
}

async fn forget(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let Forgetting { unused } = call.json()?;
    call.execute(StatusCode::OK, ForgetNode { node: number(&call)?, unused }).await
}

/// Returns the number of the node that the path names.
fn number(call: &Call<'_>) -> Result<NodeId, ApiError> {
    call.argument().parse().map(NodeId::new).map_err(|_| missing(call))
}

fn missing(call: &Call<'_>) -> ApiError {
    ApiError::new(ErrorKind::NotFound, format!("There is no node '{}'.", call.argument()))
}
