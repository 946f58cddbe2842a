//! Several nodes as their operator sees them: nodes that are lost, a database that is away, full or read-only.

use postgres_server::{PostgresServer, installed};
use serde_json::{Value, json};

use super::nodes;
use super::several::status;
use super::{database, node};
use crate::support::admin::Admin;
use crate::support::client::Whole;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Upstream, Yaml, chat, wait};

/// Returns the numbers of the nodes that are listed.
async fn listed(admin: &Admin) -> Vec<u64> {
    let listed = admin.done("GET", "nodes", Value::Null).await;
    listed["data"].as_array().unwrap().iter().map(|row| row["node"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn what_a_lost_node_had_unused_is_given_back_when_it_is_forgotten() {
    const BUDGET: usize = 40;
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let mut nodes = nodes(&Yaml::one(upstream.base_url()), &database.url(), 2).await;
    let (two, one) = (nodes.pop().unwrap(), nodes.pop().unwrap());
    let admin = Admin(one.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let limit = json!({"subject": {"kind": "project", "id": project}, "metric": "requests",
        "window": "month", "limit": BUDGET});
    let limit = admin.create("quotas", limit).await;
    assert_eq!(status(&two, &key.key).await, 200);
    one.records(1).await;
    let shares = admin.done("GET", "nodes/2", Value::Null).await["shares"].clone();
    let share = shares.as_array().unwrap().iter().find(|share| share["quota"] == limit).unwrap();
    assert!(share["granted"].as_u64().unwrap() > share["used"].as_u64().unwrap(), "{shares}");
    let forget = async |node: u32, unused: &str| {
        let answer = admin.call("POST", &format!("nodes/{node}/forget"), json!({"unused": unused})).await;
        (answer.status, answer.json())
    };
    assert_eq!(forget(1, "count").await.0, 409, "it is the one that answers");
    let (refused, why) = forget(2, "release").await;
    assert!(refused == 409 && why["error"]["message"].as_str().unwrap().contains("SIGTERM"), "{why}");
    assert_eq!(forget(9, "count").await.0, 404);
    admin.done("PATCH", "alert-rules/rule_node_lost", json!({"hold_seconds": 0})).await;
    let setup = two.kill().await;
    let alert = wait::eventually("the alert", async || {
        admin.done("GET", "alerts?kind=node_lost", Value::Null).await["data"].as_array()?.first().cloned()
    })
    .await;
    assert_eq!((&alert["object"], &alert["object_name"]), (&json!("node_2"), &json!("n2")), "{alert}");
    let (_, forgotten) = wait::eventually("the node to be silent", async || {
        let answer = forget(2, "release").await;
        (answer.0 == 200).then_some(answer)
    })
    .await;
    assert_eq!(forgotten["released_limits"], 1, "{forgotten}");
    assert_eq!(listed(&admin).await, [1]);
    let made = admin.call("POST", "keys", json!({"name": "k", "project": project})).await;
    assert_eq!((made.header("x-llmgw-published"), made.header("x-llmgw-silent-nodes")), (Some("true"), None));
    for _ in 1..BUDGET {
        assert_eq!(status(&one, &key.key).await, 200, "all that the lost node has not used is served");
    }
    assert_eq!(status(&one, &key.key).await, 429);
    let audit = admin.done("GET", "audit?action=node.forget", Value::Null).await;
    assert_eq!(audit["data"][0]["detail"]["after"]["unused"], "release", "{audit}");
    // It returns with its directory.
    let two = setup.start().await;
    assert_eq!(listed(&admin).await, [1, 2]);
    let state = Admin(two.client()).done("GET", "state", Value::Null).await;
    assert!(state["warnings"].to_string().contains("declared this node lost"), "{state}");
    assert_eq!(state["node"]["name"], "n2");
}

#[tokio::test]
async fn a_node_that_starts_without_its_database_answers_that_it_is_not_ready() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start();
    let database = server.create_database();
    server.kill();
    let gateway = node(&Yaml::one("http://127.0.0.1:9/v1"), &database.url()).launch().await;
    let client = gateway.client();
    assert_eq!(client.get("/health").await.unwrap().status, 200);
    for refused in [client.get("/ready").await.unwrap(), client.chat(chat::request("up/m")).await] {
        assert_refused(&refused, (503, "database_unreachable"), "waits for its database");
    }
    // The process lives, and is not ready to serve.
    let check = Setup::new(&Yaml::one("http://127.0.0.1:9/v1"))
        .env("LLMGW_PORT", gateway.address().port().to_string());
    check.output_of(&["healthcheck"], 0).await;
    check.output_of(&["healthcheck", "--ready"], 1).await;
    server.restart();
    wait::eventually("the gateway to be ready", async || {
        let ready = client.get("/ready").await.ok()?;
        (ready.status == 200).then_some(())
    })
    .await;
    assert_eq!(Admin(client).done("GET", "nodes", Value::Null).await["data"][0]["standing"], "live");
}

#[tokio::test]
async fn a_database_that_restarts_is_full_or_read_only_is_told_apart() {
    if !installed() {
        return;
    }
    let server = PostgresServer::start();
    let database = server.create_database();
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = node(&Yaml::one(upstream.base_url()), &database.url()).start().await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    server.stop();
    server.restart();
    let read = admin.call("GET", "keys", Value::Null).await;
    assert_eq!(read.status, 200, "a read is repeated on a new connection: {read:?}");
    let create = async |name: &str| admin.call("POST", "projects", json!({"name": name})).await;
    assert_eq!(create("green").await.status, 201, "a change too");
    server.query("ALTER SYSTEM SET default_transaction_read_only = on");
    server.query("SELECT pg_reload_conf()");
    let refused = wait::eventually("the refusal of a change", async || {
        let answer = create(&wait_name()).await;
        (answer.status != 201).then_some(answer)
    })
    .await;
    assert_refused(&refused, (503, "database_unreachable"), "accepts no changes");
    assert_eq!(admin.call("GET", "projects", Value::Null).await.status, 200, "lists are answered");
    assert_eq!(Client::new(gateway.address(), Some(&key.key)).chat(chat::request("up/m")).await.status, 200);
    server.query("SET default_transaction_read_only = off; ALTER SYSTEM RESET default_transaction_read_only");
    server.query("SELECT pg_reload_conf()");
    wait::eventually("a change", async || (create(&wait_name()).await.status == 201).then_some(())).await;
    database.query(
        "CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION USING ERRCODE = ''53100'', MESSAGE = ''No space left on device''; END'",
    );
    database.query("CREATE TRIGGER no_space BEFORE INSERT ON projects EXECUTE FUNCTION no_space()");
    assert_refused(&create("red").await, (503, "overloaded"), "is full; nothing was changed");
}

/// Returns a name that no project has.
fn wait_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("p{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn assert_refused(answer: &Whole, (status, code): (u16, &str), text: &str) {
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status, &error["code"]), (status, &json!(code)), "{answer:?}");
    assert!(error["message"].as_str().unwrap().contains(text), "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
}
