//! Rests through the real binary: a rate limit of an upstream moves requests to other targets, opens no circuit, and never
//! refuses a request that the upstream would serve.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

const ONCE: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 2\ncircuit_cooldown_seconds: 3600";

/// Starts `count` upstreams behind the endpoint `line`, with the models `m` and `n` each.
async fn line(count: usize, policies: &str) -> (Gateway, Vec<Upstream>) {
    let mut upstreams = Vec::new();
    let mut yaml = Yaml::new().policies(policies);
    for place in 0..count {
        let upstream = Upstream::start().await;
        yaml = yaml.provider_with(&format!("p{place}"), upstream.base_url(), "models: [m, n]");
        upstreams.push(upstream);
    }
    let names: Vec<String> = (0..count).map(|place| format!("p{place}")).collect();
    let targets: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "m")).collect();
    (Gateway::start(&yaml.endpoint("line", &targets)).await, upstreams)
}

fn limited(status: u16, headers: &[(&str, &str)]) -> Answer {
    Answer::whole(status, headers, chat::error("slow down", "rate_limit_exceeded"))
}

async fn health(gateway: &Gateway, provider: usize) -> Value {
    let health = gateway.client().get("/admin/api/health/providers").await.unwrap().json();
    health["data"][provider].clone()
}

async fn provider_of(gateway: &Gateway, selector: &str) -> String {
    let answer = gateway.client().chat(chat::request(selector)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("x-llmgw-provider").unwrap().to_owned()
}

#[tokio::test]
async fn a_rate_limit_opens_no_circuit_and_the_only_target_is_always_asked() {
    let (gateway, upstreams) = line(1, ONCE).await;
    for (status, wait) in [(429, "30"), (429, "0"), (503, "30"), (529, "30")] {
        upstreams[0].always(limited(status, &[("retry-after", wait)]));
        let before = upstreams[0].requests().len();
        for round in 0..6 {
            let answer = gateway.client().chat(chat::request("line")).await;
            assert_eq!(
                (answer.status, answer.error_code().as_str()),
                (status, "rate_limit_exceeded"),
                "{round}"
            );
            assert_eq!(answer.header("retry-after"), Some(wait), "{status}");
        }
        assert_eq!(upstreams[0].requests().len(), before + 6, "{status}");
        let health = health(&gateway, 0).await;
        assert_eq!(
            (&health["circuit"]["state"], &health["circuit"]["failures"]),
            (&json!("closed"), &json!(0))
        );
    }
    upstreams[0].always(Answer::completion("ok"));
    assert_eq!(provider_of(&gateway, "line").await, "p0", "a rest refuses no request");
    assert_eq!(provider_of(&gateway, "p0/n").await, "p0");
}

#[tokio::test]
async fn used_up_credit_opens_the_circuit() {
    let (gateway, upstreams) = line(1, ONCE).await;
    let broke = chat::error("You exceeded your current quota", "insufficient_quota");
    upstreams[0].always(Answer::whole(429, &[("retry-after", "1")], broke));
    for status in [429, 429, 503] {
        assert_eq!(gateway.client().chat(chat::request("line")).await.status, status);
    }
    assert_eq!(health(&gateway, 0).await["rests"], json!([]));
}

/// A resting target is skipped, and that is shown everywhere.
#[tokio::test]
async fn a_resting_target_is_skipped_and_shown_until_its_rest_ends() {
    let (gateway, upstreams) = line(2, ONCE).await;
    upstreams[0].then(limited(429, &[("retry-after", "60")]));
    upstreams[0].always(Answer::completion("first"));
    upstreams[1].always(Answer::completion("second"));
    for _ in 0..3 {
        assert_eq!(provider_of(&gateway, "line").await, "p1");
    }
    assert_eq!(upstreams[0].requests().len(), 1, "the model rests");

    let answer = gateway.client().chat(chat::request("line")).await;
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    let skipped = &record["trace"][0];
    assert_eq!((&skipped["provider"], &skipped["result"]), (&json!("p0"), &json!("resting")), "{record}");
    assert!((1..=60_000).contains(&skipped["wait_ms"].as_u64().unwrap()), "{record}");
    assert_eq!((&skipped["circuit_wait_ms"], &record["failed_over"]), (&Value::Null, &json!(true)));

    let admin = Admin(gateway.client());
    let question = json!({"path": "/v1/chat/completions",
        "body": {"model": "line", "messages": [{"role": "user", "content": "hi"}]}});
    let explained = admin.done("POST", "explain", question).await;
    assert_eq!(explained["candidates"], json!([{"provider": "p1", "model": "m"}]), "{explained}");
    assert_eq!(explained["passed_over"][0]["reason"], "resting", "{explained}");
    assert!((1..=60_000).contains(&explained["passed_over"][0]["wait_ms"].as_u64().unwrap()), "{explained}");

    let health = health(&gateway, 0).await;
    let rest = &health["rests"][0];
    assert_eq!((&rest["model"], &rest["status"]), (&json!("m"), &json!(429)), "{health}");
    assert!(rest["ends_at_ms"].as_u64() > rest["since_ms"].as_u64(), "{health}");
    let metrics = gateway.client().get("/metrics").await.unwrap();
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("llmgw_rest_seconds{provider=\"p0\",model=\"m\"} "), "{metrics}");

    assert_eq!(provider_of(&gateway, "p0/n").await, "p0", "the other model does not rest");
    admin.done("POST", "principals", json!({"name": "Ada"})).await;
    let endpoint = json!({"name": "later", "failover": [{"provider": "p0", "model": "m"}, {"provider": "p1", "model": "m"}]});
    admin.done("POST", "endpoints", endpoint).await;
    assert_eq!(provider_of(&gateway, "later").await, "p1", "a rest survives a publication");
}

/// Every form in which an upstream names its wait.
#[tokio::test]
async fn a_target_rests_for_the_wait_that_its_upstream_names() {
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(61);
    let in_a_minute = end.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let in_rfc3339 = end.to_string();
    let ok = |headers: &[(&str, &str)]| Answer::whole(200, headers, chat::completion("ok"));
    for (name, answer, low_ms, high_ms) in [
        ("seconds", limited(429, &[("retry-after", "60")]), 50_000, 60_000),
        ("a date", limited(429, &[("retry-after", &in_a_minute)]), 40_000, 61_000),
        ("milliseconds", limited(429, &[("retry-after-ms", "60500"), ("retry-after", "61")]), 50_000, 60_500),
        ("529", limited(529, &[("retry-after", "60")]), 50_000, 60_000),
        (
            "a limit that is used up",
            limited(429, &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")]),
            350_000,
            360_000,
        ),
        ("the longest", limited(429, &[("retry-after", "3600")]), 590_000, 600_000),
        (
            "an answer",
            ok(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "59s")]),
            50_000,
            59_000,
        ),
        (
            "Anthropic's time",
            ok(&[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", &in_rfc3339),
            ]),
            2_000,
            61_000,
        ),
        ("no wait", limited(429, &[]), 1, 1_250),
    ] {
        let (gateway, upstreams) = line(2, ONCE).await;
        upstreams[0].always(answer);
        upstreams[1].always(Answer::completion("second"));
        gateway.client().chat(chat::request("line")).await;
        let rest = health(&gateway, 0).await["rests"][0]["wait_ms"].as_u64();
        assert!(
            rest.is_some_and(|ms| (low_ms..=high_ms).contains(&ms)) || name == "no wait",
            "{name}: {rest:?}"
        );
    }
}

#[tokio::test]
async fn a_rest_can_be_switched_off() {
    let policies = "retry_max_attempts: 1\nrate_limit_rest_max_seconds: 0";
    let (gateway, upstreams) = line(2, policies).await;
    upstreams[0].always(limited(429, &[("retry-after", "60")]));
    upstreams[1].always(Answer::completion("second"));
    for round in 1..4 {
        assert_eq!(provider_of(&gateway, "line").await, "p1");
        assert_eq!(upstreams[0].requests().len(), round);
    }
}

#[tokio::test]
async fn if_all_targets_rest_the_client_gets_429_with_the_shortest_wait() {
    let (gateway, upstreams) = line(2, ONCE).await;
    upstreams[0].always(limited(429, &[("retry-after", "60")]));
    upstreams[1].always(limited(429, &[("retry-after", "40")]));
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("40")), "the upstreams' own");
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (429, "rate_limited"));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((30..=40).contains(&wait), "{wait}");
    assert_eq!((upstreams[0].requests().len(), upstreams[1].requests().len()), (1, 1));
}

/// Targets whose limit is on requests at once name a short wait, and serve again as soon as any request ends.
#[tokio::test]
async fn short_rests_of_all_targets_refuse_no_request() {
    let (gateway, upstreams) = line(2, ONCE).await;
    for upstream in &upstreams {
        upstream.then(limited(429, &[("retry-after", "1")]));
        upstream.always(Answer::completion("ok"));
    }
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (429, "rate_limit_exceeded"));
    assert_eq!(provider_of(&gateway, "line").await, "p0");
}

#[tokio::test]
async fn a_request_moves_on_at_once_and_returns_to_a_limited_target_if_no_other_serves() {
    let policies = "retry_max_attempts: 2\nretry_initial_backoff_seconds: 0.01\ncircuit_failure_threshold: 0";
    let (gateway, upstreams) = line(2, policies).await;
    upstreams[0].then(limited(429, &[("retry-after-ms", "300")])).always(Answer::completion("first"));
    upstreams[1].always(Answer::error(401));
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p0")));
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    let places: Vec<_> =
        record["trace"].as_array().unwrap().iter().map(|step| step["provider"].clone()).collect();
    assert_eq!(places, ["p0", "p1", "p0"], "{record}");
    let (first, last) = (&record["trace"][0], &record["trace"][2]);
    let end_us = first["start_us"].as_u64().unwrap() + first["spent_us"].as_u64().unwrap();
    assert!(last["start_us"].as_u64().unwrap() >= end_us + 300_000, "{record}");
}

/// An upstream that refuses a part of a crowd: each answer of the gateway is one that the upstream gave.
#[tokio::test]
async fn a_crowd_at_a_limited_upstream_gets_no_answer_of_the_gateway() {
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 2";
    let (gateway, upstreams) = line(1, policies).await;
    let turn = std::sync::atomic::AtomicUsize::new(0);
    upstreams[0].answering(move |_| match turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 4 {
        0 => Answer::completion("ok"),
        _ => limited(429, &[("retry-after", "1")]),
    });
    let client = gateway.client();
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..128 {
        let client = client.clone();
        crowd.spawn(async move { client.chat(chat::request("line")).await });
    }
    let answers = crowd.join_all().await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(served, 32);
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!((answer.status, answer.error_code().as_str()), (429, "rate_limit_exceeded"));
    }
    assert_eq!(upstreams[0].requests().len(), 128);
}
