//! Upgrades of nodes that share a database: who migrates it, and beside which release a node runs.
//!
//! One release is built at a time, so another one is stood in for. A release before: this program, on a database whose newest
//! migrations are undone, with its version in `nodes`. The next one: its migration, a column more in each table. With the path
//! of an older program in `LLMGW_TEST_RELEASE_BEFORE`, nodes are upgraded from that one.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use postgres_server::{Database, PostgresProxy, ProxyMode, shared};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::several::status;
use super::{database, node};
use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, wait};

/// Undoes the newest migrations, down to one that excludes the releases before it, so that the database is of such a release.
const UNDO: &str = "DELETE FROM alert_rules WHERE id = 'rule_certificate_expiring'; \
     UPDATE schema_version SET version = version - 1";
/// The number of those migrations.
const UNDONE: i64 = 1;

fn version(database: &Database<'_>) -> i64 {
    database.query("SELECT version FROM schema_version")[0][0].parse().unwrap()
}

fn may_not_migrate(yaml: &Yaml, database: &Database<'_>) -> Setup {
    node(yaml, &database.url()).env("LLMGW_MIGRATE", "false")
}

async fn is_ready(gateway: &Gateway) -> bool {
    gateway.client().get("/ready").await.unwrap().status == 200
}

/// Migrates the database as the next release may, beside which this one runs.
fn migrate_as_the_next_release(database: &Database<'_>) {
    let tables = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace \
                  AND relkind IN ('r', 'p') AND NOT relispartition";
    for row in database.query(tables) {
        database.query(&format!("ALTER TABLE {} ADD COLUMN added BIGINT NOT NULL DEFAULT 7", row[0]));
    }
    database.query("UPDATE schema_version SET version = version + 1, oldest = version");
}

#[expect(clippy::disallowed_methods, reason = "a test's own setting, none of the gateway")]
fn release_before() -> Option<PathBuf> {
    std::env::var_os("LLMGW_TEST_RELEASE_BEFORE").map(PathBuf::from)
}

/// Sends requests to nodes in turn, each of which is served.
async fn serve(nodes: &[Gateway], key: &str, count: usize) {
    for gateway in nodes.iter().cycle().take(count) {
        assert_eq!(status(gateway, key).await, 200);
    }
}

#[tokio::test]
async fn a_node_that_may_not_migrate_waits_for_the_command_that_does() {
    let Some(database) = database() else { return };
    let yaml = Yaml::one("http://127.0.0.1:9/v1");
    let setup = may_not_migrate(&yaml, &database);
    let text = setup.output_of(&["serve"], 78).await;
    assert!(text.contains("has no tables yet") && text.contains("llmgw migrate"), "{text}");
    let text = setup.output_of(&["migrate"], 0).await;
    assert!(text.contains("the tables were created"), "{text}");
    drop(setup.start().await);
    let newest = version(&database);
    database.query(UNDO);
    let late = may_not_migrate(&yaml, &database);
    let text = late.output_of(&["serve"], 78).await;
    assert!(
        text.contains(&format!("have version {}", newest - UNDONE)) && text.contains("llmgw migrate"),
        "{text}"
    );
    let text = late.output_of(&["migrate"], 0).await;
    assert!(text.contains(&format!("from version {} to {newest}", newest - UNDONE)), "{text}");
    let text = late.output_of(&["migrate"], 0).await;
    assert!(text.contains("nothing was changed"), "{text}");
    assert!(is_ready(&late.start().await).await);
    let files = Setup::new(&yaml);
    let text = files.output_of(&["migrate"], 78).await;
    assert!(text.contains("LLMGW_DATABASE_URL is required"), "{text}");
}

/// Wherever its process is killed, a migration is not done or done, and the next command does all that is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_whose_process_is_killed_is_not_done_in_part() {
    const KILLS: u64 = 6;
    let Some(counted) = database() else { return };
    let database = database().unwrap();
    let yaml = Yaml::one("http://127.0.0.1:9/v1");
    let through = |database: &Database<'_>| {
        let proxy = PostgresProxy::start(shared().address());
        proxy.set(ProxyMode::Trickle { bytes: 256, every: Duration::from_millis(1) });
        let setup = node(&yaml, &database.url_at(proxy.address()));
        (proxy, setup)
    };
    let mut kept = 0;
    for (undo, expected) in [("", "the tables were created"), (UNDO, "from version")] {
        if !undo.is_empty() {
            counted.query(undo);
            database.query(undo);
        }
        // The amount that the command sends when nothing ends it.
        let (proxy, setup) = through(&counted);
        setup.output_of(&["migrate"], 0).await;
        let all = proxy.forwarded_bytes().0;
        let before = contents(&database);
        for kill in 1..=KILLS {
            let (proxy, setup) = through(&database);
            let mut migrating = setup.command(&["migrate"]).stderr(Stdio::null()).spawn().unwrap();
            wait::eventually("the migration to be under way", async || {
                let is_far = proxy.forwarded_bytes().0 >= all * kill / (KILLS + 1);
                (is_far || migrating.try_wait().unwrap().is_some()).then_some(())
            })
            .await;
            migrating.kill().await.unwrap();
            drop(proxy);
            wait::eventually("the end of the session", async || {
                let sessions = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' \
                                AND pid <> pg_backend_pid()";
                database.query(sessions).is_empty().then_some(())
            })
            .await;
            if contents(&database) != before {
                break;
            }
            kept += 1;
        }
        let is_done = contents(&database) != before;
        let text = node(&yaml, &database.url()).output_of(&["migrate"], 0).await;
        assert!(text.contains(if is_done { "nothing was changed" } else { expected }), "{text}");
        assert_eq!(contents(&database), contents(&counted));
    }
    assert!(kept >= KILLS, "{kept} kills came before the end of a migration");
    assert!(is_ready(&node(&yaml, &database.url()).start().await).await);
}

/// Returns all columns of a database, its version, and the alert rules.
fn contents(database: &Database<'_>) -> [Vec<Vec<String>>; 2] {
    let columns = "SELECT table_name, column_name, data_type FROM information_schema.columns \
                   WHERE table_schema = 'public' ORDER BY 1, 2";
    let columns = database.query(columns);
    let rows =
        "SELECT version, (SELECT string_agg(id, ',' ORDER BY id) FROM alert_rules) FROM schema_version";
    let rows = if columns.is_empty() { Vec::new() } else { database.query(rows) };
    [columns, rows]
}

#[tokio::test]
async fn a_migration_that_excludes_a_release_waits_for_its_live_nodes_and_ends_the_others() {
    let Some(database) = database() else { return };
    let yaml = Yaml::one("http://127.0.0.1:9/v1");
    let mut older = node(&yaml, &database.url()).env("LLMGW_NODE_NAME", "n1").start().await;
    let newest = version(&database);
    database.query(UNDO);
    let live =
        format!("UPDATE nodes SET alive_until_ms = now_ms() + 600000, schema_version = {}", newest - UNDONE);
    database.query(&live);
    let newer = node(&yaml, &database.url());
    let text = newer.output_of(&["migrate"], 78).await;
    assert!(text.contains(": n1 (release") && text.contains("stop these nodes"), "{text}");
    assert_eq!(version(&database), newest - UNDONE);
    // A node that is stopped for a while: it renews nothing.
    older.signal(Signal::STOP);
    wait::eventually("the stop of the node", async || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", older.pid())).unwrap();
        status.contains("State:\tT").then_some(())
    })
    .await;
    database.query("UPDATE nodes SET alive_until_ms = 0");
    newer.output_of(&["migrate"], 0).await;
    assert_eq!(version(&database), newest);
    older.signal(Signal::CONT);
    assert_eq!(older.exit().await.code(), Some(75), "{}", older.log());
    older.logs("a newer release has migrated the database").await;
    assert!(is_ready(&newer.start().await).await);
}

#[tokio::test]
async fn a_node_runs_beside_a_newer_release_as_long_as_that_lets_it() {
    let Some(database) = database() else { return };
    let yaml = Yaml::one("http://127.0.0.1:9/v1");
    let gateway = node(&yaml, &database.url()).start().await;
    let newest = version(&database);
    migrate_as_the_next_release(&database);
    assert!(is_ready(&gateway).await);
    let gateway = gateway.restart().await;
    assert!(is_ready(&gateway).await);
    let text = node(&yaml, &database.url()).output_of(&["state", "copy", "--from"], 78).await;
    assert!(text.contains("start the newer release"), "a copy would leave out what is new: {text}");
    database.query("UPDATE schema_version SET oldest = version");
    let text = gateway.kill().await.output_of(&["serve"], 78).await;
    assert!(
        text.contains(&format!("versions up to {newest}")) && text.contains("start the newer release"),
        "{text}"
    );
}

/// Each request is served and recorded once, a budget is used up and not exceeded, and each node applies the changes of all.
#[tokio::test]
async fn nodes_are_upgraded_one_after_the_other_while_they_serve_and_are_changed() {
    const BUDGET: usize = 40;
    const DURING_EACH: usize = 10;
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let (yaml, before, mut nodes) = (Yaml::one(upstream.base_url()), release_before(), Vec::new());
    for number in 1..=3 {
        let setup = node(&yaml, &database.url()).env("LLMGW_NODE_NAME", format!("n{number}"));
        nodes.push(setup.program(before.clone()).start().await);
    }
    let admin = Admin(nodes[0].client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let limit = json!({"subject": {"kind": "project", "id": project}, "metric": "requests",
        "window": "total", "limit": BUDGET});
    admin.create("quotas", limit).await;
    for upgraded in 0..3 {
        let mut old = nodes.remove(0);
        old.signal(Signal::TERM);
        assert_eq!(old.exit().await.code(), Some(0), "{}", old.log());
        let setup = old.kill().await.program(None);
        if upgraded == 0 && before.is_none() {
            migrate_as_the_next_release(&database);
        }
        let (new, ()) = tokio::join!(setup.start(), serve(&nodes, &key.key, DURING_EACH));
        nodes.push(new);
        // A change of the newest node, and one that an older node bases on it.
        let project = Admin(nodes[2].client()).project(&format!("green-{upgraded}")).await;
        let another = Admin(nodes[0].client()).key(json!({"project": project})).await;
        serve(&nodes, &another.key, nodes.len()).await;
    }
    let mut served = 3 * DURING_EACH;
    wait::eventually("the budget to be used up", async || {
        for gateway in &nodes {
            served += usize::from(status(gateway, &key.key).await == 200);
        }
        (served >= BUDGET).then_some(())
    })
    .await;
    for gateway in &nodes {
        assert_eq!((status(gateway, &key.key).await, served), (429, BUDGET));
    }
    let all = BUDGET + 3 * nodes.len();
    let completed = wait::eventually("all records", async || {
        let mut records = nodes[0].records(all).await;
        records.retain(|record| record["outcome"] == "completed");
        (records.len() >= all).then_some(records.len())
    })
    .await;
    assert_eq!((completed, upstream.requests().len()), (all, all));
    let listed = Admin(nodes[0].client()).done("GET", "nodes", Value::Null).await;
    assert!(listed["data"].as_array().unwrap().iter().all(|row| row["standing"] == "live"), "{listed}");
}
