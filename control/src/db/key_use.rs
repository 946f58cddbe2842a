//! The table `key_use`: the latest hour in which each key was used, by the node that served it. It is not in `keys`, so
//! that storing usage changes no row that a command changes, and no row that another node writes.

use super::engine::{Db, DbResult, named_params};
use super::record_id::NodeId;

/// Records that existing keys were used, each in an hour since the Unix epoch. Writes at most once per key and hour.
pub(crate) fn mark<'a>(tx: &Db, used: impl IntoIterator<Item = (&'a str, u64)>) -> DbResult<()> {
    mark_of(tx, NodeId::of(tx), used)
}

fn mark_of<'a>(tx: &Db, node: NodeId, used: impl IntoIterator<Item = (&'a str, u64)>) -> DbResult<()> {
    let rows = used.into_iter().map(|(key, hour)| (node, hour, key));
    tx.prepare(MARK)?.execute_each(rows, |marked| marked.map(drop))
}

/// Moves the rows of nodes that have left, or were live before so many milliseconds, to node 0.
pub(crate) fn merge_absent(tx: &Db, absent_ms: u64) -> DbResult<()> {
    let taken: Vec<(String, u64)> = tx.rows(TAKE_ABSENT, named_params! {":absent": absent_ms}, |row| {
        Ok((row.get("key")?, row.get("hour")?))
    })?;
    mark_of(tx, NodeId::FIRST, taken.iter().map(|(key, hour)| (key.as_str(), *hour)))
}

/// True if [`mark`] would write.
pub(crate) fn is_new(db: &Db, key: &str, hour: u64) -> DbResult<bool> {
    db.exists(IS_NEW, named_params! {":key": key, ":node": NodeId::of(db), ":hour": hour})
}

/// Deletes what is known of a key that is deleted.
pub(crate) fn forget(tx: &Db, key: &str) -> DbResult<()> {
    tx.execute(FORGET, [key])?;
    Ok(())
}

const MARK: &str = "INSERT INTO key_use (key, node, hour) SELECT id, :node, :hour FROM keys WHERE id = :key \
     ON CONFLICT (key, node) DO UPDATE SET hour = excluded.hour WHERE key_use.hour < excluded.hour";
const IS_NEW: &str = "SELECT 1 FROM keys WHERE id = :key AND NOT EXISTS \
     (SELECT 1 FROM key_use WHERE key = :key AND node = :node AND hour >= :hour)";
const TAKE_ABSENT: &str = "DELETE FROM key_use WHERE node IN (SELECT node FROM nodes \
     WHERE left_at_ms IS NOT NULL OR alive_until_ms + :absent < now_ms()) RETURNING key, hour";
const FORGET: &str = "DELETE FROM key_use WHERE key = :key";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::keys;
    use crate::db::testing::in_memory;

    #[test]
    fn a_key_was_last_used_in_the_latest_hour_of_any_node() {
        let db = in_memory();
        db.batch(
            "INSERT INTO projects VALUES ('prj', 'p', 0, NULL, NULL, NULL, 1, 0, 0, NULL);
             INSERT INTO keys (id, name, project, hash, prefix, state, version, created_at_ms, updated_at_ms)
                 VALUES ('key', 'k', 'prj', x'00', 'p', 'active', 1, 0, 0);",
        )
        .unwrap();
        let last = |db: &Db| keys::find(db, "key", 0).unwrap().unwrap().last_used_hour_ms;
        assert_eq!(last(&db), None);
        for (hour, want) in [(5, 5), (7, 7), (6, 7)] {
            assert_eq!(is_new(&db, "key", hour).unwrap(), hour == want);
            mark(&db, [("key", hour)]).unwrap();
            assert_eq!(last(&db), Some(want * 3_600_000));
        }
        db.execute("INSERT INTO key_use VALUES ('key', 1, 9)", ()).unwrap();
        assert_eq!(last(&db), Some(9 * 3_600_000));
        mark(&db, [("key", 8)]).unwrap();
        assert_eq!(last(&db), Some(9 * 3_600_000), "a node writes only its own row");
        mark(&db, [("an administrator", 8)]).unwrap();
        let key = keys::find(&db, "key", 0).unwrap().unwrap();
        keys::delete(&db, &key).unwrap();
        let left: i64 = db.row("SELECT count(*) FROM key_use", (), |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
    }
}
