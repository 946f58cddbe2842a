//! `nodes`: the gateways that share the database.

use http::{Method, Response};
use serde::Serialize;
use shared::port::Body;

use super::{ApiError, Call, Route, json, route_of};
use crate::db::cluster::nodes::{self, NodeRow, NodeStanding};

pub(super) static ROUTES: &[Route] = &[route_of(Method::GET, "nodes", |call| Box::pin(list(call)))
    .answers::<NodePage>(
        "Lists the gateways that share the database of `LLMGW_DATABASE_URL`, by number. Empty for a gateway with its own \
         database.",
    )];

/// The gateways that share a database.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Nodes"))]
struct NodePage {
    /// All nodes, also those that have stopped.
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

async fn list(call: Call<'_>) -> Result<Response<Body>, ApiError> {
    call.no_query()?;
    let Some(database) = &call.app.config.database else {
        return json(&NodePage { data: Vec::new(), next_cursor: None, newest_version: None });
    };
    let stale_after = database.stale_after;
    let asked = call
        .app
        .readers
        .ask(move |db| Ok((nodes::all(db, stale_after)?, nodes::newest_version(db)?, db.node())));
    let (rows, newest, this) = asked.await?;
    let shown = |row: NodeRow| ShownNode {
        node: row.node.number(),
        name: row.name,
        is_this: row.node.number() == this,
        standing: row.standing.into(),
        release: row.release,
        file_digest: row.file_digest,
        seen_version: row.seen_version,
        alive_until_ms: (row.standing != NodeStanding::Left).then_some(row.alive_until_ms),
    };
    let data = rows.into_iter().map(shown).collect();
    json(&NodePage { data, next_cursor: None, newest_version: Some(newest) })
}
