//! The tables `cluster` and `changes`: the order of all changes of the state, and what each touched.
//!
//! Invariant: the rows of `changes` have no gap up to `cluster.version`, and one token each. A node that serves by a change
//! with another token than the row has served by a change that was lost in a failover.

use crate::common::vault::random;
use crate::db::engine::{Db, DbError, DbResult, Row, named_params};
use crate::db::record_id::NodeId;

/// A change of the state. The one with the number 0 is the state before the first change, and has no token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) version: u64,
    /// Random; empty for the number 0.
    pub(crate) token: String,
}

/// A row of `changes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeRow {
    pub(crate) mark: Mark,
    /// The parts of the state that the change touched, as JSON.
    pub(crate) touched: String,
}

/// The answer to a look for new changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) mark: Mark,
    /// The version that the node has reported.
    pub(crate) reported: u64,
    /// The time of the look by the clock of the database, in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
}

/// Locks the order of changes until the transaction ends, and returns the newest one. First statement of each change.
pub(crate) fn lock(tx: &Db) -> DbResult<Mark> {
    tx.row(LOCK, (), |row| Ok(Mark { version: row.get("version")?, token: row.get("token")? }))
}

/// Adds the change after `before`, which the transaction has locked. A notification wakes those who wait for one.
pub(crate) fn put(tx: &Db, before: &Mark, node: NodeId, touched: &str) -> DbResult<Mark> {
    let random: [u8; 16] = random().map_err(|error| DbError::bad_value(format_args!("{error:?}")))?;
    let mark = Mark { version: before.version.saturating_add(1), token: shared::hex::encode(&random) };
    let values = named_params! {
        ":version": mark.version,
        ":token": mark.token,
        ":node": node,
        ":touched": touched,
    };
    tx.exists(PUT, values)?;
    if mark.version.is_multiple_of(FORGET_EVERY) {
        tx.execute(FORGET, named_params! {":last": mark.version.saturating_sub(KEPT)})?;
    }
    Ok(mark)
}

/// True if a change whose commit had no answer was made; it is never made later. Waits until its transaction has ended.
pub(crate) fn was_made(db: &mut Db, mark: &Mark) -> DbResult<bool> {
    let tx = db.transaction()?;
    // The transaction of the change holds this lock until it ends.
    lock(&tx)?;
    let made = tx.exists(HAS, named_params! {":version": mark.version, ":token": mark.token})?;
    tx.rollback()?;
    Ok(made)
}

/// Returns the newest change, and what a node has reported.
pub(crate) fn newest(db: &Db, node: NodeId) -> DbResult<Newest> {
    db.row(NEWEST, named_params! {":node": node}, |row| {
        let mark = Mark { version: row.get("version")?, token: row.get("token")? };
        let reported: Option<u64> = row.get("seen_version")?;
        Ok(Newest { mark, reported: reported.unwrap_or_default(), now_ms: row.get("now_ms")? })
    })
}

/// Returns the changes after `from`, at most [`FOLLOWED_MAX`]; `None` if some are missing, or if `from` was lost in a failover.
pub(crate) fn since(db: &Db, from: &Mark) -> DbResult<Option<Vec<ChangeRow>>> {
    let values = named_params! {":from": from.version, ":rows": FOLLOWED_MAX + 2};
    let mut rows: Vec<ChangeRow> = db.rows(SINCE, values, of)?;
    if from.version > 0 {
        if rows.first().is_none_or(|row| row.mark != *from) {
            return Ok(None);
        }
        rows.remove(0);
    }
    let follows = (from.version + 1..).zip(&rows).all(|(version, row)| row.mark.version == version);
    let is_few = u64::try_from(rows.len()).is_ok_and(|count| count <= FOLLOWED_MAX);
    Ok((follows && is_few).then_some(rows))
}

fn of(row: Row<'_>) -> DbResult<ChangeRow> {
    let mark = Mark { version: row.get("version")?, token: row.get("token")? };
    Ok(ChangeRow { mark, touched: row.get("touched")? })
}

/// The most changes that a node follows one by one; reading everything costs no more beyond it.
const FOLLOWED_MAX: u64 = 256;
/// The number of changes that are kept at least.
const KEPT: u64 = 4_096;
const FORGET_EVERY: u64 = 256;
/// The channel on which each change notifies, in its transaction.
pub(crate) const CHANNEL: &str = "llmgw_changes";

const LOCK: &str = "SELECT version, token FROM cluster WHERE id = 1 FOR UPDATE";
const PUT: &str = "WITH raised AS (UPDATE cluster SET version = :version, token = :token WHERE id = 1), \
     noted AS (INSERT INTO changes (version, token, node, made_at_ms, touched) \
     VALUES (:version, :token, :node, now_ms(), :touched)) SELECT pg_notify('llmgw_changes', '')";
const FORGET: &str = "DELETE FROM changes WHERE version <= :last";
const HAS: &str = "SELECT 1 FROM changes WHERE version = :version AND token = :token";
const NEWEST: &str = "SELECT cluster.version, cluster.token, nodes.seen_version, now_ms() AS now_ms FROM cluster LEFT JOIN nodes ON nodes.node = :node WHERE cluster.id = 1";
const SINCE: &str =
    "SELECT version, token, touched FROM changes WHERE version >= :from ORDER BY version LIMIT :rows";

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use postgres_server::{PostgresProxy, ProxyMode, shared};

    use super::*;
    use crate::db::engine::DbErrorKind;
    use crate::db::testing::shared_database;

    const NODE: NodeId = NodeId::FIRST;

    #[test]
    fn changes_have_one_order_and_are_read_from_any_of_them() {
        let Some(database) = shared_database() else { return };
        let mut db = database.connect();
        assert_eq!(newest(&db, NODE).unwrap().mark, Mark::default());
        assert_eq!(since(&db, &Mark::default()).unwrap(), Some(vec![]));
        let marks: Vec<_> = ["a", "b", "c"].map(|touched| database.change(&mut db, NODE, touched)).to_vec();
        assert_eq!(marks.iter().map(|mark| mark.version).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(newest(&db, NODE).unwrap().mark, marks[2]);
        let touched = |from: &Mark| {
            let rows = since(&db, from).unwrap();
            rows.map(|rows| rows.into_iter().map(|row| row.touched).collect::<String>())
        };
        assert_eq!(touched(&Mark::default()).as_deref(), Some("abc"));
        assert_eq!(touched(&marks[0]).as_deref(), Some("bc"));
        assert_eq!(touched(&marks[2]).as_deref(), Some(""));
        assert_eq!(touched(&Mark { version: 1, token: "lost".to_owned() }), None);
        assert_eq!(touched(&Mark { version: 9, token: "lost".to_owned() }), None);
        db.batch("DELETE FROM changes WHERE version = 2").unwrap();
        assert_eq!(touched(&marks[0]), None, "one is missing");
    }

    #[test]
    fn a_node_that_is_far_behind_reads_everything_and_old_changes_are_deleted() {
        let Some(database) = shared_database() else { return };
        let db = database.connect();
        let fill = format!(
            "INSERT INTO changes SELECT n, n::text, 0, 0, '' FROM generate_series(1, {KEPT} + 255) AS n; \
             UPDATE cluster SET version = {KEPT} + 255, token = {KEPT} + 255"
        );
        db.batch(&fill).unwrap();
        let behind = |count: u64| {
            let version = KEPT + 255 - count;
            since(&db, &Mark { version, token: version.to_string() }).unwrap().map(|rows| rows.len() as u64)
        };
        assert_eq!(behind(FOLLOWED_MAX), Some(FOLLOWED_MAX));
        assert_eq!(behind(FOLLOWED_MAX + 1), None);
        let mut db = database.connect();
        database.change(&mut db, NODE, "last");
        let oldest: u64 = db.row("SELECT min(version) FROM changes", (), |row| row.get(0)).unwrap();
        assert_eq!(oldest, FORGET_EVERY + 1);
    }

    #[test]
    fn a_node_that_stops_inside_a_change_does_not_keep_others_from_changing() {
        let Some(database) = shared_database() else { return };
        let proxy = PostgresProxy::start(shared().address());
        let mut stopped = database.connect_at(proxy.address());
        let tx = stopped.transaction().unwrap();
        let before = lock(&tx).unwrap();
        proxy.set(ProxyMode::HalfOpen);
        let mut db = database.connect();
        assert_eq!(database.change(&mut db, NODE, "other").version, before.version + 1);
        proxy.set(ProxyMode::Pass);
        assert_eq!(put(&tx, &before, NODE, "late").unwrap_err().kind(), DbErrorKind::Unreachable);
        assert!(tx.commit().is_err());
        assert_eq!(newest(&db, NODE).unwrap().mark.version, before.version + 1);
    }

    #[test]
    fn a_commit_without_an_answer_is_decided_and_never_happens_later() {
        let Some(database) = shared_database() else { return };
        let proxy = PostgresProxy::start(shared().address());
        let after = Duration::from_secs(1);
        for (mode, expected) in [
            (ProxyMode::LoseCommitAnswer { nth: 1 }, true),
            (ProxyMode::LateCommit { nth: 1, after }, true),
            (ProxyMode::HalfOpen, false),
        ] {
            let mut db = database.connect_at(proxy.address());
            let tx = db.transaction().unwrap();
            let before = lock(&tx).unwrap();
            let mark = put(&tx, &before, NODE, "{}").unwrap();
            proxy.set(mode);
            let began = Instant::now();
            if mode == ProxyMode::HalfOpen {
                // The commit never arrives: its connection ends.
                proxy.set(ProxyMode::Cut);
            }
            assert!(tx.commit().is_err(), "{mode:?}");
            proxy.set(ProxyMode::Pass);
            let made = was_made(&mut db, &mark).or_else(|_| was_made(&mut db, &mark)).unwrap();
            assert_eq!(made, expected, "{mode:?}");
            if let ProxyMode::LateCommit { .. } = mode {
                assert!(began.elapsed() >= after, "it waited for the late commit");
            }
            assert_eq!(was_made(&mut db, &mark), Ok(expected));
        }
    }
}
