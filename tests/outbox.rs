//! Events reach webhooks at least once, signed, and external workers by leases (ADM-5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::figure::{figure, is_full};
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, wait};

const RULE: &str = "alert-rules/rule_backup_failed/test";

fn quiet() -> Yaml {
    Yaml::one("http://127.0.0.1:9/v1")
}

async fn webhook(admin: &Admin, receiver: &Upstream, settings: Value) -> Value {
    let mut body = json!({"name": "receiver", "url": format!("http://{}/hook", receiver.address())});
    body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    admin.done("POST", "webhooks", body).await
}

/// Waits for deliveries with these query parameters.
async fn deliveries(admin: &Admin, query: &str, count: usize) -> Vec<Value> {
    wait::eventually(&format!("{count} deliveries {query}"), async || {
        let page = admin.done("GET", &format!("outbox?limit=500&{query}"), Value::Null).await;
        let data = page["data"].as_array().unwrap().clone();
        (data.len() == count).then_some(data)
    })
    .await
}

fn hmac(secret: &str, signed: &[u8]) -> String {
    use base64::Engine as _;
    let engine = base64::prelude::BASE64_STANDARD;
    let key = engine.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    format!("v1,{}", engine.encode(ring::hmac::sign(&key, signed)))
}

/// M-086, M-204.
#[tokio::test]
async fn a_webhook_gets_a_signed_event_and_a_rotated_secret_signs_beside_the_old_one() {
    let receiver = Upstream::start().await;
    receiver.always(Answer::json(200, "{}"));
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    let made = webhook(&admin, &receiver, json!({"kinds": ["backup_failed"]})).await;
    let id = made["id"].as_str().unwrap();
    admin.done("POST", "alert-rules/rule_disk_low/test", json!({})).await;
    admin.done("POST", RULE, json!({})).await;
    let request = receiver.request(0).await;
    let of = |name: &str| request.header(name).unwrap().to_owned();
    let signed =
        [format!("{}.{}.", of("webhook-id"), of("webhook-timestamp")).as_bytes(), &request.body].concat();
    let first = made["secret"].as_str().unwrap();
    assert_eq!(of("webhook-signature"), hmac(first, &signed));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!((&body["type"], &body["id"]), (&json!("backup_failed"), &json!(of("webhook-id"))));
    assert_eq!((&body["data"]["test"], &body["data"]["rule"]), (&json!(true), &json!("rule_backup_failed")));

    let rotated = admin.done("POST", &format!("webhooks/{id}/rotate"), json!({})).await;
    let second = rotated["secret"].as_str().unwrap();
    admin.done("POST", RULE, json!({})).await;
    let request = receiver.request(1).await;
    let of = |name: &str| request.header(name).unwrap().to_owned();
    let signed =
        [format!("{}.{}.", of("webhook-id"), of("webhook-timestamp")).as_bytes(), &request.body].concat();
    assert_eq!(of("webhook-signature"), format!("{} {}", hmac(second, &signed), hmac(first, &signed)));
    let rotated = admin.done("POST", &format!("webhooks/{id}/rotate"), json!({"overlap_seconds": 0})).await;
    assert_eq!(rotated["secret_before_until_ms"], Value::Null);
    let test = admin.done("POST", &format!("webhooks/{id}/test"), json!({})).await;
    assert_eq!((&test["ok"], &test["status"]), (&json!(true), &json!(200)));
    let third = receiver.request(2).await;
    assert_eq!(third.header("webhook-signature").unwrap().split(' ').count(), 1);
    let delivered = deliveries(&admin, &format!("to={id}&state=delivered"), 2).await;
    assert!(delivered.iter().all(|delivery| delivery["tries"] == 1), "{delivered:?}");
}

#[tokio::test]
async fn secrets_and_addresses_of_webhooks_are_never_shown_or_stored_in_clear() {
    let receiver = Upstream::start().await;
    receiver.always(Answer::json(500, "{}"));
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    let planted = "planted-path-of-a-webhook-5f1c";
    let body = json!({"name": "w", "url": format!("http://{}/{planted}?t=x", receiver.address())});
    let key = gateway.client().with("idempotency-key", "once").with("content-type", "application/json");
    let made = key.clone().send("POST", "/admin/api/webhooks", body.to_string().into()).await.unwrap().json();
    let again = key.send("POST", "/admin/api/webhooks", body.to_string().into()).await.unwrap().json();
    assert_eq!((&again["id"], &again["secret"]), (&made["id"], &Value::Null));
    let secret = made["secret"].as_str().unwrap().to_owned();
    let id = made["id"].as_str().unwrap();
    admin.done("POST", RULE, json!({})).await;
    receiver.request(0).await;
    let test = admin.done("POST", &format!("webhooks/{id}/test"), json!({})).await;
    assert_eq!(test["status"], 500);
    deliveries(&admin, &format!("to={id}&state=pending"), 1).await;
    let mut shown = gateway.log();
    for path in ["webhooks", "outbox", "audit", &format!("webhooks/{id}")] {
        shown += &admin.done("GET", path, Value::Null).await.to_string();
    }
    let (path, raw) = (planted.as_bytes(), secret.trim_start_matches("whsec_").as_bytes());
    assert!(!shown.contains(planted) && !shown.contains(&secret), "{shown}");
    for name in ["gateway.db", "gateway.db-wal"] {
        let bytes = std::fs::read(gateway.state().join(name)).unwrap_or_default();
        for text in [path, raw] {
            assert!(!bytes.windows(text.len()).any(|window| window == text), "{name}");
        }
    }
}

#[tokio::test]
async fn a_delivery_is_dead_after_ten_failures_until_it_is_retried() {
    let receiver = Upstream::start().await;
    receiver.always(Answer::error(503));
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    // The clock of the deliveries cannot be moved, so the failures are those of a worker, which have the same limit.
    admin.done("POST", RULE, json!({})).await;
    let listed = async |query: &str| {
        let page = admin.done("GET", &format!("outbox{query}"), Value::Null).await;
        page["data"].as_array().unwrap().len()
    };
    assert_eq!((listed("").await, listed("?to=workers").await), (0, 1), "no worker has claimed one yet");
    for failures in 1..=10 {
        let claimed = wait::eventually("a claim", async || {
            let claimed = admin.done("POST", "outbox/claim", json!({"worker": "mailer"})).await;
            if claimed["data"].as_array().unwrap().is_empty() {
                let waiting = admin.done("GET", "outbox?to=workers", Value::Null).await;
                let id = waiting["data"][0]["id"].as_str().unwrap().to_owned();
                assert_eq!(waiting["data"][0]["state"], "pending");
                // Skips the pause without new tries.
                skip_pause(&gateway, &id);
                return None;
            }
            Some(claimed)
        })
        .await;
        let (id, lease) = (claimed["data"][0]["id"].as_str().unwrap(), &claimed["lease"]);
        let wrong = admin.call("POST", &format!("outbox/{id}/failed"), json!({"lease": "other"})).await;
        assert_eq!(wrong.status, 409);
        let report = json!({"lease": lease, "error": "no mail server"});
        let failed = admin.done("POST", &format!("outbox/{id}/failed"), report).await;
        let want = if failures == 10 { "dead" } else { "pending" };
        assert_eq!((&failed["state"], &failed["tries"]), (&json!(want), &json!(failures)));
    }
    let dead = deliveries(&admin, "state=dead", 1).await.remove(0);
    let page = admin.done("GET", "outbox", Value::Null).await;
    assert_eq!((&page["unfinished"]["dead"], &dead["last_error"]), (&json!(1), &json!("no mail server")));
    let id = dead["id"].as_str().unwrap();
    let retried = admin.done("POST", &format!("outbox/{id}/retry"), json!({})).await;
    assert_eq!((&retried["state"], &retried["tries"]), (&json!("pending"), &json!(0)));
    let claimed = admin.done("POST", "outbox/claim", json!({"kinds": ["backup_failed"]})).await;
    let report = json!({"lease": claimed["lease"]});
    let done = admin.done("POST", &format!("outbox/{id}/delivered"), report.clone()).await;
    assert_eq!(done["state"], "delivered");
    assert_eq!(admin.call("POST", &format!("outbox/{id}/delivered"), report).await.status, 409);
    assert_eq!(admin.call("POST", &format!("outbox/{id}/retry"), json!({})).await.status, 409);
    let none = admin.done("POST", "outbox/claim", json!({})).await;
    assert_eq!((&none["data"], &none["lease"]), (&json!([]), &Value::Null));
}

/// Makes a delivery due now, in the database of the running gateway.
fn skip_pause(gateway: &Gateway, id: &str) {
    let db = rusqlite::Connection::open(gateway.state().join("gateway.db")).unwrap();
    db.busy_timeout(wait::PATIENCE).unwrap();
    db.execute("UPDATE outbox SET next_at_ms = 0 WHERE id = CAST(? AS INTEGER)", [id]).unwrap();
}

#[tokio::test]
async fn a_lease_that_ends_counts_as_a_failure() {
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    admin.done("POST", RULE, json!({})).await;
    let first = admin.done("POST", "outbox/claim", json!({"lease_seconds": 1})).await;
    let id = first["data"][0]["id"].as_str().unwrap();
    let held = admin.done("POST", "outbox/claim", json!({})).await;
    assert_eq!(held["data"], json!([]), "it is leased");
    let second = wait::eventually("the end of the lease", async || {
        let claimed = admin.done("POST", "outbox/claim", json!({})).await;
        claimed["data"].as_array().is_some_and(|data| !data.is_empty()).then_some(claimed)
    })
    .await;
    assert_eq!((second["data"][0]["id"].as_str(), &second["data"][0]["tries"]), (Some(id), &json!(1)));
    let late = admin.call("POST", &format!("outbox/{id}/delivered"), json!({"lease": first["lease"]})).await;
    assert_eq!(late.status, 409);
    for (body, param) in [
        (json!({"limit": 0}), "limit"),
        (json!({"limit": 101}), "limit"),
        (json!({"lease_seconds": 3_601}), "lease_seconds"),
        (json!({"kinds": ["none"]}), "kinds"),
    ] {
        let refused = admin.call("POST", "outbox/claim", body).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)));
    }
}

#[tokio::test]
async fn a_repeated_claim_gets_the_same_events_although_none_waits() {
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    admin.done("POST", RULE, json!({})).await;
    let repeated = Admin(gateway.client().with("idempotency-key", "claim-1"));
    let first = repeated.done("POST", "outbox/claim", json!({})).await;
    assert_eq!(first["data"].as_array().unwrap().len(), 1, "{first}");
    assert_eq!(repeated.done("POST", "outbox/claim", json!({})).await, first);
}

#[tokio::test]
async fn webhook_addresses_that_no_upstream_may_have_are_refused_and_redirects_are_not_followed() {
    let (receiver, elsewhere) = (Upstream::start().await, Upstream::start().await);
    let location = format!("http://{}/", elsewhere.address());
    receiver.always(Answer::whole(302, &[("location", &location)], ""));
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    for url in ["http://169.254.169.254/x", "http://metadata.google.internal/", "ftp://x/", "http://u:p@x/"] {
        let refused = admin.call("POST", "webhooks", json!({"name": "w", "url": url})).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("url")), "{url}");
    }
    let made = webhook(&admin, &receiver, json!({})).await;
    let test =
        admin.done("POST", &format!("webhooks/{}/test", made["id"].as_str().unwrap()), json!({})).await;
    assert_eq!((&test["ok"], &test["status"]), (&json!(false), &json!(302)));
    assert!(test["error"].as_str().unwrap().contains("redirects are not followed"), "{test}");
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn the_dry_run_of_deleting_a_webhook_counts_the_events_that_it_will_not_receive() {
    let receiver = Upstream::start().await;
    receiver.always(Answer::error(503));
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    let id = webhook(&admin, &receiver, json!({})).await["id"].as_str().unwrap().to_owned();
    let preview = format!("webhooks/{id}?dry_run=true");
    let before = admin.done("DELETE", &preview, Value::Null).await;
    assert_eq!(before["effects"]["warnings"], json!([]));
    for _ in 0..2 {
        admin.done("POST", RULE, json!({})).await;
    }
    let after = admin.done("DELETE", &preview, Value::Null).await;
    let want = json!([{"code": "deliveries_deleted", "param": null, "objects": [],
        "message": "2 events that were not delivered to it yet will not be."}]);
    assert_eq!(after["effects"]["warnings"], want);
    assert_eq!(
        admin.done("GET", &format!("outbox?to={id}"), Value::Null).await["data"].as_array().unwrap().len(),
        2
    );
}

#[tokio::test]
async fn a_slack_receiver_gets_one_line_of_text() {
    let receiver = Upstream::start().await;
    receiver.always(Answer::json(200, "ok"));
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    webhook(&admin, &receiver, json!({"format": "slack"})).await;
    admin.done("POST", RULE, json!({})).await;
    let body: Value = serde_json::from_slice(&receiver.request(0).await.body).unwrap();
    assert_eq!(
        body,
        json!({"text": "*Backup failed*: Test of the rule Backup failed. Nothing has happened."})
    );
}

#[tokio::test]
async fn a_webhook_in_order_holds_later_events_back_until_the_first_is_delivered() {
    let receiver = Upstream::start().await;
    let attempts = AtomicUsize::new(0);
    receiver.answering(move |_| {
        let is_first = attempts.fetch_add(1, Ordering::Relaxed) < 2;
        if is_first { Answer::error(503) } else { Answer::json(200, "{}") }
    });
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    let made = webhook(&admin, &receiver, json!({"in_order": true, "retry_seconds": 1})).await;
    for _ in 0..5 {
        admin.done("POST", RULE, json!({})).await;
    }
    deliveries(&admin, &format!("to={}&state=delivered", made["id"].as_str().unwrap()), 5).await;
    let sequences: Vec<i64> = receiver
        .requests()
        .iter()
        .map(|request| serde_json::from_slice::<Value>(&request.body).unwrap()["sequence"].as_i64().unwrap())
        .collect();
    assert_eq!(sequences, [1, 1, 1, 2, 3, 4, 5]);
}

/// Each webhook has its own tries.
#[tokio::test]
async fn receivers_that_hang_do_not_delay_others() {
    let (hanging, receiver) = (Upstream::start().await, Upstream::start().await);
    hanging.always(Answer::hang_forever());
    receiver.always(Answer::json(200, "{}"));
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    for _ in 0..8 {
        webhook(&admin, &hanging, json!({})).await;
    }
    for _ in 0..4 {
        admin.done("POST", RULE, json!({})).await;
    }
    // Every try of these webhooks is under way.
    hanging.request(31).await;
    webhook(&admin, &receiver, json!({})).await;
    admin.done("POST", RULE, json!({})).await;
    receiver.request(0).await;
    assert!(hanging.closed_count() < 16, "no try had to be given up first");
}

#[tokio::test]
async fn retry_after_of_a_receiver_postpones_the_next_try() {
    let receiver = Upstream::start().await;
    receiver.always(Answer::whole(429, &[("retry-after", "600")], "slow down"));
    let gateway = Gateway::start(&quiet()).await;
    let admin = Admin(gateway.client());
    let made = webhook(&admin, &receiver, json!({"retry_seconds": 1})).await;
    admin.done("POST", RULE, json!({})).await;
    let to = format!("to={}", made["id"].as_str().unwrap());
    let waiting = wait::eventually("a failure", async || {
        let page = admin.done("GET", &format!("outbox?{to}"), Value::Null).await;
        (page["data"][0]["last_status"] == 429).then(|| page["data"][0].clone())
    })
    .await;
    let pause_ms = waiting["next_at_ms"].as_u64().unwrap() - waiting["updated_at_ms"].as_u64().unwrap();
    assert!((590_000..=600_000).contains(&pause_ms), "{waiting}");
}

/// ADM-5: events that were committed reach a receiver that fails half the time, across kills with -9.
#[tokio::test]
async fn no_event_is_lost_across_kills_while_the_receiver_fails_half_the_time() {
    let (events, kills) = if is_full() { (1_000, 10) } else { (60, 3) };
    let receiver = Upstream::start().await;
    let attempts = AtomicUsize::new(0);
    receiver.answering(move |_| {
        // The bits of a multiplication change without a pattern, so no delivery meets only failures.
        let random = attempts.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let status = if random.is_multiple_of(2) { 503 } else { 200 };
        Answer::json(status, "{}")
    });
    let mut gateway = Setup::new(&quiet()).start().await;
    let mut admin = Admin(gateway.client());
    let made = webhook(&admin, &receiver, json!({"retry_seconds": 1})).await;
    let (mut committed, began) = (BTreeSet::new(), Instant::now());
    for number in 0..events {
        let fired = admin.done("POST", RULE, json!({})).await;
        committed.insert(fired["sequence"].as_i64().unwrap());
        if number % (events / kills) == events / kills - 1 {
            gateway = gateway.restart().await;
            admin = Admin(gateway.client());
        }
    }
    let (to, emitted) = (made["id"].as_str().unwrap(), began.elapsed());
    // The pauses double: of a thousand deliveries, some would wait for minutes. An operator retries these.
    wait::eventually_within(12 * wait::PATIENCE, "every delivery", async || {
        let mut unfinished = Vec::new();
        for state in ["pending", "dead"] {
            let path = format!("outbox?limit=500&to={to}&state={state}");
            unfinished
                .extend(admin.done("GET", &path, Value::Null).await["data"].as_array().unwrap().clone());
        }
        for late in unfinished.iter().filter(|delivery| delivery["tries"].as_u64() >= Some(4)) {
            // It may have been delivered meanwhile.
            admin.call("POST", &format!("outbox/{}/retry", late["id"].as_str().unwrap()), json!({})).await;
        }
        unfinished.is_empty().then_some(())
    })
    .await;
    let mut received: BTreeMap<i64, usize> = BTreeMap::new();
    for request in receiver.requests() {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        *received.entry(body["sequence"].as_i64().unwrap()).or_default() += 1;
    }
    let lost: Vec<_> = committed.iter().filter(|sequence| !received.contains_key(sequence)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let requests: usize = received.values().sum();
    figure(
        "ADM-5",
        format!(
            "{events} events, half of the tries fail, {kills} kills: 0 lost, {requests} tries; emitted in {} s, all \
             delivered after {} s",
            emitted.as_secs(),
            began.elapsed().as_secs()
        ),
    );
}
