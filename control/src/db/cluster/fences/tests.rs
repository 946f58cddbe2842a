//! Fences on real servers: late transactions, a second process, restarts, and a promoted standby that lacks commits.

use std::time::{Duration, Instant};

use postgres_server::{
    PostgresProxy, PostgresServer, ProxyMode, Replication, ServerOptions, installed, shared,
};

use super::*;
use crate::db::cluster::nodes::{NodeStart, register, renew};
use crate::db::testing::{ClusterDatabase, connect, shared_database};

fn start(db: &mut Db) -> Fence {
    let start = NodeStart {
        identity: "me",
        number: None,
        release: "1",
        file_digest: "",
        name: "",
        schema_version: 41,
        key_seal: "",
    };
    let registered = register(db, &start).unwrap();
    let mut fence = Fence { node: 1, incarnation: registered.incarnation, seq: 0 };
    fence.seq = current(db, &fence);
    fence
}

/// Resynchronizes on a session, which may have lost its connection.
fn resynchronized(db: &mut Db, fence: &Fence) -> Resynchronized {
    let mut once = || {
        let tx = db.transaction()?;
        let found = resynchronize(&tx, Lane::Shares, fence)?;
        tx.commit().map(|()| found)
    };
    once().or_else(|_| once()).unwrap()
}

fn current(db: &mut Db, fence: &Fence) -> u64 {
    match resynchronized(db, fence) {
        Resynchronized::Current(seq) => seq,
        other => panic!("{other:?}"),
    }
}

/// Inserts a number in a fenced transaction. False if the fence did not pass.
fn insert(db: &mut Db, fence: &mut Fence, number: u64) -> DbResult<bool> {
    let tx = db.transaction()?;
    if pass(&tx, Lane::Shares, fence)?.is_none() {
        return Ok(false);
    }
    tx.execute("INSERT INTO done (a) VALUES (:a)", [number])?;
    tx.commit()?;
    fence.seq += 1;
    Ok(true)
}

/// Returns the time in which no shares are granted.
fn pause_ms(db: &mut Db, fence: &Fence) -> u64 {
    let tx = db.transaction().unwrap();
    pass(&tx, Lane::Shares, fence).unwrap().unwrap().pause_ms
}

fn done(db: &Db) -> Vec<u64> {
    db.rows("SELECT a FROM done ORDER BY a", (), |row| row.get(0)).unwrap()
}

fn with_table(db: &Db) {
    db.batch("CREATE TABLE done (a BIGINT)").unwrap();
}

#[test]
fn a_transaction_of_unknown_outcome_is_decided_and_never_happens_later() {
    let Some(database) = shared_database() else { return };
    let proxy = PostgresProxy::start(shared().address());
    let watch = database.connect();
    with_table(&watch);
    let mut fence = start(&mut database.connect());
    let after = Duration::from_secs(1);
    let cases = [
        (1, ProxyMode::LoseCommitAnswer { nth: 1 }),
        (2, ProxyMode::LateCommit { nth: 1, after }),
        (3, ProxyMode::Cut),
    ];
    for (number, mode) in cases {
        let mut db = database.connect_at(proxy.address());
        let began = Instant::now();
        if mode == ProxyMode::Cut {
            let tx = db.transaction().unwrap();
            assert!(pass(&tx, Lane::Shares, &fence).unwrap().is_some());
            tx.execute("INSERT INTO done (a) VALUES (:a)", [number]).unwrap();
            proxy.set(mode);
            assert!(tx.commit().is_err());
        } else {
            proxy.set(mode);
            assert!(insert(&mut db, &mut fence, number).is_err(), "{mode:?}");
        }
        proxy.set(ProxyMode::Pass);
        fence.seq = current(&mut db, &fence);
        let decided = done(&watch);
        let expected = if mode == ProxyMode::Cut { vec![1, 2] } else { (1..=number).collect() };
        assert_eq!(decided, expected, "{mode:?}");
        if matches!(mode, ProxyMode::LateCommit { .. }) {
            assert!(began.elapsed() >= after, "it waited for the late commit");
        }
        assert!(insert(&mut db, &mut fence, number + 10).unwrap(), "{mode:?}");
        watch.batch(&format!("DELETE FROM done WHERE a = {}", number + 10)).unwrap();
        assert_eq!(done(&watch), expected, "{mode:?}");
    }
}

#[test]
fn a_transaction_that_arrives_after_the_resynchronization_does_nothing() {
    let Some(database) = shared_database() else { return };
    let (mut db, mut late) = (database.connect(), database.connect());
    with_table(&db);
    let mut fence = start(&mut db);
    let mut earlier = fence;
    fence.seq = current(&mut db, &fence);
    assert!(!insert(&mut late, &mut earlier, 1).unwrap());
    assert!(insert(&mut db, &mut fence, 2).unwrap());
    assert!(!insert(&mut late, &mut earlier, 3).unwrap());
    assert_eq!(done(&db), [2]);
}

#[test]
fn a_second_process_with_the_same_node_ends_the_first() {
    let Some(database) = shared_database() else { return };
    let (mut db, mut other) = (database.connect(), database.connect());
    with_table(&db);
    let mut first = start(&mut db);
    assert!(insert(&mut db, &mut first, 1).unwrap());
    let mut second = start(&mut other);
    assert!(insert(&mut other, &mut second, 2).unwrap());
    assert!(!insert(&mut db, &mut first, 3).unwrap());
    assert_eq!(resynchronized(&mut db, &first), Resynchronized::Superseded);
    assert!(insert(&mut other, &mut second, 4).unwrap());
    assert_eq!(done(&db), [1, 2, 4]);
}

#[test]
fn after_a_restart_of_the_server_nothing_is_granted_until_the_nodes_returned() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start();
    let database = ClusterDatabase::on(&server);
    let mut db = database.connect();
    with_table(&db);
    let mut fence = start(&mut db);
    assert!(insert(&mut db, &mut fence, 1).unwrap());
    assert_eq!(pause_ms(&mut db, &fence), 0, "there was no server before this one");
    server.kill();
    server.restart();
    let passed = insert(&mut db, &mut fence, 2).or_else(|_| insert(&mut db, &mut fence, 2)).unwrap();
    assert!(!passed, "the server has started again");
    fence.seq = current(&mut db, &fence);
    assert!(pause_ms(&mut db, &fence) > 0);
    assert!(insert(&mut db, &mut fence, 3).unwrap());
    let mut other = database.connect();
    let second = Fence { node: 2, incarnation: 0, seq: 0 };
    current(&mut other, &second);
    assert!(pause_ms(&mut db, &fence) <= 5_000, "the pause begins once");
    assert_eq!(done(&db), [1, 3]);
}

#[test]
fn a_promoted_standby_that_lacks_commits_is_noticed_until_the_node_asserts_them() {
    if !installed() {
        return;
    }
    let primary = PostgresServer::start_with(ServerOptions::default().with("wal_sender_timeout", "1s"));
    let database = ClusterDatabase::on(&primary);
    let mut db = database.connect();
    with_table(&db);
    let mut fence = start(&mut db);
    assert!(insert(&mut db, &mut fence, 1).unwrap());
    let link = PostgresProxy::start(primary.address());
    let standby = primary.standby_through(link.address(), Replication::Asynchronous);
    standby.catch_up_with(&primary);
    link.set(ProxyMode::Cut);
    assert!(insert(&mut db, &mut fence, 2).unwrap());
    primary.kill();
    standby.promote();

    let url = standby.url_at(standby.address()).replace("/llmgw?", "/x?");
    let (base, _) = url.rsplit_once('/').unwrap();
    let mut db = connect(&format!("{base}/{}", database.name()));
    assert!(!insert(&mut db, &mut fence, 3).unwrap(), "another server");
    let found = FoundFence { incarnation: fence.incarnation, seq: fence.seq - 1 };
    for _ in 0..2 {
        assert_eq!(resynchronized(&mut db, &fence), Resynchronized::Lost(found), "the row stays");
    }
    let tx = db.transaction().unwrap();
    assert!(assert(&tx, Lane::Shares, &fence, found).unwrap());
    tx.execute("INSERT INTO done (a) VALUES (:a)", [2]).unwrap();
    tx.commit().unwrap();
    let tx = db.transaction().unwrap();
    assert!(!assert(&tx, Lane::Shares, &fence, found).unwrap(), "it has been asserted");
    drop(tx);
    fence.seq += 1;
    assert!(pause_ms(&mut db, &fence) > 0);
    assert!(insert(&mut db, &mut fence, 3).unwrap());
    assert_eq!(done(&db), [1, 2, 3]);
}

/// Each transaction of a process locks the row of its fence, and then that of its node.
#[test]
fn a_process_that_starts_waits_for_the_transaction_of_the_one_before() {
    let Some(database) = shared_database() else { return };
    let mut db = database.connect();
    let first = start(&mut db);
    let tx = db.transaction().unwrap();
    pass(&tx, Lane::Shares, &first).unwrap().unwrap();
    let mut second = database.connect();
    let started = std::thread::spawn(move || start(&mut second));
    database.await_a_lock();
    renew(&tx, first.node).unwrap();
    tx.commit().unwrap();
    assert_eq!(started.join().unwrap().incarnation, first.incarnation + 1);
}
