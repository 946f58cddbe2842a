//! Limits on cost follow a repricing of the records that they count (ADM-6).

use serde_json::{Value, json};

use super::Rig;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Upstream, Yaml, chat};

const PRICES: &str = "models: [{id: m, prices: {input: 3, output: 15}}]";
const LIMIT: u64 = 1_000_000;

/// Starts a gateway whose usage is in the same database or in a separate one.
async fn rig(prices: &str, answer: Answer, is_apart: bool) -> Rig {
    let upstream = Upstream::start().await;
    upstream.always(answer);
    let setup = Setup::new(&Yaml::new().provider_with("up", upstream.base_url(), prices));
    Rig::with(setup.env("LLMGW_USAGE_DB", is_apart.to_string()), upstream).await
}

impl Rig {
    /// Reprices all records with `prices`; returns how many changed.
    async fn reprice(&self, prices: Value) -> u64 {
        let body = json!({"from": 0, "to": "2100-01-01T00:00:00Z", "provider": "up", "model": "m", "prices": prices});
        let done = self.admin().done("POST", "usage/reprice", body).await;
        done["changed"].as_u64().unwrap()
    }
}

#[tokio::test]
async fn a_repricing_corrects_the_cost_limits_of_a_key_family_once() {
    for is_apart in [false, true] {
        let rig = rig(PRICES, Answer::completion("ok"), is_apart).await;
        let month = rig.limit("cost_micro_usd", "month", LIMIT).await;
        let total = rig
            .quota(json!({"subject": {"kind": "project", "id": rig.project}, "metric": "cost_micro_usd", "window": "total",
            "limit": LIMIT, "enforcement": "warn"}))
            .await;
        let minute = rig.limit("cost_micro_usd", "minute", LIMIT).await;
        let tokens = rig.limit("total_tokens", "month", LIMIT).await;
        let rotated = rig.admin().done("POST", &format!("keys/{}/rotate", rig.key.id), json!({})).await;
        let rotated = Client::new(rig.gateway.address(), rotated["key"].as_str());
        for client in [rig.client(), rig.client(), rotated] {
            assert_eq!(client.chat(chat::request("m")).await.status, 200);
        }
        rig.gateway.records(3).await;
        // 11 tokens in and 7 out: 138 micro-dollars each.
        assert_eq!(rig.settled(&month).await, (414, LIMIT - 414), "apart: {is_apart}");
        for (prices, changed, used) in [
            (json!({"input": 6, "output": 30}), 3, 828),
            (json!({"input": 6, "output": 30}), 0, 828),
            (json!({"input": 1, "output": 1}), 3, 54),
            (json!({"input": 1, "output": 1}), 0, 54),
        ] {
            assert_eq!(rig.reprice(prices.clone()).await, changed, "{prices}");
            for quota in [&month, &total, &minute] {
                assert_eq!(rig.settled(quota).await.0, used, "{prices}, apart: {is_apart}");
            }
            assert_eq!(rig.settled(&tokens).await.0, 54, "tokens stay what they are");
        }
        let rig = rig.restart().await;
        for quota in [&month, &total] {
            assert_eq!(rig.settled(quota).await.0, 54, "after a restart, apart: {is_apart}");
        }
    }
}

#[tokio::test]
async fn a_cost_that_becomes_known_replaces_its_reservation() {
    let mut answer: Value = serde_json::from_str(&chat::completion("ok")).unwrap();
    answer["usage"] = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": {"audio_tokens": 4}});
    for is_apart in [false, true] {
        let rig = rig(PRICES, Answer::json(200, answer.to_string()), is_apart).await;
        let quota = rig.limit("cost_micro_usd", "month", LIMIT).await;
        assert_eq!(rig.client().chat(chat::request("m")).await.status, 200);
        let record = rig.gateway.records(1).await.remove(0);
        assert!(record["cost_micro_usd"].is_null(), "audio has no price: {record}");
        let (held, _) = rig.settled(&quota).await;
        assert!(held > 1_000, "{held} were reserved");
        for changed in [1, 0] {
            let prices = json!({"input": 3, "audio_input": 0.5, "output": 15});
            assert_eq!(rig.reprice(prices).await, changed);
            assert_eq!(rig.settled(&quota).await.0, 6 * 3 + 2 + 5 * 15, "apart: {is_apart}");
        }
        let rig = rig.restart().await;
        assert_eq!(rig.settled(&quota).await.0, 95, "after a restart, apart: {is_apart}");
    }
}

#[tokio::test]
async fn a_repricing_keeps_costs_without_reported_usage_unknown() {
    let members = "protocols: [chat, speech, images]\nmodels: [{id: m, prices: {input: 3, output: 15}}]";
    let rig = rig(members, Answer::whole(200, &[("content-type", "audio/mpeg")], "sound"), false).await;
    let quota = rig
        .quota(json!({"subject": {"kind": "project", "id": rig.project}, "metric": "cost_micro_usd", "window": "month",
        "limit": LIMIT, "enforcement": "warn"}))
        .await;
    let speech = json!({"model": "m", "input": "Say this.", "voice": "v"}).to_string();
    assert_eq!(rig.client().post("/v1/audio/speech", speech).await.status, 200);
    let image = json!({"created": 1, "data": [{"b64_json": "aGk="}]}).to_string();
    rig.upstream.then(Answer::json(200, image));
    let body = json!({"model": "m", "prompt": "A cat."}).to_string();
    assert_eq!(rig.client().post("/v1/images/generations", body).await.status, 200);
    rig.gateway.records(2).await;
    let (before, _) = rig.settled(&quota).await;
    assert_eq!(rig.reprice(json!({"input": 6, "output": 30})).await, 0);
    let records = rig.gateway.records(2).await;
    assert!(records.iter().all(|record| record["cost_micro_usd"].is_null()), "{records:?}");
    assert_eq!(rig.settled(&quota).await.0, before);
}
