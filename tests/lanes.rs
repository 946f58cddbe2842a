//! Several keys of one provider, through the real binary: what an upstream has against a key moves the request to the next
//! one, sessions and stored state stay with their key, and the API adds and removes keys without showing any.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::upstream::Received;
use crate::support::{Answer, Client, Gate, Gateway, Upstream, Yaml, chat, wait};

const KEYS: [&str; 3] =
    ["planted-key-number-one-aaaa", "planted-key-number-two-bbbb", "planted-key-number-three-cc"];

/// A provider `up` with these keys and the model `m`, behind the endpoint `line`.
fn yaml(upstream: &Upstream, keys: &[&str], policies: &str) -> String {
    format!(
        "providers:\n  up: {{type: compatible, base_url: '{}', models: [m], protocols: [chat, responses], \
         api_keys: [{}]}}\nendpoints:\n  line: {{failover: [{{provider: up, model: m}}]}}\npolicies:\n  defaults: \
         {{{policies}}}\n",
        upstream.base_url(),
        keys.join(", ")
    )
}

async fn gateway(upstream: &Upstream, policies: &str) -> Gateway {
    Setup::new(&Yaml::new()).yaml(yaml(upstream, &KEYS, policies)).start().await
}

const ONCE: &str = "retry_max_attempts: 1, circuit_failure_threshold: 2, circuit_cooldown_seconds: 3600";

fn key_of(request: &Received) -> String {
    request.header("authorization").unwrap().trim_start_matches("Bearer ").to_owned()
}

fn rejected() -> Answer {
    Answer::json(401, chat::error("Incorrect API key provided", "invalid_api_key"))
}

fn limited() -> Answer {
    Answer::whole(429, &[("retry-after", "60")], chat::error("slow down", "rate_limit_exceeded"))
}

/// Answers each request by its key.
fn by_key(upstream: &Upstream, answer: impl Fn(&str) -> Answer + Send + Sync + 'static) {
    upstream.answering(move |request| answer(&key_of(request)));
}

async fn of_session(client: &Client, selector: &str, session: &str) -> u16 {
    let body =
        json!({"model": selector, "affinity_key": session, "messages": [{"role": "user", "content": "hi"}]});
    client.chat(body.to_string()).await.status
}

/// Returns the key that each session was served with last.
fn keys_of_sessions(upstream: &Upstream, from: usize, sessions: &[String]) -> BTreeMap<String, String> {
    let requests = upstream.requests();
    sessions.iter().cloned().zip(requests[from..].iter().map(key_of)).collect()
}

#[tokio::test]
async fn a_revoked_and_a_limited_key_are_noticed_by_an_alert_and_by_no_client() {
    let upstream = Upstream::start().await;
    by_key(&upstream, |key| match key {
        key if key == KEYS[0] => rejected(),
        key if key == KEYS[1] => limited(),
        _ => Answer::completion("ok"),
    });
    let gateway = gateway(&upstream, ONCE).await;
    let admin = Admin(gateway.client());
    let rule = json!({"hold_seconds": 0, "clear_seconds": 0});
    admin.done("PATCH", "alert-rules/rule_credential_broken", rule).await;
    let mut credentials = BTreeSet::new();
    for round in 0..60 {
        let selector = if round % 2 == 0 { "line" } else { "up/m" };
        let body = if round % 3 == 0 { chat::stream_request(selector) } else { chat::request(selector) };
        let answer = if round % 3 == 0 {
            let body = json!({"model": selector, "affinity_key": format!("s{round}"),
                "messages": [{"role": "user", "content": "hi"}]});
            gateway.client().chat(body.to_string()).await
        } else {
            gateway.client().chat(body).await
        };
        assert_eq!(answer.status, 200, "{round}: {answer:?}");
        let attempts: usize = answer.header("x-llmgw-attempts").unwrap().parse().unwrap();
        assert!((1..=3).contains(&attempts), "{attempts}");
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        let steps = record["trace"].as_array().unwrap();
        let tried: Vec<&Value> = steps.iter().filter(|step| !step["start_us"].is_null()).collect();
        assert_eq!(tried.len(), attempts, "{record}");
        let last = tried.last().unwrap();
        assert_eq!((&last["credential"], &last["result"]), (&json!("c3"), &json!("served")), "{record}");
        credentials.extend(tried.iter().map(|step| step["credential"].to_string()));
    }
    assert_eq!(credentials.len(), 3, "{credentials:?}");
    let with = |key: &str| upstream.requests().iter().filter(|request| key_of(request) == key).count();
    assert!(with(KEYS[0]) <= 2 && with(KEYS[1]) == 1, "a circuit opens, and the model rests");
    assert_eq!(with(KEYS[2]), 60);
    for (place, key) in KEYS.iter().enumerate() {
        let path = format!("requests?attempted=up&credential=c{}&limit=500", place + 1);
        let listed = admin.done("GET", &path, Value::Null).await;
        assert_eq!(listed["data"].as_array().unwrap().len(), with(key), "{path}");
    }
    let other = admin.done("GET", "requests?attempted=other&credential=c3", Value::Null).await;
    assert_eq!(other["data"], json!([]), "the key of another provider");

    let alert = wait::eventually("an alert", async || {
        let alerts = admin.done("GET", "alerts?state=open", Value::Null).await;
        let all = alerts["data"].as_array().unwrap().clone();
        let of_kind: Vec<Value> =
            all.into_iter().filter(|alert| alert["kind"] == "credential_broken").collect();
        assert!(of_kind.len() < 2, "{of_kind:?}");
        of_kind.into_iter().next()
    })
    .await;
    assert_eq!(alert["object"], "up");
    let text = "The upstream rejects 1 of its 3 keys with status 401: c1 (…aaaa). Replace it, or remove it from api_keys.";
    assert_eq!(alert["text"], text);
    let alerts = admin.done("GET", "alerts?state=open", Value::Null).await;
    assert!(!alerts.to_string().contains("provider_down"), "the provider works: {alerts}");
    the_states_are_shown(&gateway, &admin).await;
}

/// The first key is rejected, the second one rests, and the third one serves.
async fn the_states_are_shown(gateway: &Gateway, admin: &Admin) {
    let shown = admin.done("GET", "providers/up", Value::Null).await;
    let states: Vec<_> =
        shown["api_keys"].as_array().unwrap().iter().map(|key| key["state"].clone()).collect();
    assert_eq!(
        (states, &shown["state"]),
        (vec![json!("rejected"), json!("resting"), json!("ready")], &json!("ready"))
    );
    assert!((1..=60_000).contains(&shown["api_keys"][1]["wait_ms"].as_u64().unwrap()), "{shown}");
    let health = admin.done("GET", "health/providers", Value::Null).await;
    let health = &health["data"][0];
    assert_eq!(
        (&health["circuit"]["state"], &health["keys"][0]["circuit"]["state"]),
        (&json!("closed"), &json!("open"))
    );
    assert_eq!(health["keys"][1]["rests"][0]["model"], "m", "{health}");
    assert_eq!(
        health["keys"].as_array().unwrap().iter().map(|key| key["running"].as_u64().unwrap()).sum::<u64>(),
        0
    );
    let metrics = gateway.client().get("/metrics").await.unwrap();
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("llmgw_open_circuits{provider=\"up\"} 1\n"), "{metrics}");
    assert!(!metrics.contains("llmgw_rest_seconds{"), "one key does not rest: {metrics}");

    let question = json!({"path": "/v1/chat/completions",
        "body": {"model": "line", "messages": [{"role": "user", "content": "hi"}]}});
    let explained = admin.done("POST", "explain", question).await;
    let keys = &explained["candidates"][0]["credentials"];
    let reasons: Vec<_> =
        keys.as_array().unwrap().iter().map(|key| (&key["credential"], &key["reason"])).collect();
    let (ready, resting, open) = (Value::Null, json!("resting"), json!("circuit_open"));
    assert_eq!(
        reasons,
        [(&json!("c3"), &ready), (&json!("c2"), &resting), (&json!("c1"), &open)],
        "{explained}"
    );
}

#[tokio::test]
async fn a_session_stays_with_its_key_and_a_removed_key_moves_only_its_own() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = gateway(&upstream, ONCE).await;
    let client = gateway.client();
    let sessions: Vec<String> = (0..1_000).map(|number| format!("session-{number}")).collect();
    let mut rounds = Vec::new();
    for selector in ["line", "up/m"] {
        let from = upstream.requests().len();
        for session in &sessions {
            assert_eq!(of_session(&client, selector, session).await, 200);
        }
        rounds.push(keys_of_sessions(&upstream, from, &sessions));
    }
    assert_eq!(rounds[0], rounds[1], "whatever the selector");
    for key in KEYS {
        let own = rounds[0].values().filter(|used| *used == key).count();
        assert!((270..400).contains(&own), "{key}: {own}");
    }
    let setup = gateway.kill().await;
    let kept = [KEYS[2], KEYS[0]];
    let gateway = setup.yaml(yaml(&upstream, &kept, ONCE)).start().await;
    let from = upstream.requests().len();
    for session in &sessions {
        assert_eq!(of_session(&gateway.client(), "line", session).await, 200);
    }
    for (session, key) in keys_of_sessions(&upstream, from, &sessions) {
        let before = &rounds[0][&session];
        assert!(*before == key || *before == KEYS[1], "{session} moved without need");
    }
}

#[tokio::test]
async fn requests_without_a_session_go_to_the_key_with_the_fewest_attempts() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.always(Answer::stream().chunk(chat::content("a")).wait(&gate).chunk(chat::done()).end());
    let gateway = gateway(&upstream, ONCE).await;
    let mut flows = Vec::new();
    for number in 0..9 {
        flows.push(gateway.client().chat_flow(chat::stream_request("up/m")).await);
        upstream.request(number).await;
    }
    let mut counts = BTreeMap::new();
    upstream.requests().iter().for_each(|request| *counts.entry(key_of(request)).or_insert(0) += 1);
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [3, 3, 3], "{counts:?}");
    drop(flows);
    let admin = Admin(gateway.client());
    wait::eventually("no attempt in flight", async || {
        let health = admin.done("GET", "health/providers", Value::Null).await;
        let running = |key: &Value| key["running"].as_u64().unwrap();
        let sum: u64 = health["data"][0]["keys"].as_array().unwrap().iter().map(running).sum();
        (sum == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn after_the_last_key_the_answer_is_the_upstreams_and_names_the_keys() {
    let upstream = Upstream::start().await;
    upstream.always(rejected());
    let gateway = gateway(&upstream, ONCE).await;
    for round in 0..2 {
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!((answer.status, answer.header("x-llmgw-attempts")), (401, Some("3")), "{round}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message, "Incorrect API key provided. All 3 keys of the provider 'up' were rejected.");
    }
    assert_eq!(upstream.requests().len(), 6);
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!(answer.status, 503, "all circuits are open: {answer:?}");
    let alerts = Admin(gateway.client()).done("GET", "health/providers", Value::Null).await;
    assert_eq!(alerts["data"][0]["circuit"]["state"], "open");
}

/// After a failure of the upstream itself, or a 403 about a permission, no other key is tried.
#[tokio::test]
async fn only_what_a_key_is_to_blame_for_tries_another_key() {
    let quota = || chat::error("You exceeded your current quota", "insufficient_quota");
    for (name, answer, status, keys) in [
        ("unauthorized", rejected(), 401, 3),
        ("no money", Answer::json(402, chat::error("pay", "payment_required")), 402, 3),
        ("used-up credit", Answer::json(429, quota()), 429, 3),
        ("an ended token", Answer::json(403, chat::error("The access token expired", "forbidden")), 403, 3),
        ("a permission", Answer::json(403, chat::error("You may not use this", "forbidden")), 403, 1),
        ("no such model", Answer::json(404, chat::error("no such model", "model_not_found")), 404, 1),
        ("broken", Answer::error(500), 500, 1),
        (
            "overloaded",
            Answer::whole(503, &[("retry-after", "60")], chat::error("busy", "overloaded")),
            503,
            1,
        ),
        ("a bad request", Answer::json(400, chat::error("bad field", "invalid_request_error")), 400, 1),
    ] {
        let upstream = Upstream::start().await;
        upstream.always(answer);
        let gateway = gateway(&upstream, ONCE).await;
        let answer = gateway.client().chat(chat::request("line")).await;
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        let used: BTreeSet<String> = upstream.requests().iter().map(key_of).collect();
        assert_eq!((used.len(), upstream.requests().len()), (keys, keys), "{name}");
    }
}

/// Ten keys: a request tries three of them, then the next target.
#[tokio::test]
async fn a_request_tries_at_most_three_keys_of_a_target() {
    let [upstream, next] = [Upstream::start().await, Upstream::start().await];
    upstream.always(rejected());
    next.always(Answer::completion("next"));
    let keys: Vec<String> = (0..10).map(|number| format!("planted-key-of-ten-{number}")).collect();
    let yaml = format!(
        "providers:\n  up: {{type: compatible, base_url: '{}', models: [m], api_keys: [{}]}}\n  next: {{type: compatible, \
         base_url: '{}', api_key: single, models: [m]}}\nendpoints:\n  line: {{failover: [{{provider: up, model: m}}, \
         {{provider: next, model: m}}]}}\npolicies:\n  defaults: {{circuit_failure_threshold: 1, circuit_cooldown_seconds: \
         3600}}\n",
        upstream.base_url(),
        keys.join(", "),
        next.base_url()
    );
    let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("next")));
    assert_eq!(answer.header("x-llmgw-attempts"), Some("4"));
    assert_eq!(upstream.requests().len(), 3);
    let alone = gateway.client().chat(chat::request("up/m")).await;
    let message = alone.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("6 of the 10 keys of the provider 'up' were rejected"), "{message}");
}

#[tokio::test]
async fn stored_responses_stay_with_the_key_that_made_them() {
    let upstream = Upstream::start().await;
    upstream.answering(|request| {
        let number = request.json()["input"].as_str().unwrap_or("0").to_owned();
        Answer::json(
            200,
            json!({"id": format!("resp_{number}"), "object": "response", "status": "completed", "model": "m",
                "output": [], "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}})
            .to_string(),
        )
    });
    let gateway = gateway(&upstream, ONCE).await;
    let ask =
        async |gateway: &Gateway, body: Value| gateway.client().post("/v1/responses", body.to_string()).await;
    for number in 0..30 {
        let answer = ask(&gateway, json!({"model": "line", "input": number.to_string()})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let made: Vec<String> = upstream.requests().iter().map(key_of).collect();
    assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), 3);
    let setup = gateway.kill().await;
    // The database knows what the killed process knew, and the order in the file does not matter.
    let turned = [KEYS[2], KEYS[1], KEYS[0]];
    let gateway = setup.yaml(yaml(&upstream, &turned, ONCE)).start().await;
    for (number, key) in made.iter().enumerate() {
        let from = upstream.requests().len();
        let body =
            json!({"model": "line", "input": "next", "previous_response_id": format!("resp_{number}")});
        let answer = wait::eventually("the origin", async || {
            let answer = ask(&gateway, body.clone()).await;
            (answer.status != 503).then_some(answer)
        })
        .await;
        assert_eq!(answer.status, 200, "{number}: {answer:?}");
        assert_eq!(key_of(&upstream.requests()[from]), *key, "{number}");
    }
    // A key that is gone takes its responses with it.
    let setup = gateway.kill().await;
    let gateway = setup.yaml(yaml(&upstream, &[KEYS[0], KEYS[2]], ONCE)).start().await;
    let lost = made.iter().position(|key| key == KEYS[1]).unwrap();
    let body = json!({"model": "line", "input": "next", "previous_response_id": format!("resp_{lost}")});
    let answer = wait::eventually("the origin", async || {
        let answer = ask(&gateway, body.clone()).await;
        (answer.status != 503).then_some(answer)
    })
    .await;
    assert_eq!(answer.error_code(), "previous_response_not_found", "{answer:?}");
}

/// The provider `made` has the keys `c1`, `c3` and `c4`.
async fn wrong_lists_are_refused(admin: &Admin, base_url: impl std::fmt::Display) {
    let base_url = base_url.to_string();
    for (keys, want) in [
        (json!([{"id": "c2"}, {"id": "c1"}]), "names no key of this provider"),
        (json!([{"id": "c1"}, KEYS[0]]), "is the same key"),
        (json!([]), "list 2 to 64"),
    ] {
        let refused = admin.call("PATCH", "providers/made", json!({"api_keys": keys})).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(text.contains(want) && text.contains("api_keys"), "{text}");
    }
    let both = json!({"id": "both", "type": "compatible", "base_url": base_url, "api_key": "a", "api_keys": ["b", "c"]});
    let refused = admin.call("POST", "providers", both).await;
    assert!(refused.status == 400 && String::from_utf8_lossy(&refused.body).contains("cannot be combined"));
}

/// `POST`, `PATCH`, `GET`: keys are added and removed one by one, survive a new encryption key and a backup, and no
/// answer, audit entry or file shows one.
#[tokio::test]
async fn keys_are_added_and_removed_through_the_api_and_never_shown() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let gateway = Setup::new(&Yaml::new()).start().await;
    let admin = Admin(gateway.client());
    let made = json!({"id": "made", "type": "compatible", "base_url": upstream.base_url(), "models": ["m"],
        "api_key": KEYS[0]});
    admin.done("POST", "providers", made).await;
    let ids = |shown: &Value| {
        let keys = shown["api_keys"].as_array().cloned().unwrap_or_default();
        keys.iter().map(|key| key["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The single key is `c1`.
    let change = json!({"api_keys": [{"id": "c1"}, {"key": KEYS[1]}, KEYS[2]]});
    let shown = admin.done("PATCH", "providers/made", change).await;
    assert_eq!(ids(&shown), ["c1", "c2", "c3"], "{shown}");
    assert_eq!(shown["api_keys"][0]["last_four"], "aaaa", "{shown}");
    assert_eq!(
        (&shown["credential"]["set"], &shown["credential"]["last_four"]),
        (&json!(true), &Value::Null)
    );
    let used = async |client: &Client| {
        let from = upstream.requests().len();
        for number in 0..60 {
            assert_eq!(of_session(client, "made/m", &format!("s{number}")).await, 200);
        }
        upstream.requests()[from..].iter().map(key_of).collect::<BTreeSet<_>>()
    };
    assert_eq!(used(&gateway.client()).await.len(), 3);
    // Without `api_keys`, a change keeps them all.
    let shown = admin.done("PATCH", "providers/made", json!({"timeout": 20})).await;
    assert_eq!(ids(&shown), ["c1", "c2", "c3"]);
    let shown =
        admin.done("PATCH", "providers/made", json!({"api_keys": [{"id": "c3"}, {"id": "c1"}]})).await;
    assert_eq!(ids(&shown), ["c3", "c1"]);
    assert_eq!(used(&gateway.client()).await, BTreeSet::from([KEYS[0].to_owned(), KEYS[2].to_owned()]));
    let shown = admin
        .done("PATCH", "providers/made", json!({"api_keys": [{"id": "c3"}, {"id": "c1"}, KEYS[1]]}))
        .await;
    assert_eq!(ids(&shown), ["c3", "c1", "c4"]);
    wrong_lists_are_refused(&admin, upstream.base_url()).await;

    let audit = admin.done("GET", "audit?limit=50", Value::Null).await.to_string();
    assert!(audit.contains("\"c4\""), "{audit}");
    for key in KEYS {
        assert!(!audit.contains(key) && !shown.to_string().contains(key));
    }
    let setup = gateway.kill().await;
    let new_key = "bmV3IGtleSBmb3IgdGhlIHRlc3RzIG9mIGxhbmVzISE=";
    let setup = setup.env("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY", new_key);
    setup.output_of(&["credentials", "rekey"], 0).await;
    let setup =
        setup.without("LLMGW_NEW_CREDENTIAL_ENCRYPTION_KEY").env("LLMGW_CREDENTIAL_ENCRYPTION_KEY", new_key);
    setup.output_of(&["backup", "create"], 0).await;
    let archives = std::fs::read_dir(setup.state().join("backups")).unwrap();
    let archive = archives
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|ending| ending == "zst"))
        .unwrap();
    let restored = setup.state().with_file_name("restored");
    setup.output_of(&["backup", "restore", archive.to_str().unwrap(), restored.to_str().unwrap()], 0).await;
    let exported = setup.output_of(&["export"], 0).await;
    assert!(exported.contains("api_keys:"), "{exported}");
    let gateway = setup.env("LLMGW_STATE_DIR", restored.to_str().unwrap()).start().await;
    assert_eq!(used(&gateway.client()).await.len(), 3, "every key opens with the new encryption key");
    // The last key that stays is a single one again.
    let admin = Admin(gateway.client());
    let shown = admin.done("PATCH", "providers/made", json!({"api_keys": [{"id": "c4"}]})).await;
    assert_eq!((shown.get("api_keys"), &shown["credential"]["last_four"]), (None, &json!("bbbb")), "{shown}");
    assert_eq!(used(&gateway.client()).await, BTreeSet::from([KEYS[1].to_owned()]));
}

/// What would have no effect is a fault that names its line.
#[tokio::test]
async fn faulty_lists_of_keys_are_refused_by_config_check() {
    let many: Vec<String> = (0..65).map(|number| format!("key-{number}")).collect();
    let many =
        format!("{{type: compatible, base_url: 'http://127.0.0.1:1', api_keys: [{}]}}", many.join(", "));
    for (provider, want) in [
        ("{type: compatible, base_url: 'http://127.0.0.1:1', api_keys: [a]}", "list 2 to 64"),
        (
            "{type: compatible, base_url: 'http://127.0.0.1:1', api_key: x, api_keys: [a, b]}",
            "cannot be combined",
        ),
        (
            "{type: compatible, base_url: 'http://127.0.0.1:1', api_keys: [a, a]}",
            "is the same key as an earlier one",
        ),
        ("{type: compatible, base_url: 'http://127.0.0.1:1', api_keys: [a, ' ']}", "is empty"),
        (
            "{type: compatible, base_url: 'http://127.0.0.1:1', api_keys: [a, '${ENV:NOT_SET_ANYWHERE}']}",
            "is not set",
        ),
        (&many, "has 65 keys; list 2 to 64"),
        ("{type: echo, api_keys: [a, b]}", "sends no credential"),
        ("{type: bedrock, region: eu-west-1, api_keys: ['AKIA1:s', 'AKIA2:']}", "must be AWS keys"),
        (
            "{type: azure_openai, base_url: 'https://x.openai.azure.com', api_keys: ['t:c:s', plain]}",
            "is an account that obtains tokens",
        ),
    ] {
        let setup = Setup::new(&Yaml::new()).yaml(format!("providers:\n  up:\n    {provider}\n"));
        let printed = setup.output_of(&["config", "check"], 78).await;
        assert!(printed.contains(want) && printed.contains("api_keys"), "{provider}: {printed}");
        assert!(printed.contains("config.yaml:3"), "{provider}: {printed}");
    }
    let good =
        "providers:\n  up:\n    {type: bedrock, region: eu-west-1, api_keys: ['AKIA1:s', 'AKIA2:t']}\n";
    let setup = Setup::new(&Yaml::new()).yaml(good);
    setup.output_of(&["config", "check"], 0).await;
    let shown = setup.output_of(&["config", "show"], 0).await;
    assert!(shown.contains("api_keys c2: ••••") && !shown.contains("AKIA"), "{shown}");
}
