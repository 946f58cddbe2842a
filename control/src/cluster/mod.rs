//! What one of several nodes that share a PostgreSQL does: it keeps its identity,
//! follows the changes that others make, and renews its shares of limits.

pub(crate) mod duty;
pub(crate) mod follow;
pub(crate) mod join;
pub(crate) mod node_file;
pub(crate) mod shares;

#[cfg(test)]
mod tests;
