//! Where the state lies: in files of the state directory, or in a database of PostgreSQL.

use super::cluster::changes::CHANNEL;
use super::engine::postgres::{DatabaseAddress, Listener};
use super::engine::{Db, DbResult};
use super::record_id::NodeId;
use super::sqlite_state::files::Files;

/// Where the state lies.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// Files of SQLite, which one process uses.
    Files(Files),
    /// A database of PostgreSQL, as one of its nodes uses it.
    Server {
        /// The database.
        address: Box<DatabaseAddress>,
        /// The node.
        node: NodeId,
    },
}

impl Storage {
    /// Makes a connection that reads the whole state.
    pub(crate) fn reader(&self) -> DbResult<Db> {
        match self {
            Self::Files(files) => files.reader(),
            Self::Server { address, node } => address.connect(node.number()),
        }
    }

    /// Makes a session that waits for the changes of other nodes; `None` if there are no others.
    pub(crate) fn listener(&self) -> DbResult<Option<Listener>> {
        match self {
            Self::Files(_) => Ok(None),
            Self::Server { address, .. } => address.listen(CHANNEL).map(Some),
        }
    }

    /// Returns the node that uses it; `None` for files.
    pub(crate) fn node(&self) -> Option<NodeId> {
        match self {
            Self::Files(_) => None,
            Self::Server { node, .. } => Some(*node),
        }
    }

    /// Returns the files, unless the state is elsewhere.
    pub(crate) fn files(&self) -> Option<&Files> {
        match self {
            Self::Files(files) => Some(files),
            Self::Server { .. } => None,
        }
    }
}

#[cfg(test)]
impl From<Files> for Storage {
    fn from(files: Files) -> Self {
        Self::Files(files)
    }
}
