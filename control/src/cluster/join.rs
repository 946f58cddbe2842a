//! The start of a node among others: its number, and its place among the changes.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shared::freshness::Freshness;

use super::follow::Follower;
use super::node_file::NodeFile;
use crate::common::node_figures::NodeFigures;
use crate::db::cluster::nodes::{self, NodeStart, RegisterError, Registered};
use crate::db::engine::{Db, DbError};
use crate::db::record_id::NodeId;
use crate::db::sqlite_state::migrate::newest;

/// The description that a node gives of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinParams<'a> {
    pub(crate) state_dir: &'a Path,
    /// The version of the gateway.
    pub(crate) release: &'a str,
    /// SHA-256 of the configuration file as hexadecimal digits.
    pub(crate) file_digest: &'a str,
    /// The name for operators.
    pub(crate) name: &'a str,
    /// The seal of the data key that it has opened.
    pub(crate) key_seal: &'a str,
    /// The time without the database after which project keys are refused.
    pub(crate) stale_after: Duration,
}

/// A node that has joined the others.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The node and this process.
    pub(crate) registered: Registered,
    /// For the writer thread. It stands before whatever is read from now on.
    pub(crate) follower: Follower,
    /// For the snapshots.
    pub(crate) freshness: Freshness,
    /// For all that this node counts.
    pub(crate) figures: Arc<NodeFigures>,
    /// A warning for the operator.
    pub(crate) warning: Option<String>,
}

/// A node cannot join.
#[derive(Debug)]
pub(crate) enum JoinError {
    /// `node.json` cannot be used.
    File(io::Error),
    /// The database is that of a newer release, beside which this one may not run.
    TooOld,
    Database(DbError),
}

/// Registers the node of a state directory. A process that had the node before ends at its next fence. Call it before anything of
/// a snapshot is read.
pub(crate) fn join(db: &mut Db, params: &JoinParams<'_>) -> Result<Joined, JoinError> {
    let mut file = NodeFile::open(params.state_dir).map_err(JoinError::File)?;
    let start = NodeStart {
        identity: &file.identity,
        number: file.node.map(NodeId::new),
        release: params.release,
        file_digest: params.file_digest,
        name: params.name,
        schema_version: newest(),
        key_seal: params.key_seal,
    };
    let registered = nodes::register(db, &start)?;
    let Registered { node, incarnation, was_forgotten } = registered;
    file.set_number(params.state_dir, node.number()).map_err(JoinError::File)?;
    let freshness = Freshness::new(params.stale_after);
    let figures = Arc::<NodeFigures>::default();
    let follower = Follower::start(db, node, (freshness.clone(), Arc::clone(&figures)))?;
    tracing::info!(node.number = node.number(), node.incarnation = incarnation, "joined the other nodes");
    let warning = was_forgotten.then(|| FORGOTTEN.to_owned());
    Ok(Joined { registered, follower, freshness, figures, warning })
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(f, "cannot use node.json in the state directory: {error}"),
            Self::TooOld => f.write_str("a newer release has migrated the database; start that release"),
            Self::Database(error) => write!(f, "cannot register this node in the database: {error}"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<RegisterError> for JoinError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::TooOld => Self::TooOld,
            RegisterError::Database(error) => Self::Database(error),
        }
    }
}

impl From<DbError> for JoinError {
    fn from(error: DbError) -> Self {
        Self::Database(error)
    }
}

const FORGOTTEN: &str = "an administrator has declared this node lost since it last ran; it is a node again, and its journal is stored \
                         now. If what it had unused of limits was released, other nodes may have used it too";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::cluster::leases;
    use crate::db::cluster::nodes::NodeStanding;
    use crate::db::testing::shared_database;

    fn params(state_dir: &Path) -> JoinParams<'_> {
        JoinParams {
            state_dir,
            release: "1",
            file_digest: "d",
            name: "n",
            key_seal: "",
            stale_after: Duration::from_mins(5),
        }
    }

    #[test]
    fn a_state_directory_is_one_node_and_a_lost_one_becomes_another() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        let (kept, lost) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut numbers = |dir: &Path| {
            let joined = join(&mut db, &params(dir)).unwrap();
            let incarnation = "SELECT max(incarnation) FROM fences WHERE node = :node";
            let incarnation: u64 = db.row(incarnation, [joined.registered.node], |row| row.get(0)).unwrap();
            (joined.registered.node.number(), incarnation)
        };
        assert_eq!([numbers(kept.path()), numbers(lost.path())], [(1, 1), (2, 1)]);
        std::fs::remove_file(lost.path().join("node.json")).unwrap();
        assert_eq!([numbers(kept.path()), numbers(lost.path())], [(1, 2), (3, 1)]);
    }

    #[test]
    fn a_node_that_leaves_gives_up_its_jobs() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        let dir = tempfile::tempdir().unwrap();
        let Joined { registered, follower, .. } = join(&mut db, &params(dir.path())).unwrap();
        let node = registered.node;
        nodes::renew(&db, node).unwrap();
        assert!(leases::claim(&db, "job", node).unwrap());
        follower.leave(&mut db).unwrap();
        assert!(leases::claim(&db, "job", NodeId::new(9)).unwrap());
        let rows = nodes::all(&db, Duration::from_mins(5)).unwrap();
        assert_eq!(rows[0].standing, NodeStanding::Left);
    }
}
