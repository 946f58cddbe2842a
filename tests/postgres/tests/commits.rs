//! Commits whose answer is lost, and commits that arrive after their client has gone.

use std::time::Duration;

use postgres_server::{PostgresProxy, ProxyMode, installed, shared};

/// Two transactions in one session.
const TRANSACTIONS: &str =
    "BEGIN;\nINSERT INTO t VALUES (1);\nCOMMIT;\nBEGIN;\nINSERT INTO t VALUES (2);\nCOMMIT;\nSELECT 'end';\n";

#[test]
fn the_answer_to_the_second_commit_is_lost_and_its_transaction_is_not() {
    if !installed() {
        return;
    }
    let (proxy, database) = prepare();
    proxy.set(ProxyMode::LoseCommitAnswer { nth: 2 });
    assert!(!run(&database.url_at(proxy.address())).contains("end"));
    assert!(proxy.struck());
    assert_eq!(database.query("SELECT a FROM t ORDER BY a"), [["1"], ["2"]]);
    // It strikes once.
    assert!(run(&database.url_at(proxy.address())).contains("end"));
}

#[test]
fn a_late_commit_happens_after_its_client_was_reset() {
    if !installed() {
        return;
    }
    let (proxy, database) = prepare();
    proxy.set(ProxyMode::LateCommit { nth: 2, after: Duration::from_secs(1) });
    assert!(!run(&database.url_at(proxy.address())).contains("end"));
    assert!(proxy.struck());
    assert_eq!(database.query("SELECT a FROM t"), [["1"]]);
    while database.query("SELECT count(*) FROM t") != [["2"]] {}
}

fn prepare() -> (PostgresProxy, postgres_server::Database<'static>) {
    let database = shared().create_database();
    database.query("CREATE TABLE t (a int); ALTER TABLE t OWNER TO llmgw");
    (PostgresProxy::start(shared().address()), database)
}

/// Runs the transactions, and returns all output.
fn run(url: &str) -> String {
    let mut client = shared().client(url);
    let words = TRANSACTIONS.split_terminator('\n').flat_map(|statement| ["-c", statement]);
    let output = client.args(words).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
