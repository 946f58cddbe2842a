//! The table `nodes`: the numbers of nodes, their signs of life, and how far each has followed the changes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::quota::share::Fence;

use super::changes::{self, Mark};
use super::fences;
use crate::db::engine::postgres::schema::{self, has_column};
use crate::db::engine::{Db, DbError, DbResult, Row, ToValue, named_params};
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
    /// The newest version of the tables that the release knows.
    pub(crate) schema_version: i64,
    /// The seal of the data key that it has opened.
    pub(crate) key_seal: &'a str,
}

/// The number of a node and of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) node: NodeId,
    /// Each start of a process of the node has the next one.
    pub(crate) incarnation: u64,
    /// True if an administrator declared the node lost since it was last heard of.
    pub(crate) was_forgotten: bool,
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
    /// The time at which it stopped in order.
    pub(crate) left_at_ms: Option<u64>,
    /// By how much its clock is ahead of that of the database, in milliseconds.
    pub(crate) clock_ahead_ms: i64,
    /// The age of its oldest usage record that is not in the database, in milliseconds.
    pub(crate) unstored_for_ms: Option<u64>,
    pub(crate) standing: NodeStanding,
}

/// The report of a node on itself while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeReport {
    /// SHA-256 of the configuration file in force as hexadecimal digits.
    pub(crate) file_digest: String,
    /// By how much its clock is ahead of that of the database, in milliseconds.
    pub(crate) clock_ahead_ms: i64,
    /// The age of its oldest usage record that is not in the database, in milliseconds.
    pub(crate) unstored_for_ms: Option<u64>,
}

/// One of several nodes, as answers name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NodeLabel {
    /// Its number, as in `GET nodes`.
    pub(crate) node: u32,
    /// `LLMGW_NODE_NAME`.
    pub(crate) name: String,
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

impl NodeLabel {
    /// Returns the node with this number; `None` for the only one of a database of its own.
    pub(crate) fn of(db: &Db, node: NodeId) -> DbResult<Option<Self>> {
        if node == NodeId::FIRST {
            return Ok(None);
        }
        let name = db.optional_row(NAME, named_params! {":node": node}, |row| row.get("name"))?;
        Ok(Some(Self { node: node.number(), name: name.unwrap_or_default() }))
    }

    /// Returns the name for texts: the number if it has none.
    pub(crate) fn text(&self) -> String {
        if self.name.is_empty() { self.node.to_string() } else { self.name.clone() }
    }
}

impl From<&NodeRow> for NodeLabel {
    fn from(row: &NodeRow) -> Self {
        Self { node: row.node.number(), name: row.name.clone() }
    }
}

/// Registers a process that starts, and takes the fences of its node: an earlier process with the same identity then ends. A
/// new identity gets a number, or the one in its file if no other node has it.
pub(crate) fn register(db: &mut Db, start: &NodeStart<'_>) -> Result<Registered, RegisterError> {
    let tx = db.transaction()?;
    changes::lock(&tx)?;
    // A newer release may have migrated the database since this one has examined it.
    if schema::oldest(&tx)? > start.schema_version {
        return Err(RegisterError::TooOld);
    }
    let node = number(&tx, start)?;
    let was_forgotten = tx.exists(IS_FORGOTTEN, named_params! {":node": node})?;
    // Before the row of the node, in the order of the transactions of a process that still runs with the node's number.
    let incarnation = fences::take(&tx, node)?;
    tx.execute(
        PUT,
        named_params! {
            ":node": node,
            ":identity": start.identity,
            ":release": start.release,
            ":digest": start.file_digest,
            ":name": start.name,
            ":schema": start.schema_version,
            ":seal": start.key_seal,
        },
    )?;
    tx.commit()?;
    Ok(Registered { node, incarnation, was_forgotten })
}

/// A process cannot register.
#[derive(Debug)]
pub(crate) enum RegisterError {
    /// The database is that of a newer release, beside which this one may not run.
    TooOld,
    Database(DbError),
}

impl From<DbError> for RegisterError {
    fn from(error: DbError) -> Self {
        Self::Database(error)
    }
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

/// Records what the node reports of itself.
pub(crate) fn report_itself(db: &Db, node: NodeId, report: &NodeReport) -> DbResult<()> {
    let NodeReport { file_digest, clock_ahead_ms, unstored_for_ms } = report;
    let values = named_params! {
        ":node": node, ":digest": file_digest, ":ahead": clock_ahead_ms, ":unstored": unstored_for_ms,
    };
    db.execute(REPORT_ITSELF, values).map(drop)
}

/// Records that an administrator declares the node lost: it is not listed any more, and changes do not wait for it, until it is
/// heard of again. The caller has raised its fence.
pub(crate) fn forget(tx: &Db, node: NodeId) -> DbResult<()> {
    tx.execute(FORGET, named_params! {":node": node}).map(drop)
}

/// Records that the node serves by the state of `mark`, unless that change was lost in a failover.
pub(crate) fn report(db: &Db, node: NodeId, mark: &Mark) -> DbResult<()> {
    let values = named_params! {":node": node, ":version": mark.version, ":token": mark.token};
    db.execute(REPORT, values).map(drop)
}

/// Returns all nodes by number, without those that were forgotten. A node refuses project keys once it was not heard of for
/// `stale`.
pub(crate) fn all(db: &Db, stale: Duration) -> DbResult<Vec<NodeRow>> {
    db.rows(ALL, named_params! {":stale": milliseconds(stale)}, NodeRow::of)
}

/// Returns a node that was not forgotten.
pub(crate) fn find(db: &Db, node: NodeId, stale: Duration) -> DbResult<Option<NodeRow>> {
    Ok(all(db, stale)?.into_iter().find(|row| row.node == node))
}

impl NodeRow {
    fn of(row: Row<'_>) -> DbResult<Self> {
        Ok(Self {
            node: row.get("node")?,
            name: row.get("name")?,
            release: row.get("release")?,
            file_digest: row.get("file_digest")?,
            seen_version: row.get("seen_version")?,
            alive_until_ms: row.get("alive_until_ms")?,
            left_at_ms: row.get("left_at_ms")?,
            clock_ahead_ms: row.get("clock_ahead_ms")?,
            // Negative after a failover to a server whose clock is behind.
            unstored_for_ms: row.get::<Option<i64>>("unstored_for_ms")?.map(|ms| ms.max(0).unsigned_abs()),
            standing: standing(row)?,
        })
    }
}

/// Returns the live nodes whose releases know no version of the tables from `oldest` on, in a database of version `version`.
pub(crate) fn live_before(db: &Db, oldest: i64, version: i64) -> DbResult<Vec<String>> {
    // Before the column exists, no release knows a later version than that of the database.
    let is_known = has_column(db, "nodes", "schema_version")?;
    if !is_known && version >= oldest {
        return Ok(Vec::new());
    }
    let name =
        |row: Row<'_>| Ok(format!("{} (release {})", row.get::<&str>("name")?, row.get::<&str>("release")?));
    if is_known { db.rows(LIVE_BEFORE, [oldest], name) } else { db.rows(LIVE, (), name) }
}

/// Ends the processes of nodes whose releases know no version of the tables from `oldest` on, at their next transactions: those
/// that are not live, but may only be cut off or stopped for a while. Runs in the transaction that migrates.
pub(crate) fn end_before(tx: &Db, oldest: i64) -> DbResult<()> {
    let nodes: Vec<NodeId> = tx.rows(BEFORE, [oldest], |row| row.get("node"))?;
    nodes.into_iter().try_for_each(|node| fences::take(tx, node).map(drop))
}

/// Returns the live nodes that have opened another seal of the data key than this one, by name.
pub(crate) fn live_without_seal(db: &Db, key_seal: &str) -> DbResult<Vec<String>> {
    db.rows(LIVE_WITHOUT_SEAL, [key_seal], |row| row.get("name"))
}

/// Returns the live nodes that have opened this seal of the data key, by name.
pub(crate) fn live_with_seal(db: &Db, key_seal: &str) -> DbResult<Vec<String>> {
    db.rows(LIVE_WITH_SEAL, [key_seal], |row| row.get("name"))
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
    Ok(if row.get::<Option<u64>>("left_at_ms")?.is_some() {
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

/// Returns the nodes of which no process may work, except one that was stopped for long and goes on.
pub(crate) fn absent(db: &Db) -> DbResult<Vec<NodeId>> {
    db.rows(ABSENT, named_params! {":absent": ABSENT_MS}, |row| row.get("node"))
}

/// A node is absent if it has left, or so long after it was live, in milliseconds.
pub(crate) const ABSENT_MS: u64 = 600_000;
/// How long a node is live after it renewed its sign of life, which it does once a second, in milliseconds.
pub(crate) const ALIVE_MS: u64 = 5_000;

const LIVE: &str =
    "SELECT name, release FROM nodes WHERE left_at_ms IS NULL AND alive_until_ms > now_ms() ORDER BY node";
const LIVE_BEFORE: &str = "SELECT name, release FROM nodes WHERE left_at_ms IS NULL AND alive_until_ms > now_ms() \
     AND schema_version < :oldest ORDER BY node";
const BEFORE: &str = "SELECT node FROM nodes WHERE schema_version < :oldest ORDER BY node";
const LIVE_WITHOUT_SEAL: &str = "SELECT name FROM nodes WHERE left_at_ms IS NULL AND alive_until_ms > now_ms() \
     AND key_seal <> :seal ORDER BY node";
const LIVE_WITH_SEAL: &str = "SELECT name FROM nodes WHERE left_at_ms IS NULL AND alive_until_ms > now_ms() AND key_seal = :seal ORDER BY node";
const FIND: &str = "SELECT node FROM nodes WHERE identity = :identity";
const IS_TAKEN: &str = "SELECT 1 FROM nodes WHERE node = :node";
const NEXT: &str = "SELECT coalesce(max(node), 0) + 1 FROM nodes";
const PUT: &str = "INSERT INTO nodes (node, identity, alive_until_ms, seen_version, release, file_digest, name, schema_version, key_seal) \
     VALUES (:node, :identity, 0, 0, :release, :digest, :name, :schema, :seal) ON CONFLICT (node) DO UPDATE SET \
     release = excluded.release, file_digest = excluded.file_digest, name = excluded.name, \
     schema_version = excluded.schema_version, key_seal = excluded.key_seal, left_at_ms = NULL, \
     unstored_since_ms = NULL, forgotten_at_ms = NULL";
const RENEW: &str = "UPDATE nodes SET alive_until_ms = now_ms() + :alive, left_at_ms = NULL, forgotten_at_ms = NULL WHERE node = :node";
const IS_FORGOTTEN: &str = "SELECT 1 FROM nodes WHERE node = :node AND forgotten_at_ms IS NOT NULL";
const LEAVE: &str = "UPDATE nodes SET alive_until_ms = 0, left_at_ms = now_ms() WHERE node = :node";
const REPORT_ITSELF: &str = "UPDATE nodes SET file_digest = :digest, clock_ahead_ms = :ahead, \
     unstored_since_ms = now_ms() - :unstored WHERE node = :node";
const FORGET: &str = "UPDATE nodes SET forgotten_at_ms = now_ms() WHERE node = :node";
const REPORT: &str = "UPDATE nodes SET seen_version = :version WHERE node = :node \
     AND (:version = 0 OR EXISTS (SELECT 1 FROM changes WHERE version = :version AND token = :token))";
const NAME: &str = "SELECT name FROM nodes WHERE node = :node";
const ALL: &str = "SELECT node, name, release, file_digest, seen_version, alive_until_ms, left_at_ms, clock_ahead_ms, \
     now_ms() - unstored_since_ms AS unstored_for_ms, alive_until_ms > now_ms() AS is_live, \
     alive_until_ms + :stale > now_ms() AS is_heard FROM nodes WHERE forgotten_at_ms IS NULL ORDER BY node";
const ABSENT: &str = "SELECT node FROM nodes WHERE left_at_ms IS NOT NULL OR alive_until_ms + :absent < now_ms() ORDER BY node";
const NEWEST: &str = "SELECT version FROM cluster WHERE id = 1";
const UNSEEN: &str = "SELECT node, alive_until_ms > now_ms() AS is_live FROM nodes WHERE node <> :me AND left_at_ms IS NULL \
     AND forgotten_at_ms IS NULL AND seen_version < :version AND alive_until_ms + :stale > now_ms() ORDER BY node";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::shared_database;

    const STALE: Duration = Duration::from_secs(300);

    fn start<'a>(identity: &'a str, number: Option<NodeId>) -> NodeStart<'a> {
        NodeStart {
            identity,
            number,
            release: "1.0",
            file_digest: "d",
            name: identity,
            schema_version: 41,
            key_seal: "s",
        }
    }

    #[test]
    fn only_live_nodes_of_releases_before_the_oldest_are_named() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        for (name, schema_version) in [("old", 40), ("new", 50), ("gone", 40)] {
            let node = register(&mut db, &NodeStart { schema_version, ..start(name, None) }).unwrap().node;
            renew(&db, node).unwrap();
        }
        leave(&db, NodeId::new(3)).unwrap();
        assert_eq!(live_before(&db, 41, 40).unwrap(), ["old (release 1.0)"]);
        assert!(live_before(&db, 40, 40).unwrap().is_empty());
        db.batch("UPDATE schema_version SET oldest = 41").unwrap();
        let late = register(&mut db, &NodeStart { schema_version: 40, ..start("late", None) });
        assert!(matches!(late, Err(RegisterError::TooOld)), "{late:?}");
        assert_eq!(all(&db, STALE).unwrap().len(), 3, "it is no node");
        db.batch("ALTER TABLE nodes DROP COLUMN schema_version").unwrap();
        assert_eq!(live_before(&db, 41, 40).unwrap().len(), 2);
        assert!(live_before(&db, 40, 40).unwrap().is_empty());
    }

    #[test]
    fn a_node_keeps_its_number_and_each_process_has_the_next_incarnation() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        let first = register(&mut db, &start("a", None)).unwrap();
        assert_eq!(first, Registered { node: NodeId::new(1), incarnation: 1, was_forgotten: false });
        assert_eq!(register(&mut db, &start("b", None)).unwrap().node, NodeId::new(2));
        let again = register(&mut db, &start("a", Some(NodeId::new(2)))).unwrap();
        assert_eq!(again, Registered { node: NodeId::new(1), incarnation: 2, was_forgotten: false });
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
    #[test]
    fn a_node_that_was_forgotten_is_neither_listed_nor_waited_for_until_it_returns() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        let [a, b] = ["a", "b"].map(|name| register(&mut db, &start(name, None)).unwrap().node);
        let listed = |db: &Db| all(db, STALE).unwrap().into_iter().map(|row| row.node).collect::<Vec<_>>();
        let report = NodeReport { file_digest: "e".to_owned(), clock_ahead_ms: -3, unstored_for_ms: Some(7) };
        report_itself(&db, b, &report).unwrap();
        let row = find(&db, b, STALE).unwrap().unwrap();
        assert_eq!((row.file_digest.as_str(), row.clock_ahead_ms), ("e", -3));
        assert!(row.unstored_for_ms.unwrap() >= 7);
        report_itself(&db, b, &NodeReport { unstored_for_ms: None, ..report }).unwrap();
        assert_eq!(find(&db, b, STALE).unwrap().unwrap().unstored_for_ms, None);
        forget(&db, b).unwrap();
        assert_eq!((listed(&db), find(&db, b, STALE).unwrap()), (vec![a], None));
        let mark = database.change(&mut db, a, "{}");
        assert_eq!(unseen(&db, mark.version, a, STALE).unwrap(), Unseen::default());
        renew(&db, b).unwrap();
        assert_eq!(listed(&db), [a, b]);
        forget(&db, b).unwrap();
        assert!(register(&mut db, &start("b", Some(b))).unwrap().was_forgotten);
        assert!(!register(&mut db, &start("b", Some(b))).unwrap().was_forgotten);
        assert_eq!(listed(&db), [a, b]);
    }
}
