//! Targets with several keys, in tiers, behave as those with one: rests after rate limits, and the account of conversations over a
//! restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::admin::Admin;
use crate::support::figure::{figure, is_full};
use crate::support::gateway::Setup;
use crate::support::upstream::Received;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat};

/// The providers with their tiers and keys. The first letter of a key is that of its provider.
const PROVIDERS: [(&str, u8, &[&str]); 3] = [
    ("a", 1, &["a-key-number-one-of-two", "a-key-number-two-of-two"]),
    ("b", 1, &["b-key-number-one-of-one"]),
    ("c", 2, &["c-key-number-one-of-two", "c-key-number-two-of-two"]),
];

/// Starts a gateway whose endpoint `line` has all providers, which are one upstream, in this order within their tiers.
async fn start(upstream: &Upstream, order: &str) -> Gateway {
    let (mut providers, mut failover) = (json!({}), Vec::new());
    for (name, tier, keys) in PROVIDERS {
        let mut provider = json!({"type": "compatible", "base_url": upstream.base_url(), "models": ["m"],
            "protocols": ["chat", "responses"]});
        match keys {
            [only] => provider["api_key"] = json!(only),
            several => provider["api_keys"] = json!(several),
        }
        providers[name] = provider;
        failover.push(json!({"provider": name, "model": "m", "tier": tier}));
    }
    let config = json!({"providers": providers, "endpoints": {"line": {"order": order, "failover": failover}},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 2}}});
    Setup::new(&Yaml::new()).yaml(config.to_string()).start().await
}

fn key_of(request: &Received) -> String {
    request.header("authorization").unwrap().trim_start_matches("Bearer ").to_owned()
}

/// The requests that a key has served and those that it has refused.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    served: usize,
    refused: usize,
}

type Window = Arc<Mutex<BTreeMap<String, Used>>>;

/// The number of requests that each key may make in its window.
const ALLOWED: usize = 20;

/// Lets the upstream allow each key [`ALLOWED`] requests. `announces` is true if the last answer reports that nothing is left.
/// The windows end after a minute, that of the first key after 40 s.
fn allow(upstream: &Upstream, announces: bool) -> Window {
    let window = Window::default();
    let used = Arc::clone(&window);
    upstream.answering(move |request| {
        let key = key_of(request);
        let seconds = if key == PROVIDERS[0].2[0] { "40" } else { "60" };
        let mut used = used.lock().unwrap();
        let used = used.entry(key).or_default();
        if used.served == ALLOWED {
            used.refused += 1;
            let headers = [("retry-after", seconds)];
            return Answer::whole(429, &headers, chat::error("slow down", "rate_limit_exceeded"));
        }
        used.served += 1;
        let (left, reset) = ((ALLOWED - used.served).to_string(), format!("{seconds}s"));
        let headers =
            [("x-ratelimit-remaining-requests", left.as_str()), ("x-ratelimit-reset-requests", &reset)];
        Answer::whole(200, if announces { &headers } else { &[] }, chat::completion("ok"))
    });
    window
}

#[tokio::test]
async fn rate_limits_of_keys_rest_them_tier_by_tier_and_no_client_gets_429_before_all_rest() {
    for (order, announces) in
        [("weighted", true), ("least_busy", true), ("fastest", false), ("weighted", false)]
    {
        let upstream = Upstream::start().await;
        let window = allow(&upstream, announces);
        let gateway = start(&upstream, order).await;
        let ask = async || gateway.client().chat(chat::request("line")).await;
        for number in 0..5 * ALLOWED {
            if number == 10 * 3 {
                let admin = Admin(gateway.client());
                admin.done("POST", "principals", json!({"name": "Ada"})).await;
            }
            let answer = ask().await;
            assert_eq!(answer.status, 200, "{order}, request {number}: {answer:?}");
            let served_by = answer.header("x-llmgw-provider").unwrap();
            assert_eq!(served_by == "c", number >= 3 * ALLOWED, "{order}, request {number}: {served_by}");
        }
        let used = window.lock().unwrap().clone();
        let refused: usize = used.values().map(|used| used.refused).sum();
        assert_eq!(used.len(), 5, "{order}: {used:?}");
        assert!(used.values().all(|used| used.served == ALLOWED && used.refused <= 1), "{order}: {used:?}");
        assert!(refused == 0 || !announces, "{order}: {used:?}");
        figure("F2", format!("5 keys in 2 tiers, {order}: 100 served, {refused} attempts refused, no 429"));
        let mut last = ask().await;
        // What was announced is no refusal: such keys are asked once more before the gateway refuses by itself.
        for _ in 0..5 {
            assert_eq!(last.status, 429, "{order}: {last:?}");
            last = ask().await;
        }
        let sent = upstream.requests().len();
        let wait: u64 = last.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(
            (last.error_code().as_str(), (20..=40).contains(&wait)),
            ("rate_limited", true),
            "{order}: {last:?}"
        );
        ask().await;
        assert_eq!(upstream.requests().len(), sent, "{order}: all keys rest");
    }
}

fn reasoning(key: &str, conversation: &str) -> Value {
    let sealed = format!("gAAAAA-{key}-{conversation}-").repeat(10);
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed})
}

/// Makes the upstream an account for each key, which knows its own responses and reasoning only.
fn keep_accounts(upstream: &Upstream) {
    upstream.answering(|request| {
        let (key, body) = (key_of(request), request.json());
        let previous = body["previous_response_id"].as_str();
        if previous.is_some_and(|id| !id.contains(&key)) {
            return Answer::json(
                404,
                chat::error("Previous response not found", "previous_response_not_found"),
            );
        }
        let item = body["input"][0]["encrypted_content"].as_str();
        if item.is_some_and(|sealed| !sealed.contains(&key)) {
            return Answer::json(
                400,
                chat::error("The content could not be verified", "invalid_encrypted_content"),
            );
        }
        let conversation = body["metadata"]["conversation"].as_str().unwrap_or("next");
        let answer = json!({"id": format!("resp_{key}_{conversation}"), "object": "response", "created_at": 1,
            "status": "completed", "error": null, "model": "m", "output": [reasoning(&key, conversation)],
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}});
        Answer::json(200, answer.to_string())
    });
}

/// Returns the status of the answer and the ID of the response.
async fn respond(client: &Client, members: &Value) -> (u16, String) {
    let answer = client.post("/v1/responses", members.to_string()).await;
    (answer.status, answer.json()["id"].as_str().unwrap_or_default().to_owned())
}

/// Goes on with a conversation at the endpoint by the ID of its response and by its reasoning. Both must reach the key that made
/// them, which the upstream checks.
async fn go_on(client: &Client, number: usize, id: &str) {
    let key = id.trim_start_matches("resp_").split('_').next().unwrap();
    let item = reasoning(key, &number.to_string());
    let stored = json!({"model": "line", "input": "go on", "previous_response_id": id});
    for members in [stored, json!({"model": "line", "input": [item]})] {
        let (status, next) = respond(client, &members).await;
        assert!(
            status == 200 && next.starts_with(&format!("resp_{key}_")),
            "{number}: {status}, {id}, {next}, {members}"
        );
    }
}

#[tokio::test]
async fn conversations_stay_with_the_key_of_any_tier_over_a_restart() {
    let count = if is_full() { 1_000 } else { 100 };
    let upstream = Upstream::start().await;
    keep_accounts(&upstream);
    let mut gateway = start(&upstream, "least_busy").await;
    let client = gateway.client().with("content-type", "application/json");
    let mut asking = JoinSet::new();
    for number in 0..count {
        let model = ["a/m", "b/m", "c/m", "line"][number % 4];
        let client = client.clone();
        let first = json!({"model": model, "input": "hi", "metadata": {"conversation": number.to_string()}});
        asking.spawn(async move { (number, respond(&client, &first).await) });
    }
    let made = asking.join_all().await;
    assert!(made.iter().all(|(_, (status, _))| *status == 200));
    let mut keys: Vec<String> = upstream.requests().iter().map(key_of).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 5, "each key has made some: {keys:?}");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
    let gateway = gateway.kill().await.start().await;
    let client = gateway.client().with("content-type", "application/json");
    let mut asking = JoinSet::new();
    for (number, (_, id)) in made {
        let client = client.clone();
        asking.spawn(async move { go_on(&client, number, &id).await });
    }
    asking.join_all().await;
    figure(
        "F4",
        format!("{count} conversations at 5 keys in 2 tiers go on after a restart: 0 at another key"),
    );
}
