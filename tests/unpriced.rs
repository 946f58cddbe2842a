//! Prices that an operator has set: cached input without a price of its own is billed as input, and what still lacks a
//! price is named wherever a person would look for it (ADM-6).

use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

const PRICES: &str = "models: [{id: m, prices: {input: 1, output: 2}}]";

/// Returns an answer with 10 tokens of input, 5 of output and these details of its input.
fn answer(details: &Value) -> Answer {
    let mut answer: Value = serde_json::from_str(&chat::completion("ok")).unwrap();
    answer["usage"] = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": details});
    Answer::json(200, answer.to_string())
}

async fn record(gateway: &Gateway, client: &Client) -> Value {
    let answer = client.chat(chat::request("m")).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    gateway.record_of(answer.header("x-request-id").unwrap()).await
}

#[tokio::test]
async fn a_server_that_reports_cached_input_has_a_cost_at_prices_of_input_and_output() {
    let upstream = Upstream::start().await;
    upstream.always(answer(&json!({"cached_tokens": 4})));
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), PRICES);
    let gateway = Setup::new(&yaml).at_noon().start().await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    let quota = json!({"subject": {"kind": "key", "id": key.id}, "metric": "cost_micro_usd", "window": "month",
        "limit": 1_000_000});
    let quota = admin.create("quotas", quota).await;
    let client = Client::new(gateway.address(), Some(&key.key));
    let bill = record(&gateway, &client).await;
    assert_eq!(bill["tokens"]["cache_read"], 4, "{bill}");
    assert_eq!(bill["cost_micro_usd"].as_f64(), Some(20.0), "{bill}");
    assert_eq!(bill["price"], "config in 1 out 2", "{bill}");
    wait::eventually("the limit counts the cost, not the reservation", async || {
        let shown = admin.done("GET", &format!("quotas/{quota}"), Value::Null).await;
        (shown["used"] == 20 && shown["reserved"] == 0).then_some(())
    })
    .await;

    let body = json!({"provider": "up", "model": "m", "facts": {"prices": {"input": 3, "output": 2}}});
    admin.create("catalog/overrides", body).await;
    let overridden = record(&gateway, &client).await;
    assert_eq!(overridden["cost_micro_usd"].as_f64(), Some(40.0), "{overridden}");
    let body = json!({"from": 0, "to": u32::MAX as u64 * 1_000, "provider": "up", "model": "m",
        "prices": {"input": 5, "output": 2}});
    assert_eq!(admin.done("POST", "usage/reprice", body).await["unpriced"], 0);
    let repriced = gateway.records(2).await;
    let costs = repriced.iter().map(|record| record["cost_micro_usd"].as_f64());
    assert!(costs.into_iter().all(|cost| cost == Some(60.0)), "{repriced:?}");
}

#[tokio::test]
async fn a_class_without_a_price_is_named_in_the_record_and_the_export() {
    let upstream = Upstream::start().await;
    upstream.always(answer(&json!({"cached_tokens": 4, "audio_tokens": 3})));
    let gateway = Gateway::start(&Yaml::new().provider_with("up", upstream.base_url(), PRICES)).await;
    let heard = record(&gateway, &gateway.client()).await;
    assert_eq!((&heard["cost_micro_usd"], &heard["price"]), (&Value::Null, &Value::Null), "{heard}");
    assert_eq!(heard["unpriced"], json!(["audio_input"]), "{heard}");
    let export = gateway.client().get("/admin/api/usage/export?format=csv").await.unwrap();
    let text = String::from_utf8(export.body.to_vec()).unwrap();
    let (head, line) = text.trim_end().split_once("\r\n").unwrap();
    assert!(
        head.ends_with(",unpriced,message,order,chosen_by,queue_us") && line.ends_with(",audio_input,,,,"),
        "{text}"
    );

    // A repricing names what its prices lack, and nothing once the cost is known.
    let admin = Admin(gateway.client());
    for (prices, want) in [
        (json!({"output": 2, "audio_input": 1}), json!(["input", "cached_input"])),
        (json!({"input": 1, "output": 2, "audio_input": 1}), Value::Null),
    ] {
        let body = json!({"from": 0, "to": u32::MAX as u64 * 1_000, "provider": "up", "model": "m", "prices": prices});
        assert_eq!(admin.done("POST", "usage/reprice", body).await["changed"], 1, "{want}");
        assert_eq!(gateway.records(1).await[0]["unpriced"], want);
    }
}

#[tokio::test]
async fn prices_that_lack_a_class_of_their_protocol_are_named_by_the_check_and_the_catalog() {
    let settings = |protocols: &str, prices: &str| {
        format!("protocols: [{protocols}]\nmodels: [{{id: m, prices: {{{prices}}}}}]")
    };
    for (protocols, prices, want) in [
        ("chat", "input: 1, output: 2", json!([])),
        ("chat", "input: 1", json!(["output"])),
        ("embeddings", "input: 1", json!([])),
        ("chat, messages", "input: 1, output: 2, cache_write: 1", json!(["cache_write_1h"])),
    ] {
        let yaml = Yaml::new().provider_with("up", "http://127.0.0.1:9/v1", &settings(protocols, prices));
        let output = Setup::new(&yaml).output_of(&["config", "check"], 0).await;
        let names: Vec<&str> = want.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let lack = format!("warning: providers.up: the prices of 'm' lack {};", names.join(", "));
        assert_eq!(output.contains(&lack), !names.is_empty(), "{prices}: {output}");
        assert_eq!(output.contains("the prices of"), !names.is_empty(), "{prices}: {output}");
        let gateway = Gateway::start(&yaml).await;
        let rows = gateway.client().get("/admin/api/catalog?provider=up").await.unwrap().json();
        assert_eq!(rows["data"][0]["unpriced"], want, "{rows}");
    }
}
