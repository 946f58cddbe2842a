//! Cost attribution by client data: request tags and end users, in records, reports and exports.

use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

/// In dollars per million tokens; an answer of `ok` has 11 input and 7 output tokens.
const PRICES: &str = "models: [{id: m, prices: {input: 3, output: 15}}]";
const COST_MICRO_USD: f64 = 138.0;

async fn upstream() -> (Setup, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), PRICES);
    (Setup::new(&yaml), upstream)
}

fn tagged(gateway: &Gateway, tags: &str) -> Client {
    gateway.client().with("x-llmgw-tags", tags)
}

/// A chat request on behalf of `user`.
fn from_user(user: &str) -> String {
    let mut body: Value = serde_json::from_str(&chat::request("m")).unwrap();
    body["user"] = json!(user);
    body.to_string()
}

async fn get(gateway: &Gateway, path: &str) -> Value {
    gateway.client().get(&format!("/admin/api/{path}")).await.unwrap().json()
}

/// Returns the name, the requests and the cost of each group.
async fn groups(gateway: &Gateway, query: &str, name: &str) -> Vec<(Value, u64, f64)> {
    let answer = get(gateway, &format!("usage?{query}")).await;
    let lines = answer["data"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let figures = |line: &Value| {
        (
            line["group"][name].clone(),
            line["requests"].as_u64().unwrap(),
            line["cost_micro_usd"].as_f64().unwrap(),
        )
    };
    lines.iter().map(figures).collect()
}

#[tokio::test]
async fn tags_are_dimensions_of_reports_and_never_go_upstream() {
    let (setup, upstream) = upstream().await;
    let gateway = setup.start().await;
    for tags in ["team=a,job=7", "job=7, team=a", "team=a", "team=b", ""] {
        assert_eq!(tagged(&gateway, tags).chat(chat::request("m")).await.status, 200, "{tags}");
    }
    let records = gateway.records(5).await;
    assert_eq!(records.iter().filter(|record| record["tags"] == json!({"team": "a", "job": "7"})).count(), 2);
    assert_eq!(records.iter().filter(|record| record["tags"] == json!({})).count(), 1);
    for request in upstream.requests() {
        assert!(request.header("x-llmgw-tags").is_none() && !format!("{request:?}").contains("job=7"));
    }
    assert_eq!(
        groups(&gateway, "group_by=tag:team&sort=requests", "tag:team").await,
        [
            (json!("a"), 3, 3.0 * COST_MICRO_USD),
            (json!(null), 1, COST_MICRO_USD),
            (json!("b"), 1, COST_MICRO_USD)
        ]
    );
    assert_eq!(
        groups(&gateway, "group_by=model&bucket=day&tag.team=a&tag.job=7", "model").await,
        [(json!("m"), 2, 2.0 * COST_MICRO_USD)]
    );
    assert_eq!(get(&gateway, "usage?tag.team=none").await["totals"]["requests"], 0);
    assert_eq!(get(&gateway, "requests?tag.team=a").await["data"].as_array().unwrap().len(), 3);
    let exported = gateway.client().get("/admin/api/usage/export?tag.team=b").await.unwrap();
    let text = String::from_utf8(exported.body.to_vec()).unwrap();
    assert!(text.lines().count() == 2 && text.contains(",team=b,"), "{text}");
}

#[tokio::test]
async fn malformed_tags_are_rejected_before_a_call() {
    let (setup, upstream) = upstream().await;
    let gateway = setup.start().await;
    for tags in ["team", "Team=a", "team=a b", "team=", "a=1,a=2", "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1"] {
        let refused = tagged(&gateway, tags).chat(chat::request("m")).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (400, "invalid_request"), "{tags}");
        assert_eq!(refused.json()["error"]["param"], "X-LLMGW-Tags");
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains("X-LLMGW-Tags"));
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn end_user_pseudonyms_are_stable_across_a_restart() {
    let (setup, _upstream) = upstream().await;
    let gateway = setup.start().await;
    for user in ["anna@example.com", "bob", "anna@example.com"] {
        assert_eq!(gateway.client().chat(from_user(user)).await.status, 200);
    }
    let gateway = gateway.restart().await;
    assert_eq!(gateway.client().chat(from_user("anna@example.com")).await.status, 200);
    let records = gateway.records(4).await;
    let names: Vec<&str> = records.iter().map(|record| record["end_user"].as_str().unwrap()).collect();
    assert!(names.iter().all(|name| name.len() == 16), "{names:?}");
    assert!(
        !format!("{records:?}").contains("anna")
            && names.iter().filter(|name| **name == names[0]).count() == 3
    );
    let found = groups(&gateway, "group_by=end_user&sort=cost", "end_user").await;
    assert_eq!(found.iter().map(|(_, requests, _)| *requests).collect::<Vec<_>>(), [3, 1]);
    // The records can be found by the name and by the pseudonym.
    for name in ["anna@example.com", names[0]] {
        let path = format!("end_user={}", name.replace('@', "%40"));
        assert_eq!(get(&gateway, &format!("usage?{path}")).await["totals"]["requests"], 3, "{name}");
        assert_eq!(get(&gateway, &format!("requests?{path}")).await["data"].as_array().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn the_end_user_setting_controls_the_recorded_value() {
    for (setting, want) in [("plain", json!("anna")), ("off", json!(null))] {
        let (setup, upstream) = upstream().await;
        let gateway = setup.env("LLMGW_END_USER", setting).start().await;
        assert_eq!(gateway.client().chat(from_user("anna")).await.status, 200);
        assert_eq!(gateway.records(1).await[0]["end_user"], want, "{setting}");
        assert_eq!(upstream.request(0).await.json()["user"], "anna", "upstream gets the client's own bytes");
    }
}
