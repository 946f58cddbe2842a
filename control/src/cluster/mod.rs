//! The work of one of several nodes that share a PostgreSQL: it keeps its identity,
//! follows the changes that others make, shows and asks them things for a short time, and renews its shares of limits.

use std::io;

pub(crate) mod board;
pub(crate) mod duty;
pub(crate) mod follow;
pub(crate) mod join;
pub(crate) mod listen;
pub(crate) mod node_file;
pub(crate) mod shares;

/// Returns the reason for which a process ends when another one has raised its fences.
pub(crate) fn superseded() -> io::Error {
    let why = "another process has started with the node.json of this one's state directory, or a newer release has migrated the \
               database while this node was not heard of; give each node a directory of its own, or start the newer release";
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

#[cfg(test)]
mod tests;
