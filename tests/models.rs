//! `GET /v1/models` lists what the caller's rights and the providers' credentials make eligible (SEL-2).

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

async fn listed(client: &Client) -> Vec<String> {
    let list = client.get("/v1/models").await.unwrap().json();
    let id = |model: &Value| model["id"].as_str().unwrap().to_owned();
    list["data"].as_array().unwrap().iter().map(id).collect()
}

async fn gateway(upstream: &Upstream) -> Gateway {
    let up = upstream.base_url();
    let yaml = format!(
        "providers:
  up: {{type: compatible, base_url: '{up}', models: [m, only-up]}}
  keyless: {{type: openai, models: [m, only-keyless]}}
  off: {{type: compatible, base_url: '{up}', disabled: true, models: [only-off]}}
endpoints:
  mixed: {{failover: [{{provider: keyless, model: m}}, {{provider: up, model: m}}]}}
  dead: {{failover: [{{provider: keyless, model: m}}, {{provider: off, model: only-off}}]}}
"
    );
    Setup::new(&Yaml::new()).yaml(yaml).start().await
}

/// M-129 and M-130: a provider without its key and a disabled one could only return 503.
#[tokio::test]
async fn models_that_could_only_return_503_are_not_listed() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let models = listed(&client).await;
    assert_eq!(models, ["mixed", "only-up", "up/m", "up/only-up"]);
    for model in &models {
        assert_eq!(client.chat(chat::request(model)).await.status, 200, "{model}");
    }
    for model in ["keyless/m", "only-keyless", "dead"] {
        assert_eq!(client.chat(chat::request(model)).await.status, 503, "{model}");
        assert_eq!(client.get(&format!("/v1/models/{model}")).await.unwrap().status, 404, "{model}");
    }
    let mixed = client.get("/v1/models/mixed").await.unwrap().json();
    assert_eq!(mixed["failover"], json!([{"provider": "up", "model": "m"}]));

    // A key that is added later makes its provider eligible from the next request on.
    let admin = Admin(gateway.client());
    let later = json!({"id": "later", "type": "compatible", "base_url": upstream.base_url(), "models": ["x"], "auth": "oauth"});
    admin.done("POST", "providers", later).await;
    assert_eq!(listed(&client).await, models);
    admin.done("PATCH", "providers/later", json!({"auth": "local"})).await;
    assert!(listed(&client).await.contains(&"later/x".to_owned()));
}

#[tokio::test]
async fn a_model_is_found_by_its_percent_encoded_id() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    for id in ["up/m", "up%2Fm", "u%70%2fm"] {
        let shown = client.get(&format!("/v1/models/{id}")).await.unwrap();
        assert_eq!((shown.status, &shown.json()["id"]), (200, &json!("up/m")), "{id}");
    }
    for id in ["%", "up%2", "up%zzm", "%ff"] {
        assert_eq!(client.get(&format!("/v1/models/{id}")).await.unwrap().status, 404, "{id}");
    }
}

/// M-129: each of two keys of one gateway is listed what it may use.
#[tokio::test]
async fn each_key_lists_only_the_models_it_may_use() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    for (lists, want) in [
        (json!({}), vec!["mixed", "only-up", "up/m", "up/only-up"]),
        (json!({"models": ["up/only-up", "keyless/*"]}), vec!["only-up", "up/only-up"]),
        (json!({"models": [], "endpoints": ["mixed", "dead"]}), vec!["mixed"]),
        (json!({"models": ["keyless/*"], "endpoints": []}), vec![]),
    ] {
        let mut settings = lists.clone();
        settings["project"] = json!(project);
        let key = admin.key(settings).await;
        assert_eq!(listed(&Client::new(gateway.address(), Some(&key.key))).await, want, "{lists}");
    }
}
