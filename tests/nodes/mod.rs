//! Gateways whose state is in a real PostgreSQL.

mod board;
mod clocks;
mod copy;
mod lanes;
mod nemesis;
mod one;
mod operator;
mod rekey;
mod revocation;
mod several;
mod upgrade;

use postgres_server::{Database, installed, shared};

use crate::support::Yaml;
use crate::support::gateway::{Gateway, Setup};

/// Returns the setup of a gateway whose state is in this database.
fn node(yaml: &Yaml, url: &str) -> Setup {
    Setup::new(yaml).env("LLMGW_DATABASE_URL", url)
}

/// Starts `count` gateways, `n1` and so on, on the database at `url`. They capture exchanges.
async fn nodes(yaml: &Yaml, url: &str, count: usize) -> Vec<Gateway> {
    let mut nodes = Vec::new();
    for number in 1..=count {
        let setup = node(yaml, url).env("LLMGW_NODE_NAME", format!("n{number}"));
        nodes.push(setup.env("LLMGW_LOG_REQUEST_BODIES", "true").start().await);
    }
    nodes
}

/// Returns an empty database; `None` on a machine without PostgreSQL.
fn database() -> Option<Database<'static>> {
    installed().then(|| shared().create_database())
}
