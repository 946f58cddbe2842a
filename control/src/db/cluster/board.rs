//! The table `board`: values that nodes show each other for a short time, such as measurements. On PostgreSQL its rows are not
//! logged: a crash of the server empties it.

use std::time::Duration;

use crate::db::engine::{Db, DbResult, named_params};
use crate::db::record_id::NodeId;

/// A value that a node shows under a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoardRow {
    pub(crate) node: NodeId,
    pub(crate) topic: String,
    pub(crate) body: Vec<u8>,
}

/// Shows `body` under a topic for some time, in place of what the node showed there before.
pub(crate) fn put(db: &Db, node: NodeId, topic: &str, body: &[u8], time: Duration) -> DbResult<()> {
    let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    db.execute(PUT, named_params! {":node": node, ":topic": topic, ":body": body, ":time": time}).map(drop)
}

/// Returns the value that each node shows under a topic now, by the number of the node.
pub(crate) fn all(db: &Db, topic: &str) -> DbResult<Vec<(NodeId, Vec<u8>)>> {
    db.rows(ALL, named_params! {":topic": topic}, |row| Ok((row.get("node")?, row.get("body")?)))
}

/// Returns what nodes show now under the topics that begin with `prefix`.
pub(crate) fn below(db: &Db, prefix: &str) -> DbResult<Vec<BoardRow>> {
    db.rows(BELOW, named_params! {":prefix": prefix}, |row| {
        Ok(BoardRow { node: row.get("node")?, topic: row.get("topic")?, body: row.get("body")? })
    })
}

/// Takes down what all nodes show under a topic.
pub(crate) fn remove(db: &Db, topic: &str) -> DbResult<()> {
    db.execute(REMOVE, named_params! {":topic": topic}).map(drop)
}

/// Deletes what is no longer shown.
pub(crate) fn forget(db: &Db) -> DbResult<usize> {
    db.execute(FORGET, ())
}

const PUT: &str = "INSERT INTO board (node, topic, body, until_ms) VALUES (:node, :topic, :body, now_ms() + :time) \
     ON CONFLICT (node, topic) DO UPDATE SET body = excluded.body, until_ms = excluded.until_ms";
const ALL: &str = "SELECT node, body FROM board WHERE topic = :topic AND until_ms > now_ms() ORDER BY node";
const BELOW: &str = "SELECT node, topic, body FROM board WHERE substr(topic, 1, length(:prefix)) = :prefix \
     AND until_ms > now_ms() ORDER BY node, topic";
const REMOVE: &str = "DELETE FROM board WHERE topic = :topic";
const FORGET: &str = "DELETE FROM board WHERE until_ms <= now_ms()";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::shared_database;

    #[test]
    fn a_topic_has_one_row_of_each_node_until_its_time_ends() {
        let Some(database) = shared_database() else { return };
        let db = database.connect();
        let [a, b] = [1, 2].map(NodeId::new);
        let minute = Duration::from_mins(1);
        put(&db, b, "alerts", b"two", minute).unwrap();
        put(&db, a, "alerts", b"old", minute).unwrap();
        put(&db, a, "alerts", b"one", minute).unwrap();
        put(&db, a, "live", b"other", minute).unwrap();
        put(&db, NodeId::new(3), "alerts", b"over", Duration::ZERO).unwrap();
        assert_eq!(all(&db, "alerts").unwrap(), [(a, b"one".to_vec()), (b, b"two".to_vec())]);
        assert_eq!(forget(&db).unwrap(), 1);
        let kept: i64 = db.row("SELECT count(*) FROM board", (), |row| row.get(0)).unwrap();
        assert_eq!(kept, 3);
        put(&db, a, "ask/1", b"?", minute).unwrap();
        let question = BoardRow { node: a, topic: "ask/1".to_owned(), body: b"?".to_vec() };
        assert_eq!(below(&db, "ask/").unwrap(), [question]);
        remove(&db, "ask/1").unwrap();
        assert_eq!(below(&db, "ask/").unwrap(), []);
        let is_unlogged = "SELECT 1 FROM pg_class WHERE relname = 'board' AND relpersistence = 'u'";
        assert!(db.exists(is_unlogged, ()).unwrap());
    }
}
