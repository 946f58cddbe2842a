//! What one of several nodes that share a PostgreSQL does: it keeps its identity, and follows the changes that others make.
#![cfg_attr(
    not(test),
    expect(dead_code, reason = "no setting names a PostgreSQL yet; the tests run several nodes on one")
)]

pub(crate) mod follow;
pub(crate) mod join;
pub(crate) mod node_file;

#[cfg(test)]
mod tests;
