//! `llmgw state copy`: a state moves into PostgreSQL and back, whole or not at all.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use postgres_server::Database;
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{database, node};
use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const LIMIT: usize = 5;

/// Returns the lists, the usage and the audit of a gateway that has this many records.
async fn seen(gateway: &Gateway, records: usize) -> Value {
    let admin = Admin(gateway.client());
    let get = async |path: &str| admin.done("GET", path, Value::Null).await;
    // A start may open alerts.
    let mut audit = get("audit").await["data"].as_array().unwrap().clone();
    audit.retain(|row| row["object_kind"] != "alert");
    json!({
        "records": gateway.records(records).await,
        "projects": get("projects").await["data"],
        "keys": get("keys").await["data"],
        "quotas": get("quotas").await["data"],
        "sums": get("usage?group_by=model,key&bucket=hour").await["data"],
        "totals": get("usage").await["totals"],
        "audit": audit,
    })
}

async fn stopped(mut gateway: Gateway) -> Setup {
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().await.success(), "{}", gateway.log());
    gateway.kill().await
}

#[tokio::test]
async fn a_state_moves_into_postgresql_and_back_with_its_keys_limits_records_and_audit() {
    let Some(database) = database() else { return };
    let (url, upstream) = (database.url(), Upstream::start().await);
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::one(upstream.base_url());
    let gateway = Gateway::start(&yaml).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let limit = json!({"subject": {"kind": "project", "id": project}, "metric": "requests",
        "window": "total", "limit": LIMIT});
    admin.create("quotas", limit).await;
    let asked = async |gateway: &Gateway, key: &str| {
        Client::new(gateway.address(), Some(key)).chat(chat::request("up/m")).await.status
    };
    for _ in 0..3 {
        assert_eq!(asked(&gateway, &key.key).await, 200);
    }
    gateway.records(3).await;
    let to = ["state", "copy", "--to", &url];
    let text = gateway.setup().output_of(&to, 75).await;
    assert!(text.contains("is in use by another process"), "{text}");
    let setup = gateway.kill().await;
    let text = setup.output_of(&to, 74).await;
    assert!(text.contains("stop it with SIGTERM"), "{text}");
    let gateway = setup.start().await;
    let before = seen(&gateway, 3).await;
    let setup = stopped(gateway).await;

    let file = setup.state().join("gateway.db");
    let bytes = std::fs::read(&file).unwrap();
    let text = setup.output_of(&to, 0).await;
    assert!(
        text.contains("among them 3 usage records") && text.contains("next: move the files gateway.db*"),
        "{text}"
    );
    assert!(!text.contains("llmgw:llmgw"), "the password is not shown: {text}");
    assert!(std::fs::read(&file).unwrap() == bytes, "the source is as it was");
    let text = setup.output_of(&to, 78).await;
    assert!(text.contains("is not empty: it holds a state"), "{text}");
    let kept = tempfile::tempdir().unwrap();
    std::fs::rename(&file, kept.path().join("gateway.db")).unwrap();

    let gateway = setup.env("LLMGW_DATABASE_URL", &url).start().await;
    assert_eq!(seen(&gateway, 3).await, before);
    assert_eq!(asked(&gateway, &key.key).await, 200);
    let another = Admin(gateway.client()).key(json!({"project": project})).await;
    assert_eq!((asked(&gateway, &another.key).await, asked(&gateway, &key.key).await), (200, 429));
    let after = seen(&gateway, LIMIT + 1).await;
    let text = gateway.setup().output_of(&["audit", "verify"], 0).await;
    assert!(text.contains("the audit log is intact"), "{text}");

    let node = stopped(gateway).await;
    let back = Setup::new(&yaml);
    let text = back.output_of(&["state", "copy", "--from", &url], 0).await;
    assert!(text.contains("among them 6 usage records"), "{text}");
    let text = back.output_of(&["state", "copy", "--from", &url], 78).await;
    assert!(text.contains("gateway.db exists already"), "{text}");
    let gateway = back.start().await;
    assert_eq!(seen(&gateway, LIMIT + 1).await, after);
    assert_eq!(asked(&gateway, &another.key).await, 429);
    let text = gateway.setup().output_of(&["audit", "verify"], 0).await;
    assert!(text.contains("the audit log is intact"), "{text}");
    drop(gateway);

    // The directory of the node has stored its journal, and LLMGW_DATABASE_URL names the database.
    node.output_of(&["state", "copy", "--from"], 0).await;
    let gateway = node.without("LLMGW_DATABASE_URL").start().await;
    assert_eq!(seen(&gateway, LIMIT + 1).await, after);
}

#[tokio::test]
async fn a_copy_without_a_usable_place_says_what_to_name() {
    let Some(database) = database() else { return };
    let setup = Setup::new(&Yaml::one("http://127.0.0.1:9/v1"));
    for (arguments, code, text) in [
        (&["--to"][..], 64, "needs the URL of a database, or LLMGW_DATABASE_URL"),
        (&["--to", "mysql://u:secret-word@h/d"], 64, "postgres://"),
        (&["--to", "postgres://u:secret-word@127.0.0.1:1/d"], 74, "gateway.db does not exist"),
        (
            &["--from", "postgres://u:secret-word@127.0.0.1:1/d"],
            78,
            "check LLMGW_DATABASE_URL, the server and",
        ),
        (&["--from", &database.url()], 78, "holds no state"),
    ] {
        let printed = setup.output_of(&[&["state", "copy"], arguments].concat(), code).await;
        assert!(printed.contains(text) && !printed.contains("secret-word"), "{arguments:?}: {printed}");
    }
    // A node that runs is warned of, and its directory is in use.
    let gateway = node(&Yaml::one("http://127.0.0.1:9/v1"), &database.url()).start().await;
    gateway.setup().output_of(&["state", "copy", "--from"], 75).await;
    let printed = setup.output_of(&["state", "copy", "--from", &database.url()], 0).await;
    assert!(
        printed.contains("other sessions use the database") && printed.contains("stop the nodes"),
        "{printed}"
    );
}

/// Runs the command and kills it after `time`. Returns true if it had ended before, with success.
async fn killed_after(setup: &Setup, arguments: &[&str], time: Duration) -> bool {
    let mut command = setup.command(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    match tokio::time::timeout(time, child.wait()).await {
        Ok(ended) => ended.unwrap().success(),
        Err(_) => {
            child.kill().await.unwrap();
            false
        }
    }
}

/// Returns the number of humans, or `None` if the database has no tables.
fn humans_in(database: &Database<'_>) -> Option<i64> {
    let tables = database.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'");
    let count = || database.query("SELECT count(*) FROM principals")[0][0].parse().unwrap();
    (tables[0][0] != "0").then(count)
}

fn humans_of(file: &Path) -> i64 {
    let count = "SELECT count(*) FROM principals";
    Connection::open(file).unwrap().query_row(count, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_copy_that_is_killed_leaves_a_whole_state_or_none() {
    const HUMANS: i64 = 20_000;
    let Some(database) = database() else { return };
    let yaml = Yaml::one("http://127.0.0.1:9/v1");
    let setup = stopped(Gateway::start(&yaml).await).await;
    let file = setup.state().join("gateway.db");
    let fill = format!(
        "WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {HUMANS}) \
         INSERT INTO principals SELECT 'p' || value, hex(randomblob(200)), NULL, 0, 1, 0, 0, NULL FROM n; DELETE FROM row_sums"
    );
    Connection::open(&file).unwrap().execute_batch(&fill).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let url = database.url();
    let mut kills = [0_u64; 2];
    let to = ["state", "copy", "--to", &url];
    while !killed_after(&setup, &to, Duration::from_millis(11 + 31 * kills[0])).await {
        assert!(std::fs::read(&file).unwrap() == bytes, "the source is as it was");
        match humans_in(&database) {
            None => kills[0] += 1,
            // It was killed behind its commit.
            Some(_) => break,
        }
    }
    assert_eq!(humans_in(&database), Some(HUMANS));
    let back = Setup::new(&yaml);
    let (from, copy) = (["state", "copy", "--from", &url], back.state().join("gateway.db"));
    while !killed_after(&back, &from, Duration::from_millis(11 + 31 * kills[1])).await && !copy.exists() {
        kills[1] += 1;
        assert_eq!(humans_in(&database), Some(HUMANS), "the source is as it was");
    }
    assert_eq!(humans_of(&copy), HUMANS);
    back.output_of(&["audit", "verify"], 0).await;
    drop(back.start().await);
    assert!(kills.iter().all(|kills| *kills > 4), "{kills:?}");
    figure("state copy", format!("{kills:?} kills to and from; the destination was always whole or empty"));
}
