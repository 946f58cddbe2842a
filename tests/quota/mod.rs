//! Quotas (ADM-4, P14, M-083, M-194): the limits on many concurrent clients, the effect of a kill of the process, and
//! the settlement at each end of an exchange.

mod minted;
mod repriced;
mod scopes;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::admin::{Admin, NewKey};
use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gate, Gateway, Upstream, Yaml, chat, wait};

/// A gateway with a project key, over an upstream that returns `ok` with 11 tokens in and 7 out.
struct Rig {
    gateway: Gateway,
    upstream: Upstream,
    key: NewKey,
    project: String,
}

impl Rig {
    async fn start() -> Self {
        Self::over(Answer::completion("ok")).await
    }

    async fn over(answer: Answer) -> Self {
        let upstream = Upstream::start().await;
        upstream.always(answer);
        let setup = Setup::new(&Yaml::one(upstream.base_url()));
        Self::with(setup, upstream).await
    }

    async fn with(setup: Setup, upstream: Upstream) -> Self {
        let gateway = setup.at_noon().start().await;
        let admin = Admin(gateway.client());
        let project = admin.project("blue").await;
        let key = admin.key(json!({"project": project})).await;
        Self { gateway, upstream, key, project }
    }

    fn admin(&self) -> Admin {
        Admin(self.gateway.client())
    }

    fn client(&self) -> Client {
        Client::new(self.gateway.address(), Some(&self.key.key))
    }

    /// Sets a limit on the key.
    async fn limit(&self, metric: &str, window: &str, limit: u64) -> String {
        self.quota(json!({"subject": {"kind": "key", "id": self.key.id},
            "metric": metric, "window": window, "limit": limit}))
            .await
    }

    async fn quota(&self, quota: Value) -> String {
        self.admin().create("quotas", quota).await
    }

    /// Returns `(used, reserved, remaining)` of a quota.
    async fn standing(&self, quota: &str) -> (u64, u64, u64) {
        let shown = self.admin().done("GET", &format!("quotas/{quota}"), Value::Null).await;
        let number = |name: &str| shown[name].as_u64().unwrap();
        (number("used"), number("reserved"), number("remaining"))
    }

    /// Returns the used and remaining amounts as soon as nothing is reserved.
    async fn settled(&self, quota: &str) -> (u64, u64) {
        wait::eventually(&format!("{quota} settled"), async || {
            let (used, reserved, remaining) = self.standing(quota).await;
            (reserved == 0).then_some((used, remaining))
        })
        .await
    }

    /// Sends `count` requests, `width` at a time; returns the number of those with status 200.
    async fn storm(&self, count: usize, width: usize, body: &str) -> usize {
        let (room, passed) = (Arc::new(Semaphore::new(width)), Arc::new(AtomicUsize::new(0)));
        let mut clients = JoinSet::new();
        for _ in 0..count {
            let (client, room, passed) = (self.client(), Arc::clone(&room), Arc::clone(&passed));
            let body = body.to_owned();
            clients.spawn(async move {
                let _turn = room.acquire().await.unwrap();
                let sending = client.with("content-type", "application/json");
                let Ok(answer) = sending.send("POST", "/v1/chat/completions", body.into()).await else {
                    return;
                };
                match answer.status {
                    200 => drop(passed.fetch_add(1, Ordering::Relaxed)),
                    status => assert_eq!((status, answer.error_code().as_str()), (429, "quota_exceeded")),
                }
            });
        }
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
        passed.load(Ordering::Relaxed)
    }

    async fn restart(self) -> Self {
        Self { gateway: self.gateway.restart().await, ..self }
    }
}

/// Returns a response that waits for the gate.
fn behind(gate: &Gate, answer: Answer) -> Answer {
    let mut gated = Answer::new().wait(gate);
    gated.steps.extend(answer.steps);
    gated
}

/// Returns an exchange of 1,000 tokens, of which the client requests 990 as output.
fn thousand() -> (String, Answer) {
    let request =
        json!({"model": "m", "max_tokens": 990, "messages": [{"role": "user", "content": "Say hello."}]});
    let mut answer: Value = serde_json::from_str(&chat::completion("ok")).unwrap();
    answer["usage"] = json!({"prompt_tokens": 10, "completion_tokens": 990, "total_tokens": 1_000});
    (request.to_string(), Answer::json(200, answer.to_string()))
}

#[tokio::test]
async fn of_400_requests_80_at_a_time_exactly_50_pass() {
    let rig = Rig::start().await;
    let quota = rig.limit("requests", "day", 50).await;
    assert_eq!(rig.storm(400, 80, &chat::request("m")).await, 50);
    assert_eq!(rig.upstream.requests().len(), 50);
    assert_eq!(rig.settled(&quota).await, (50, 0));
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await, (50, 0, 0), "nothing settled is lost by a kill");
    assert_eq!(rig.storm(5, 5, &chat::request("m")).await, 0);
    figure("P14", "400 requests, 80 at a time, on a limit of 50: 50 pass; after kill -9 none");
}

#[tokio::test]
async fn fifty_concurrent_requests_do_not_overspend_a_token_limit() {
    let (request, answer) = thousand();
    let rig = Rig::over(answer).await;
    let quota = rig.limit("total_tokens", "day", 10_000).await;
    rig.storm(200, 50, &request).await;
    let spent = 1_000 * rig.upstream.requests().len() as u64;
    assert_eq!(rig.settled(&quota).await.0, spent, "what is counted is what the upstream gave out");
    assert!((9_000..=10_000).contains(&spent), "{spent}");
    figure("P14", format!("200 requests, 50 at a time, of 1,000 tokens on a limit of 10,000: {spent} spent"));
    rig.gateway.records(200).await;
    rig.admin().done("DELETE", &format!("quotas/{quota}"), Value::Null).await;
    let again = rig.limit("total_tokens", "month", 10_000).await;
    assert_eq!(rig.standing(&again).await.0, spent, "a new limit knows what was used before it");
}

#[tokio::test]
async fn an_unbounded_request_may_overspend_a_token_limit_by_one() {
    let rig = Rig::over(thousand().1).await;
    let quota = rig.limit("total_tokens", "day", 10_000).await;
    for _ in 0..20 {
        rig.storm(50, 50, &chat::request("m")).await;
    }
    let spent = 1_000 * rig.upstream.requests().len() as u64;
    assert_eq!(rig.settled(&quota).await.0, spent);
    assert!((10_000..=11_000).contains(&spent), "{spent}");
    figure("P14", format!("the same without max_tokens, 1,000 requests: {spent} spent"));
}

/// P14, across a kill at an arbitrary moment: requests in progress count as used, so both limits hold.
#[tokio::test]
async fn limits_hold_when_a_kill_interrupts_many_requests() {
    let (request, answer) = thousand();
    for (metric, limit, width, body, upstream_max) in
        [("requests", 50, 80, chat::request("m"), 50), ("total_tokens", 10_000, 50, request, 11)]
    {
        let rig = Rig::over(answer.clone()).await;
        let quota = rig.limit(metric, "month", limit).await;
        let mut clients = JoinSet::new();
        let room = Arc::new(Semaphore::new(width));
        for _ in 0..400 {
            let (client, body) = (rig.client().with("content-type", "application/json"), body.clone());
            let room = Arc::clone(&room);
            clients.spawn(async move {
                let _turn = room.acquire().await.unwrap();
                let answer = client.send("POST", "/v1/chat/completions", body.into()).await;
                usize::from(answer.is_ok_and(|answer| answer.status == 200))
            });
        }
        rig.upstream.request(upstream_max / 2).await;
        let rig = rig.restart().await;
        let mut passed = 0;
        while let Some(answered) = clients.join_next().await {
            passed += answered.unwrap();
        }
        passed += rig.storm(400, width, &body).await;
        let (used, remaining) = rig.settled(&quota).await;
        let sent = rig.upstream.requests().len();
        assert!(passed <= sent && sent <= upstream_max, "{metric}: {passed} passed, {sent} sent for");
        assert!(used <= limit + 1_000 && used >= limit * 9 / 10, "{metric}: {used} used, {remaining} remain");
        figure(
            "P14",
            format!(
                "800 requests, {width} at a time, {limit} {metric}, kill -9 in the middle: {passed} pass, {used} used"
            ),
        );
    }
}

#[tokio::test]
async fn a_kill_returns_no_reserved_request_to_the_quota() {
    let gate = Gate::new();
    let rig = Rig::over(behind(&gate, Answer::completion("ok"))).await;
    let quota = rig.limit("requests", "day", 50).await;
    gate.open(20);
    let rig = killed_in_progress(rig, &chat::request("m"), (50, 20)).await;
    assert_eq!(rig.standing(&quota).await, (50, 0, 0), "20 were settled, 30 were on their way");
    gate.open(1_000);
    assert_eq!(rig.storm(100, 80, &chat::request("m")).await, 0);
    assert_eq!(rig.upstream.requests().len(), 50);
    let records = rig.gateway.records(50).await;
    let interrupted = records.iter().filter(|record| record["outcome"] == "interrupted").count();
    let completed = records.iter().filter(|record| record["outcome"] == "completed").count();
    assert_eq!((completed, interrupted), (20, 30));
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await, (50, 0, 0), "and none counts twice");
}

#[tokio::test]
async fn a_kill_returns_no_reserved_tokens_to_the_quota() {
    let (request, answer) = thousand();
    let gate = Gate::new();
    let rig = Rig::over(behind(&gate, answer)).await;
    let quota = rig.limit("total_tokens", "month", 10_000).await;
    gate.open(4);
    let rig = killed_in_progress(rig, &request, (10, 4)).await;
    let (used, reserved, _) = rig.standing(&quota).await;
    assert!((9_000..=10_000).contains(&used), "{used}");
    assert_eq!(reserved, 0);
    gate.open(1_000);
    rig.storm(100, 50, &request).await;
    assert!(rig.upstream.requests().len() <= 11, "{} at the upstream", rig.upstream.requests().len());
}

/// Sends 80 concurrent requests, of which the quota admits `admitted` and the upstream's gate lets `answered` complete;
/// kills the gateway while the others are in progress, and starts it again.
async fn killed_in_progress(rig: Rig, body: &str, (admitted, answered): (usize, usize)) -> Rig {
    let mut clients = JoinSet::new();
    for _ in 0..80 {
        let (client, body) = (rig.client().with("content-type", "application/json"), body.to_owned());
        clients.spawn(async move {
            let answer = client.send("POST", "/v1/chat/completions", body.into()).await;
            answer.map(|answer| answer.status)
        });
    }
    rig.upstream.request(admitted - 1).await;
    let mut statuses = Vec::new();
    while statuses.len() < 80 - admitted + answered {
        statuses.push(clients.join_next().await.unwrap().unwrap().unwrap());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), answered, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    let rig = rig.restart().await;
    while clients.join_next().await.is_some() {}
    rig
}

#[tokio::test]
async fn each_outcome_of_an_exchange_settles_its_usage() {
    let gate = Gate::new();
    let rig = Rig::start().await;
    let tokens = rig.limit("total_tokens", "hour", 100_000).await;
    let requests = rig.limit("requests", "minute", 100).await;
    let output = rig.limit("output_tokens", "total", 100_000).await;
    let state =
        async || (rig.settled(&tokens).await.0, rig.settled(&requests).await.0, rig.settled(&output).await.0);
    assert_eq!(rig.client().chat(chat::request("m")).await.status, 200);
    assert_eq!(state().await, (18, 1, 7), "a whole answer");

    rig.upstream.then(Answer::events(&chat::events(&["one", "two"])));
    let mut flow = rig.client().chat_flow(chat::stream_request("m")).await;
    assert!(flow.rest().await.1);
    assert_eq!(state().await, (36, 2, 14), "a stream");

    rig.upstream.then(Answer::error(500));
    assert_eq!(rig.client().chat(chat::request("m")).await.status, 500);
    assert_eq!(state().await, (36, 2, 14), "what no target served does not count");

    assert_eq!(rig.client().chat(chat::request("no-such-model")).await.status, 404);
    assert_eq!(state().await, (36, 2, 14), "nor what was never tried");

    rig.upstream.then(Answer::stream().chunk(chat::role()).chunk(chat::content("12345678")).wait(&gate));
    let mut flow = rig.client().chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    flow.event().await;
    let (_, reserved, _) = rig.standing(&output).await;
    assert_eq!(reserved, 4_096, "held while the stream runs");
    drop(flow);
    // 14 bytes of text in its message are estimated as 4 tokens in, 8 bytes of content as 2 out.
    assert_eq!(state().await, (42, 3, 16), "a client that leaves pays for what was relayed");
}

#[tokio::test]
async fn a_quota_refusal_names_the_quota_and_the_retry_time() {
    let rig = Rig::start().await;
    rig.limit("requests", "minute", 1).await;
    let first = rig.client().chat(chat::request("m")).await;
    assert_eq!(first.status, 200);
    assert_eq!(first.header("x-ratelimit-limit-requests"), Some("1"));
    assert_eq!(first.header("x-ratelimit-remaining-requests"), Some("0"));
    let refused = rig.client().chat(chat::request("m")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (429, "quota_exceeded"));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("1 requests a minute for this key"), "{message}");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=61).contains(&wait), "{wait}");
    assert_eq!(refused.header("x-should-retry"), None, "worth waiting for");
    let reset = refused.header("x-ratelimit-reset-requests").unwrap();
    // It was "1m1s", more than the window: the second of the request counts for up to 61 s.
    let seconds = reset.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
    assert!(reset == "1m0s" || seconds.is_some_and(|seconds: u64| seconds < 60), "{reset}");
    let record = rig.gateway.record_of(refused.header("x-request-id").unwrap()).await;
    assert_eq!((&record["outcome"], &record["error"]), (&json!("failed"), &json!("quota_exceeded")));
    let free = rig.gateway.client().chat(chat::request("m")).await;
    assert_eq!(free.status, 200, "administrators are not bound (M-196)");
    assert_eq!(free.header("x-ratelimit-limit-requests"), None);
}

#[tokio::test]
async fn a_request_above_the_limit_is_rejected_unless_the_limit_only_warns() {
    let rig = Rig::start().await;
    let project = json!({"kind": "project", "id": rig.project});
    let quota = rig
        .quota(json!({"subject": project, "metric": "output_tokens", "window": "total", "limit": 100}))
        .await;
    let asks = |tokens: u64, n: u64| {
        json!({"model": "m", "max_completion_tokens": tokens, "n": n, "messages": []}).to_string()
    };
    let refused = rig.client().chat(asks(51, 2)).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, None));
    assert_eq!(refused.header("x-should-retry"), Some("false"), "the SDKs would repeat it in vain");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("exceeds the whole limit"));
    assert_eq!(rig.client().chat(asks(50, 2)).await.status, 200);
    assert_eq!(rig.settled(&quota).await, (7, 93));
    let path = format!("quotas/{quota}");
    rig.admin().done("PATCH", &path, json!({"limit": 5})).await;
    assert_eq!(rig.standing(&quota).await, (7, 0, 0), "a new limit keeps what is used");
    assert_eq!(rig.client().chat(asks(1, 1)).await.status, 429);
    rig.admin().done("PATCH", &path, json!({"enforcement": "warn"})).await;
    assert_eq!(rig.client().chat(asks(1_000, 1)).await.status, 200);
    assert_eq!(rig.settled(&quota).await, (14, 0));
    rig.admin().done("PATCH", &path, json!({"enforcement": "hard"})).await;
    assert_eq!(rig.client().chat(asks(1, 1)).await.status, 429);
    rig.admin().done("DELETE", &path, Value::Null).await;
    assert_eq!(rig.client().chat(asks(1, 1)).await.status, 200);
}

#[tokio::test]
async fn a_cost_limit_counts_cost_and_skips_targets_without_a_price() {
    let (priced, unpriced) = (Upstream::start().await, Upstream::start().await);
    priced.always(Answer::completion("ok"));
    unpriced.always(Answer::completion("never asked"));
    let prices = "models:\n  - id: m\n    prices: { input: 1.0, output: 2.0 }";
    let yaml = Yaml::new()
        .provider("free", unpriced.base_url())
        .provider_with("up", priced.base_url(), prices)
        .endpoint("line", &[("free", "m"), ("up", "m")]);
    let rig = Rig::with(Setup::new(&yaml), priced).await;
    // 25 micro-dollars per response; 3 + 2 * 4,096 reserved without a bound, so the last one runs with what is left.
    let quota = rig.limit("cost_micro_usd", "month", 60).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(rig.client().chat(chat::request("line")).await.status);
        rig.settled(&quota).await;
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(rig.settled(&quota).await, (75, 0));
    assert_eq!(unpriced.requests().len(), 0);
    let refused = rig.client().chat(chat::request("free/m")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (403, "not_allowed"));
    let record = rig.gateway.record_of(refused.header("x-request-id").unwrap()).await;
    assert_eq!(record["trace"][0]["result"], "no_price");
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await, (75, 0, 0));
}

#[tokio::test]
async fn the_reservation_of_an_unknown_cost_stays_used_across_a_restart() {
    let upstream = Upstream::start().await;
    let mut answer: Value = serde_json::from_str(&chat::completion("ok")).unwrap();
    answer["usage"] = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": {"audio_tokens": 4}});
    upstream.always(Answer::json(200, answer.to_string()));
    let prices = "models:\n  - id: m\n    prices: { input: 1.0, output: 2.0 }";
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), prices);
    let rig = Rig::with(Setup::new(&yaml), upstream).await;
    let quota = rig.limit("cost_micro_usd", "month", 1_000_000).await;
    let answer = rig.client().chat(chat::request("up/m")).await;
    let record = rig.gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!((answer.status, &record["cost_micro_usd"]), (200, &Value::Null), "audio has no price");
    let (used, remaining) = rig.settled(&quota).await;
    assert!(used > 0 && used + remaining == 1_000_000, "{used} {remaining}");
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await, (used, 0, remaining), "a restart forgets nothing");
}

#[tokio::test]
async fn a_rotated_key_shares_the_limits_of_the_old_one() {
    let rig = Rig::start().await;
    let quota = rig.limit("requests", "day", 2).await;
    assert_eq!(rig.client().chat(chat::request("m")).await.status, 200);
    let path = format!("keys/{}/rotate", rig.key.id);
    let rotated = rig.admin().done("POST", &path, json!({})).await;
    let new = Client::new(rig.gateway.address(), rotated["key"].as_str());
    assert_eq!(new.chat(chat::request("m")).await.status, 200);
    for client in [rig.client(), new] {
        assert_eq!(client.chat(chat::request("m")).await.status, 429, "both draw on one limit");
    }
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await, (2, 0, 0));
}

#[tokio::test]
async fn a_key_family_keeps_its_limits_when_successors_are_revoked_and_deleted() {
    let rig = Rig::start().await;
    let quota = rig.limit("requests", "month", 2).await;
    let admin = rig.admin();
    let rotate = async |key: &str| {
        let made = admin.done("POST", &format!("keys/{key}/rotate"), json!({})).await;
        let client = Client::new(rig.gateway.address(), made["key"].as_str());
        (made["id"].as_str().unwrap().to_owned(), client)
    };
    let revoke = async |key: &str| {
        admin.done("PATCH", &format!("keys/{key}"), json!({"state": "revoked"})).await;
    };
    assert_eq!(rig.client().chat(chat::request("m")).await.status, 200);
    let (second, client) = rotate(&rig.key.id).await;
    assert_eq!(client.chat(chat::request("m")).await.status, 200);
    revoke(&second).await;
    let (third, client) = rotate(&rig.key.id).await;
    assert_eq!(client.chat(chat::request("m")).await.status, 429, "rotated, revoked, rotated again");
    admin.done("DELETE", &format!("keys/{second}"), Value::Null).await;
    assert_eq!(rig.client().chat(chat::request("m")).await.status, 429, "the successor is deleted");
    for key in [&rig.key.id, &third] {
        let list = admin.done("GET", &format!("quotas?key={key}"), Value::Null).await;
        let shown = &list["data"][0];
        assert_eq!((&shown["id"], &shown["used"]), (&json!(quota), &json!(2)), "{key}");
    }
    assert_eq!(rig.upstream.requests().len(), 2);
}

#[tokio::test]
async fn the_api_rejects_invalid_limits() {
    let rig = Rig::start().await;
    let key = json!({"kind": "key", "id": rig.key.id});
    let post = async |body: Value| rig.gateway.client().post("/admin/api/quotas", body.to_string()).await;
    for (name, body) in [
        ("metric", json!({"subject": key, "metric": "bytes", "window": "day", "limit": 1})),
        ("window", json!({"subject": key, "metric": "requests", "window": "fortnight", "limit": 1})),
        ("no window", json!({"subject": key, "metric": "requests", "limit": 1})),
        ("concurrent", json!({"subject": key, "metric": "concurrent_requests", "window": "day", "limit": 1})),
        ("limit", json!({"subject": key, "metric": "requests", "window": "day", "limit": -1})),
        (
            "limit",
            json!({"subject": key, "metric": "requests", "window": "day", "limit": 1_000_000_000_001_u64}),
        ),
        (
            "subject",
            json!({"subject": {"kind": "key", "id": "key_none"}, "metric": "requests", "window": "day", "limit": 1}),
        ),
        ("burst", json!({"subject": key, "metric": "requests", "window": "day", "limit": 1, "burst": 2})),
    ] {
        let answer = post(body).await;
        assert_eq!(answer.status, 400, "{name}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().len() > 10);
    }
    let good = json!({"subject": key, "metric": "requests", "window": "day", "limit": 1});
    assert_eq!(post(good.clone()).await.status, 201);
    assert_eq!(post(good).await.status, 409, "one limit for one thing");
    let list = rig.admin().done("GET", &format!("quotas?key={}", rig.key.id), Value::Null).await;
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    assert_eq!(list["data"][0]["remaining"], 1);
    let none = rig.admin().done("GET", "quotas?project=prj_none", Value::Null).await;
    assert_eq!(none["data"], json!([]));
}
