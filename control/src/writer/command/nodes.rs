//! The command that declares a node lost.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Command, CommandRefusal, Done, Write};
use crate::db::audit::AuditEntry;
use crate::db::cluster::nodes::{self, NodeStanding};
use crate::db::quotas::shares::lost;
use crate::db::record_id::NodeId;
use crate::routing::publish::Touched;

/// What happens to what a lost node had unused of limits by the hour, day, week, month or in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unused {
    /// It counts as used until the window ends. No limit is exceeded.
    #[default]
    Count,
    /// It is given back. A limit is exceeded by what the node has used and not stored, and by what it uses if it still runs.
    Release,
}

/// Declares a node lost: it is neither listed nor waited for, until it is heard of again.
#[derive(Debug)]
pub(crate) struct ForgetNode {
    pub(crate) node: NodeId,
    pub(crate) unused: Unused,
}

/// A node that was declared lost.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ForgottenNode {
    /// Its number.
    node: u32,
    /// `LLMGW_NODE_NAME`.
    name: String,
    unused: Unused,
    /// The number of limits of which something was given back.
    released_limits: usize,
}

impl Command for ForgetNode {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let number = self.node.number();
        let missing = || CommandRefusal::not_found("node", &number.to_string());
        if !write.db.is_postgres() {
            return Err(missing());
        }
        if number == write.db.node() {
            return Err(CommandRefusal::conflict(format!(
                "Node {number} is the gateway that answers. Stop it with SIGTERM, and forget it at another node."
            )));
        }
        let found = nodes::find(write.db, self.node, Duration::ZERO)?.ok_or_else(missing)?;
        if found.standing == NodeStanding::Live {
            return Err(CommandRefusal::conflict(format!(
                "Node {number} ({}) is live. Stop it with SIGTERM: it then stores its usage and gives back what it has of limits. \
                 If its machine is lost, repeat this in a few seconds, when it is silent.",
                found.name
            )));
        }
        let released_limits = match self.unused {
            Unused::Count => 0,
            Unused::Release => lost::release(write.db, self.node)?,
        };
        nodes::forget(write.db, self.node)?;
        let forgotten =
            ForgottenNode { node: number, name: found.name, unused: self.unused, released_limits };
        let audit = AuditEntry::done("node.forget", "node", &number.to_string()).after(json!(forgotten));
        Done::new(&forgotten, audit, Touched::NOTHING)
    }
}
