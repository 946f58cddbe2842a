//! A server starts, survives, and gives each test a database.

use std::time::Instant;

use postgres_server::{PostgresServer, installed, shared};

#[test]
fn a_database_is_empty_and_belongs_to_the_role_of_the_url() {
    if !installed() {
        return;
    }
    let began = Instant::now();
    let server = shared();
    eprintln!("figure: start {:?}", began.elapsed());
    for _ in 0..5 {
        let began = Instant::now();
        let database = server.create_database();
        eprintln!("figure: create {:?}", began.elapsed());
        assert!(
            database
                .query("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
                .is_empty()
        );
        let began = Instant::now();
        drop(database);
        eprintln!("figure: drop {:?}", began.elapsed());
    }
}

#[test]
fn a_kill_keeps_what_was_committed() {
    if !installed() {
        return;
    }
    let began = Instant::now();
    let server = PostgresServer::start();
    eprintln!("figure: start {:?}", began.elapsed());
    let began = Instant::now();
    let database = server.create_database();
    eprintln!("figure: create {:?}", began.elapsed());
    database.query("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    server.kill();
    assert!(server.try_query("SELECT 1").is_err());
    let began = Instant::now();
    server.restart();
    eprintln!("figure: restart {:?}", began.elapsed());
    assert_eq!(database.query("SELECT a FROM t"), [["1"]]);
}
