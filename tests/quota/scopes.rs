//! Limits on concurrency, and limits of provider instances, models, endpoints and the whole gateway.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Rig, behind, thousand};
use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gate, Upstream, Yaml, chat};

/// Starts the providers `p0` and `p1`, in this order behind the endpoint `line`; the rig holds the first upstream.
async fn line(first: Answer) -> (Rig, Upstream) {
    let (upstream, second) = (Upstream::start().await, Upstream::start().await);
    upstream.always(first);
    second.always(Answer::completion("from the second"));
    let yaml = Yaml::line(&[upstream.base_url(), second.base_url()]);
    (Rig::with(Setup::new(&yaml), upstream).await, second)
}

impl Rig {
    fn of_project(&self) -> Value {
        json!({"kind": "project", "id": self.project})
    }

    /// Sends `count` requests for `selector`, one after another; returns the statuses.
    async fn statuses(&self, client: &Client, selector: &str, count: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(client.chat(chat::request(selector)).await.status);
        }
        statuses
    }
}

/// Sends `count` requests concurrently. Returns their statuses as they arrive.
pub(super) fn at_once(client: &Client, count: usize, body: &str) -> JoinSet<u16> {
    let mut clients = JoinSet::new();
    for _ in 0..count {
        let (client, body) = (client.clone().with("content-type", "application/json"), body.to_owned());
        clients.spawn(async move {
            let answer = client.send("POST", "/v1/chat/completions", body.into()).await.unwrap();
            assert!(answer.status == 200 || answer.error_code() == "quota_exceeded", "{}", answer.status);
            answer.status
        });
    }
    clients
}

#[tokio::test]
async fn of_50_concurrent_requests_only_as_many_run_as_the_limit_allows() {
    let gate = Gate::new();
    let rig = Rig::over(behind(&gate, Answer::completion("ok"))).await;
    let key = json!({"kind": "key", "id": rig.key.id});
    let quota = rig.quota(json!({"subject": key, "metric": "concurrent_requests", "limit": 4})).await;
    for round in 1..=2 {
        let mut clients = at_once(&rig.client(), 50, &chat::request("m"));
        for _ in 0..46 {
            assert_eq!(clients.join_next().await.unwrap().unwrap(), 429);
        }
        assert_eq!(rig.standing(&quota).await, (0, 4, 0), "those that run hold it");
        let refused = rig.client().chat(chat::request("m")).await;
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("4 concurrent requests for this key"), "{message}");
        assert_eq!(refused.header("retry-after"), Some("1"), "any of them may end");
        gate.open(4);
        while let Some(status) = clients.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
        assert_eq!(rig.settled(&quota).await, (0, 4));
        assert_eq!(rig.upstream.requests().len(), 4 * round);
    }
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await, (0, 0, 4));
}

#[tokio::test]
async fn a_target_with_an_exhausted_model_quota_is_skipped() {
    let (rig, second) = line(Answer::completion("from the first")).await;
    let limit = |model: &str, limit: u64| json!({"subject": rig.of_project(), "model": model, "metric": "requests", "window": "month", "limit": limit});
    let of_first = rig.quota(limit("p0/m", 2)).await;
    assert_eq!(rig.statuses(&rig.client(), "line", 3).await, [200; 3]);
    assert_eq!((rig.upstream.requests().len(), second.requests().len()), (2, 1));
    let fourth = rig.client().chat(chat::request("line")).await;
    assert_eq!(fourth.header("x-llmgw-provider"), Some("p1"));
    let record = rig.gateway.record_of(fourth.header("x-request-id").unwrap()).await;
    let results: Vec<_> = record["trace"].as_array().unwrap().iter().map(|step| &step["result"]).collect();
    assert_eq!(results, ["over_quota", "served"]);

    let refused = rig.client().chat(chat::request("p0/m")).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (429, "quota_exceeded"));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("2 requests a month for this project, model p0/m"), "{message}");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.header("x-ratelimit-remaining-requests"), Some("0"));

    rig.gateway.records(5).await;
    let of_second = rig.quota(limit("p1/m", 3)).await;
    assert_eq!(rig.settled(&of_second).await, (2, 1), "it begins with what was used before");
    assert_eq!(rig.statuses(&rig.client(), "line", 2).await, [200, 429], "all are used up");
    let explained = json!({"key_id": rig.key.id, "path": "/v1/chat/completions",
        "body": {"model": "line", "messages": [{"role": "user", "content": "hi"}]}});
    let plan = rig.admin().done("POST", "explain", explained).await;
    assert_eq!((&plan["candidates"], &plan["refusal"]["code"]), (&json!([]), &json!("quota_exceeded")));
    assert_eq!(plan["passed_over"][1]["reason"], "over_quota");
    let rig = rig.restart().await;
    assert_eq!((rig.settled(&of_first).await, rig.settled(&of_second).await), ((2, 0), (3, 0)));
}

#[tokio::test]
async fn of_50_concurrent_requests_a_provider_gets_only_its_quota() {
    let gate = Gate::new();
    let (rig, second) = line(behind(&gate, Answer::completion("from the first"))).await;
    let provider = json!({"kind": "provider", "id": "p0"});
    let requests = json!({"subject": provider, "metric": "requests", "window": "total", "limit": 20});
    let requests = rig.quota(requests).await;
    let running = rig.quota(json!({"subject": provider, "metric": "concurrent_requests", "limit": 15})).await;
    let mut clients = at_once(&rig.client(), 50, &chat::request("line"));
    for _ in 0..35 {
        assert_eq!(clients.join_next().await.unwrap().unwrap(), 200, "the second one serves");
    }
    assert_eq!((rig.standing(&requests).await, rig.standing(&running).await), ((0, 15, 5), (0, 15, 0)));
    gate.open(1_000);
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert_eq!((rig.upstream.requests().len(), second.requests().len()), (15, 35));
    let mut clients = at_once(&rig.client(), 50, &chat::request("p0/m"));
    let mut passed = 0;
    while let Some(status) = clients.join_next().await {
        passed += usize::from(status.unwrap() == 200);
    }
    assert_eq!((passed, rig.upstream.requests().len()), (5, 20));
    figure("P14", "50 requests at once, a provider's quota of 20, 15 at the same time: exactly 20 reach it");
    assert_eq!((rig.settled(&requests).await, rig.settled(&running).await), ((20, 0), (0, 15)));

    let admin = rig.gateway.client();
    assert_eq!(rig.statuses(&admin, "p0/m", 2).await, [200; 2], "administrators are not bound");
    assert_eq!(rig.settled(&requests).await, (22, 0), "but everything that goes to it counts");
    let shown = rig.admin().done("GET", &format!("quotas/{requests}"), Value::Null).await;
    let named = json!({"kind": "provider", "id": provider["id"], "name": provider["id"]});
    assert_eq!((&shown["exceeded"], &shown["subject"]), (&json!(true), &named));
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&requests).await, (22, 0, 0));
}

#[tokio::test]
async fn a_model_token_limit_holds_for_50_requests_and_the_rest_fail_over() {
    let (request, answer) = thousand();
    let request = request.replace(r#""model":"m""#, r#""model":"line""#);
    let (rig, second) = line(answer).await;
    let quota = json!({"subject": {"kind": "gateway"}, "model": "p0/m", "metric": "total_tokens",
        "window": "week", "limit": 20_000});
    let quota = rig.quota(quota).await;
    for _ in 0..2 {
        let mut clients = at_once(&rig.client(), 50, &request);
        while let Some(status) = clients.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
        rig.settled(&quota).await;
    }
    let spent = 1_000 * rig.upstream.requests().len() as u64;
    assert_eq!(rig.settled(&quota).await.0, spent, "what is counted is what the upstream gave out");
    assert!((19_000..=20_000).contains(&spent), "{spent}");
    assert_eq!(rig.upstream.requests().len() + second.requests().len(), 100);
    figure(
        "P14",
        format!("100 requests, 50 at once, of 1,000 tokens on a model's limit of 20,000: {spent} spent"),
    );
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await.0, spent);
}

#[tokio::test]
async fn a_failed_target_releases_its_quota_reservations() {
    let (rig, second) = line(Answer::error(500)).await;
    let quota = |provider: &str, metric: &str, limit: u64| json!({"subject": {"kind": "provider", "id": provider}, "metric": metric, "window": "day", "limit": limit});
    let failing = rig.quota(quota("p0", "requests", 1)).await;
    let failing_tokens = rig.quota(quota("p0", "total_tokens", 10_000)).await;
    let serving = rig.quota(quota("p1", "total_tokens", 10_000)).await;
    assert_eq!(rig.statuses(&rig.client(), "line", 3).await, [200; 3]);
    assert_eq!((rig.upstream.requests().len(), second.requests().len()), (3, 3));
    let settled = async |rig: &Rig| {
        [rig.settled(&failing).await.0, rig.settled(&failing_tokens).await.0, rig.settled(&serving).await.0]
    };
    assert_eq!(settled(&rig).await, [0, 0, 3 * 18]);
    let rig = rig.restart().await;
    assert_eq!(settled(&rig).await, [0, 0, 3 * 18]);
}

#[tokio::test]
async fn usage_of_a_failed_attempt_counts_at_its_provider() {
    let failed = json!({"error": {"message": "It broke.", "type": "server_error", "code": null},
        "usage": {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}});
    let (rig, second) = line(Answer::json(500, failed.to_string())).await;
    let quota = |subject: Value, limit: u64| json!({"subject": subject, "metric": "total_tokens", "window": "total", "limit": limit});
    let provider = |id: &str| json!({"kind": "provider", "id": id});
    let failing = rig.quota(quota(provider("p0"), 50)).await;
    let serving = rig.quota(quota(provider("p1"), 10_000)).await;
    let both = rig.quota(quota(json!({"kind": "key", "id": rig.key.id}), 100_000)).await;
    for _ in 0..4 {
        assert_eq!(rig.statuses(&rig.client(), "line", 1).await, [200]);
        rig.settled(&failing).await;
    }
    assert_eq!((rig.upstream.requests().len(), second.requests().len()), (2, 4), "30 each, of 50");
    let settled = async |rig: &Rig| {
        [rig.settled(&failing).await.0, rig.settled(&serving).await.0, rig.settled(&both).await.0]
    };
    let used = [2 * 30, 4 * 18, 2 * 30 + 4 * 18];
    assert_eq!(settled(&rig).await, used);
    let rig = rig.restart().await;
    assert_eq!(settled(&rig).await, used);
}

#[tokio::test]
async fn a_kill_returns_no_reservation_to_a_provider_quota() {
    let gate = Gate::new();
    let (rig, _second) = line(behind(&gate, Answer::completion("never said"))).await;
    let provider = json!({"kind": "provider", "id": "p0"});
    let quota = json!({"subject": provider, "metric": "requests", "window": "month", "limit": 5});
    let quota = rig.quota(quota).await;
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let client = rig.client().with("content-type", "application/json");
            tokio::spawn(async move {
                client.send("POST", "/v1/chat/completions", chat::request("p0/m").into()).await.is_ok()
            })
        })
        .collect();
    rig.upstream.request(4).await;
    let rig = rig.restart().await;
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(rig.standing(&quota).await, (5, 0, 0));
    assert_eq!(rig.statuses(&rig.client(), "p0/m", 1).await, [429]);
}

#[tokio::test]
async fn a_limit_of_the_gateway_binds_all_project_keys_together_and_no_administrator() {
    let rig = Rig::start().await;
    let other = rig.admin().project("red").await;
    let other = rig.admin().key(json!({"project": other})).await;
    let other = Client::new(rig.gateway.address(), Some(&other.key));
    let gateway = json!({"kind": "gateway"});
    let quota =
        rig.quota(json!({"subject": gateway, "metric": "requests", "window": "week", "limit": 30})).await;
    let admin = rig.gateway.client();
    assert_eq!(rig.statuses(&admin, "m", 2).await, [200; 2]);
    assert_eq!(rig.settled(&quota).await, (0, 30), "administrators do not count");
    let mut clients =
        [at_once(&rig.client(), 25, &chat::request("m")), at_once(&other, 25, &chat::request("m"))];
    let mut passed = 0;
    for clients in &mut clients {
        while let Some(status) = clients.join_next().await {
            passed += usize::from(status.unwrap() == 200);
        }
    }
    assert_eq!(passed, 30);
    assert_eq!(rig.statuses(&admin, "m", 1).await, [200]);
    let list = rig.admin().done("GET", "quotas?kind=gateway", Value::Null).await;
    assert_eq!(
        (&list["data"][0]["id"], &list["data"][0]["subject"]),
        (&json!(quota), &json!({"kind": "gateway", "name": null}))
    );
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await, (30, 0, 0));
    rig.admin().done("DELETE", &format!("quotas/{quota}"), Value::Null).await;
    let again = json!({"subject": gateway, "metric": "requests", "window": "total", "limit": 100});
    let again = rig.quota(again).await;
    assert_eq!(rig.standing(&again).await, (30, 0, 70));
}

#[tokio::test]
async fn a_limit_of_an_endpoint_counts_only_requests_that_name_it() {
    let (rig, _second) = line(Answer::completion("from the first")).await;
    let quota = json!({"subject": {"kind": "key", "id": rig.key.id}, "endpoint": "line",
        "metric": "requests", "window": "day", "limit": 2});
    let quota = rig.quota(quota).await;
    let own = rig.client().get("/v1/key").await.unwrap().json();
    assert_eq!((&own["limits"][0]["endpoint"], &own["limits"][0]["model"]), (&json!("line"), &Value::Null));
    assert_eq!(rig.statuses(&rig.client(), "p0/m", 3).await, [200; 3]);
    assert_eq!(rig.statuses(&rig.client(), "line", 3).await, [200, 200, 429]);
    assert_eq!(rig.statuses(&rig.client(), "p0/m", 1).await, [200]);
    assert_eq!(rig.settled(&quota).await, (2, 0));
    let rig = rig.restart().await;
    assert_eq!(rig.standing(&quota).await, (2, 0, 0));
}

#[tokio::test]
async fn a_cost_limit_of_one_model_does_not_bind_unpriced_models() {
    let (upstream, free) = (Upstream::start().await, Upstream::start().await);
    upstream.always(Answer::completion("ok"));
    free.always(Answer::completion("free"));
    let prices = "models:\n  - id: m\n    prices: { input: 1.0, output: 2.0 }";
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), prices).provider("free", free.base_url());
    let rig = Rig::with(Setup::new(&yaml), upstream).await;
    // 25 micro-dollars per response.
    let quota = rig
        .quota(json!({"subject": rig.of_project(), "model": "up/m", "metric": "cost_micro_usd",
            "window": "month", "limit": 20}))
        .await;
    assert_eq!(rig.statuses(&rig.client(), "free/m", 2).await, [200; 2]);
    assert_eq!(rig.statuses(&rig.client(), "up/m", 1).await, [200]);
    assert_eq!(rig.settled(&quota).await, (25, 0));
    assert_eq!(rig.statuses(&rig.client(), "up/m", 1).await, [429]);
    assert_eq!(rig.statuses(&rig.client(), "free/m", 1).await, [200]);
}

#[tokio::test]
async fn a_warning_limit_shows_in_a_header_a_metric_and_the_list() {
    let (rig, _second) = line(Answer::completion("from the first")).await;
    let warn = |subject: Value, model: Value| {
        json!({"subject": subject, "model": model, "metric": "requests", "window": "day", "limit": 1,
            "enforcement": "warn"})
    };
    let of_project = rig.quota(warn(rig.of_project(), Value::Null)).await;
    let of_model = rig.quota(warn(json!({"kind": "gateway"}), json!("p0/m"))).await;
    let first = rig.client().chat(chat::request("p0/m")).await;
    assert_eq!((first.status, first.header("x-llmgw-quota-warning")), (200, None));
    for body in [chat::request("p0/m"), chat::stream_request("p0/m")] {
        let over = rig.client().chat(body).await;
        let warning = over.header("x-llmgw-quota-warning").unwrap().to_owned();
        assert_eq!(over.status, 200);
        for part in [
            format!("{of_project} is exceeded: 1 requests a day for this project"),
            format!("{of_model} is exceeded: 1 requests a day for the whole gateway, model p0/m"),
        ] {
            assert!(warning.contains(&part), "{warning}");
        }
    }
    let metrics = rig.gateway.client().get("/metrics").await.unwrap();
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(metrics.contains("\nllmgw_quota_warnings_total 2\n"), "{metrics}");
    for quota in [&of_project, &of_model] {
        rig.settled(quota).await;
        let shown = rig.admin().done("GET", &format!("quotas/{quota}"), Value::Null).await;
        assert_eq!((&shown["exceeded"], &shown["used"]), (&json!(true), &json!(3)));
    }
    let elsewhere = rig.client().chat(chat::request("p1/m")).await;
    let warning = elsewhere.header("x-llmgw-quota-warning").unwrap();
    assert!(warning.contains(&of_project) && !warning.contains(&of_model), "{warning}");
}

#[tokio::test]
async fn a_quota_warning_about_a_non_ascii_model_is_a_valid_header() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "models: [modèle]");
    let rig = Rig::with(Setup::new(&yaml), upstream).await;
    rig.quota(json!({"subject": {"kind": "gateway"}, "model": "up/modèle", "metric": "requests",
        "window": "day", "limit": 0, "enforcement": "warn"}))
        .await;
    let over = rig.client().chat(chat::request("up/modèle")).await;
    let warning = over.header("x-llmgw-quota-warning").unwrap();
    assert!(warning.ends_with("for the whole gateway, model up/mod?le"), "{warning}");
}

#[tokio::test]
async fn the_api_rejects_scopes_that_match_nothing() {
    let (rig, _second) = line(Answer::completion("never asked")).await;
    let limit = |scope: Value| {
        let mut quota = json!({"metric": "requests", "window": "day", "limit": 1});
        quota.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
        quota
    };
    let gateway = json!({"kind": "gateway"});
    let of_p0 = json!({"kind": "provider", "id": "p0"});
    for (param, scope) in [
        ("subject", json!({"subject": {"kind": "gateway", "id": "x"}})),
        ("subject", json!({"subject": {"kind": "provider"}})),
        ("subject", json!({"subject": {"kind": "provider", "id": "p9"}})),
        ("model", json!({"subject": gateway, "model": "m"})),
        ("model", json!({"subject": gateway, "model": "p9/m"})),
        ("model", json!({"subject": gateway, "model": "p0/n"})),
        ("model", json!({"subject": of_p0, "model": "p1/m"})),
        ("endpoint", json!({"subject": gateway, "endpoint": "lines"})),
    ] {
        let refused = rig.admin().call("POST", "quotas", limit(scope.clone())).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{scope}");
    }
    for scope in [
        json!({"subject": gateway}),
        json!({"subject": gateway, "model": "p0/m"}),
        json!({"subject": gateway, "endpoint": "line"}),
        json!({"subject": gateway, "model": "p0/m", "endpoint": "line"}),
        json!({"subject": of_p0, "model": "p0/m"}),
    ] {
        assert_eq!(rig.admin().call("POST", "quotas", limit(scope.clone())).await.status, 201, "{scope}");
        assert_eq!(rig.admin().call("POST", "quotas", limit(scope.clone())).await.status, 409, "{scope}");
    }
    let of_provider = rig.admin().done("GET", "quotas?provider=p0", Value::Null).await;
    assert_eq!(of_provider["data"].as_array().unwrap().len(), 1);
    let both = rig.admin().call("GET", "quotas?provider=p0&kind=gateway", Value::Null).await;
    assert_eq!(both.status, 400);
}
