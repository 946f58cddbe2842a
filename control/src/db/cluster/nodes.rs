//! The table `nodes`: the numbers of nodes, their signs of life, and how far each has followed the changes.

use std::time::Duration;

use shared::quota::share::Fence;

use super::changes::{self, Mark};
use super::fences;
use crate::db::engine::{Db, DbResult, Row, ToValue, named_params};
use crate::db::record_id::NodeId;

/// A process that starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeStart<'a> {
    /// The random identity in the node's file.
    pub(crate) identity: &'a str,
    /// The number in the node's file, unless it is new.
    pub(crate) number: Option<NodeId>,
    /// The version of the gateway.
    pub(crate) release: &'a str,
    /// SHA-256 of the configuration file as hexadecimal digits.
    pub(crate) file_digest: &'a str,
    /// The name for operators.
    pub(crate) name: &'a str,
}

/// The number of a node and of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) node: NodeId,
    /// Each start of a process of the node has the next one.
    pub(crate) incarnation: u64,
}

impl Registered {
    /// Returns the fence of each lane before the first transaction of the process.
    pub(crate) fn fence(self) -> Fence {
        Fence { node: self.node.number().into(), incarnation: self.incarnation, seq: 0 }
    }
}

/// A node as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) release: String,
    pub(crate) file_digest: String,
    /// The newest change that the node serves by.
    pub(crate) seen_version: u64,
    /// The end of its sign of life, in milliseconds since the Unix epoch by the clock of the database.
    pub(crate) alive_until_ms: u64,
    pub(crate) standing: NodeStanding,
}

/// Whether a node is heard of, and serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeStanding {
    /// It renews its sign of life.
    Live,
    /// It was not heard of for some seconds, and may still serve by an earlier state.
    Silent,
    /// It was not heard of for so long that it refuses project keys.
    Stale,
    /// It has stopped in order.
    Left,
}

/// Nodes that have not reported a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// Live nodes, which will report it soon.
    pub(crate) live: Vec<NodeId>,
    /// Silent nodes, which may serve by an earlier state.
    pub(crate) silent: Vec<NodeId>,
}

/// Registers a process that starts, and takes the fences of its node: an earlier process with the same identity then ends. A
/// new identity gets a number, or the one in its file if no other node has it.
pub(crate) fn register(db: &mut Db, start: &NodeStart<'_>) -> DbResult<Registered> {
    let tx = db.transaction()?;
    changes::lock(&tx)?;
    let node = number(&tx, start)?;
    tx.execute(
        PUT,
        named_params! {
            ":node": node,
            ":identity": start.identity,
            ":release": start.release,
            ":digest": start.file_digest,
            ":name": start.name,
        },
    )?;
    let incarnation = fences::take(&tx, node)?;
    tx.commit()?;
    Ok(Registered { node, incarnation })
}

fn number(tx: &Db, start: &NodeStart<'_>) -> DbResult<NodeId> {
    let known = tx.optional_row(FIND, named_params! {":identity": start.identity}, |row| row.get(0))?;
    if let Some(node) = known {
        return Ok(node);
    }
    // The commit of an earlier registration may have been lost.
    if let Some(node) = start.number.filter(|node| *node != NodeId::FIRST)
        && !tx.exists(IS_TAKEN, named_params! {":node": node})?
    {
        return Ok(node);
    }
    tx.row(NEXT, (), |row| row.get(0))
}

/// Renews the node's sign of life, for [`ALIVE_MS`].
pub(crate) fn renew(tx: &Db, node: impl ToValue) -> DbResult<()> {
    tx.execute(RENEW, named_params! {":node": node, ":alive": ALIVE_MS}).map(drop)
}

/// Records that the node stops in order: it serves no more.
pub(crate) fn leave(tx: &Db, node: NodeId) -> DbResult<()> {
    tx.execute(LEAVE, named_params! {":node": node}).map(drop)
}

/// Records that the node serves by the state of `mark`, unless that change was lost in a failover.
pub(crate) fn report(db: &Db, node: NodeId, mark: &Mark) -> DbResult<()> {
    let values = named_params! {":node": node, ":version": mark.version, ":token": mark.token};
    db.execute(REPORT, values).map(drop)
}

/// Returns all nodes by number. A node refuses project keys once it was not heard of for `stale`.
pub(crate) fn all(db: &Db, stale: Duration) -> DbResult<Vec<NodeRow>> {
    db.rows(ALL, named_params! {":stale": milliseconds(stale)}, |row| {
        Ok(NodeRow {
            node: row.get("node")?,
            name: row.get("name")?,
            release: row.get("release")?,
            file_digest: row.get("file_digest")?,
            seen_version: row.get("seen_version")?,
            alive_until_ms: row.get("alive_until_ms")?,
            standing: standing(row)?,
        })
    })
}

/// Returns the number of the newest change of the state.
pub(crate) fn newest_version(db: &Db) -> DbResult<u64> {
    db.row(NEWEST, (), |row| row.get("version"))
}

/// Returns the nodes besides `me` that may serve by a state before `version`.
pub(crate) fn unseen(db: &Db, version: u64, me: NodeId, stale: Duration) -> DbResult<Unseen> {
    let values = named_params! {":version": version, ":me": me, ":stale": milliseconds(stale)};
    let found: Vec<(NodeId, bool)> =
        db.rows(UNSEEN, values, |row| Ok((row.get("node")?, row.get("is_live")?)))?;
    let mut unseen = Unseen::default();
    for (node, is_live) in found {
        if is_live { unseen.live.push(node) } else { unseen.silent.push(node) }
    }
    Ok(unseen)
}

fn standing(row: Row<'_>) -> DbResult<NodeStanding> {
    Ok(if row.get("has_left")? {
        NodeStanding::Left
    } else if row.get("is_live")? {
        NodeStanding::Live
    } else if row.get("is_heard")? {
        NodeStanding::Silent
    } else {
        NodeStanding::Stale
    })
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How long a node is live after it renewed its sign of life, which it does once a second, in milliseconds.
pub(crate) const ALIVE_MS: u64 = 5_000;

const FIND: &str = "SELECT node FROM nodes WHERE identity = :identity";
const IS_TAKEN: &str = "SELECT 1 FROM nodes WHERE node = :node";
const NEXT: &str = "SELECT coalesce(max(node), 0) + 1 FROM nodes";
const PUT: &str = "INSERT INTO nodes (node, identity, alive_until_ms, seen_version, release, file_digest, name) \
     VALUES (:node, :identity, 0, 0, :release, :digest, :name) ON CONFLICT (node) DO UPDATE SET \
     release = excluded.release, file_digest = excluded.file_digest, name = excluded.name, left_at_ms = NULL";
const RENEW: &str =
    "UPDATE nodes SET alive_until_ms = now_ms() + :alive, left_at_ms = NULL WHERE node = :node";
const LEAVE: &str = "UPDATE nodes SET alive_until_ms = 0, left_at_ms = now_ms() WHERE node = :node";
const REPORT: &str = "UPDATE nodes SET seen_version = :version WHERE node = :node \
     AND (:version = 0 OR EXISTS (SELECT 1 FROM changes WHERE version = :version AND token = :token))";
const ALL: &str = "SELECT node, name, release, file_digest, seen_version, alive_until_ms, left_at_ms IS NOT NULL AS has_left, \
     alive_until_ms > now_ms() AS is_live, alive_until_ms + :stale > now_ms() AS is_heard FROM nodes ORDER BY node";
const NEWEST: &str = "SELECT version FROM cluster WHERE id = 1";
const UNSEEN: &str = "SELECT node, alive_until_ms > now_ms() AS is_live FROM nodes WHERE node <> :me AND left_at_ms IS NULL \
     AND seen_version < :version AND alive_until_ms + :stale > now_ms() ORDER BY node";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::shared_database;

    const STALE: Duration = Duration::from_secs(300);

    fn start<'a>(identity: &'a str, number: Option<NodeId>) -> NodeStart<'a> {
        NodeStart { identity, number, release: "1.0", file_digest: "d", name: identity }
    }

    #[test]
    fn a_node_keeps_its_number_and_each_process_has_the_next_incarnation() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        let first = register(&mut db, &start("a", None)).unwrap();
        assert_eq!(first, Registered { node: NodeId::new(1), incarnation: 1 });
        assert_eq!(register(&mut db, &start("b", None)).unwrap().node, NodeId::new(2));
        let again = register(&mut db, &start("a", Some(NodeId::new(2)))).unwrap();
        assert_eq!(again, Registered { node: NodeId::new(1), incarnation: 2 });
        // The file of another database: its number is taken here.
        assert_eq!(register(&mut db, &start("c", Some(NodeId::new(1)))).unwrap().node, NodeId::new(3));
        // The commit of its registration was lost.
        assert_eq!(register(&mut db, &start("d", Some(NodeId::new(9)))).unwrap().node, NodeId::new(9));
        assert_eq!(register(&mut db, &start("e", Some(NodeId::FIRST))).unwrap().node, NodeId::new(10));
    }

    #[test]
    fn nodes_that_start_at_once_have_numbers_of_their_own() {
        let Some(database) = shared_database() else { return };
        let mut starts = Vec::new();
        for n in 0..6 {
            let mut db = database.connect();
            let begin = move || register(&mut db, &start(&format!("n{n}"), None)).unwrap().node;
            starts.push(std::thread::spawn(begin));
        }
        let mut numbers: Vec<_> = starts.into_iter().map(|start| start.join().unwrap()).collect();
        numbers.sort();
        assert_eq!(numbers, (1..=6).map(NodeId::new).collect::<Vec<_>>());
    }

    #[test]
    fn a_node_is_live_then_silent_then_stale_and_has_left_when_it_says_so() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        let standing = |db: &Db| all(db, STALE).unwrap()[0].standing;
        let node = register(&mut db, &start("a", None)).unwrap().node;
        assert_eq!(standing(&db), NodeStanding::Stale, "it does not serve yet");
        renew(&db, node).unwrap();
        assert_eq!(standing(&db), NodeStanding::Live);
        let ago = |ms: u64| {
            let sql = "UPDATE nodes SET alive_until_ms = now_ms() - :ms WHERE node = :node";
            db.execute(sql, named_params! {":ms": ms, ":node": node}).unwrap();
        };
        ago(1_000);
        assert_eq!(standing(&db), NodeStanding::Silent);
        ago(300_001);
        assert_eq!(standing(&db), NodeStanding::Stale);
        renew(&db, node).unwrap();
        leave(&db, node).unwrap();
        assert_eq!(standing(&db), NodeStanding::Left);
        register(&mut db, &start("a", None)).unwrap();
        renew(&db, node).unwrap();
        assert_eq!(standing(&db), NodeStanding::Live);
    }

    #[test]
    fn nodes_that_have_not_seen_a_change_are_named_and_a_lost_change_is_not_reported() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        let [a, b, c] = ["a", "b", "c"].map(|name| register(&mut db, &start(name, None)).unwrap().node);
        [a, b, c].iter().for_each(|node| renew(&db, *node).unwrap());
        let mark = database.change(&mut db, a, "{}");
        let seen = |db: &Db| unseen(db, mark.version, a, STALE).unwrap();
        assert_eq!(seen(&db), Unseen { live: vec![b, c], silent: vec![] });
        report(&db, b, &mark).unwrap();
        report(&db, c, &Mark { token: "lost".to_owned(), ..mark.clone() }).unwrap();
        assert_eq!(seen(&db), Unseen { live: vec![c], silent: vec![] });
        db.batch("UPDATE nodes SET alive_until_ms = now_ms() - 1").unwrap();
        assert_eq!(seen(&db), Unseen { live: vec![], silent: vec![c] });
        leave(&db, c).unwrap();
        assert_eq!(seen(&db), Unseen::default());
    }
}
