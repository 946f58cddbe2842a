//! Alerts through the real binary: conditions that need a person raise one alert, and its event reaches workers (ADM-5).

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

/// Waits for the alerts with these query parameters.
async fn alerts(admin: &Admin, query: &str, count: usize) -> Vec<Value> {
    wait::eventually_within(3 * wait::PATIENCE, &format!("{count} alerts {query}"), async || {
        let page = admin.done("GET", &format!("alerts?{query}"), Value::Null).await;
        let data = page["data"].as_array().unwrap().clone();
        (data.len() == count).then_some(data)
    })
    .await
}

/// Returns the kinds and states of all events, oldest first.
async fn events(admin: &Admin) -> Vec<(String, String)> {
    let page = admin.done("GET", "outbox?to=workers&limit=500", Value::Null).await;
    let deliveries = page["data"].as_array().unwrap().iter().rev();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    deliveries.map(|row| (text(&row["event"]["kind"]), text(&row["event"]["data"]["state"]))).collect()
}

async fn immediately(admin: &Admin, rule: &str) {
    let settings = json!({"hold_seconds": 0, "clear_seconds": 0});
    admin.done("PATCH", &format!("alert-rules/{rule}"), settings).await;
}

/// M-085, ADM-4.
#[tokio::test]
async fn a_warn_quota_raises_one_alert_at_80_per_cent_and_one_when_it_is_used_up() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Setup::new(&Yaml::one(upstream.base_url())).at_noon().start().await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let quota = json!({"subject": {"kind": "project", "id": project}, "metric": "requests", "window": "day",
        "limit": 10, "enforcement": "warn"});
    let quota = admin.create("quotas", quota).await;
    let client = Client::new(gateway.address(), Some(&key.key));
    for _ in 0..8 {
        assert_eq!(client.chat(chat::request("m")).await.status, 200);
    }
    let alert = alerts(&admin, &format!("object={quota}"), 1).await.remove(0);
    assert_eq!((&alert["kind"], &alert["state"]), (&json!("quota_warning"), &json!("open")));
    assert_eq!(alert["object_name"], "blue");
    let page = admin.done("GET", "outbox?to=workers", Value::Null).await;
    let [delivery] = page["data"].as_array().unwrap().as_slice() else { panic!("{page}") };
    assert_eq!(
        (&delivery["object_name"], &delivery["event"]["object"]),
        (&json!("blue"), &json!(quota)),
        "the list has the name"
    );
    assert_eq!(delivery["event"].get("object_name"), None, "receivers get the event as before");
    assert_eq!(
        alert["text"],
        "The project blue has used 8 of 10 requests a day (80 %). The limit only warns."
    );
    assert_eq!((&alert["figures"]["used"], &alert["severity"]), (&json!(8.0), &json!("warn")));
    for _ in 0..3 {
        assert_eq!(client.chat(chat::request("m")).await.status, 200, "it only warns");
    }
    alerts(&admin, &format!("object={quota}"), 2).await;
    assert_eq!(
        events(&admin).await,
        [("quota_warning".into(), "open".into()), ("quota_exhausted".to_owned(), "open".to_owned())]
    );
    let ack = format!("alerts/{}/ack", alert["id"].as_str().unwrap());
    let acked = admin.done("POST", &ack, json!({})).await;
    assert_eq!((&acked["state"], &acked["acked_by"]), (&json!("acknowledged"), &json!("admin")));
    assert_eq!(admin.done("POST", &ack, json!({})).await["acked_at_ms"], acked["acked_at_ms"]);
    assert_eq!(alerts(&admin, "state=acknowledged", 1).await[0]["id"], alert["id"]);
    let audit = admin.done("GET", "audit?object=alert", Value::Null).await;
    let actions: Vec<&str> =
        audit["data"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["alert.ack", "alert.ack", "alert.open", "alert.open"]);
}

#[tokio::test]
async fn a_provider_that_fails_raises_an_alert_and_its_recovery_an_event() {
    let upstream = Upstream::start().await;
    upstream.then(Answer::error(503)).always(Answer::completion("back"));
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 8";
    let gateway = Gateway::start(&Yaml::one(upstream.base_url()).policies(policies)).await;
    let admin = Admin(gateway.client());
    immediately(&admin, "rule_provider_down").await;
    assert_eq!(gateway.client().chat(chat::request("m")).await.status, 503);
    let alert = alerts(&admin, "kind=provider_down", 1).await.remove(0);
    assert_eq!((&alert["object"], &alert["state"]), (&json!("up"), &json!("open")));
    wait::eventually("the metric", async || {
        let metrics = gateway.client().get("/metrics").await.ok()?;
        let metrics = String::from_utf8_lossy(&metrics.body);
        let is_shown = |line: &str| metrics.lines().any(|other| other == line);
        let is_open = is_shown("llmgw_alerts{kind=\"provider_down\",state=\"open\"} 1");
        (is_open && is_shown("llmgw_alerts{kind=\"disk_low\",state=\"acknowledged\"} 0")).then_some(())
    })
    .await;
    wait::eventually("an answer", async || {
        (gateway.client().chat(chat::request("m")).await.status == 200).then_some(())
    })
    .await;
    alerts(&admin, "kind=provider_down&state=resolved", 1).await;
    let want = [("provider_down", "open"), ("provider_recovered", "resolved")];
    assert_eq!(events(&admin).await, want.map(|(kind, state)| (kind.to_owned(), state.to_owned())));
}

/// CFG-5.
#[tokio::test]
async fn an_invalid_configuration_raises_an_alert_until_it_is_corrected() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let admin = Admin(gateway.client());
    immediately(&admin, "rule_config_reload_failed").await;
    gateway.write_config(
        "providers:\n  up: {type: compatible, base_url: 'http://127.0.0.1:9/v1', nonsense: 1}\n",
    );
    let alert = alerts(&admin, "kind=config_reload_failed&state=open", 1).await.remove(0);
    assert!(alert["text"].as_str().unwrap().contains("nonsense"), "{alert}");
    gateway.write_config(Yaml::one("http://127.0.0.1:9/v1").text());
    alerts(&admin, "kind=config_reload_failed&state=resolved", 1).await;
}

#[tokio::test]
async fn an_open_alert_is_not_raised_again_after_a_restart() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let day_ms = 86_400_000;
    let now_ms =
        admin.done("GET", "projects", Value::Null).await["data"][0]["created_at_ms"].as_u64().unwrap();
    let key = admin.key(json!({"project": project, "expires_at": now_ms + 3 * day_ms})).await;
    admin.key(json!({"project": project, "expires_at": now_ms + 30 * day_ms})).await;
    let first = alerts(&admin, "kind=key_expiring", 1).await.remove(0);
    assert_eq!((&first["object"], &first["object_name"]), (&json!(key.id), &json!("a key")));
    let gateway = gateway.restart().await;
    let admin = Admin(gateway.client());
    let config = json!({"name": "an extra rule", "kind": "key_expiring", "threshold": 31});
    admin.done("POST", "alert-rules", config).await;
    let all = alerts(&admin, "kind=key_expiring", 3).await;
    let of_first = all.iter().filter(|alert| alert["rule"] == first["rule"]);
    assert_eq!(of_first.map(|alert| &alert["id"]).collect::<Vec<_>>(), [&first["id"]]);
}

#[tokio::test]
async fn open_alerts_are_counted_by_severity_and_the_dry_run_of_a_rule_names_those_that_it_would_end() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let now_ms =
        admin.done("GET", "projects", Value::Null).await["data"][0]["created_at_ms"].as_u64().unwrap();
    let key = admin.key(json!({"project": project, "expires_at": now_ms + 3 * 86_400_000})).await;
    let urgent = json!({"name": "urgent", "kind": "key_expiring", "threshold": 31, "severity": "bad"});
    let urgent = admin.create("alert-rules", urgent).await;
    let all = alerts(&admin, "kind=key_expiring&state=open", 2).await;
    let counted = async || admin.done("GET", "state", Value::Null).await["alerts"].clone();
    assert_eq!(counted().await, json!({"total": 2, "bad": 1}));
    let alert = all.iter().find(|alert| alert["rule"] == urgent.as_str()).unwrap();
    let path = format!("alerts/{}", alert["id"].as_str().unwrap());
    assert_eq!(&admin.done("GET", &path, Value::Null).await, alert);
    for (method, body) in [("DELETE", Value::Null), ("PATCH", json!({"enabled": false}))] {
        let path = format!("alert-rules/{urgent}?dry_run=true");
        let warnings = admin.done(method, &path, body).await["effects"]["warnings"].clone();
        let want = json!([{"code": "alerts_resolved", "param": null, "objects": [key.id],
            "message": "1 alert of this rule will be resolved."}]);
        assert_eq!(warnings, want, "{method}");
    }
    admin.done("POST", &format!("{path}/ack"), json!({})).await;
    assert_eq!(counted().await, json!({"total": 1, "bad": 0}));
    assert_eq!(admin.call("GET", "alerts/none", Value::Null).await.status, 404);
}

#[tokio::test]
async fn rules_are_checked_scoped_and_deleted() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let admin = Admin(gateway.client());
    let rules = admin.done("GET", "alert-rules", Value::Null).await;
    assert_eq!(rules["data"].as_array().unwrap().len(), 16, "one rule for each kind");
    for (body, param) in [
        (json!({"name": "x", "kind": "quota_warning"}), "threshold"),
        (json!({"name": "x", "kind": "quota_warning", "threshold": 101}), "threshold"),
        (json!({"name": "x", "kind": "backup_failed", "threshold": 1}), "threshold"),
        (json!({"name": "x", "kind": "spend_anomaly", "threshold": 3}), "floor_micro_usd"),
        (json!({"name": "x", "kind": "disk_low", "threshold": 5, "floor_micro_usd": 1}), "floor_micro_usd"),
        (json!({"name": "x", "kind": "provider_down", "objects": []}), "objects"),
        (json!({"name": "x", "kind": "provider_down", "hold_seconds": 86_401}), "hold_seconds"),
        (json!({"name": "", "kind": "provider_down"}), "name"),
        (json!({"name": "x", "kind": "no_such"}), "kind"),
    ] {
        let refused = admin.call("POST", "alert-rules", body.clone()).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{body}");
    }
    let body = json!({"name": "disk", "kind": "disk_low", "threshold": 99, "objects": ["elsewhere"]});
    let scoped = admin.create("alert-rules", body).await;
    let body = json!({"name": "disk", "kind": "disk_low", "threshold": 99});
    let all = admin.create("alert-rules", body).await;
    let path = format!("alert-rules/{all}");
    let stale = admin.0.clone().with("if-match", "\"7\"").with("content-type", "application/json");
    let stale =
        stale.send("PATCH", &format!("/admin/api/{path}"), r#"{"threshold": 98}"#.into()).await.unwrap();
    assert_eq!(stale.status, 412);
    let test = admin.done("POST", &format!("alert-rules/{scoped}/test"), json!({})).await;
    let page = admin.done("GET", "outbox?to=workers&kind=disk_low", Value::Null).await;
    let event = &page["data"][0]["event"];
    assert_eq!((&event["sequence"], &event["object"]), (&test["sequence"], &json!("elsewhere")));
    admin.done("DELETE", &path, Value::Null).await;
    assert_eq!(admin.call("GET", &path, Value::Null).await.status, 404);
}

#[tokio::test]
async fn a_rule_shows_the_names_of_its_objects_in_every_answer() {
    let gateway = Gateway::start(&Yaml::one("http://127.0.0.1:9/v1")).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project, "name": "a key"})).await;
    let quota = json!({"subject": {"kind": "project", "id": project}, "metric": "requests", "window": "day", "limit": 10});
    let quota = admin.create("quotas", quota).await;
    let objects = json!([key.id, quota, "key_that_never_was"]);
    let names = json!(["a key", "blue", "key_that_never_was"]);
    let rule = json!({"name": "some", "kind": "key_expiring", "threshold": 3, "objects": objects});
    let made = admin.done("POST", "alert-rules", rule).await;
    let path = format!("alert-rules/{}", made["id"].as_str().unwrap());
    let changed = admin.done("PATCH", &path, json!({"severity": "warn"})).await;
    let shown = admin.done("GET", &path, Value::Null).await;
    let list = admin.done("GET", "alert-rules", Value::Null).await;
    let listed = list["data"].as_array().unwrap().iter().find(|rule| rule["id"] == made["id"]).unwrap();
    for rule in [&made, &changed, &shown, listed] {
        assert_eq!((&rule["objects"], &rule["object_names"]), (&objects, &names));
    }
    let built_in = admin.done("GET", "alert-rules/rule_key_expiring", Value::Null).await;
    assert_eq!((&built_in["objects"], &built_in["object_names"]), (&Value::Null, &Value::Null));
}
