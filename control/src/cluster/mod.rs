//! The work of one of several nodes that share a PostgreSQL: it keeps its identity,
//! follows the changes that others make, and renews its shares of limits.

pub(crate) mod duty;
pub(crate) mod follow;
pub(crate) mod join;
pub(crate) mod node_file;
pub(crate) mod shares;

/// The reason for which a process ends when a later one has its identity.
pub(crate) const SUPERSEDED: &str = "another process has started with the node.json of this one's state directory; give each node a \
                                     directory of its own";

#[cfg(test)]
mod tests;
