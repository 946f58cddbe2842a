//! What one of several nodes that share a PostgreSQL does: it keeps its identity, and follows the changes that others make.

pub(crate) mod duty;
pub(crate) mod follow;
pub(crate) mod join;
pub(crate) mod node_file;

#[cfg(test)]
mod tests;
