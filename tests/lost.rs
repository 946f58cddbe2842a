//! Every attempt counts (ADM-6): the usage that an upstream reports for a failed attempt is kept on its trace step, is
//! billed, and is shown as lost cost.

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

/// An attempt that reports 11 input and 7 output tokens, and fails.
struct Failing {
    name: &'static str,
    /// `type` and other members of the provider.
    members: &'static str,
    path: &'static str,
    body: Value,
    answer: Answer,
}

const PRICES: &str = "models: [{id: m, prices: {input: 3, output: 15}}]";
const RESPONSES: &str = "models: [{id: m, protocols: [responses], prices: {input: 3, output: 15}}]";
/// The cost of 11 input and 7 output tokens, in micro-dollars.
const COST: f64 = 138.0;

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn messages_body(stream: bool) -> Value {
    json!({"model": "line", "stream": stream, "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]})
}

fn failed_response() -> Value {
    json!({"type": "response.failed", "sequence_number": 1, "response": {
        "id": "resp_1", "object": "response", "status": "failed", "output": [],
        "error": {"code": "server_error", "message": "It broke."},
        "usage": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18},
    }})
}

/// Returns attempts at each kind of stream and of whole answer.
fn failing() -> Vec<Failing> {
    let mut failing = failing_streams();
    failing.extend(failing_answers());
    failing
}

fn error() -> Value {
    json!({"error": {"message": "It broke.", "type": "server_error", "code": null}})
}

fn failing_streams() -> Vec<Failing> {
    let (error, stream): (Value, Value) =
        (error(), serde_json::from_str(&chat::stream_request("line")).unwrap());
    let start = json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "m", "content": [], "stop_reason": null, "usage": {"input_tokens": 11, "output_tokens": 7}}});
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let counted =
        json!({"candidates": [], "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 7}});
    let broken = json!({"error": {"code": 503, "message": "It broke.", "status": "UNAVAILABLE"}});
    vec![
        Failing {
            name: "usage before an error event",
            members: "type: compatible\nprotocols: [chat]",
            path: "/v1/chat/completions",
            body: stream.clone(),
            answer: Answer::events(&[chat::role(), chat::usage(), chat::event(&error.to_string())]),
        },
        Failing {
            name: "message_start before an error event",
            members: "type: compatible\nprotocols: [messages]",
            path: "/v1/messages",
            body: messages_body(true),
            answer: Answer::events(&[event("message_start", &start), event("error", &overloaded)]),
        },
        Failing {
            name: "message_start before the upstream breaks off",
            members: "type: compatible\nprotocols: [messages]",
            path: "/v1/chat/completions",
            body: stream.clone(),
            answer: Answer::stream().chunk(event("message_start", &start)).close(),
        },
        Failing {
            name: "response.failed",
            members: "type: openai\nforce_api_support: true",
            path: "/v1/responses",
            body: json!({"model": "line", "stream": true, "input": "hi"}),
            answer: Answer::events(&[event("response.failed", &failed_response())]),
        },
        Failing {
            name: "response.failed for a client of another dialect",
            members: "type: openai\nforce_api_support: true",
            path: "/v1/chat/completions",
            body: stream.clone(),
            answer: Answer::events(&[event("response.failed", &failed_response())]),
        },
        Failing {
            name: "Gemini's usageMetadata before an error",
            members: "type: gemini",
            path: "/v1/chat/completions",
            body: stream,
            answer: Answer::events(&[chat::event(&counted.to_string()), chat::event(&broken.to_string())]),
        },
    ]
}

fn failing_answers() -> Vec<Failing> {
    let chat: Value = serde_json::from_str(&chat::request("line")).unwrap();
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18});
    let mut error_with_usage = error();
    error_with_usage["usage"] = usage.clone();
    vec![
        Failing {
            name: "an error status with usage",
            members: "type: compatible\nprotocols: [chat]",
            path: "/v1/chat/completions",
            body: chat.clone(),
            answer: Answer::json(500, error_with_usage.to_string()),
        },
        Failing {
            name: "an error with usage and a good status",
            members: "type: compatible\nprotocols: [chat]",
            path: "/v1/chat/completions",
            body: chat,
            answer: Answer::json(200, error_with_usage.to_string()),
        },
        Failing {
            name: "an empty whole answer",
            members: "type: compatible\nprotocols: [chat]",
            path: "/v1/messages",
            body: messages_body(false),
            answer: Answer::json(
                200,
                json!({"object": "chat.completion", "choices": [], "usage": usage}).to_string(),
            ),
        },
    ]
}

/// Starts `p0` with these members, then `p1`, which serves chat, behind `line`.
async fn line(members: &str, attempts: u32) -> (Gateway, [Upstream; 2]) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let own = if members.contains("force") { RESPONSES } else { PRICES };
    let members = members.replace('\n', "\n    ");
    let root = first.base_url();
    let base = if members.contains("gemini") { root.trim_end_matches("/v1").to_owned() } else { root };
    let (url, policies) =
        (second.base_url(), "circuit_failure_threshold: 0, retry_initial_backoff_seconds: 0.01");
    let yaml = format!(
        "providers:\n  p0:\n    {members}\n    base_url: {base}\n    api_key: secret\n    {own}\n  \
           p1:\n    type: compatible\n    base_url: {url}\n    api_key: secret\n    {PRICES}\n\
         endpoints:\n  line:\n    failover: [{{provider: p0, model: m}}, {{provider: p1, model: m}}]\n\
         policies:\n  defaults: {{retry_max_attempts: {attempts}, {policies}}}\n"
    );
    (Setup::new(&Yaml::new()).yaml(yaml).start().await, [first, second])
}

/// Returns a key with one limit on all of its tokens and one on its cost, neither of which is exceeded.
async fn limited(gateway: &Gateway) -> (Client, [String; 2]) {
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let quota = |metric: &str| {
        json!({"subject": {"kind": "key", "id": key.id}, "metric": metric, "window": "total",
        "limit": 1_000_000})
    };
    let quotas = [
        admin.create("quotas", quota("total_tokens")).await,
        admin.create("quotas", quota("cost_micro_usd")).await,
    ];
    (Client::new(gateway.address(), Some(&key.key)), quotas)
}

async fn used(gateway: &Gateway, quota: &str) -> u64 {
    let admin = Admin(gateway.client());
    wait::eventually("the quota is settled", async || {
        let shown = admin.done("GET", &format!("quotas/{quota}"), Value::Null).await;
        (shown["reserved"] == 0).then(|| shown["used"].as_u64().unwrap())
    })
    .await
}

#[tokio::test]
async fn usage_of_a_failed_attempt_is_recorded_as_lost_and_billed() {
    for Failing { name, members, path, body, answer } in failing() {
        let (gateway, [first, second]) = line(members, 1).await;
        first.always(answer);
        let is_stream = body["stream"] == true;
        second.always(if is_stream {
            Answer::events(&chat::events(&["ok"]))
        } else {
            Answer::completion("ok")
        });
        let (client, [tokens, cost]) = limited(&gateway).await;
        let served = client.post(path, body.to_string()).await;
        assert_eq!(
            (served.status, served.header("x-llmgw-provider")),
            (200, Some("p1")),
            "{name}: {served:?}"
        );
        let record = gateway.record_of(served.header("x-request-id").unwrap()).await;
        let lost = &record["trace"][0]["lost"];
        assert_eq!(
            (&lost["tokens"]["input"], &lost["tokens"]["output"]),
            (&json!(11), &json!(7)),
            "{name}: {record}"
        );
        assert_eq!(lost["cost_micro_usd"].as_f64(), Some(COST), "{name}");
        assert_eq!(record["lost_micro_usd"].as_f64(), Some(COST), "{name}");
        assert_eq!(record["cost_micro_usd"].as_f64(), Some(COST), "{name}: of what served");
        assert!(record["trace"][1].get("lost").is_none(), "{name}");
        assert_eq!((used(&gateway, &tokens).await, used(&gateway, &cost).await), (36, 276), "{name}");
        let report = gateway.client().get("/admin/api/usage?group_by=provider").await.unwrap().json();
        let lost: f64 =
            report["data"].as_array().unwrap().iter().filter_map(|row| row["lost_micro_usd"].as_f64()).sum();
        assert_eq!(lost, COST, "{name}: {report}");
        let gateway = gateway.restart().await;
        assert_eq!(
            (used(&gateway, &tokens).await, used(&gateway, &cost).await),
            (36, 276),
            "{name}: after a restart"
        );
    }
}

#[tokio::test]
async fn a_failed_attempt_in_a_tier_without_prices_has_an_unknown_cost() {
    let mut response = failed_response();
    response["response"]["service_tier"] = json!("priority");
    let (gateway, [first, second]) = line("type: openai\nforce_api_support: true", 1).await;
    first.always(Answer::events(&[event("response.failed", &response)]));
    second.always(Answer::events(&chat::events(&["ok"])));
    let body = json!({"model": "line", "stream": true, "input": "hi"}).to_string();
    let served = gateway.client().post("/v1/responses", body).await;
    let record = gateway.record_of(served.header("x-request-id").unwrap()).await;
    let lost = &record["trace"][0]["lost"];
    assert_eq!((&lost["tokens"]["input"], &lost["cost_micro_usd"]), (&json!(11), &Value::Null), "{record}");
}

#[tokio::test]
async fn lost_usage_of_every_retry_is_recorded_and_billed() {
    let failing = failing().into_iter().find(|failing| failing.name == "an error status with usage").unwrap();
    let (gateway, [first, second]) = line(failing.members, 3).await;
    first.always(failing.answer.clone());
    second.always(failing.answer);
    let (client, [tokens, cost]) = limited(&gateway).await;
    let refused = client.post(failing.path, failing.body.to_string()).await;
    assert_eq!(refused.status, 500);
    let record = gateway.record_of(refused.header("x-request-id").unwrap()).await;
    let lost: Vec<f64> = record["trace"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["lost"]["cost_micro_usd"].as_f64().unwrap())
        .collect();
    assert_eq!((lost, record["lost_micro_usd"].as_f64()), (vec![COST; 6], Some(6.0 * COST)));
    assert_eq!((&record["tokens"]["input"], &record["outcome"]), (&json!(0), &json!("failed")));
    assert_eq!((used(&gateway, &tokens).await, used(&gateway, &cost).await), (6 * 18, 6 * 138));
}

#[tokio::test]
async fn a_response_that_fails_after_content_is_billed_as_it_reports() {
    let (gateway, [first, _]) = line("type: openai\nforce_api_support: true", 1).await;
    let delta = json!({"type": "response.output_text.delta", "sequence_number": 0, "item_id": "msg_1",
        "output_index": 0, "content_index": 0, "delta": "some"});
    first.always(Answer::events(&[
        event("response.output_text.delta", &delta),
        event("response.failed", &failed_response()),
    ]));
    for (path, body) in [
        ("/v1/responses", json!({"model": "p0/m", "stream": true, "input": "hi"}).to_string()),
        ("/v1/chat/completions", chat::stream_request("p0/m")),
    ] {
        let sending = gateway.client().with("content-type", "application/json");
        let mut flow = sending.open("POST", path, body.into()).await.unwrap();
        let id = flow.headers["x-request-id"].to_str().unwrap().to_owned();
        flow.rest().await;
        let record = gateway.record_of(&id).await;
        assert_eq!(
            (&record["outcome"], &record["provenance"]),
            (&json!("cut"), &json!("reported")),
            "{path}"
        );
        assert_eq!(
            (&record["tokens"]["input"], &record["tokens"]["output"]),
            (&json!(11), &json!(7)),
            "{path}"
        );
        assert_eq!(record["cost_micro_usd"].as_f64(), Some(COST), "{path}");
    }
}

/// Usage that has no cost without a price for audio: 6 input tokens, 4 of audio, 5 output.
fn heard_usage() -> Value {
    json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"audio_tokens": 4}})
}

fn error_with(members: &Value) -> Answer {
    let mut body = error();
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Answer::json(500, body.to_string())
}

async fn reprice(gateway: &Gateway, prices: Value) -> u64 {
    let body =
        json!({"from": 0, "to": "2100-01-01T00:00:00Z", "provider": "p0", "model": "m", "prices": prices});
    let done = Admin(gateway.client()).done("POST", "usage/reprice", body).await;
    done["changed"].as_u64().unwrap()
}

/// ADM-4, ADM-6: under hard limits and under warning limits, in memory and after a restart.
#[tokio::test]
async fn an_unknown_cost_counts_as_reserved_for_each_attempt_with_usage() {
    for enforcement in ["hard", "warn"] {
        let (gateway, [first, second]) = line("type: compatible\nprotocols: [chat]", 1).await;
        let mut served: Value = serde_json::from_str(&chat::completion("ok")).unwrap();
        served["usage"] = heard_usage();
        first
            .then(Answer::json(200, served.to_string()))
            .then(error_with(&json!({"usage": heard_usage()})))
            .then(error_with(&json!({})));
        second.always(Answer::completion("ok"));
        let admin = Admin(gateway.client());
        let project = admin.project("blue").await;
        let key = admin.key(json!({"project": project})).await;
        let quota = json!({"subject": {"kind": "key", "id": key.id}, "metric": "cost_micro_usd", "window": "total",
            "limit": 10_000_000, "enforcement": enforcement});
        let quota = admin.create("quotas", quota).await;
        let client = Client::new(gateway.address(), Some(&key.key));
        assert_eq!(client.chat(chat::request("line")).await.header("x-llmgw-provider"), Some("p0"));
        let reserved = used(&gateway, &quota).await;
        assert!(reserved > 10_000, "{reserved} were reserved");
        for (name, want) in
            [("one that reports usage", 2 * reserved + 138), ("one that reports none", 2 * reserved + 276)]
        {
            assert_eq!(client.chat(chat::request("line")).await.header("x-llmgw-provider"), Some("p1"));
            assert_eq!(used(&gateway, &quota).await, want, "{enforcement}, {name}");
        }
        gateway.records(3).await;
        let gateway = gateway.restart().await;
        assert_eq!(used(&gateway, &quota).await, 2 * reserved + 276, "{enforcement}, after a restart");
        for changed in [2, 0] {
            let prices = json!({"input": 3, "audio_input": 0.5, "output": 15});
            assert_eq!(reprice(&gateway, prices).await, changed);
            assert_eq!(used(&gateway, &quota).await, 2 * 95 + 276, "{enforcement}, repriced");
        }
        let gateway = gateway.restart().await;
        assert_eq!(used(&gateway, &quota).await, 2 * 95 + 276, "{enforcement}, repriced, after a restart");
    }
}

#[tokio::test]
async fn a_failed_attempt_is_repriced_at_its_own_service_tier() {
    let (gateway, [first, second]) = line("type: compatible\nprotocols: [chat]", 1).await;
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18});
    first.always(error_with(&json!({"usage": usage, "service_tier": "priority"})));
    second.always(Answer::completion("ok"));
    let served = gateway.client().chat(chat::request("line")).await;
    let id = served.header("x-request-id").unwrap();
    let lost = gateway.record_of(id).await["trace"][0]["lost"].clone();
    assert_eq!((&lost["tier"], &lost["cost_micro_usd"]), (&json!("priority"), &Value::Null), "{lost}");
    let prices = json!({"input": 3, "output": 15, "tiers": {"priority": {"input": 6, "output": 30}}});
    for changed in [1, 0] {
        assert_eq!(reprice(&gateway, prices.clone()).await, changed);
        let record = gateway.record_of(id).await;
        assert_eq!(record["lost_micro_usd"].as_f64(), Some(2.0 * COST), "{record}");
    }
}
