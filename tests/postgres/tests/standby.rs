//! A standby follows a server and takes its place.

use postgres_server::{PostgresProxy, PostgresServer, ProxyMode, Replication, ServerOptions, installed};

use crate::server::text;

#[test]
fn a_promoted_standby_has_what_a_synchronous_primary_committed() {
    if !installed() {
        return;
    }
    let primary = PostgresServer::start();
    let standby = primary.standby(Replication::Synchronous);
    let proxy = PostgresProxy::start(primary.address());
    let insert = |value: &str| {
        let sql = format!("CREATE TABLE IF NOT EXISTS t (a text); INSERT INTO t VALUES ('{value}')");
        text(&primary.client(&primary.url_at(proxy.address())).args(["-c", &sql]).output().unwrap())
    };
    insert("before");
    assert!(standby.try_query("CREATE TABLE u (a int)").unwrap_err().contains("read-only transaction"));
    primary.kill();
    standby.promote();
    proxy.lead_to(standby.address());
    insert("after");
    let rows = standby.client(&standby.url()).args(["-c", "SELECT a FROM t"]).output().unwrap();
    assert_eq!(text(&rows), "before\nafter\n");
}

#[test]
fn a_standby_that_is_cut_off_loses_what_an_asynchronous_primary_committed() {
    if !installed() {
        return;
    }
    let primary = PostgresServer::start_with(ServerOptions::default().with("wal_sender_timeout", "1s"));
    let link = PostgresProxy::start(primary.address());
    let standby = primary.standby_through(link.address(), Replication::Asynchronous);
    primary.query("CREATE TABLE t (a int)");
    standby.catch_up_with(&primary);
    link.set(ProxyMode::Cut);
    primary.query("INSERT INTO t VALUES (1)");
    primary.kill();
    standby.promote();
    assert_eq!(standby.query("SELECT count(*) FROM t"), [["0"]]);
}
