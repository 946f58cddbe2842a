//! The order of an endpoint's targets: what the record and `explain` say, sessions that stay, and counts of
//! attempts in flight that do not drift (FAIL-2, FAIL-8).

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::figure::{figure, is_full};
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

const PROVIDERS: usize = 5;

/// Five providers of models with different prices behind one upstream, and the endpoints `text`.
fn yaml(upstream: &Upstream, endpoints: &str) -> String {
    let mut yaml =
        "policies: {defaults: {retry_max_attempts: 1, circuit_failure_threshold: 0}}\nproviders:\n"
            .to_owned();
    for place in 0..PROVIDERS {
        let prices = format!("{{input: {}, output: {}}}", (place * 3) % PROVIDERS, place + 1);
        let _ = writeln!(
            yaml,
            "  p{place}: {{type: compatible, base_url: '{}', models: [{{id: m, prices: {prices}}}]}}",
            upstream.base_url()
        );
    }
    format!("{yaml}endpoints:\n{endpoints}")
}

fn targets(steps: &Value) -> Vec<String> {
    let provider = |step: &Value| step["provider"].as_str().unwrap().to_owned();
    steps.as_array().unwrap_or_else(|| panic!("{steps}")).iter().map(provider).collect()
}

/// M-053: what decided is in the explanation, of drafts too.
#[tokio::test]
async fn an_explanation_says_what_decided() {
    let upstream = Upstream::start().await;
    let line = "  line: {failover: [{provider: p0, model: m}, {provider: p1, model: m}]}\n";
    let gateway = Setup::new(&Yaml::new()).yaml(yaml(&upstream, line)).start().await;
    let admin = Admin(gateway.client());
    let explain = async |draft: Value| {
        let mut body: Value = serde_json::from_str(&chat::request("line")).unwrap();
        body["max_tokens"] = json!(100);
        let question = json!({"path": "/v1/chat/completions", "body": body, "draft": draft});
        admin.done("POST", "explain", question).await
    };
    let plain = explain(Value::Null).await;
    assert_eq!(
        (&plain["choice"], &plain["candidates"][0]),
        (&Value::Null, &json!({"provider": "p0", "model": "m"}))
    );
    let members = |weight: Value| {
        json!([{"provider": "p0", "model": "m", "weight": weight}, {"provider": "p1", "model": "m"},
            {"provider": "p2", "model": "m", "tier": 2}])
    };
    let weighted = explain(json!({"name": "line", "order": "weighted", "failover": members(json!(3))})).await;
    assert_eq!(weighted["choice"], json!({"order": "weighted", "chosen_by": "order"}));
    let mut candidates = weighted["candidates"].as_array().unwrap().clone();
    candidates.sort_by_key(|candidate| candidate["provider"].as_str().unwrap().to_owned());
    let want = json!([
        {"provider": "p0", "model": "m", "tier": 1, "weight": 3, "share": 0.75},
        {"provider": "p1", "model": "m", "tier": 1, "weight": 1, "share": 0.25},
        {"provider": "p2", "model": "m", "tier": 2, "weight": 1, "share": 1.0},
    ]);
    assert_eq!(json!(candidates), want);
    let busy = explain(json!({"name": "line", "order": "least_busy", "failover": members(json!(0))})).await;
    assert_eq!(busy["candidates"][1]["in_flight"], 0);
    let order: Vec<_> = targets(&busy["candidates"]);
    assert_eq!(order, ["p1", "p0", "p2"], "a draining target is last in its tier");
    let cheap = explain(json!({"name": "line", "order": "cheapest", "failover": members(json!(0))})).await;
    assert!(cheap["candidates"][0]["cost_micro_usd"].as_f64().unwrap() > 0.0, "{cheap}");
}

/// A session of an agent stays with its target, moves with a failover, and stays there; the record says why.
#[tokio::test]
async fn a_session_that_an_agent_names_stays_and_moves_with_a_failover() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let line = "  line: {order: least_busy, failover: [{provider: p0, model: m}, {provider: p1, model: m}, \
                {provider: p2, model: m}]}\n";
    let gateway = Setup::new(&Yaml::new()).yaml(yaml(&upstream, line)).start().await;
    let ask = async |client: &Client| {
        let answer = client.chat(chat::request("line")).await;
        assert_eq!(answer.status, 200);
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        (record["provider"].as_str().unwrap().to_owned(), record["chosen_by"].as_str().unwrap().to_owned())
    };
    for header in ["x-claude-code-session-id", "session_id", "x-opencode-session"] {
        let client = gateway.client().with(header, "3f2a");
        let (home, by) = ask(&client).await;
        if header == "x-claude-code-session-id" {
            assert_eq!(by, "order");
        }
        for _ in 0..5 {
            assert_eq!(ask(&client).await, (home.clone(), "session".to_owned()), "{header}");
        }
    }
    let client = gateway.client().with("x-claude-code-session-id", "3f2a");
    let (home, _) = ask(&client).await;
    upstream.then(Answer::whole(429, &[("retry-after", "1")], chat::error("slow down", "rate_limit")));
    let (moved, by) = ask(&client).await;
    assert_ne!(moved, home);
    assert_eq!(by, "session");
    for _ in 0..3 {
        assert_eq!(ask(&client).await, (moved.clone(), "session".to_owned()));
    }
    let found =
        Admin(gateway.client()).done("GET", "requests?chosen_by=session&limit=100", Value::Null).await;
    let found = found["data"].as_array().unwrap();
    assert!(
        found.len() >= 18 && found.iter().all(|record| record["chosen_by"] == "session"),
        "{}",
        found.len()
    );
    let others = Admin(gateway.client()).done("GET", "requests?chosen_by=order", Value::Null).await;
    assert_eq!(others["data"].as_array().unwrap().len(), 1);
}

/// `prompt_cache_key` names a session too, and a restart keeps the targets of sessions.
#[tokio::test]
async fn sessions_stay_over_a_restart() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let line = "  line: {order: fastest, failover: [{provider: p0, model: m}, {provider: p1, model: m}, \
                {provider: p2, model: m}, {provider: p3, model: m}]}\n";
    let gateway = Setup::new(&Yaml::new()).yaml(yaml(&upstream, line)).start().await;
    let served = async |gateway: &Gateway, session: usize| {
        let mut body: Value = serde_json::from_str(&chat::request("line")).unwrap();
        body["prompt_cache_key"] = json!(format!("session-{session}"));
        let answer = gateway.client().chat(body.to_string()).await;
        answer.header("x-llmgw-provider").unwrap().to_owned()
    };
    let mut homes = Vec::new();
    for session in 0..40 {
        homes.push(served(&gateway, session).await);
    }
    assert!(homes.iter().any(|home| *home != homes[0]), "the sessions spread");
    let gateway = gateway.restart_in_order().await;
    for (session, home) in homes.iter().enumerate() {
        assert_eq!(served(&gateway, session).await, *home, "session {session}");
    }
}

/// Streams count until their last byte, and a client that leaves ends its count.
#[tokio::test]
async fn nothing_is_in_flight_after_streams_were_cancelled() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::stream().chunk(chat::role()).chunk(chat::content("one")).hang());
    let line =
        "  line: {order: least_busy, failover: [{provider: p0, model: m}, {provider: p1, model: m}]}\n";
    let gateway = Setup::new(&Yaml::new()).yaml(yaml(&upstream, line)).start().await;
    let admin = Admin(gateway.client());
    let in_flight = async || -> Vec<u64> {
        let question = json!({"path": "/v1/chat/completions", "body": {"model": "line", "messages": []}});
        let explained = admin.done("POST", "explain", question).await;
        let counts = explained["candidates"].as_array().unwrap();
        counts.iter().map(|candidate| candidate["in_flight"].as_u64().unwrap()).collect()
    };
    let rounds = if is_full() { 100 } else { 3 };
    for round in 0..rounds {
        let mut flows = Vec::new();
        for number in 1..=100_u64 {
            flows.push(gateway.client().chat_flow(chat::stream_request("line")).await);
            if round > 2 && number != 100 {
                continue;
            }
            let mut counts = in_flight().await;
            counts.sort_unstable();
            assert_eq!(counts, [number / 2, number.div_ceil(2)], "the least busy target is next");
        }
        drop(flows);
        wait::eventually("nothing is in flight", async || (in_flight().await == [0, 0]).then_some(())).await;
    }
    figure("F1", format!("in flight after {} cancelled streams: 0", 100 * rounds));
}

/// The API refuses what has no effect, and keeps an order over a restart.
#[tokio::test]
async fn an_order_of_the_api_is_checked_stored_and_audited() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("hello"));
    let gateway = Setup::new(&Yaml::new())
        .yaml(yaml(&upstream, "  rest: {failover: [{provider: p0, model: m}]}\n"))
        .start()
        .await;
    let admin = Admin(gateway.client());
    let member = |place: usize, settings: Value| {
        let mut member = json!({"provider": format!("p{place}"), "model": "m"});
        member.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        member
    };
    let two = |settings: Value| json!([member(0, settings), member(1, json!({}))]);
    for (body, param) in [
        (json!({"failover": two(json!({"weight": 1}))}), "failover[0].weight"),
        (json!({"failover": two(json!({"tier": 1}))}), "failover[0].tier"),
        (json!({"order": "weighted", "failover": two(json!({"weight": 1001}))}), "failover[0].weight"),
        (json!({"order": "weighted", "failover": two(json!({"tier": 0}))}), "failover[0].tier"),
        (json!({"order": "weighted", "failover": two(json!({"tier": 10}))}), "failover[0].tier"),
        (json!({"order": "cheapest", "failover": two(json!({"weight": 2}))}), "failover[0].weight"),
        (json!({"order": "weighted", "failover": [member(0, json!({}))]}), "order"),
        (json!({"sticky": true, "failover": [member(0, json!({}))]}), "sticky"),
        (json!({"order": "random", "failover": two(json!({}))}), "order"),
        (
            json!({"order": "weighted", "failover": [member(0, json!({})), member(0, json!({"weight": 2}))]}),
            "failover[1]",
        ),
    ] {
        let mut body = body;
        body["name"] = json!("own");
        let answer = admin.call("POST", "endpoints", body.clone()).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{body}");
    }
    let content = json!({"order": "weighted", "sticky": false, "also": ["own-*"], "preamble": null,
        "failover": [member(0, json!({"weight": 3})), member(1, json!({"tier": 2}))]});
    let mut body = content.clone();
    body["name"] = json!("own");
    admin.done("POST", "endpoints?dry_run=true", body.clone()).await;
    assert_eq!(admin.call("GET", "endpoints/own", Value::Null).await.status, 404);
    admin.done("POST", "endpoints", body).await;
    let audited = admin.done("GET", "audit?limit=1", Value::Null).await;
    assert_eq!(audited["data"][0]["detail"]["after"]["order"], "weighted", "{audited}");
    let gateway = gateway.restart().await;
    let shown = Admin(gateway.client()).done("GET", "endpoints/own", Value::Null).await;
    for (member, value) in content.as_object().unwrap() {
        assert_eq!(&shown[member], value, "{member}");
    }
    let answer = gateway.client().chat(chat::request("own-2")).await;
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    let choice = (&record["provider"], &record["order"], &record["chosen_by"]);
    assert_eq!(choice, (&json!("p0"), &json!("weighted"), &json!("order")));
    // Without the fields, an endpoint is a plain list.
    let plain = json!({"failover": two(json!({}))});
    Admin(gateway.client()).done("PUT", "endpoints/own", plain).await;
    let answer = gateway.client().chat(chat::request("own")).await;
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!((record.get("order"), record.get("chosen_by")), (None, None));
}
