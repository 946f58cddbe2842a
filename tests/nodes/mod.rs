//! Gateways whose state is in a real PostgreSQL.

mod copy;
mod nemesis;
mod one;
mod operator;
mod several;

use postgres_server::{Database, installed, shared};

use crate::support::Yaml;
use crate::support::gateway::Setup;

/// Returns the setup of a gateway whose state is in this database.
fn node(yaml: &Yaml, url: &str) -> Setup {
    Setup::new(yaml).env("LLMGW_DATABASE_URL", url)
}

/// Returns an empty database; `None` on a machine without PostgreSQL.
fn database() -> Option<Database<'static>> {
    installed().then(|| shared().create_database())
}
