//! Values that nodes show each other: running requests, the live page, cancellations, captured exchanges, and measurements of alerts.

use postgres_server::Database;
use serde_json::{Value, json};

use super::{database, nodes};
use crate::live::{event, open};
use crate::support::admin::Admin;
use crate::support::gateway::Gateway;
use crate::support::{Answer, Upstream, Yaml, chat, wait};

/// Returns how many rows nodes have on the board under topics that begin so.
fn on_the_board(database: &Database<'_>, topic: &str) -> String {
    let sql = format!("SELECT count(*) FROM board WHERE topic LIKE '{topic}%' AND until_ms > now_ms()");
    database.query(&sql)[0][0].clone()
}

async fn exchange(gateway: &Gateway, request_id: &str) -> (u16, Value) {
    let answer =
        Admin(gateway.client()).call("GET", &format!("requests/{request_id}/exchange"), Value::Null).await;
    (answer.status, answer.json())
}

/// A request that streams at the third node is listed, cancelled and read at the first.
#[tokio::test]
async fn every_node_lists_cancels_and_shows_the_requests_of_all() {
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::stream().chunk(chat::role()).chunk(chat::content("words of node three")).hang());
    let mut nodes = nodes(&Yaml::one(upstream.base_url()), &database.url(), 3).await;
    let (three, one) = (nodes.pop().unwrap(), nodes.swap_remove(0));
    let admin = Admin(one.client());
    let mut flow = three.client().chat_flow(chat::stream_request("up/m")).await;
    flow.event().await;
    assert_eq!(on_the_board(&database, "frame"), "0", "nobody looks");
    let here = json!({"node": 3, "name": "n3"});
    let running = wait::eventually("the running request of node 3", async || {
        let page = admin.done("GET", "running", Value::Null).await;
        assert!(page.get("silent_nodes").is_none(), "{page}");
        page["data"].as_array().unwrap().iter().find(|one| one["stage"] == "streaming").cloned()
    })
    .await;
    assert_eq!((&running["node"], &running["selector"]), (&here, &json!("up/m")), "{running}");
    let mut live = open(&one.client(), "live").await;
    let listed = |running: &Value| running["begun_or_changed"][0]["node"] == here;
    event(&mut live, "providers", |providers| providers[0]["running"] == 1).await;
    event(&mut live, "running", listed).await;
    drop(live);

    let request_id = running["request_id"].as_str().unwrap();
    let path = format!("requests/{request_id}/cancel");
    let cancelled = admin.call("POST", &path, Value::Null).await;
    assert_eq!((cancelled.status, cancelled.json()), (202, json!({"request_id": request_id, "node": here})));
    upstream.closed(0).await;
    let again = admin.call("POST", &path, Value::Null).await;
    assert_eq!((again.status, &again.json()["error"]["code"]), (404, &json!("not_found")), "{again:?}");
    let record = one.record_of(request_id).await;
    assert_eq!((&record["cancelled_by"], &record["node"]), (&json!("administrator"), &here), "{record}");
    let audit = admin.done("GET", "audit?action=request.cancel", Value::Null).await;
    assert_eq!(audit["data"].as_array().unwrap().len(), 1, "{audit}");

    let found = wait::eventually("the exchange that node 3 keeps", async || {
        let (status, exchange) = exchange(&one, request_id).await;
        (status == 200).then_some(exchange)
    })
    .await;
    assert!(found["sides"].to_string().contains("words of node three"), "{found}");
    drop(three.kill().await);
    let refused = wait::eventually("an answer about the node that was killed", async || {
        let (status, error) = exchange(&one, request_id).await;
        (status == 503).then_some(error)
    })
    .await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("kept by node n3, which was last heard of at 20"), "{message}");
    let all = Admin(nodes[0].client()).done("GET", "running", Value::Null).await;
    wait::eventually("nobody looks any more", async || {
        (on_the_board(&database, "frame") == "0").then_some(())
    })
    .await;
    assert!(all["data"].as_array().unwrap().is_empty(), "{all}");
}

/// A circuit that is open at one node opens one alert, whichever node evaluates alerts.
#[tokio::test]
async fn a_circuit_that_is_open_at_one_node_raises_one_alert_that_names_it() {
    let Some(database) = database() else { return };
    let upstream = Upstream::start().await;
    upstream.always(Answer::error(503));
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 600";
    let yaml = Yaml::one(upstream.base_url()).policies(policies);
    let nodes = nodes(&yaml, &database.url(), 3).await;
    let admin = Admin(nodes[0].client());
    admin.done("PATCH", "alert-rules/rule_provider_down", json!({"hold_seconds": 0})).await;
    assert_eq!(nodes[1].client().chat(chat::request("up/m")).await.status, 503);
    let alerts = wait::eventually_within(3 * wait::PATIENCE, "the alert", async || {
        let alerts = admin.done("GET", "alerts?kind=provider_down", Value::Null).await["data"].clone();
        (!alerts.as_array().unwrap().is_empty()).then_some(alerts)
    })
    .await;
    let alerts = alerts.as_array().unwrap();
    assert_eq!((alerts.len(), &alerts[0]["figures"]["nodes"]), (1, &json!(1.0)), "{alerts:?}");
    assert!(alerts[0]["text"].as_str().unwrap().starts_with("At node n2: 1 attempts in a row"), "{alerts:?}");
    let mut live = open(&nodes[2].client(), "live").await;
    let is_named = |figures: &Value| {
        let reasons = figures["verdict"]["reasons"].as_array().unwrap();
        reasons.iter().any(|reason| reason["code"] == "circuit_open" && reason["nodes"] == json!(["n2"]))
    };
    event(&mut live, "figures", is_named).await;
}
