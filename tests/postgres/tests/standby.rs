//! A standby follows a server and takes its place.

use postgres_server::{PostgresServer, Replication, installed};

#[test]
fn a_standby_follows_and_is_promoted() {
    if !installed() {
        return;
    }
    for replication in [Replication::Asynchronous, Replication::Synchronous] {
        let primary = PostgresServer::start();
        let standby = primary.standby(replication);
        primary.query("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
        standby.catch_up_with(&primary);
        assert_eq!(standby.query("SELECT a FROM t"), [["1"]]);
        assert!(standby.try_query("INSERT INTO t VALUES (2)").unwrap_err().contains("read-only transaction"));
        primary.kill();
        standby.promote();
        standby.query("INSERT INTO t VALUES (2)");
        assert_eq!(standby.query("SELECT count(*) FROM t"), [["2"]]);
    }
}
