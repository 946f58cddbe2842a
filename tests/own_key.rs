//! `GET /v1/key`: the holder of a key reads its limits and usage, and no data of other keys.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

/// In dollars per million tokens; a response of `ok` is 11 tokens in and 7 out.
const PRICES: &str = "models: [{id: m, prices: {input: 3, output: 15}}]";
const COST_MICRO_USD: f64 = 138.0;

async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), PRICES);
    (Setup::new(&yaml).at_noon().start().await, upstream)
}

/// Returns what the holder reads once `requests` requests are counted.
async fn own_key(client: &Client, requests: u64) -> Value {
    wait::eventually("the requests in the usage of the key", async || {
        let shown = client.get("/v1/key").await.unwrap().json();
        (shown["usage"]["today"]["requests"] == requests).then_some(shown)
    })
    .await
}

#[tokio::test]
async fn a_key_holder_reads_its_limits_and_its_usage_and_nothing_else() {
    let (gateway, _upstream) = gateway().await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let expiry = "2100-01-01T00:00:00Z";
    let key =
        admin.key(json!({"project": project, "expires_at": expiry, "routes": ["chat_completions"]})).await;
    let other = admin.key(json!({"project": project})).await;
    for (subject, metric, window, limit) in [
        (json!({"kind": "key", "id": key.id}), "requests", "day", 50),
        (json!({"kind": "key", "id": key.id}), "cost_micro_usd", "month", 1_000_000),
        (json!({"kind": "project", "id": project}), "total_tokens", "month", 1_000_000),
        (json!({"kind": "key", "id": other.id}), "requests", "total", 7),
    ] {
        let quota = json!({"subject": subject, "metric": metric, "window": window, "limit": limit});
        admin.create("quotas", quota).await;
    }
    let holder = Client::new(gateway.address(), Some(&key.key));
    let stranger = Client::new(gateway.address(), Some(&other.key));
    for client in [&holder, &stranger, &holder, &stranger, &stranger] {
        assert_eq!(client.chat(chat::request("up/m")).await.status, 200);
    }
    let shown = own_key(&holder, 2).await;
    assert_eq!(
        (&shown["id"], &shown["name"], &shown["role"], &shown["project"]),
        (&json!(key.id), &json!("a key"), &json!("project"), &json!(project))
    );
    assert_eq!(shown["expires_at_ms"], 4_102_444_800_000_u64);
    for time in ["today", "month"] {
        let used = &shown["usage"][time];
        assert_eq!((&used["requests"], &used["tokens"]), (&json!(2), &json!(36)), "{time}");
        assert_eq!(used["cost_micro_usd"], 2.0 * COST_MICRO_USD);
        assert_eq!(used["requests_unpriced"], 0);
    }
    let limits = shown["limits"].as_array().unwrap();
    assert_eq!(limits.len(), 3, "{shown}");
    let limit = |metric: &str| limits.iter().find(|limit| limit["metric"] == metric).unwrap();
    let requests = limit("requests");
    assert_eq!((&requests["limit"], &requests["used"]), (&json!(50), &json!(2)));
    assert_eq!((&requests["reserved"], &requests["remaining"]), (&json!(0), &json!(48)));
    assert_eq!((&requests["window"], &requests["enforcement"]), (&json!("day"), &json!("hard")));
    assert!(
        requests["resets_at_ms"].as_u64().unwrap() > shown["usage"]["today"]["from_ms"].as_u64().unwrap()
    );
    assert_eq!(limit("cost_micro_usd")["used"], 276);
    let shared = limit("total_tokens");
    assert_eq!((&shared["subject"], &shared["limit"]), (&json!("project"), &json!(1_000_000)));
    assert!(shared["used"].is_null() && shared["remaining"].is_null(), "others use it too: {shared}");
    assert!(!shown.to_string().contains(&other.id));
    assert_eq!(own_key(&stranger, 3).await["limits"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn each_kind_of_caller_gets_its_own_key_response() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup =
        Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_API_KEYS", "ops=ops-key-0123456789").at_noon();
    let gateway = setup.start().await;
    let ops = Client::new(gateway.address(), Some("ops-key-0123456789"));
    assert_eq!(ops.chat(chat::request("m")).await.status, 200);
    let shown = own_key(&ops, 1).await;
    assert_eq!(
        (&shown["id"], &shown["name"], &shown["role"], &shown["limits"], &shown["project"]),
        (&json!("admin:ops"), &json!("ops"), &json!("administrator"), &json!([]), &json!(null))
    );
    assert_eq!(ops.get("/key").await.unwrap().json()["id"], "admin:ops", "without /v1");
    let head = ops.send("HEAD", "/v1/key", Bytes::new()).await.unwrap();
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("cache-control"), Some("no-store"));
    let posted = ops.post("/v1/key", "{}").await;
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    assert_eq!(posted.error_code(), "method_not_allowed");
    let answer = ops.get("/v1/key?key=other").await.unwrap();
    assert_eq!((answer.status, answer.error_code().as_str()), (400, "invalid_request"));
    for key in [None, Some("wrong-key")] {
        let refused = Client::new(gateway.address(), key).get("/v1/key").await.unwrap();
        assert_eq!((refused.status, refused.error_code().as_str()), (401, "invalid_api_key"));
    }
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    admin.done("PATCH", &format!("keys/{}", key.id), json!({"state": "disabled"})).await;
    let disabled = Client::new(gateway.address(), Some(&key.key)).get("/v1/key").await.unwrap();
    assert_eq!(disabled.status, 401);
}

/// The names of providers and models are part of what an allowlist and an owner keep from others.
#[tokio::test]
async fn limits_of_what_a_key_may_not_use_are_not_shown() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new()
        .provider_with("up", upstream.base_url(), PRICES)
        .provider_with("secret", upstream.base_url(), "models: [m, hidden]")
        .provider_with("unused", upstream.base_url(), "models: [m]");
    let yaml = yaml.endpoint("line", &[("secret", "m")]);
    let gateway = Gateway::start(&yaml).await;
    let admin = Admin(gateway.client());
    let (project, owner) =
        (admin.project("blue").await, admin.create("principals", json!({"name": "Ada"})).await);
    let private = json!({"id": "private", "type": "openai_compatible", "base_url": upstream.base_url(), "models": ["m"],
        "owner": owner});
    admin.done("POST", "providers", private).await;
    let limit = |subject: Value, model: Option<&str>, endpoint: Option<&str>| {
        json!({"subject": subject, "metric": "requests", "window": "day", "limit": 9, "enforcement": "hard", "model": model,
            "endpoint": endpoint})
    };
    let gateway_wide = json!({"kind": "gateway"});
    for quota in [
        limit(gateway_wide.clone(), None, None),
        limit(gateway_wide.clone(), Some("up/m"), None),
        limit(gateway_wide.clone(), Some("secret/hidden"), None),
        limit(gateway_wide.clone(), Some("secret/m"), None),
        limit(gateway_wide, None, Some("line")),
        limit(json!({"kind": "provider", "id": "up"}), None, None),
        limit(json!({"kind": "provider", "id": "secret"}), None, None),
        limit(json!({"kind": "provider", "id": "unused"}), None, None),
        limit(json!({"kind": "provider", "id": "private"}), None, None),
    ] {
        admin.create("quotas", quota).await;
    }
    let shown = async |lists: Value| {
        let mut key = json!({"project": project});
        key.as_object_mut().unwrap().extend(lists.as_object().unwrap().clone());
        let key = admin.key(key).await;
        let answer = Client::new(gateway.address(), Some(&key.key)).get("/v1/key").await.unwrap().json();
        let named = |limit: &Value| {
            let names = ["provider", "model", "endpoint"].map(|name| limit[name].as_str());
            names.into_iter().flatten().next().unwrap_or("all").to_owned()
        };
        let mut names: Vec<String> = answer["limits"].as_array().unwrap().iter().map(named).collect();
        names.sort();
        names
    };
    assert_eq!(shown(json!({"models": ["up/m"]})).await, ["all", "up", "up/m"]);
    assert_eq!(shown(json!({"endpoints": ["line"]})).await, ["all", "line", "secret", "secret/m"]);
    let unlisted = ["all", "line", "secret", "secret/hidden", "secret/m", "unused", "up", "up/m"];
    assert_eq!(shown(json!({})).await, unlisted, "all but what is private to a human");
}
