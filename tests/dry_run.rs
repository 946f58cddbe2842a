//! `dry_run=true` on the writes of the admin API: nothing changes, and the answer shows what would (M-053, M-054, ADM-2).

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::admin::Admin;
use crate::support::{Gateway, Yaml, chat, wait};

/// A gateway with the provider `file` in its configuration, and `free` and `paid` of the API. Only `paid/m` and `file/f`
/// have prices.
struct Rig {
    gateway: Gateway,
    admin: Admin,
    project: String,
}

impl Rig {
    async fn start() -> Self {
        let priced = "models: [{id: f, prices: {input: 1, output: 2}}]";
        let gateway =
            Gateway::start(&Yaml::new().provider_with("file", "http://127.0.0.1:9/v1", priced)).await;
        let admin = Admin(gateway.client());
        let paid = json!([{"id": "m", "prices": {"input": 1, "output": 2}}, "solo"]);
        admin.create("providers", json!({"id": "free", "type": "echo", "models": ["m", "n"]})).await;
        admin.create("providers", json!({"id": "paid", "type": "echo", "models": paid})).await;
        let line = json!([{"provider": "free", "model": "n"}, {"provider": "paid", "model": "m"}]);
        admin.done("POST", "endpoints", json!({"name": "line", "failover": line})).await;
        let project = admin.project("blue").await;
        Self { gateway, admin, project }
    }

    /// Returns the effects of a write that must be possible.
    async fn effects(&self, method: &str, path: &str, body: Value) -> Value {
        self.dry(method, path, body).await["effects"].clone()
    }

    async fn dry(&self, method: &str, path: &str, body: Value) -> Value {
        self.admin.done(method, &format!("{path}?dry_run=true"), body).await
    }

    async fn get(&self, path: &str) -> Value {
        self.admin.done("GET", path, Value::Null).await
    }

    async fn key(&self, settings: Value) -> String {
        let mut settings = settings;
        settings["project"] = json!(self.project);
        self.admin.key(settings).await.id
    }
}

/// Returns the selectors of the key with this id in `loses` or `gains`.
fn of_key<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    let entry = list.as_array().unwrap().iter().find(|entry| entry["key"] == key);
    let selectors = entry.map(|entry| entry["selectors"].as_array().unwrap());
    selectors.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn codes(effects: &Value) -> Vec<&str> {
    effects["warnings"].as_array().unwrap().iter().filter_map(|warning| warning["code"].as_str()).collect()
}

#[tokio::test]
async fn a_dry_run_of_any_write_changes_nothing() {
    let rig = Rig::start().await;
    let ada = rig.admin.create("principals", json!({"name": "Ada"})).await;
    let key = rig.key(json!({"limits": []})).await;
    let limit = json!({"kind": "project", "id": rig.project});
    let quota =
        json!({"subject": limit, "metric": "requests", "window": "day", "limit": 3, "enforcement": "hard"});
    let quota_id = rig.admin.create("quotas", quota.clone()).await;
    let facts = json!({"provider": "free", "model": "m", "facts": {"prices": {"input": 1, "output": 1}}});
    let (project, human) = (format!("projects/{}", rig.project), format!("principals/{ada}"));
    let member = format!("{project}/members/{ada}");
    let lists = ["principals", "projects", "keys", "quotas", "providers", "endpoints", "catalog/overrides"];
    let mut before = Vec::new();
    for list in lists.into_iter().chain(["audit", "catalog"]) {
        before.push((list, rig.get(list).await["data"].clone()));
    }
    for (method, path, body) in [
        ("POST", "principals", json!({"name": "Grace"})),
        ("PATCH", &human, json!({"name": "Eve", "disabled": true})),
        ("DELETE", &human, Value::Null),
        ("POST", "projects", json!({"name": "red"})),
        ("PATCH", &project, json!({"disabled": true})),
        ("PUT", &member, json!({"role": "owner"})),
        ("POST", "keys", json!({"name": "k", "project": rig.project})),
        ("PATCH", &format!("keys/{key}"), json!({"state": "revoked"})),
        ("POST", &format!("keys/{key}/rotate"), json!({})),
        (
            "POST",
            "quotas",
            json!({"subject": {"kind": "gateway"}, "metric": "requests", "window": "day", "limit": 1}),
        ),
        ("PATCH", &format!("quotas/{quota_id}"), json!({"limit": 4})),
        ("DELETE", &format!("quotas/{quota_id}"), Value::Null),
        ("POST", "providers", json!({"id": "new", "type": "echo", "models": ["x"]})),
        ("PATCH", "providers/free", json!({"disabled": true})),
        ("POST", "endpoints", json!({"name": "other", "failover": [{"provider": "free", "model": "m"}]})),
        ("PUT", "endpoints/line", json!({"failover": [{"provider": "free", "model": "m"}]})),
        ("DELETE", "endpoints/line", Value::Null),
        ("POST", "catalog/overrides", facts),
    ] {
        let answer = rig.dry(method, path, body).await;
        assert!(answer["effects"]["complete"] == true, "{method} {path}: {answer}");
        assert_eq!(answer["object"].is_null(), method == "DELETE", "{method} {path}: {answer}");
        assert!(answer["object"]["key"].is_null(), "a dry run returns no key: {answer}");
    }
    for (list, rows) in before {
        assert_eq!(rig.get(list).await["data"], rows, "{list}");
    }
    assert_eq!(rig.gateway.client().chat(chat::request("line")).await.status, 200);
}

#[tokio::test]
async fn a_dry_run_is_refused_like_the_write_and_records_no_refusal() {
    let rig = Rig::start().await;
    let records = rig.get("audit").await["data"].clone();
    let (project, key) = (format!("projects/{}", rig.project), rig.key(json!({})).await);
    for (method, path, body, status, param) in [
        ("POST", "principals?dry_run=true", json!({"name": ""}), 400, json!("name")),
        ("POST", "principals?dry_run=perhaps", json!({"name": "Ada"}), 400, json!("dry_run")),
        ("POST", "projects?dry_run=true", json!({"name": "blue"}), 409, Value::Null),
        ("DELETE", &format!("{project}?dry_run=true"), Value::Null, 409, Value::Null),
        ("DELETE", "providers/free?dry_run=true", Value::Null, 409, Value::Null),
        ("PATCH", "quotas/none?dry_run=true", json!({"limit": 1}), 404, Value::Null),
        ("GET", "principals?dry_run=true", Value::Null, 400, json!("dry_run")),
        ("POST", &format!("keys/{key}/reveal?dry_run=true"), json!({}), 400, json!("dry_run")),
        ("POST", "backups?dry_run=true", json!({}), 400, json!("dry_run")),
        ("POST", "catalog/sync?dry_run=true", json!({}), 400, json!("dry_run")),
        ("POST", "providers/free/test?dry_run=true", json!({"model": "m"}), 400, json!("dry_run")),
        ("POST", "usage/reprice?dry_run=true", json!({"from": 2, "to": 1}), 400, json!("from")),
        ("DELETE", "session?dry_run=true", Value::Null, 400, json!("dry_run")),
    ] {
        let answer = rig.admin.call(method, path, body).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["param"]), (status, &param), "{method} {path}: {error}");
    }
    let newest = rig.get("audit").await["data"].clone();
    assert_eq!(newest.as_array().unwrap().len(), records.as_array().unwrap().len() + 1, "the key alone");
    let stale = Admin(rig.gateway.client().with("if-match", "\"7\""));
    let answer = stale.call("PATCH", &format!("{project}?dry_run=true"), json!({"name": "x"})).await;
    assert_eq!(answer.status, 412);
}

#[tokio::test]
async fn a_dry_run_leaves_its_idempotency_key_free() {
    let rig = Rig::start().await;
    let once = Admin(rig.gateway.client().with("idempotency-key", "first"));
    let body = json!({"name": "Ada"});
    for _ in 0..2 {
        let dry = once.call("POST", "principals?dry_run=true", body.clone()).await;
        assert_eq!((dry.status, dry.header("idempotency-replayed")), (200, None));
    }
    let made = once.call("POST", "principals", body.clone()).await;
    assert_eq!((made.status, made.header("idempotency-replayed")), (201, None));
    let dry = once.call("POST", "principals?dry_run=true", body).await;
    assert_eq!((dry.status, dry.header("idempotency-replayed")), (200, None), "nor does it replay an answer");
}

#[tokio::test]
async fn disabling_a_provider_names_the_endpoints_and_keys_that_lose_it() {
    let rig = Rig::start().await;
    let (open, bound) = (rig.key(json!({})).await, rig.key(json!({"models": ["paid/*"]})).await);
    let solo = json!({"name": "one", "failover": [{"provider": "free", "model": "m"}]});
    rig.admin.done("POST", "endpoints", solo).await;
    let effects = rig.effects("PATCH", "providers/free", json!({"disabled": true})).await;
    assert_eq!(effects["endpoints"], json!(["line", "one"]));
    assert_eq!(of_key(&effects["loses"], &open), ["free/m", "free/n", "n", "one"]);
    assert_eq!(
        of_key(&effects["gains"], &open),
        ["m"],
        "the name of both providers' models has one meaning then"
    );
    assert!(of_key(&effects["loses"], &bound).is_empty(), "{effects}");
    assert_eq!(codes(&effects), ["endpoint_without_target"]);
    assert_eq!((&effects["keys_losing"], &effects["keys_gaining"]), (&json!(1), &json!(1)));
    assert_eq!(effects["loses"][0]["key_name"], "a key");
    rig.admin.done("PATCH", "providers/free", json!({"disabled": true})).await;
    let back = rig.effects("PATCH", "providers/free", json!({"disabled": false})).await;
    assert_eq!(of_key(&back["gains"], &open), ["free/m", "free/n", "n", "one"]);
}

#[tokio::test]
async fn the_lists_and_the_state_of_a_project_change_what_its_keys_may_use() {
    let rig = Rig::start().await;
    let key = rig.key(json!({})).await;
    let other = rig.admin.project("red").await;
    let stranger = rig.admin.key(json!({"project": other})).await.id;
    let path = format!("projects/{}", rig.project);
    let effects = rig.effects("PATCH", &path, json!({"models": ["free/*"], "endpoints": ["line"]})).await;
    assert_eq!(of_key(&effects["loses"], &key), ["f", "file/f", "paid/m", "paid/solo", "solo"]);
    assert!(of_key(&effects["loses"], &stranger).is_empty());
    let closed = rig.effects("PATCH", &path, json!({"disabled": true})).await;
    assert_eq!(closed["loses"][0]["selectors_total"], 9, "{closed}");
    rig.admin.done("PATCH", &path, json!({"disabled": true})).await;
    let opened = rig.effects("PATCH", &path, json!({"disabled": false})).await;
    assert_eq!(opened["gains"][0]["selectors_total"], 9, "{opened}");
}

#[tokio::test]
async fn the_state_of_a_key_and_of_its_human_changes_what_it_may_use() {
    let rig = Rig::start().await;
    let ada = rig.admin.create("principals", json!({"name": "Ada"})).await;
    rig.admin.done("PUT", &format!("projects/{}/members/{ada}", rig.project), json!({"role": "owner"})).await;
    let key = rig.key(json!({"acts_as": ada})).await;
    let own = json!({"id": "own", "type": "echo", "models": ["x"], "owner": ada});
    let effects = rig.effects("POST", "providers", own.clone()).await;
    assert_eq!(of_key(&effects["gains"], &key), ["own/x", "x"]);
    rig.admin.done("POST", "providers", own).await;
    let nobody = rig.effects("PATCH", &format!("keys/{key}"), json!({"acts_as": null})).await;
    assert_eq!(of_key(&nobody["loses"], &key), ["own/x", "x"]);
    let revoked = rig.effects("PATCH", &format!("keys/{key}"), json!({"state": "revoked"})).await;
    assert_eq!(revoked["loses"][0]["selectors_total"], 11, "{revoked}");
    let disabled = rig.effects("PATCH", &format!("principals/{ada}"), json!({"disabled": true})).await;
    assert_eq!(disabled["loses"][0]["selectors_total"], 11, "{disabled}");
}

#[tokio::test]
async fn a_cost_limit_names_the_models_without_a_price() {
    let rig = Rig::start().await;
    let limits = json!([{"metric": "cost_micro_usd", "window": "month", "limit": 5_000_000}]);
    let new = json!({"name": "k", "project": rig.project, "endpoints": ["line"], "limits": limits});
    let effects = rig.effects("POST", "keys", new).await;
    assert_eq!(codes(&effects), ["no_price"]);
    assert_eq!(effects["warnings"][0]["objects"], json!(["free/n"]));
    assert_eq!(effects["gains"][0]["selectors"], json!(["line"]), "its other target has a price");

    let key = rig.key(json!({})).await;
    for (kind, id) in
        [("project", Some(&rig.project)), ("gateway", None), ("provider", Some(&"free".to_owned()))]
    {
        let subject = id.map_or_else(|| json!({"kind": kind}), |id| json!({"kind": kind, "id": id}));
        let quota = json!({"subject": subject, "metric": "cost_micro_usd", "window": "month", "limit": 5});
        let effects = rig.effects("POST", "quotas", quota).await;
        let lost = of_key(&effects["loses"], &key);
        assert!(lost.contains(&"free/n") && !lost.contains(&"line"), "{kind}: {effects}");
        assert_eq!(effects["warnings"][0]["objects"][0], "free/n", "a target of an endpoint comes first");
    }
    let priced = json!({"provider": "free", "model": "n", "facts": {"prices": {"input": 1, "output": 1}}});
    let limited = rig.key(json!({"limits": limits})).await;
    let effects = rig.effects("POST", "catalog/overrides", priced).await;
    assert_eq!(of_key(&effects["gains"], &limited), ["free/n", "n"]);
}

#[tokio::test]
async fn a_write_that_changes_the_meaning_of_a_name_is_a_warning() {
    let rig = Rig::start().await;
    let endpoint = json!({"name": "solo", "failover": [{"provider": "free", "model": "n"}]});
    let provider = |id: &str, model: &str| json!({"id": id, "type": "echo", "models": [model]});
    for (path, body, code, param) in [
        ("endpoints", endpoint, "alias_replaced", "name"),
        ("providers", provider("solo", "x"), "alias_replaced", "id"),
        ("providers", provider("third", "solo"), "alias_ambiguous", "models"),
    ] {
        let effects = rig.effects("POST", path, body).await;
        assert_eq!(codes(&effects), [code], "{effects}");
        let warning = &effects["warnings"][0];
        assert_eq!((&warning["param"], &warning["objects"]), (&json!(param), &json!(["solo", "paid/solo"])));
    }
    let useless = json!({"name": "k", "project": rig.project, "models": ["none/x"]});
    assert_eq!(codes(&rig.effects("POST", "keys", useless).await), ["key_without_selector"]);
}

#[tokio::test]
async fn a_new_limit_shows_whom_it_binds_and_that_it_is_used_up() {
    let rig = Rig::start().await;
    let key = rig.admin.key(json!({"project": rig.project, "limits": []})).await;
    rig.key(json!({})).await;
    let other = rig.admin.project("red").await;
    rig.admin.key(json!({"project": other})).await;
    let client = crate::support::Client::new(rig.gateway.address(), Some(&key.key));
    assert_eq!(client.chat(chat::request("line")).await.status, 200);
    rig.gateway.records(1).await;
    let quota = |subject: Value, limit: u64| json!({"subject": subject, "metric": "requests", "window": "day", "limit": limit});
    for (subject, limit, keys, is_reached) in [
        (json!({"kind": "project", "id": rig.project}), 1, 2, true),
        (json!({"kind": "project", "id": rig.project}), 2, 2, false),
        (json!({"kind": "key", "id": key.id}), 1, 1, true),
        (json!({"kind": "gateway"}), 9, 3, false),
    ] {
        let effects = rig.effects("POST", "quotas", quota(subject.clone(), limit)).await;
        assert_eq!(effects["keys_limited"], keys, "{subject} {effects}");
        assert_eq!(codes(&effects).contains(&"limit_reached"), is_reached, "{subject} {effects}");
    }
    let id = rig.admin.create("quotas", quota(json!({"kind": "key", "id": key.id}), 5)).await;
    let path = format!("quotas/{id}");
    for (limit, keys) in [(4, 1), (5, 0), (6, 0)] {
        let effects = rig.effects("PATCH", &path, json!({"limit": limit})).await;
        assert_eq!(effects["keys_limited"], keys, "{limit}: {effects}");
    }
    assert_eq!(rig.effects("DELETE", &path, Value::Null).await["keys_limited"], 0);
}

#[tokio::test]
async fn a_deletion_counts_what_is_deleted_with_it() {
    let rig = Rig::start().await;
    let [ada, bob] = ["Ada", "Bob"].map(|name| json!({"name": name}));
    let (ada, bob) = (rig.admin.create("principals", ada).await, rig.admin.create("principals", bob).await);
    for (human, role) in [(&ada, "owner"), (&bob, "viewer")] {
        let member = format!("projects/{}/members/{human}", rig.project);
        rig.admin.done("PUT", &member, json!({"role": role})).await;
    }
    let limits = json!([{"metric": "requests", "window": "day", "limit": 9}]);
    let key = rig.key(json!({"limits": limits})).await;
    rig.admin.done("PATCH", &format!("keys/{key}"), json!({"state": "revoked"})).await;
    let of_bob = json!({"subject": {"kind": "principal", "id": bob}, "metric": "requests", "window": "day", "limit": 9});
    rig.admin.create("quotas", of_bob).await;
    for (path, keys, quotas, memberships) in [
        (format!("keys/{key}"), 0, 1, 0),
        (format!("principals/{bob}"), 0, 1, 1),
        (format!("projects/{}", rig.project), 1, 1, 2),
    ] {
        let deletes = rig.effects("DELETE", &path, Value::Null).await["deletes"].clone();
        let want = json!({"keys": keys, "quotas": quotas, "memberships": memberships, "bindings": 0});
        assert_eq!(deletes, want, "{path}");
    }
}

#[tokio::test]
async fn usage_is_stored_while_slow_dry_runs_follow_each_other() {
    let rig = Rig::start().await;
    // The preview of a change of the project reads each of its keys.
    let mut minted = JoinSet::new();
    for _ in 0..16 {
        let (admin, project) = (Admin(rig.gateway.client()), rig.project.clone());
        minted.spawn(async move {
            for _ in 0..60 {
                admin.key(json!({"project": project})).await;
            }
        });
    }
    minted.join_all().await;
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (admin, path) = (Admin(rig.gateway.client()), format!("projects/{}?dry_run=true", rig.project));
        callers.spawn(async move {
            loop {
                admin.done("PATCH", &path, json!({"disabled": true})).await;
            }
        });
    }
    let served = rig.gateway.client().chat(chat::request("free/n")).await;
    assert_eq!(served.status, 200);
    // Most reports of the admin API order what waits to be stored; this one does not.
    wait::eventually("the record, while the callers go on", async || {
        let metrics = rig.gateway.client().get("/metrics").await.unwrap();
        std::str::from_utf8(&metrics.body).unwrap().contains("\nllmgw_usage_stored_total 1\n").then_some(())
    })
    .await;
    callers.abort_all();
}
