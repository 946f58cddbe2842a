//! A server starts, survives, and gives each test a database.

use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use postgres_server::{PostgresServer, ServerOptions, installed, shared};

#[test]
fn each_test_has_an_empty_database_that_the_role_of_the_url_owns() {
    if !installed() {
        return;
    }
    let (first, second) = (shared().create_database(), shared().create_database());
    for database in [&first, &second] {
        let mut client = shared().client(&database.url());
        let output = client.args(["-c", "CREATE TABLE t (a int)", "-c", "SELECT count(*) FROM t"]).output();
        assert_eq!(text(&output.unwrap()), "0\n");
    }
    let name = first.name().to_owned();
    let sql = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
    assert_eq!(shared().query(&sql), [["1"]]);
    drop(first);
    assert_eq!(shared().query(&sql), [["0"]]);
}

#[test]
fn a_copy_has_the_content_and_is_separate() {
    if !installed() {
        return;
    }
    let database = shared().create_database();
    database.query("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    let copy = database.copy();
    assert_eq!(copy.query("INSERT INTO t VALUES (2); SELECT count(*) FROM t"), [["2"]]);
    assert_eq!(database.query("SELECT count(*) FROM t"), [["1"]]);
}

#[test]
fn a_kill_keeps_what_was_committed() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start();
    server.query("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    let address = server.address();
    server.kill();
    assert!(TcpStream::connect(address).is_err());
    server.restart();
    assert_eq!(server.address(), address);
    assert_eq!(server.query("SELECT a FROM t"), [["1"]]);
    server.stop();
    server.restart();
    assert_eq!(server.query("SELECT a FROM t"), [["1"]]);
}

#[test]
fn a_paused_server_answers_after_it_was_resumed() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start_with(ServerOptions::fast());
    server.pause();
    let mut client = server.client(&server.url());
    let mut client = client.args(["-c", "SELECT 1"]).stdout(Stdio::piped()).spawn().unwrap();
    TcpStream::connect(server.address()).unwrap();
    assert!(client.try_wait().unwrap().is_none());
    server.resume();
    assert_eq!(text(&client.wait_with_output().unwrap()), "1\n");
}

#[test]
fn a_server_with_tls_refuses_connections_without_it() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start_with(ServerOptions::fast().with_tls());
    let trusted = format!("sslmode=verify-full&sslrootcert={}", server.ca_file().display());
    let query = |url: String| server.client(&url).args(["-c", "SELECT 1"]).output().unwrap();
    assert_eq!(text(&query(server.url())), "1\n");
    assert_eq!(text(&query(server.url().replace("sslmode=require", &trusted))), "1\n");
    let refused = query(server.url().replace("require", "disable"));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no encryption"), "{refused:?}");
}

#[test]
fn settings_hold() {
    if !installed() {
        return;
    }
    let options = ServerOptions::default().with("max_connections", "17").with("application_name", "it's");
    let server = PostgresServer::start_with(options);
    assert_eq!(server.query("SHOW max_connections"), [["17"]]);
    assert_eq!(server.query("SELECT reset_val FROM pg_settings WHERE name = 'fsync'"), [["on"]]);
    assert_eq!(server.query("SELECT 'a' < 'B'"), [["t"]], "texts are ordered by language");
}

/// Prints what tests pay for a server and for a database.
#[test]
#[ignore = "measures, and needs a machine of its own"]
fn a_start_and_a_database_take_well_under_a_second() {
    if !installed() {
        return;
    }
    // The template is made.
    drop(PostgresServer::start());
    for (name, options) in [("durable", ServerOptions::default()), ("fast", ServerOptions::fast())] {
        let (start, server) = timed(|| PostgresServer::start_with(options));
        let mut databases: Vec<_> = (0..20).map(|_| timed(|| server.create_database())).collect();
        databases.sort_by_key(|(time, _)| *time);
        let (create, _) = databases[10];
        let (drops, ()) = timed(|| drop(databases));
        let (stop, ()) = timed(|| drop(server));
        println!(
            "figure {name}: start {start:.0?}, database {create:.0?}, its deletion {:.0?}, end {stop:.0?}",
            drops / 20
        );
        assert!(start < Duration::from_secs(10) && create < Duration::from_secs(2));
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let began = Instant::now();
    let value = work();
    (began.elapsed(), value)
}

pub(crate) fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}
