//! The start of a node among others: its number, its place among the changes, and its clock.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use shared::clock::unix_ms;
use shared::freshness::Freshness;

use super::follow::Follower;
use super::node_file::NodeFile;
use crate::db::cluster::clock;
use crate::db::cluster::nodes::{self, NodeStart, Registered};
use crate::db::engine::{Db, DbError};
use crate::db::record_id::NodeId;

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
    /// The time without the database after which project keys are refused.
    pub(crate) stale_after: Duration,
}

/// A node that has joined the others.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) node: NodeId,
    /// For the writer thread. It stands before whatever is read from now on.
    pub(crate) follower: Follower,
    /// For the snapshots.
    pub(crate) freshness: Freshness,
}

/// A node cannot join.
#[derive(Debug)]
pub(crate) enum JoinError {
    /// `node.json` cannot be used.
    File(io::Error),
    Database(DbError),
    /// The clocks of this machine and of the database differ by this many milliseconds.
    Clock(u64),
}

/// Registers the node of a state directory. A process that had the node before ends at its next fence. Call it before anything of
/// a snapshot is read.
pub(crate) fn join(db: &mut Db, params: &JoinParams<'_>) -> Result<Joined, JoinError> {
    check_clock(db)?;
    let mut file = NodeFile::open(params.state_dir).map_err(JoinError::File)?;
    let start = NodeStart {
        identity: &file.identity,
        number: file.node.map(NodeId::new),
        release: params.release,
        file_digest: params.file_digest,
        name: params.name,
    };
    let registered = nodes::register(db, &start)?;
    let Registered { node, incarnation } = registered;
    file.set_number(params.state_dir, node.number()).map_err(JoinError::File)?;
    let freshness = Freshness::new(params.stale_after);
    let follower = Follower::start(db, registered, freshness.clone())?;
    tracing::info!(node.number = node.number(), node.incarnation = incarnation, "joined the other nodes");
    Ok(Joined { node, follower, freshness })
}

/// Compares the clocks, of which the difference counts beyond the time of the question.
fn check_clock(db: &Db) -> Result<(), JoinError> {
    let (before_ms, database_ms, after_ms) = (unix_ms(), clock::now_ms(db)?, unix_ms());
    match skew_ms(before_ms, database_ms, after_ms) {
        skew_ms if skew_ms > SKEW_MS_MAX => Err(JoinError::Clock(skew_ms)),
        skew_ms => {
            if skew_ms > SKEW_MS_WARNED {
                tracing::warn!(
                    "the clock of this machine differs from that of the database by {skew_ms} ms; synchronize them, \
                     since windows of limits begin and end by it"
                );
            }
            Ok(())
        }
    }
}

/// Returns by how much a time lies outside the period in which it was asked for.
fn skew_ms(before_ms: u64, database_ms: u64, after_ms: u64) -> u64 {
    before_ms.saturating_sub(database_ms).max(database_ms.saturating_sub(after_ms))
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(f, "cannot use node.json in the state directory: {error}"),
            Self::Database(error) => write!(f, "cannot register this node in the database: {error}"),
            Self::Clock(skew_ms) => write!(
                f,
                "the clock of this machine differs from its clock by {skew_ms} ms, and may by {SKEW_MS_MAX}"
            ),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<DbError> for JoinError {
    fn from(error: DbError) -> Self {
        Self::Database(error)
    }
}

const SKEW_MS_WARNED: u64 = 1_000;
const SKEW_MS_MAX: u64 = 30_000;

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
            let incarnation: u64 = db.row(incarnation, [joined.node], |row| row.get(0)).unwrap();
            (joined.node.number(), incarnation)
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
        let Joined { node, follower, .. } = join(&mut db, &params(dir.path())).unwrap();
        nodes::renew(&db, node).unwrap();
        assert!(leases::claim(&db, "job", node).unwrap());
        follower.leave(&mut db).unwrap();
        assert!(leases::claim(&db, "job", NodeId::new(9)).unwrap());
        let rows = nodes::all(&db, Duration::from_mins(5)).unwrap();
        assert_eq!(rows[0].standing, NodeStanding::Left);
    }

    #[test]
    fn a_clock_that_is_far_off_is_refused() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        let dir = tempfile::tempdir().unwrap();
        let sql = "CREATE OR REPLACE FUNCTION now_ms() RETURNS BIGINT LANGUAGE sql VOLATILE AS \
                   'SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT) + 31000'";
        db.batch(sql).unwrap();
        let refused = join(&mut db, &params(dir.path()));
        assert!(matches!(refused, Err(JoinError::Clock(30_001..=31_000))), "{refused:?}");
        assert!(!dir.path().join("node.json").exists());
        for (database_ms, skew) in [(4, 1), (5, 0), (9, 0), (12, 3)] {
            assert_eq!(skew_ms(5, database_ms, 9), skew);
        }
    }
}
