//! `llmgw export`: the objects of the database become a configuration file that serves the same selectors.

use serde_json::{Value, json};

use crate::support::Yaml;
use crate::support::admin::Admin;
use crate::support::gateway::Setup;

fn selectors(models: &Value) -> Vec<String> {
    models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_exported_configuration_serves_the_same_selectors_and_contains_no_secret() {
    let gateway = Setup::new(&Yaml::new()).env("KNOWN", "k").start().await;
    let admin = Admin(gateway.client());
    admin
        .create(
            "providers",
            json!({
                "id": "far", "type": "compatible", "base_url": "http://127.0.0.1:9/v1", "api_key": "sk-planted-secret-1",
                "headers": {"X-Team": "planted-secret-2"}, "models": ["m", {"id": "n", "vision": true, "headers": {"X-Class": "planted-secret-3", "X-Known": "${ENV:KNOWN}"}}],
            }),
        )
        .await;
    admin.create("providers", json!({"id": "near", "type": "echo", "models": ["e"]})).await;
    let failover = json!([{"provider": "far", "model": "m"}, {"provider": "near", "model": "e"}]);
    let endpoint = json!({"name": "line", "failover": failover, "preamble": "Answer: 'yes'."});
    admin.done("POST", "endpoints", endpoint).await;
    let gateway_subject = json!({"kind": "gateway"});
    let quota = json!({
        "subject": gateway_subject, "metric": "requests", "window": "day", "limit": 300, "enforcement": "hard"
    });
    admin.create("quotas", quota).await;
    let before = gateway.client().get("/v1/models").await.unwrap().json();

    let output = gateway.setup().run(&["export"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("planted"), "{text}");
    for line in ["#   FAR_API_KEY", "#   FAR_X_TEAM", "#   FAR_N_X_CLASS", "${ENV:KNOWN}", "#   quota "] {
        assert!(text.contains(line), "{line} in {text}");
    }

    let fresh = Setup::new(&Yaml::new()).yaml(text).env("FAR_API_KEY", "k").env("FAR_X_TEAM", "t");
    let fresh = fresh.env("FAR_N_X_CLASS", "c").env("KNOWN", "k");
    let checked = fresh.run(&["config", "check"]).await;
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let second = fresh.start().await;
    let after = second.client().get("/v1/models").await.unwrap().json();
    assert_eq!(selectors(&before), selectors(&after));
    assert!(selectors(&after).iter().any(|id| id == "line"), "{after}");
}
