//! Explanations of drafts, of many requests at once, and of assumed faults; nothing is sent (FAIL-8, M-053).

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::{Gateway, Upstream, Yaml};

const POLICIES: &str =
    "retry_max_attempts: 2\nretry_initial_backoff_seconds: 0.5\ncircuit_failure_threshold: 3";

/// A gateway with three providers whose upstreams must not be called.
struct Rig {
    _gateway: Gateway,
    admin: Admin,
    upstream: Upstream,
}

impl Rig {
    async fn start(policies: &str) -> Self {
        let upstream = Upstream::start().await;
        let mut yaml = Yaml::new().policies(policies);
        for id in ["a", "b", "c"] {
            yaml = yaml.provider_with(id, upstream.base_url(), "timeout: 10\nmodels: [m, n]");
        }
        let line = [("a", "m"), ("b", "m"), ("c", "m")];
        let gateway = Gateway::start(&yaml.endpoint("line", &line)).await;
        let admin = Admin(gateway.client());
        Self { _gateway: gateway, admin, upstream }
    }

    async fn explain(&self, members: Value) -> Value {
        let mut question = json!({"path": "/v1/chat/completions", "body": body("line")});
        question.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let explained = self.admin.done("POST", "explain", question).await;
        assert!(self.upstream.requests().is_empty(), "nothing is sent");
        explained
    }

    /// Returns `provider attempts result ends_at_ms` of each step of the path.
    async fn path(&self, members: Value) -> Vec<String> {
        let explained = self.explain(members).await;
        let line = |step: &Value| {
            format!(
                "{} {} {} {}",
                step["target"]["provider"].as_str().unwrap(),
                step["attempts"],
                step["result"].as_str().unwrap(),
                step["ends_at_ms"]
            )
        };
        explained["path"].as_array().unwrap_or_else(|| panic!("{explained}")).iter().map(line).collect()
    }
}

fn body(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test]
async fn assumed_faults_are_explained_through_retries_and_timeouts() {
    let rig = Rig::start(POLICIES).await;
    let fault = |provider: &str, fault: &str| json!({"provider": provider, "fault": fault});
    let status =
        |provider: &str, status: u16| json!({"provider": provider, "fault": "status", "status": status});
    for (faults, want) in [
        (json!([]), &["a 1 served 0"][..]),
        (json!([status("a", 503)]), &["a 2 status 500", "b 1 served 500"]),
        (json!([status("a", 401)]), &["a 1 status 0", "b 1 served 0"]),
        (json!([status("a", 409)]), &["a 1 status 0"]),
        (json!([fault("a", "hang")]), &["a 2 timed_out 20500", "b 1 served 20500"]),
        (
            json!([fault("a", "cut"), status("b", 500)]),
            &["a 2 unreachable 500", "b 2 status 1000", "c 1 served 1000"],
        ),
        (json!([{"provider": "a", "model": "n", "fault": "hang"}]), &["a 1 served 0"]),
        (
            json!([{"provider": "a", "model": "m", "fault": "hang"}]),
            &["a 2 timed_out 20500", "b 1 served 20500"],
        ),
    ] {
        assert_eq!(rig.path(json!({"faults": faults})).await, want, "{faults}");
    }
    let hanging = json!([fault("a", "hang"), fault("b", "hang"), fault("c", "hang")]);
    let mut short = body("line");
    short["fallback_timeout_ms"] = json!(25_000);
    let path = rig.path(json!({"faults": hanging, "body": short})).await;
    assert_eq!(path, ["a 2 timed_out 12500", "b 1 timed_out 18750", "c 1 budget_exhausted 25000"]);
    let limited = json!([status("a", 429), status("b", 401)]);
    let path = rig.path(json!({"faults": limited, "body": body("line")})).await;
    assert_eq!(path, ["a 1 status 0", "b 1 status 0", "c 1 served 0"], "a rate limit moves on at once");
    let limited = json!([status("a", 429), status("b", 401), status("c", 401)]);
    let path = rig.path(json!({"faults": limited, "body": body("line")})).await;
    assert_eq!(path, ["a 1 status 0", "b 1 status 0", "c 1 status 0", "a 1 status 500"]);
    let mut streamed = body("line");
    streamed["stream"] = json!(true);
    let path = rig.path(json!({"faults": [fault("a", "cut")], "body": streamed})).await;
    assert_eq!(path, ["a 2 stream_ended 500", "b 1 served 500"]);
    let explained = rig.explain(json!({"faults": [fault("a", "hang")]})).await;
    let tries = json!([
        {"result": "timed_out", "starts_at_ms": 0, "ends_at_ms": 10_000},
        {"result": "timed_out", "starts_at_ms": 10_500, "ends_at_ms": 20_500},
    ]);
    assert_eq!(explained["path"][0]["tries"], tries);
    assert_eq!(rig.explain(json!({})).await["path"], Value::Null, "without faults there is no path");
}

#[tokio::test]
async fn a_circuit_that_opens_on_the_way_ends_the_retries_and_skips_its_provider() {
    let rig =
        Rig::start("retry_max_attempts: 5\nretry_initial_backoff_seconds: 0.1\ncircuit_failure_threshold: 3")
            .await;
    let draft = json!({"name": "twice", "failover": [
        {"provider": "a", "model": "m"}, {"provider": "a", "model": "n"}, {"provider": "b", "model": "m"}]});
    let faults = json!([{"provider": "a", "fault": "status", "status": 500}]);
    let path = rig.path(json!({"draft": draft, "faults": faults, "body": body("twice")})).await;
    assert_eq!(path, ["a 3 status 300", "a 0 circuit_open 300", "b 1 served 300"]);
}

#[tokio::test]
async fn a_draft_is_explained_as_if_it_were_stored() {
    let rig = Rig::start(POLICIES).await;
    let draft = |name: &str| json!({"name": name, "failover": [{"provider": "c", "model": "n"}, {"provider": "a", "model": "m"}]});
    let want = json!([{"provider": "c", "model": "n"}, {"provider": "a", "model": "m"}]);
    let new = rig.explain(json!({"draft": draft("new"), "body": body("new")})).await;
    assert_eq!((&new["resolved"]["name"], &new["candidates"]), (&json!("new"), &want));
    let changed = rig.explain(json!({"draft": draft("line")})).await;
    assert_eq!(changed["candidates"], want, "it takes the place of the stored one");
    let project = rig.admin.project("blue").await;
    let key = rig.admin.key(json!({"project": project, "endpoints": ["new"]})).await;
    let of_key = json!({"draft": draft("new"), "body": body("new"), "key_id": key.id});
    assert_eq!(rig.explain(of_key).await["candidates"], want, "lists of endpoints contain its name");
    assert_eq!(rig.admin.call("GET", "endpoints/new", Value::Null).await.status, 404);
}

#[tokio::test]
async fn several_requests_are_explained_at_once_each_for_its_own_key() {
    let rig = Rig::start(POLICIES).await;
    let project = rig.admin.project("blue").await;
    let key = rig.admin.key(json!({"project": project, "models": ["b/*"]})).await;
    let cases = json!([
        {"name": "chat", "path": "/v1/chat/completions", "body": body("line")},
        {"name": "messages", "path": "/v1/messages", "body": {"model": "line", "max_tokens": 9, "messages": []}},
        {"name": "key", "path": "/v1/chat/completions", "body": body("line"), "key_id": key.id},
        {"name": "unknown", "path": "/v1/chat/completions", "body": body("nothing")},
    ]);
    let faults = json!([{"provider": "a", "fault": "hang"}]);
    let explained = rig.admin.done("POST", "explain", json!({"cases": cases, "faults": faults})).await;
    let cases = explained["cases"].as_array().unwrap();
    let names: Vec<&str> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["chat", "messages", "key", "unknown"]);
    assert_eq!(cases[0]["candidates"].as_array().unwrap().len(), 3);
    assert_eq!(cases[1]["operation"], "messages");
    assert_eq!(cases[2]["candidates"], json!([{"provider": "b", "model": "m"}]));
    assert_eq!(cases[2]["path"][0]["result"], "served", "the faulty provider is not used");
    assert_eq!(cases[3]["refusal"]["code"], "model_not_found");
}

#[tokio::test]
async fn a_faulty_question_is_refused_by_its_field() {
    let rig = Rig::start(POLICIES).await;
    let path = "/v1/chat/completions";
    let draft = |provider: &str, model: &str| json!({"name": "d", "failover": [{"provider": provider, "model": model}]});
    let one = json!({"path": path, "body": body("line")});
    let with = |member: &str, value: Value| {
        let mut changed = one.clone();
        changed[member] = value;
        changed
    };
    for (question, param) in [
        (json!({}), "path"),
        (json!({"path": path}), "body"),
        (with("cases", json!([])), "cases"),
        (json!({"cases": []}), "cases"),
        (json!({"cases": [{"name": "x", "path": path}]}), "cases[0].body"),
        (with("draft", draft("none", "m")), "draft.failover[0].provider"),
        (with("draft", draft("a", "none")), "draft.failover[0].model"),
        (with("draft", json!({"name": "a b", "failover": [{"provider": "a", "model": "m"}]})), "draft.name"),
        (with("draft", json!({"name": "d", "failover": []})), "failover"),
        (with("faults", json!([{"provider": "none", "fault": "hang"}])), "faults[0].provider"),
        (with("faults", json!([{"provider": "a", "fault": "status"}])), "faults[0].status"),
        (with("faults", json!([{"provider": "a", "fault": "status", "status": 200}])), "faults[0].status"),
        (with("faults", json!([{"provider": "a", "fault": "hang", "status": 500}])), "faults[0].status"),
        (with("faults", json!([{"provider": "a", "fault": "sleep"}])), "faults[0].fault"),
        (with("key_id", json!("key_none")), "key_id"),
    ] {
        let answer = rig.admin.call("POST", "explain", question.clone()).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)), "{question}");
    }
}

#[tokio::test]
async fn an_explanation_names_the_adaptation_whose_fields_are_listed() {
    let rig = Rig::start(POLICIES).await;
    let asked = json!({"path": "/v1/messages", "body": {"model": "line", "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}]}});
    let explained = rig.explain(asked).await;
    assert_eq!(explained["candidates"][0], json!({"provider": "a", "model": "m", "adapted": "chat"}));
    let tables = rig.admin.done("GET", "adaptations?client=messages&target=chat", Value::Null).await;
    let [table] = &tables["data"].as_array().unwrap()[..] else { panic!("{tables}") };
    let step = &table["steps"][0];
    assert_eq!((&step["from"], &step["to"]), (&json!("messages"), &json!("chat")));
    let fate = |field: &str| {
        let fields = step["fields"].as_array().unwrap();
        fields.iter().find(|row| row["field"] == field).map(|row| row["fate"].as_str().unwrap().to_owned())
    };
    assert_eq!(
        (fate("temperature").as_deref(), fate("max_tokens").as_deref()),
        (Some("exact"), Some("mapped"))
    );
    let chains = rig.admin.done("GET", "adaptations?target=bedrock", Value::Null).await;
    let steps = |table: &Value| table["steps"].as_array().unwrap().len();
    let clients =
        chains["data"].as_array().unwrap().iter().map(|table| (table["client"].clone(), steps(table)));
    let want = [("chat", 1), ("messages", 2), ("responses", 2), ("gemini", 2)];
    assert_eq!(clients.collect::<Vec<_>>(), want.map(|(client, steps)| (json!(client), steps)));
}
