//! Limits that a key gets when it is minted: its own, and the defaults of its project.

use serde_json::{Value, json};

use super::Rig;
use crate::support::{Client, chat};

impl Rig {
    /// Creates a key of the project and returns the API's response.
    async fn mint(&self, limits: Value) -> Value {
        let key = json!({"name": "k", "project": self.project, "limits": limits});
        self.admin().done("POST", "keys", key).await
    }

    /// Returns the limits that the list shows for a key: metric, window and amount.
    async fn limits(&self, key: &Value) -> Vec<(String, String, u64)> {
        let path = format!("quotas?key={}", key["id"].as_str().unwrap());
        let list = self.admin().done("GET", &path, Value::Null).await;
        let text = |quota: &Value, field: &str| quota[field].as_str().unwrap_or_default().to_owned();
        let quotas = list["data"].as_array().unwrap().iter();
        let of = |quota| (text(quota, "metric"), text(quota, "window"), quota["limit"].as_u64().unwrap());
        let mut limits: Vec<_> = quotas.map(of).collect();
        limits.sort();
        limits
    }

    async fn set_defaults(&self, defaults: Value) {
        let path = format!("projects/{}", self.project);
        let shown = self.admin().done("PATCH", &path, json!({"key_defaults": defaults})).await;
        assert_eq!(
            shown["key_defaults"].as_array().map(Vec::len),
            Some(defaults.as_array().map_or(0, Vec::len))
        );
    }
}

fn limit(metric: &str, window: &str, limit: u64) -> (String, String, u64) {
    (metric.to_owned(), window.to_owned(), limit)
}

#[tokio::test]
async fn a_key_is_issued_with_its_limits_and_the_project_defaults() {
    let rig = Rig::start().await;
    rig.set_defaults(json!([
        {"metric": "requests", "window": "month", "limit": 2},
        {"metric": "concurrent_requests", "limit": 7, "enforcement": "warn"},
    ]))
    .await;
    let plain = rig.mint(json!([])).await;
    let defaults = [limit("concurrent_requests", "", 7), limit("requests", "month", 2)];
    assert_eq!(rig.limits(&plain).await, defaults);
    assert_eq!(plain["limits"].as_array().unwrap().len(), 2);
    let client = Client::new(rig.gateway.address(), plain["key"].as_str());
    for status in [200, 200, 429] {
        assert_eq!(client.chat(chat::request("m")).await.status, status);
    }

    let own = rig.mint(json!([
        {"metric": "requests", "window": "month", "limit": 9},
        {"metric": "cost_micro_usd", "window": "total", "limit": 5_000_000},
    ]));
    let own = own.await;
    let wanted = [
        limit("concurrent_requests", "", 7),
        limit("cost_micro_usd", "total", 5_000_000),
        limit("requests", "month", 9),
    ];
    assert_eq!(rig.limits(&own).await, wanted, "its own one takes the place of the default");
    let audit = rig.admin().done("GET", "audit?action=key.create&limit=1", Value::Null).await;
    let after = &audit["data"][0]["detail"]["after"];
    assert_eq!((&after["key"]["id"], after["quotas"].as_array().unwrap().len()), (&own["id"], 3));

    let path = format!("keys/{}/rotate", plain["id"].as_str().unwrap());
    let rotated = rig.admin().done("POST", &path, json!({})).await;
    assert_eq!(rig.limits(&rotated).await, defaults, "rotation makes no limits, it keeps them");
    assert_eq!(rotated["limits"], Value::Null);
    let before = json!({"id": rig.key.id});
    assert_eq!(rig.limits(&before).await, [], "a key that was there has none");
    rig.set_defaults(Value::Null).await;
    assert_eq!(rig.limits(&rig.mint(json!([])).await).await, []);
    let rig = rig.restart().await;
    assert_eq!(rig.limits(&own).await, wanted);
}

#[tokio::test]
async fn a_key_with_an_invalid_limit_is_not_issued() {
    let rig = Rig::start().await;
    let good = json!({"metric": "requests", "window": "day", "limit": 1, "model": "up/m"});
    let with = |more: Value| {
        let mut limit = good.clone();
        limit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        limit
    };
    let many = Value::Array(vec![good.clone(); 33]);
    for (param, limits) in [
        ("[1].window", json!([good, with(json!({"metric": "concurrent_requests"}))])),
        ("[0].window", json!([with(json!({"window": null}))])),
        ("[0].limit", json!([with(json!({"limit": 1_000_000_000_001_u64}))])),
        ("[0].model", json!([with(json!({"model": "m"}))])),
        ("[0].model", json!([with(json!({"model": "up/n"}))])),
        ("[0].endpoint", json!([with(json!({"endpoint": "nowhere"}))])),
        ("[1]", json!([good, with(json!({"limit": 2}))])),
        ("", many),
    ] {
        for (field, path, method, body) in [
            (
                "limits",
                "keys".to_owned(),
                "POST",
                json!({"name": "k", "project": rig.project, "limits": limits}),
            ),
            ("key_defaults", format!("projects/{}", rig.project), "PATCH", json!({"key_defaults": limits})),
            ("key_defaults", "projects".to_owned(), "POST", json!({"name": "red", "key_defaults": limits})),
        ] {
            let refused = rig.admin().call(method, &path, body).await;
            let want = format!("{field}{param}");
            assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(want)), "{limits}");
        }
    }
    let keys = rig.admin().done("GET", "keys", Value::Null).await;
    assert_eq!(keys["data"].as_array().unwrap().len(), 1);
    let quotas = rig.admin().done("GET", "quotas", Value::Null).await;
    assert_eq!(quotas["data"], json!([]));
    assert_eq!(rig.limits(&rig.mint(json!([good])).await).await, [limit("requests", "day", 1)]);
}
