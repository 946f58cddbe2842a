//! Several gateways on one PostgreSQL: each serves by the changes of all, and each record and each alert is there once.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{database, node, nodes};
use crate::support::admin::Admin;
use crate::support::gateway::Gateway;
use crate::support::{Answer, Client, Upstream, Yaml, chat, wait};

pub(super) async fn status(gateway: &Gateway, key: &str) -> u16 {
    Client::new(gateway.address(), Some(key)).chat(chat::request("up/m")).await.status
}

#[tokio::test]
async fn a_key_serves_and_is_refused_at_every_node_once_its_change_is_published() {
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let nodes = nodes(&Yaml::one(upstream.base_url()), &database.url(), 3).await;
    let [one, two, three] = nodes.as_slice() else { unreachable!() };
    let admin = Admin(one.client());
    let project = admin.project("blue").await;
    let made = admin.call("POST", "keys", json!({"name": "k", "project": project})).await;
    assert_eq!((made.status, made.header("x-llmgw-published")), (201, Some("true")), "{made:?}");
    let (key, id) = (made.json()["key"].as_str().unwrap().to_owned(), made.json()["id"].clone());
    for gateway in &nodes {
        assert_eq!(status(gateway, &key).await, 200);
    }
    // The sums and lists of each node are those of all.
    for gateway in &nodes {
        assert_eq!(gateway.records(3).await.len(), 3);
        let usage = wait::eventually("the usage of all nodes", async || {
            let totals = Admin(gateway.client()).done("GET", "usage", Value::Null).await["totals"].clone();
            (totals["requests"] == 3).then_some(totals)
        });
        usage.await;
    }
    let metrics = one.client().get("/metrics").await.unwrap();
    let page = String::from_utf8(metrics.body.to_vec()).unwrap();
    let (_, documented) = include_str!("../../docs/metrics.md").split_once("\n## Several nodes\n").unwrap();
    for row in documented.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, _) = row.split_once('`').unwrap();
        assert!(page.contains(&format!("# TYPE {name} ")), "{name}: {page}");
    }
    let value = |series: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(series)).unwrap();
        line.trim().parse::<f64>().unwrap()
    };
    assert!(value("llmgw_node_fences_total{lane=\"shipping\",result=\"passed\"}") >= 1.0, "{page}");
    assert!(value("llmgw_node_fences_total{lane=\"shares\",result=\"passed\"}") >= 1.0, "{page}");
    assert!((2.0..=3.0).contains(&value("llmgw_nodes_live ")), "{page}");
    assert!(value("llmgw_node_look_age_seconds ") < 5.0 && value("llmgw_node_shipping_lag_seconds ") < 5.0);
    // Revoked at another node than the one that made it.
    let path = format!("keys/{}", id.as_str().unwrap());
    let revoked = Admin(three.client()).call("PATCH", &path, json!({"state": "revoked"})).await;
    assert_eq!((revoked.status, revoked.header("x-llmgw-published")), (200, Some("true")), "{revoked:?}");
    for gateway in &nodes {
        assert_eq!(status(gateway, &key).await, 401);
    }
    // The nodes make changes of their own, such as alerts, which the others see at their next look.
    let listed = wait::eventually("all nodes to be live and to serve by the newest change", async || {
        let listed = Admin(two.client()).done("GET", "nodes", Value::Null).await;
        let is_current =
            |row: &Value| row["standing"] == "live" && row["seen_version"] == listed["newest_version"];
        listed["data"].as_array().unwrap().iter().all(is_current).then_some(listed)
    })
    .await;
    let rows = listed["data"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["n1", "n2", "n3"], "{listed}");
    assert_eq!(rows.iter().filter(|row| row["is_this"] == true).count(), 1);
}

#[tokio::test]
async fn a_model_that_one_node_has_found_is_listed_and_served_by_the_others() {
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    let nodes = nodes(&Yaml::one(upstream.base_url()), &database.url(), 2).await;
    let [one, two] = nodes.as_slice() else { unreachable!() };
    let admin = Admin(one.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let client = Client::new(two.address(), Some(&key.key));
    assert_eq!(client.chat(chat::request("up/new")).await.status, 404);
    let list = json!({"object": "list", "data": [{"id": "new", "object": "model"}]});
    upstream.then(Answer::json(200, list.to_string()));
    admin.done("POST", "providers/up/sync", json!({})).await;
    upstream.always(Answer::completion("ok"));
    wait::eventually("the other node to list the model", async || {
        let models = client.get("/v1/models").await.unwrap().json();
        models["data"].as_array()?.iter().any(|model| model["id"] == "up/new").then_some(())
    })
    .await;
    assert_eq!(client.chat(chat::request("up/new")).await.status, 200);
    assert_eq!(upstream.requests().len(), 2, "the second node has asked for no list");
}

#[tokio::test]
async fn a_node_that_is_killed_is_silent_and_one_that_stops_has_left() {
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let mut nodes = nodes(&Yaml::one(upstream.base_url()), &database.url(), 3).await;
    let (mut three, two, one) = (nodes.pop().unwrap(), nodes.pop().unwrap(), nodes.pop().unwrap());
    let admin = Admin(one.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    assert_eq!(status(&two, &key.key).await, 200);
    let setup = two.kill().await;
    three.signal(Signal::TERM);
    assert!(three.exit().await.success());
    let standing = async |name: &str| {
        let listed = admin.done("GET", "nodes", Value::Null).await;
        let rows = listed["data"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap()["standing"].clone()
    };
    assert_eq!(standing("n3").await, "left");
    wait::eventually("a killed node to be silent", async || (standing("n2").await == "silent").then_some(()))
        .await;
    let changed = admin.call("POST", "keys", json!({"name": "k", "project": project})).await;
    assert_eq!(changed.header("x-llmgw-published"), Some("true"), "no live node is behind");
    assert_eq!(changed.header("x-llmgw-silent-nodes"), Some("2"));
    // It comes back as the same node, and what its journal has is stored.
    let two = setup.start().await;
    wait::eventually("the node that is back", async || (standing("n2").await == "live").then_some(())).await;
    assert_eq!(one.records(1).await.len(), 1);
    drop(two);
}

#[tokio::test]
async fn a_second_process_with_the_directory_of_a_node_ends_the_first() {
    let Some(database) = database() else { return };
    let yaml = Yaml::one("http://127.0.0.1:9/v1");
    let mut first = node(&yaml, &database.url()).start().await;
    let second = node(&yaml, &database.url());
    std::fs::create_dir_all(second.state()).unwrap();
    std::fs::copy(first.state().join("node.json"), second.state().join("node.json")).unwrap();
    let second = second.start().await;
    assert_eq!(first.exit().await.code(), Some(75));
    first.logs("another process has started with the node.json").await;
    assert_eq!(second.client().get("/ready").await.unwrap().status, 200);
    let listed = Admin(second.client()).done("GET", "nodes", Value::Null).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");
}

/// A budget is used up to the last request by three nodes, and never exceeded, whatever node each request reaches.
#[tokio::test]
async fn three_nodes_use_up_a_budget_together_and_never_exceed_it() {
    const BUDGET: usize = 60;
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let mut nodes = nodes(&Yaml::one(upstream.base_url()), &database.url(), 3).await;
    let admin = Admin(nodes[0].client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let limit = json!({"subject": {"kind": "project", "id": project}, "metric": "requests",
        "window": "month", "limit": BUDGET});
    let limit = admin.create("quotas", limit).await;
    // At once from four callers a node, until half is used.
    let sent = async |gateway: &Gateway, most: usize| {
        let mut served = 0;
        for _ in 0..most {
            match status(gateway, &key.key).await {
                200 => served += 1,
                429 => {}
                other => panic!("{other}"),
            }
        }
        served
    };
    let (a, b, c) = tokio::join!(sent(&nodes[0], 10), sent(&nodes[1], 10), sent(&nodes[2], 10));
    assert_eq!(a + b + c, BUDGET / 2, "nothing is refused while enough is left");
    // A node is killed: what it held stays counted until it is back.
    let setup = nodes.pop().unwrap().kill().await;
    nodes.push(setup.start().await);
    let mut served = BUDGET / 2;
    // What another node holds and does not use is back within seconds.
    wait::eventually("the budget to be used up", async || {
        let (a, b, c) = tokio::join!(sent(&nodes[0], 4), sent(&nodes[1], 4), sent(&nodes[2], 4));
        served += a + b + c;
        (served >= BUDGET).then_some(())
    })
    .await;
    for gateway in &nodes {
        assert_eq!(sent(gateway, 3).await, 0, "the budget is used up");
    }
    assert_eq!((served, upstream.requests().len()), (BUDGET, BUDGET));
    wait::eventually("the usage of all nodes in the limit", async || {
        let shown = Admin(nodes[1].client()).done("GET", &format!("quotas/{limit}"), Value::Null).await;
        (shown["used"] == BUDGET).then_some(())
    })
    .await;
}
