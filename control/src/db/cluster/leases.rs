//! The table `job_leases`: which node does a job that must be done once in the cluster.
//!
//! A node may work on a job while it has the lease, but stores a result only in a transaction in which [`holds`] is true: a
//! paused node does not notice that its lease has ended.

use std::time::Duration;

use crate::db::engine::{Db, DbResult, named_params};
use crate::db::record_id::NodeId;

/// Claims a job for [`LEASE`], or renews the claim of this node. Returns false if another node has it.
pub(crate) fn claim(db: &Db, job: &str, node: NodeId) -> DbResult<bool> {
    let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
    Ok(db.execute(CLAIM, named_params! {":job": job, ":node": node, ":lease": lease})? == 1)
}

/// True if this node has the job. No other node can claim it before the transaction ends.
pub(crate) fn holds(tx: &Db, job: &str, node: NodeId) -> DbResult<bool> {
    tx.exists(HOLDS, named_params! {":job": job, ":node": node})
}

/// Gives up the jobs of a node that stops.
pub(crate) fn release(db: &Db, node: NodeId) -> DbResult<()> {
    db.execute(RELEASE, named_params! {":node": node}).map(drop)
}

/// How long a claim lasts unless it is renewed.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

const CLAIM: &str = "INSERT INTO job_leases (job, node, until_ms) VALUES (:job, :node, now_ms() + :lease) \
     ON CONFLICT (job) DO UPDATE SET node = excluded.node, until_ms = excluded.until_ms \
     WHERE job_leases.node = excluded.node OR job_leases.until_ms <= now_ms()";
const HOLDS: &str =
    "SELECT 1 FROM job_leases WHERE job = :job AND node = :node AND until_ms > now_ms() FOR UPDATE";
const RELEASE: &str = "DELETE FROM job_leases WHERE node = :node";

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::db::testing::shared_database;

    #[test]
    fn one_node_has_a_job_until_its_lease_ends() {
        let Some(database) = shared_database() else { return };
        let db = database.connect();
        let [a, b] = [1, 2].map(NodeId::new);
        assert!(claim(&db, "retention", a).unwrap() && claim(&db, "retention", a).unwrap());
        assert!(!claim(&db, "retention", b).unwrap() && claim(&db, "catalog", b).unwrap());
        assert!(holds(&db, "retention", a).unwrap() && !holds(&db, "retention", b).unwrap());
        db.batch("UPDATE job_leases SET until_ms = now_ms() - 1 WHERE job = 'retention'").unwrap();
        assert!(!holds(&db, "retention", a).unwrap());
        assert!(claim(&db, "retention", b).unwrap() && !claim(&db, "retention", a).unwrap());
        release(&db, b).unwrap();
        assert!(claim(&db, "retention", a).unwrap() && claim(&db, "catalog", a).unwrap());
    }

    #[test]
    fn a_job_is_not_claimed_while_a_result_is_stored() {
        let Some(database) = shared_database() else { return };
        let (mut db, other) = (database.connect(), database.connect());
        let [a, b] = [1, 2].map(NodeId::new);
        claim(&db, "job", a).unwrap();
        let tx = db.transaction().unwrap();
        tx.batch("CREATE TABLE result (a BIGINT)").unwrap();
        assert!(holds(&tx, "job", a).unwrap());
        let (said, claimed) = mpsc::channel();
        let claiming = std::thread::spawn(move || {
            other.batch("SET lock_timeout = '30s'").unwrap();
            // Any change of the row waits, also one by a node whose claim would succeed.
            other.execute("UPDATE job_leases SET until_ms = 0 WHERE job = 'job'", ()).unwrap();
            said.send(()).unwrap();
            claim(&other, "job", b).unwrap()
        });
        assert!(claimed.recv_timeout(Duration::from_millis(300)).is_err(), "it waits");
        tx.commit().unwrap();
        assert!(claiming.join().unwrap());
    }
}
