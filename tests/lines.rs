//! Requests that wait in the line of a quota instead of getting 429: the limit is exact and never idle, turns go round by
//! project, and nothing is left of a request whose client leaves.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::admin::{Admin, NewKey};
use crate::support::client::Whole;
use crate::support::figure::{figure, promised, times};
use crate::support::gateway::Setup;
use crate::support::raw::{self, Raw};
use crate::support::{Answer, Client, Gate, Gateway, Upstream, Yaml, chat, clock, wait};

/// The maximum time from the moment at which a client leaves until the next one is at the upstream.
const LEAVE_MAX: Duration = Duration::from_millis(100);

/// A gateway whose provider `up` answers behind a gate, with keys of two projects.
struct Rig {
    gateway: Gateway,
    upstream: Upstream,
    gate: Gate,
    keys: [NewKey; 2],
}

fn gated(gate: &Gate) -> Answer {
    let mut gated = Answer::new().wait(gate);
    gated.steps.extend(Answer::completion("ok").steps);
    gated
}

impl Rig {
    async fn start() -> Self {
        let (upstream, gate) = (Upstream::start().await, Gate::new());
        upstream.always(gated(&gate));
        let setup = Setup::new(&Yaml::one(upstream.base_url()));
        Self::with(setup, upstream, gate).await
    }

    async fn with(setup: Setup, upstream: Upstream, gate: Gate) -> Self {
        let gateway = setup.start().await;
        let admin = Admin(gateway.client());
        let one = admin.project("one").await;
        let other = admin.project("other").await;
        let keys = [admin.key(json!({"project": one})).await, admin.key(json!({"project": other})).await];
        Self { gateway, upstream, gate, keys }
    }

    fn admin(&self) -> Admin {
        Admin(self.gateway.client())
    }

    fn client(&self, key: usize) -> Client {
        Client::new(self.gateway.address(), Some(&self.keys[key].key))
    }

    /// Limits the provider `id`.
    async fn limit(&self, id: &str, limit: u64, wait_ms: u64) -> String {
        let quota = json!({"subject": {"kind": "provider", "id": id}, "metric": "concurrent_requests",
            "limit": limit, "wait_ms": wait_ms});
        self.admin().create("quotas", quota).await
    }

    /// Sends a request in the background.
    fn ask(&self, key: usize, body: String) -> JoinHandle<Whole> {
        let client = self.client(key).with("content-type", "application/json");
        tokio::spawn(async move { client.send("POST", "/v1/chat/completions", body.into()).await.unwrap() })
    }

    /// Sends a request whose connection the test closes.
    async fn raw(&self, key: usize) -> Raw {
        let mut client = Raw::open(self.gateway.address()).await;
        client.send(raw::post(&self.keys[key].key, "", &chat::request("m"))).await;
        client
    }

    /// Like [`raw`](Self::raw), with its number in the body.
    async fn numbered(&self, number: usize) -> Raw {
        let mut body: Value = serde_json::from_str(&chat::request("m")).unwrap();
        body["user"] = json!(format!("client {number}"));
        let mut client = Raw::open(self.gateway.address()).await;
        client.send(raw::post(&self.keys[0].key, "", &body.to_string())).await;
        client
    }

    async fn waiting(&self, quota: &str) -> u64 {
        self.admin().done("GET", &format!("quotas/{quota}"), Value::Null).await["waiting"].as_u64().unwrap()
    }

    async fn waits(&self, quota: &str, count: u64) {
        wait::eventually(&format!("{count} waiting"), async || {
            (self.waiting(quota).await == count).then_some(())
        })
        .await;
    }

    async fn arrived(&self, count: usize) {
        wait::eventually(&format!("{count} requests at the upstream"), async || {
            (self.upstream.requests().len() >= count).then_some(())
        })
        .await;
    }

    /// Explains a request of the first key.
    async fn explained(&self, model: &str) -> Value {
        let body: Value = serde_json::from_str(&chat::request(model)).unwrap();
        let question = json!({"key_id": self.keys[0].id, "path": "/v1/chat/completions", "body": body});
        self.admin().done("POST", "explain", question).await
    }

    async fn metric(&self, line: &str) -> String {
        let page = self.gateway.client().get("/metrics").await.unwrap();
        let page = String::from_utf8(page.body.to_vec()).unwrap();
        let found = page.lines().find_map(|text| text.strip_prefix(line));
        found.unwrap_or_else(|| panic!("no {line} in {page}")).trim().to_owned()
    }
}

#[tokio::test]
async fn five_hundred_clients_at_a_limit_of_8_are_all_served_and_no_slot_is_idle() {
    let rig = Rig::start().await;
    let quota = rig.limit("up", 8, 300_000).await;
    let mut clients: JoinSet<u16> = JoinSet::new();
    for number in 0..500 {
        let client = rig.client(number % 2).with("content-type", "application/json");
        clients.spawn(async move {
            let body = chat::request("m").into();
            client.send("POST", "/v1/chat/completions", body).await.unwrap().status
        });
    }
    rig.waits(&quota, 492).await;
    assert_eq!(rig.metric(&format!("llmgw_waiting_requests{{quota=\"{quota}\"}}")).await, "492");
    let mut passed = 0;
    while passed < 500 {
        rig.arrived((passed + 8).min(500)).await;
        assert!(rig.upstream.requests().len() <= passed + 8, "the limit is exceeded after {passed}");
        let more = if passed % 3 == 0 { 1 } else { 7 }.min(500 - passed);
        rig.gate.open(more);
        passed += more;
    }
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    rig.waits(&quota, 0).await;
    let standing = rig.admin().done("GET", &format!("quotas/{quota}"), Value::Null).await;
    assert_eq!((&standing["reserved"], &standing["wait_ms"]), (&json!(0), &json!(300_000)));
    assert_eq!(rig.metric("llmgw_queue_seconds_count").await, "492");
}

#[tokio::test]
async fn a_project_with_500_in_the_line_delays_another_by_two_requests_at_most() {
    let rig = Rig::start().await;
    let quota = rig.limit("up", 1, 300_000).await;
    let greedy: Vec<_> = (0..501).map(|_| rig.ask(0, chat::request("m"))).collect();
    rig.waits(&quota, 500).await;
    for round in 0..5 {
        let before = rig.upstream.requests().len();
        let modest = json!({"model": "m", "messages": [{"role": "user", "content": "modest"}]});
        let modest = rig.ask(1, modest.to_string());
        rig.waits(&quota, 501 - u64::try_from(before - 1).unwrap() + round).await;
        rig.gate.open(2);
        rig.arrived(before + 2).await;
        let arrived = rig.upstream.requests();
        let bodies =
            arrived[before..].iter().map(|request| String::from_utf8_lossy(&request.body).into_owned());
        assert!(bodies.into_iter().any(|body| body.contains("modest")), "round {round}");
        rig.gate.open(1);
        rig.arrived(before + 3).await;
        assert_eq!(modest.await.unwrap().status, 200);
    }
    rig.gate.open(600);
    for client in greedy {
        assert_eq!(client.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place_and_its_slot() {
    let rig = Rig::start().await;
    let quota = rig.limit("up", 1, 300_000).await;
    let running = rig.raw(0).await;
    rig.arrived(1).await;
    let first = rig.raw(0).await;
    rig.waits(&quota, 1).await;
    let second = rig.raw(1).await;
    rig.waits(&quota, 2).await;
    let third = rig.ask(1, chat::request("m"));
    rig.waits(&quota, 3).await;
    drop(first);
    rig.waits(&quota, 2).await;
    // The one that runs and the one that has the next turn leave at the same time.
    drop(running);
    drop(second);
    rig.gate.open(100);
    assert_eq!(third.await.unwrap().status, 200, "no slot is lost");
    rig.waits(&quota, 0).await;
    let cancelled = rig.gateway.records(4).await;
    let waited: Vec<&Value> = cancelled.iter().filter(|record| record["outcome"] == "cancelled").collect();
    assert!(waited.iter().any(|record| record["queue_us"].as_u64() > Some(0)), "{waited:?}");
    let standing = rig.admin().done("GET", &format!("quotas/{quota}"), Value::Null).await;
    assert_eq!(standing["reserved"], 0);
}

/// Nothing but the departure may let the next client in: the upstream never answers, and no wait ends.
#[tokio::test]
async fn each_client_that_leaves_lets_the_next_one_in() {
    const ROUNDS: usize = 100;
    let rig = Rig::start().await;
    let quota = rig.limit("up", 1, 300_000).await;
    let mut clients = VecDeque::from([rig.numbered(0).await]);
    rig.arrived(1).await;
    for number in 1..=2 * ROUNDS {
        clients.push_back(rig.numbered(number).await);
        rig.waits(&quota, u64::try_from(number).unwrap()).await;
    }
    // Those with an odd number leave the line before their turn.
    let mut number = 0;
    clients.retain(|_| {
        number += 1;
        number % 2 == 1
    });
    rig.waits(&quota, u64::try_from(ROUNDS).unwrap()).await;
    let mut taken = Vec::new();
    for round in 1..=ROUNDS {
        assert_eq!(rig.upstream.requests().len(), round, "the limit holds");
        let left_at = Instant::now();
        clients.pop_front();
        let next = rig.upstream.request(round).await;
        taken.push(next.at.saturating_duration_since(left_at));
        assert_eq!(next.json()["user"], json!(format!("client {}", 2 * round)), "the next one in the line");
    }
    figure("F5", format!("a client leaves, until the next one is at the upstream: {}", times(&mut taken)));
    assert!(taken[ROUNDS / 2] <= LEAVE_MAX, "{taken:?}");
    assert!(taken[ROUNDS - 1] <= promised(LEAVE_MAX), "{taken:?}");
    clients.clear();
    wait::eventually("nothing is left", async || {
        let standing = rig.admin().done("GET", &format!("quotas/{quota}"), Value::Null).await;
        (standing["reserved"] == 0 && standing["waiting"] == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_drain_ends_the_line_and_lets_the_rest_finish() {
    let mut rig = Rig::start().await;
    let quota = rig.limit("up", 1, 300_000).await;
    let running = rig.ask(0, chat::request("m"));
    rig.arrived(1).await;
    let waiting: Vec<_> = (0..20).map(|_| rig.ask(0, chat::request("m"))).collect();
    rig.waits(&quota, 20).await;
    rig.gateway.signal(Signal::TERM);
    for client in waiting {
        let answer = client.await.unwrap();
        assert_eq!((answer.status, answer.error_code().as_str()), (503, "draining"), "{answer:?}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("shutting down") && message.contains("1 concurrent requests"), "{message}");
    }
    rig.gate.open(1);
    assert_eq!(running.await.unwrap().status, 200);
    assert_eq!(rig.gateway.exit().await.code(), Some(0), "{}", rig.gateway.log());
    assert_eq!(rig.upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_full_line_and_a_wait_that_is_over_are_429_that_say_so() {
    let rig = Rig::start().await;
    let quota = rig.limit("up", 1, 300_000).await;
    let running = rig.ask(0, chat::request("m"));
    rig.arrived(1).await;
    let waiting: Vec<_> = (0..1_000).map(|_| rig.ask(0, chat::request("m"))).collect();
    rig.waits(&quota, 1_000).await;
    let refused = rig.client(1).chat(chat::request("m")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (429, "quota_exceeded"));
    assert!(refused.json().to_string().contains("1000 requests wait for it already"), "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    waiting.into_iter().for_each(|client| client.abort());
    rig.waits(&quota, 0).await;

    rig.admin().done("PATCH", &format!("quotas/{quota}"), json!({"wait_ms": 200})).await;
    let answer = rig.client(1).chat(chat::request("m")).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (429, "quota_exceeded"));
    assert!(answer.json().to_string().contains("waited as long as it may"), "{answer:?}");
    let record = rig.gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert!(record["queue_us"].as_u64() >= Some(200_000), "{record}");
    assert_eq!(record["refused_by"], json!(quota));
    // The budget of the client ends the wait, too.
    rig.admin().done("PATCH", &format!("quotas/{quota}"), json!({"wait_ms": 300_000})).await;
    let hasty = rig.client(1).with("x-llmgw-fallback-timeout-ms", "200");
    assert_eq!(hasty.chat(chat::request("m")).await.status, 429);
    rig.gate.open(1);
    assert_eq!(running.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_minute_is_waited_for() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let Some(noon) = clock::at(clock::next_noon()) else { return };
    let setup = Setup::new(&Yaml::one(upstream.base_url())).with_clock(noon);
    let rig = Rig::with(setup, upstream, Gate::new()).await;
    let minute = json!({"subject": {"kind": "key", "id": rig.keys[0].id}, "metric": "requests", "window": "minute",
        "limit": 1, "wait_ms": 300_000});
    let quota = rig.admin().create("quotas", minute).await;
    assert_eq!(rig.client(0).chat(chat::request("m")).await.status, 200);
    let explained = rig.explained("m").await;
    assert_eq!(explained["would_wait"]["quota"], json!(quota), "{explained}");
    assert!(explained["would_wait"]["expected_ms"].as_u64() > Some(30_000), "{explained}");
    // 57 seconds of the minute pass while the gateway does not run.
    let later = clock::at(clock::next_noon() + 57).unwrap();
    let Rig { gateway, upstream, gate, keys } = rig;
    gateway.records(1).await;
    let gateway = gateway.kill().await.with_clock(later).start().await;
    let rig = Rig { gateway, upstream, gate, keys };
    let began = Instant::now();
    let answer = rig.client(0).chat(chat::request("m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let record = rig.gateway.record_of(answer.header("x-request-id").unwrap()).await;
    let steps: Vec<&Value> = record["trace"].as_array().unwrap().iter().map(|step| &step["result"]).collect();
    assert_eq!(steps, ["waited", "served"], "{record}");
    assert_eq!((&record["trace"][0]["quota"], &record["attempts"]), (&json!(quota), &json!(1)), "{record}");
    assert!(record["queue_us"].as_u64() > Some(100_000), "{record}");
    let table = rig.gateway.client().get("/admin/api/usage/export?format=csv").await.unwrap();
    let table = String::from_utf8(table.body.to_vec()).unwrap();
    let waited = table.lines().filter(|line| line.ends_with(&format!(",{}", record["queue_us"]))).count();
    assert!(table.lines().next().unwrap().ends_with(",queue_us") && waited == 1, "{table}");
}

/// Returns `provider result` of each step of the record of an answer.
async fn trace(gateway: &Gateway, answer: &Whole) -> Vec<String> {
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let steps = record["trace"].as_array().unwrap().iter();
    steps.map(|step| format!("{} {}", text(&step["provider"]), text(&step["result"]))).collect()
}

#[tokio::test]
async fn the_line_of_a_provider_is_entered_only_when_no_other_candidate_serves() {
    let (busy, other, gate) = (Upstream::start().await, Upstream::start().await, Gate::new());
    busy.always(gated(&gate));
    other.then(Answer::completion("ok")).then(Answer::error(500)).then(gated(&gate)).then(gated(&gate));
    let yaml = Yaml::line(&[busy.base_url(), other.base_url()]).policies("retry_max_attempts: 1");
    let rig = Rig::with(Setup::new(&yaml), busy, gate).await;
    let quota = rig.limit("p0", 1, 300_000).await;
    let body = || chat::request("line");
    let running = rig.ask(0, body());
    rig.arrived(1).await;
    let served = rig.client(0).chat(body()).await;
    assert_eq!(served.status, 200);
    assert_eq!(trace(&rig.gateway, &served).await, ["p0 over_quota", "p1 served"], "another target is free");
    // The other one fails: only the line is left.
    let waits = rig.ask(0, body());
    rig.waits(&quota, 1).await;
    let explained = rig.explained("line").await;
    assert_eq!(explained["would_wait"], Value::Null, "p1 would serve: {explained}");
    rig.gate.open(2);
    assert_eq!(running.await.unwrap().status, 200);
    let waited = waits.await.unwrap();
    assert_eq!(waited.status, 200);
    let steps = trace(&rig.gateway, &waited).await;
    assert_eq!(steps, ["p0 over_quota", "p1 status", "p0 waited", "p0 served"]);
    // Both are full: the request waits for both, and the first that is free serves it.
    let second = rig.limit("p1", 1, 300_000).await;
    let running = [rig.ask(0, body()), rig.ask(0, body())];
    wait::eventually("both upstreams are busy", async || {
        (rig.upstream.requests().len() == 3 && other.requests().len() == 3).then_some(())
    })
    .await;
    let waits = rig.ask(1, body());
    rig.waits(&quota, 1).await;
    rig.waits(&second, 1).await;
    let queued = wait::eventually("the stage queued", async || {
        let page = rig.admin().done("GET", "running", Value::Null).await;
        page["data"].as_array().unwrap().iter().find(|exchange| exchange["stage"] == "queued").cloned()
    })
    .await;
    assert_eq!((&queued["attempt"], &queued["provider"]), (&json!(0), &Value::Null), "{queued}");
    let explained = rig.explained("line").await;
    assert_eq!(explained["would_wait"]["quota"], json!(quota), "{explained}");
    assert_eq!((&explained["refusal"], explained["candidates"].as_array().unwrap().len()), (&Value::Null, 2));
    rig.gate.open(3);
    let waited = waits.await.unwrap();
    assert_eq!(waited.status, 200);
    let steps = trace(&rig.gateway, &waited).await;
    assert!(steps.len() == 3 && steps[0] == "p0 over_quota" && steps[1].ends_with(" waited"), "{steps:?}");
    for client in running {
        assert_eq!(client.await.unwrap().status, 200);
    }
    rig.waits(&quota, 0).await;
    rig.waits(&second, 0).await;
    let found = rig.admin().done("GET", "requests?result=waited", Value::Null).await;
    assert_eq!(found["data"].as_array().unwrap().len(), 2, "{found}");
}

#[tokio::test]
async fn a_change_of_the_limit_reaches_those_who_wait_and_streams_are_kept_alive() {
    let (upstream, gate) = (Upstream::start().await, Gate::new());
    upstream.always(gated(&gate));
    let setup = Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_STREAM_KEEPALIVE_SECONDS", "1");
    let rig = Rig::with(setup, upstream, gate).await;
    let quota = rig.limit("up", 1, 300_000).await;
    let running: Vec<_> = (0..4).map(|_| rig.ask(0, chat::request("m"))).collect();
    rig.waits(&quota, 3).await;
    rig.admin().done("PATCH", &format!("quotas/{quota}"), json!({"limit": 3})).await;
    rig.arrived(3).await;
    rig.waits(&quota, 1).await;
    let mut stream = rig.client(1).chat_flow(chat::stream_request("m")).await;
    assert_eq!(stream.status, 200, "the head is sent while the request waits");
    assert!(stream.event().await.bytes.starts_with(b":"), "a comment");
    assert_eq!((rig.waiting(&quota).await, rig.upstream.requests().len()), (2, 3));
    rig.admin().done("DELETE", &format!("quotas/{quota}"), Value::Null).await;
    rig.arrived(5).await;
    rig.gate.open(5);
    for client in running {
        assert_eq!(client.await.unwrap().status, 200);
    }
    let (events, is_whole) = stream.rest().await;
    assert!(is_whole && !events.is_empty());
}

#[tokio::test]
async fn a_wait_that_would_have_no_effect_is_refused() {
    let rig = Rig::start().await;
    let gateway = json!({"kind": "gateway"});
    for (members, why) in [
        (json!({"metric": "requests", "window": "hour", "limit": 1, "wait_ms": 1}), "a minute"),
        (
            json!({"metric": "concurrent_requests", "limit": 1, "wait_ms": 1, "enforcement": "warn"}),
            "only warns",
        ),
        (json!({"metric": "concurrent_requests", "limit": 1, "wait_ms": 300_001}), "at most 300000"),
    ] {
        let mut quota = members.clone();
        quota["subject"] = gateway.clone();
        let refused = rig.admin().call("POST", "quotas", quota).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["param"]),
            (400, &json!("wait_ms")),
            "{members}"
        );
        assert!(refused.json().to_string().contains(why), "{refused:?}");
    }
    let of_new_key = json!({"name": "k", "project": rig.admin().project("more").await,
        "limits": [{"metric": "requests", "window": "day", "limit": 1, "wait_ms": 1}]});
    let refused = rig.admin().call("POST", "keys", of_new_key).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("limits[0].wait_ms")));
    let quota = rig.limit("up", 1, 1).await;
    let path = format!("quotas/{quota}");
    let refused = rig.admin().call("PATCH", &path, json!({"enforcement": "warn"})).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("wait_ms")));
    let changed = rig.admin().done("PATCH", &path, json!({"enforcement": "warn", "wait_ms": 0})).await;
    assert_eq!((&changed["wait_ms"], &changed["waiting"]), (&json!(0), &json!(0)));
}

/// The limits with which a key is created, its own and those of its project, may let requests wait.
#[tokio::test]
async fn the_limits_of_a_new_key_may_let_requests_wait() {
    let rig = Rig::start().await;
    let minute = json!({"metric": "requests", "window": "minute", "limit": 9, "wait_ms": 7_000});
    let project = json!({"name": "waits", "key_defaults": [minute]});
    let made = rig.admin().done("POST", "projects", project).await;
    assert_eq!(made["key_defaults"][0]["wait_ms"], 7_000, "{made}");
    let key = rig
        .admin()
        .key(json!({"project": made["id"], "limits": [{"metric": "concurrent_requests", "limit": 1,
            "wait_ms": 60_000}]}))
        .await;
    let quotas = rig.admin().done("GET", &format!("quotas?key={}", key.id), Value::Null).await;
    let mut waits: Vec<_> = quotas["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|quota| (quota["metric"].as_str().unwrap(), quota["wait_ms"].as_u64().unwrap()))
        .collect();
    waits.sort_unstable();
    assert_eq!(waits, [("concurrent_requests", 60_000), ("requests", 7_000)]);
    let client = Client::new(rig.gateway.address(), Some(&key.key));
    let first = tokio::spawn(async move { client.chat(chat::request("m")).await });
    rig.arrived(1).await;
    let client = Client::new(rig.gateway.address(), Some(&key.key));
    let second = tokio::spawn(async move { client.chat(chat::request("m")).await });
    wait::eventually("a request in line", async || {
        let running = rig.admin().done("GET", "running", Value::Null).await;
        running["data"].as_array()?.iter().any(|row| row["stage"] == "queued").then_some(())
    })
    .await;
    rig.gate.open(2);
    assert_eq!((first.await.unwrap().status, second.await.unwrap().status), (200, 200));
}
