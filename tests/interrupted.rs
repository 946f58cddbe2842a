//! Running exchanges after the process was killed (STATE-5, ADM-6): exactly one record each, for any caller and any
//! limits.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

const PRICES: &str = "models: [{id: m, prices: {input: 3, output: 15}}]";
/// The number of streams per key.
const STREAMS: usize = 40;

/// Returns all records with their outcomes.
async fn outcomes(gateway: &Gateway, count: usize) -> Vec<(String, Value)> {
    let records = gateway.records(count).await;
    let outcome = |record: &Value| record["outcome"].as_str().unwrap().to_owned();
    records.into_iter().map(|record| (outcome(&record), record)).collect()
}

fn of<'a>(records: &'a [(String, Value)], wanted: &str) -> Vec<&'a Value> {
    records.iter().filter(|(outcome, _)| outcome == wanted).map(|(_, record)| record).collect()
}

async fn project_key(gateway: &Gateway) -> Client {
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    Client::new(gateway.address(), Some(&key.key))
}

#[tokio::test]
async fn a_kill_leaves_one_interrupted_record_of_each_running_stream() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::stream().chunk(chat::role()).chunk(chat::content("some")).hang());
    let setup = Setup::new(&Yaml::new().provider_with("up", upstream.base_url(), PRICES));
    let gateway = setup.start().await;
    let key = project_key(&gateway).await;
    let mut flows = Vec::new();
    for client in [gateway.client(), key.clone()] {
        for number in 0..STREAMS {
            let id = format!("stream-{}-{number}", flows.len());
            let mut flow =
                client.clone().with("x-request-id", &id).chat_flow(chat::stream_request("m")).await;
            flow.event().await;
            flows.push(flow);
        }
    }
    upstream.then(Answer::completion("ok"));
    assert_eq!(key.chat(chat::request("m")).await.status, 200);

    let mut gateway = gateway.restart().await;
    for start in 0..2 {
        let records = outcomes(&gateway, 2 * STREAMS + 1).await;
        let interrupted = of(&records, "interrupted");
        assert_eq!((records.len(), interrupted.len()), (2 * STREAMS + 1, 2 * STREAMS), "start {start}");
        let mut ids: Vec<&str> =
            interrupted.iter().filter_map(|record| record["request_id"].as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 2 * STREAMS, "each of them once");
        for record in interrupted {
            let tokens = &record["tokens"];
            assert_eq!((&record["provider"], &record["model"]), (&json!("up"), &json!("m")), "{record}");
            assert_eq!((&record["provenance"], &record["stream"]), (&json!("estimated"), &json!(true)));
            let input = tokens["input"].as_u64().unwrap();
            assert!(input > 0 && tokens["output"] == 0, "{record}");
            assert_eq!(record["cost_micro_usd"].as_f64(), Some(3.0 * input as f64), "{record}");
        }
        gateway = gateway.restart().await;
    }
}

#[tokio::test]
async fn a_kill_leaves_one_interrupted_record_of_each_waiting_stream() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::hang_forever());
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    let key = project_key(&gateway).await;
    let mut clients = tokio::task::JoinSet::new();
    for client in [gateway.client(), key] {
        clients.spawn(async move {
            client.send("POST", "/v1/chat/completions", chat::stream_request("m").into()).await.is_ok()
        });
    }
    upstream.request(1).await;
    let gateway = gateway.restart().await;
    let records = outcomes(&gateway, 2).await;
    assert_eq!(of(&records, "interrupted").len(), 2, "{records:?}");
    assert!(records.iter().all(|(_, record)| record["cost_micro_usd"].is_null()), "no price is known");
}

#[tokio::test]
async fn the_interrupted_record_names_the_last_called_target() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Answer::error(500));
    second.always(Answer::hang_forever());
    let gateway = Gateway::start(&Yaml::line(&[first.base_url(), second.base_url()])).await;
    let client = gateway.client().with("content-type", "application/json");
    let asking = tokio::spawn(async move {
        client.send("POST", "/v1/chat/completions", chat::stream_request("line").into()).await.is_ok()
    });
    second.request(0).await;
    let gateway = gateway.restart().await;
    asking.await.unwrap();
    let records = outcomes(&gateway, 1).await;
    let (outcome, record) = records.first().unwrap();
    assert_eq!((records.len(), outcome.as_str(), &record["provider"]), (1, "interrupted", &json!("p1")));
}

#[tokio::test]
async fn an_orderly_stop_leaves_no_notes() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::events(&chat::events(&["ok"])));
    let mut gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    for _ in 0..3 {
        let (_, whole) = gateway.client().chat_flow(chat::stream_request("m")).await.rest().await;
        assert!(whole);
    }
    gateway.signal(rustix::process::Signal::TERM);
    gateway.exit().await;
    let names = std::fs::read_dir(gateway.state().join("journal")).unwrap();
    let notes = names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().ends_with("notes"));
    assert_eq!(notes.count(), 0);
}
