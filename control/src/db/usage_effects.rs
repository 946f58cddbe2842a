//! The effects of recorded exchanges on `gateway.db`: used quota, and the times when keys were used. If usage is in the
//! same file, they are written at once. If it is in `usage.db`, they become due: the transaction that stores the
//! exchanges adds them to `usage_due`, and a later transaction of `gateway.db` alone applies them and records the last
//! row that it has applied. Each row therefore counts once, even if the process or the machine ends between the two. A node
//! that shares its limits only notes what it has used of its shares.

use super::key_use;
use super::quotas::{self, shares};
use super::record_id::NodeId;
use crate::db::engine::sqlite::schemas::has_usage_apart;
use crate::db::engine::{Db, DbResult, ToValue, named_params};

/// Adds amounts to the used quotas of windows, each with its quota and its start in milliseconds. Runs in the transaction that
/// stores the usage.
pub(crate) fn quotas_used(tx: &Db, amounts: &[((String, u64), u64)]) -> DbResult<()> {
    match NodeId::of(tx) {
        NodeId::FIRST if has_usage_apart(tx) => amounts.iter().try_for_each(|((quota, start_ms), amount)| {
            let amount = i64::try_from(*amount).unwrap_or(i64::MAX);
            put(tx, named_params! {":quota": quota, ":key": None::<&str>, ":at": start_ms, ":amount": amount})
        }),
        NodeId::FIRST => amounts
            .iter()
            .try_for_each(|((quota, start_ms), amount)| quotas::add_used(tx, quota, *start_ms, *amount)),
        node => shares::used::add(tx, node.number(), amounts),
    }
}

/// Changes the used quota of the window that began at `start_ms` by `change`. Runs in the transaction that changes the
/// usage.
pub(crate) fn quota_corrected(tx: &Db, quota: &str, start_ms: u64, change: i64) -> DbResult<()> {
    match NodeId::of(tx) {
        NodeId::FIRST if has_usage_apart(tx) => {}
        NodeId::FIRST => return quotas::correct_used(tx, quota, start_ms, change),
        node => return shares::used::correct(tx, (quota, start_ms), node.number(), change),
    }
    put(tx, named_params! {":quota": quota, ":key": None::<&str>, ":at": start_ms, ":amount": change})
}

/// Records the newest hours in which keys were used. Runs in the transaction that stores the usage.
pub(crate) fn keys_used<'a>(tx: &Db, used: impl IntoIterator<Item = (&'a str, u64)>) -> DbResult<()> {
    if !has_usage_apart(tx) {
        return key_use::mark(tx, used);
    }
    for (key, hour) in used {
        if key_use::is_new(tx, key, hour)? {
            put(tx, named_params! {":quota": None::<&str>, ":key": key, ":at": hour, ":amount": 1})?;
        }
    }
    Ok(())
}

fn put(tx: &Db, values: &[(&str, &dyn ToValue)]) -> DbResult<()> {
    tx.execute(FORGET, ())?;
    tx.execute(PUT, values)?;
    Ok(())
}

/// Applies the due rows, in a separate transaction.
pub(crate) fn deliver(db: &mut Db) -> DbResult<()> {
    if !has_usage_apart(db) || !db.exists(WAITING, ())? {
        return Ok(());
    }
    let tx = db.transaction()?;
    {
        let mut statement = tx.prepare(DUE)?;
        let mut due = statement.query(())?;
        while let Some(row) = due.next()? {
            let (at, amount): (_, i64) = (row.get("at")?, row.get("amount")?);
            if let Some(quota) = row.get::<Option<String>>("quota")? {
                if quotas::find(&tx, &quota)?.is_some() {
                    match u64::try_from(amount) {
                        Ok(amount) => quotas::add_used(&tx, &quota, at, amount)?,
                        Err(_) => quotas::correct_used(&tx, &quota, at, amount)?,
                    }
                }
            } else if let Some(key) = row.get::<Option<String>>("key")? {
                key_use::mark(&tx, [(key.as_str(), at)])?;
            }
        }
        tx.execute(TAKE, ())?;
    }
    tx.commit()
}

/// True if the two files, as seen by this connection, are of one moment: every due row is applied, and no others are.
pub(crate) fn is_settled(db: &Db) -> DbResult<bool> {
    // The first read of a file fixes the state of it that the transaction sees.
    let last: Option<i64> = db.row(LAST, (), |row| row.get(0))?;
    let taken: i64 = db.row(TAKEN, (), |row| row.get(0))?;
    Ok(last.is_none_or(|last| last == taken))
}

/// Deletes all due rows, which must have been applied: usage is about to move into `gateway.db`.
pub(crate) fn clear(tx: &Db) -> DbResult<()> {
    tx.execute(CLEAR, ()).map(drop)
}

/// Keeps the last applied row, for [`is_settled`].
const FORGET: &str = "DELETE FROM usage_due WHERE id < (SELECT taken FROM usage_place)";
/// A new `usage.db` continues the numbers of the previous one.
const PUT: &str = "INSERT INTO usage_due (id, quota, key, at, amount) VALUES (1 + (SELECT max(id) FROM \
     (SELECT taken AS id FROM usage_place UNION ALL SELECT max(id) FROM usage_due) AS numbers), :quota, :key, :at, :amount)";
const WAITING: &str = "SELECT 1 FROM usage_due WHERE id > (SELECT taken FROM usage_place) LIMIT 1";
const DUE: &str = "SELECT quota, key, at, amount FROM usage_due \
     WHERE id > (SELECT taken FROM usage_place) ORDER BY id";
const TAKE: &str = "UPDATE usage_place SET taken = (SELECT max(id) FROM usage_due)";
const LAST: &str = "SELECT max(id) FROM usage_due";
const TAKEN: &str = "SELECT taken FROM usage_place";
const CLEAR: &str = "DELETE FROM main.usage_due";

#[cfg(test)]
mod tests {
    use shared::secret::Secret;

    use super::*;
    use crate::db::sqlite_state::copy::ConsistentView;
    use crate::db::sqlite_state::open::open;
    use crate::db::sqlite_state::relocate::settle;

    const ROWS: &str = "INSERT INTO projects VALUES ('prj', 'p', 0, NULL, NULL, NULL, 1, 0, 0, NULL); \
        INSERT INTO keys (id, name, project, hash, prefix, state, version, created_at_ms, updated_at_ms) \
            VALUES ('key', 'k', 'prj', x'00', 'p', 'active', 1, 0, 0); \
        INSERT INTO quotas (id, kind, subject, metric, period, amount, hard, version, created_at_ms, updated_at_ms) \
            VALUES ('quo', 'key', 'key', 'requests', 'total', 9, 1, 1, 0, 0);";

    fn counted(db: &Db) -> (i64, Option<i64>) {
        let sum = "SELECT CAST(coalesce(sum(used), 0) AS BIGINT) FROM quota_share";
        let hour = "SELECT max(hour) FROM key_use";
        let ask = |sql| db.row(sql, (), |row| row.get(0)).unwrap();
        (ask(sum), db.row(hour, (), |row| row.get(0)).unwrap())
    }

    #[test]
    fn usage_effects_are_visible_at_once_and_counted_once() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut db = open(dir.path(), &Secret::new([1; 32])).unwrap().writer;
        db.batch(ROWS).unwrap();
        let files = settle(dir.path(), &mut db, true).unwrap().files;
        let reader = files.reader().unwrap();
        for round in 1..=3_i64 {
            let tx = db.transaction().unwrap();
            quotas_used(&tx, &[(("quo".into(), 0), 2), (("deleted meanwhile".into(), 0), 5)]).unwrap();
            keys_used(&tx, [("key", 7)]).unwrap();
            tx.commit().unwrap();
            let before = (2 * (round - 1), (round > 1).then_some(7));
            assert_eq!(counted(&db), before, "the transaction that stores usage leaves gateway.db alone");
            assert_eq!(quotas::used(&reader, "quo", 0).unwrap(), 2 * u64::try_from(round).unwrap());
            assert!(!is_settled(&reader).unwrap());
            for _ in 0..2 {
                deliver(&mut db).unwrap();
                assert_eq!(counted(&db), (2 * round, Some(7)));
            }
            assert_eq!(quotas::used(&reader, "quo", 0).unwrap(), 2 * u64::try_from(round).unwrap());
            assert!(is_settled(&reader).unwrap());
            let kept: i64 = db.row("SELECT count(*) FROM usage_due", (), |row| row.get(0)).unwrap();
            assert!(kept <= 4, "{kept}: what was counted is forgotten");
        }
    }

    #[test]
    fn a_consistent_view_of_both_files_has_no_pending_usage_effects() {
        let dir = tempfile::TempDir::new().unwrap();
        let mut db = open(dir.path(), &Secret::new([1; 32])).unwrap().writer;
        db.batch(ROWS).unwrap();
        settle(dir.path(), &mut db, true).unwrap();
        let copy = dir.path().join("copy");
        for _ in 0..10 {
            quotas_used(&db, &[(("quo".into(), 0), 2)]).unwrap();
            std::fs::write(&copy, "").unwrap();
            let mut waits = 0;
            let moment = ConsistentView::of_after(dir.path(), || {
                waits += 1;
                if waits == 3 {
                    deliver(&mut db).unwrap();
                }
            });
            moment.unwrap().copy("main", &copy).unwrap();
            assert_eq!(waits, 3, "it is no moment before all that is due is counted");
            let copied = Db::create(&copy).unwrap();
            let taken = |db: &Db| -> i64 { db.row(TAKEN, (), |row| row.get(0)).unwrap() };
            assert_eq!((taken(&copied), counted(&copied)), (taken(&db), counted(&db)));
        }
    }
}
