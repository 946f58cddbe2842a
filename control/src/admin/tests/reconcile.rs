//! `POST usage/reconcile`: differences between a vendor's export and the records, by day and model.

use http::Method;
use serde_json::{Value, json};
use shared::id::{ModelId, ProviderId};
use shared::usage::{TokenCounts, UsageEvent};

use super::Gateway;
use crate::usage::tests::event;

/// 2026-11-02T00:00:00Z.
const DAY_ONE: u64 = 1_793_577_600_000;
const DAY_TWO: u64 = DAY_ONE + 86_400_000;

fn exchange(number: u64, at_ms: u64, model: &str, tokens: [u64; 3], cost_nano_usd: u64) -> UsageEvent {
    let [input, cache_read, output] = tokens;
    UsageEvent {
        started_at_ms: at_ms,
        model: Some(ModelId::new(model)),
        provider: Some(ProviderId::new("main")),
        cost_nano_usd: Some(cost_nano_usd),
        tokens: TokenCounts { input, cache_read, output, ..TokenCounts::ZERO },
        ..event(number)
    }
}

fn reconcile(gateway: &Gateway, body: &Value) -> (u16, Value) {
    let (status, answer, _) = gateway.send_json(Method::POST, "usage/reconcile", &body.to_string(), &[]);
    (status.as_u16(), answer)
}

fn with_records() -> Gateway {
    let mut gateway = Gateway::start();
    for event in [
        exchange(1, DAY_ONE, "gpt-5", [200, 800, 500], 5_350_000),
        exchange(2, DAY_TWO - 1, "gpt-5", [100, 0, 50], 625_000),
        exchange(3, DAY_TWO, "claude-opus-4-6", [12, 2_000, 800], 21_060_000),
        exchange(4, DAY_TWO + 1, "only-ours", [1, 0, 1], 7),
        // On a day that is in none of the exports.
        exchange(5, DAY_TWO + 86_400_000, "gpt-5", [1, 0, 1], 7),
    ] {
        gateway.log.append(&event);
    }
    gateway.wait_stored(5);
    gateway
}

fn line<'a>(answer: &'a Value, day: &str, model: &str) -> &'a Value {
    let lines = answer["data"].as_array().unwrap();
    lines.iter().find(|line| line["day"] == day && line["model"] == model).unwrap()
}

#[test]
fn exports_of_openai_are_compared_by_day_and_model() {
    let gateway = with_records();
    let usage = json!({"object": "page", "has_more": false, "data": [{
        "object": "bucket", "start_time": DAY_ONE / 1_000, "end_time": DAY_TWO / 1_000, "results": [
            {"object": "organization.usage.completions.result", "model": "gpt-5-2025-08-07",
             "num_model_requests": 3, "input_tokens": 1_100, "input_cached_tokens": 800, "output_tokens": 560},
            {"model": "gpt-4o-mini", "num_model_requests": 1, "input_tokens": 9, "output_tokens": 1},
            {"model": null, "num_model_requests": 1, "input_tokens": 9, "output_tokens": 1},
        ],
    }]});
    let costs = json!({"object": "page", "data": [{"start_time": DAY_ONE / 1_000, "results": [
        {"amount": {"value": 0.005, "currency": "usd"}, "line_item": "gpt-5-2025-08-07, input"},
        {"amount": {"value": "0.0011", "currency": "usd"}, "line_item": "gpt-5-2025-08-07, output"},
    ]}]});
    let body =
        json!({"format": "openai", "file": [usage.to_string(), costs.to_string()], "provider": "main"});
    let (status, answer) = reconcile(&gateway, &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["matched"], json!({"gpt-5-2025-08-07": "gpt-5"}));
    assert_eq!(
        (&answer["unknown_models"], &answer["models_not_in_file"]),
        (&json!(["gpt-4o-mini"]), &json!([]))
    );
    assert_eq!((&answer["rows"], &answer["rows_skipped"]), (&json!(5), &json!(1)));
    assert!(answer["skipped"][0]["reason"].as_str().unwrap().contains("it has no model"));
    let line = line(&answer, "2026-11-02", "gpt-5");
    assert_eq!(
        line["ours"],
        json!({"requests": 2, "requests_unpriced": 0, "input_tokens": 1_100, "cached_input_tokens": 800,
               "output_tokens": 550, "cost_micro_usd": 5975.0})
    );
    assert_eq!(
        line["difference"],
        json!({"requests": -1, "input_tokens": 0, "cached_input_tokens": 0, "output_tokens": -10,
               "cost_micro_usd": -125.0})
    );
    assert_eq!(answer["totals"]["theirs"]["requests"], 4);
    let (_, elsewhere) =
        reconcile(&gateway, &json!({"format": "openai", "file": usage.to_string(), "provider": "x"}));
    assert_eq!(elsewhere["totals"]["ours"]["requests"], 0, "only the named provider");
    gateway.stop();
}

#[test]
fn exports_of_anthropic_and_mapped_tables_are_compared_too() {
    let gateway = with_records();
    let usage = json!({"data": [{"starting_at": "2026-11-03T00:00:00Z", "ending_at": "2026-11-04T00:00:00Z", "results": [
        {"model": "claude-opus-4-6", "uncached_input_tokens": 12, "cache_read_input_tokens": 1_900,
         "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 100}, "output_tokens": 800},
    ]}]});
    let cost = json!({"data": [{"starting_at": "2026-11-03T00:00:00Z", "results": [
        {"model": "claude-opus-4-6", "amount": "2.106", "currency": "USD"},
    ]}]});
    let (status, answer) =
        reconcile(&gateway, &json!({"format": "anthropic", "file": [usage.to_string(), cost.to_string()]}));
    assert_eq!(status, 200, "{answer}");
    let compared = line(&answer, "2026-11-03", "claude-opus-4-6");
    assert_eq!(
        compared["difference"],
        json!({"requests": null, "input_tokens": 0, "cached_input_tokens": 100, "output_tokens": 0,
               "cost_micro_usd": 0.0})
    );
    assert_eq!(answer["models_not_in_file"], json!(["only-ours"]));
    assert_eq!(line(&answer, "2026-11-03", "only-ours")["theirs"]["input_tokens"], Value::Null);

    let table = "Date;Modell;Prompt;Cached;Completion;Kosten\n2026-11-02;GPT;300;800;550;\"0.006\"\n\nbad;GPT;1;1;1;1\n";
    let body = json!({
        "format": "csv", "file": table, "models": {"GPT": "gpt-5"},
        "mapping": {"day": "Date", "model": "Modell", "input": ["Prompt", "Cached"], "cached_input": "Cached",
                    "output": "Completion", "cost": "Kosten"},
    });
    let (status, answer) = reconcile(&gateway, &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        line(&answer, "2026-11-02", "gpt-5")["difference"],
        json!({"requests": null, "input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0,
               "cost_micro_usd": -25.0})
    );
    assert_eq!(answer["skipped"][0]["row"], 2);
    gateway.stop();
}

#[test]
fn an_invalid_export_is_rejected_with_the_field_name() {
    let gateway = Gateway::start();
    let mapping = json!({"day": "d", "model": "m"});
    for (body, param, says) in [
        (json!({"format": "csv", "file": "d,m\n2026-11-02,x\n"}), "mapping", "must name the columns"),
        (
            json!({"format": "openai", "file": "{}", "mapping": mapping}),
            "mapping",
            "only valid with the format csv",
        ),
        (json!({"format": "openai", "file": "{"}), "file", "not JSON"),
        (json!({"format": "openai", "file": "{}"}), "file", "neither a list"),
        (json!({"format": "openai", "file": "{\"data\": []}"}), "file", "no rows"),
        (json!({"format": "openai", "file": ""}), "file", "empty"),
        (json!({"format": "csv", "file": "a,m\n1,2\n", "mapping": mapping}), "file", "no column for the day"),
        (json!({"format": "csv", "file": "d,m\nsoon,x\n", "mapping": mapping}), "file", "not a date"),
        (json!({"format": "csv", "file": "d,m\n1066-10-14,x\n", "mapping": mapping}), "file", "1066-10-14"),
        (json!({"format": "excel", "file": ""}), "format", "openai"),
        (
            json!({"format": "csv", "file": "", "mapping": {"day": "d", "model": "m", "price": "p"}}),
            "mapping.price",
            "",
        ),
    ] {
        let (status, error) = reconcile(&gateway, &body);
        let error = &error["error"];
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{body}: {error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{body}: {error}");
    }
    gateway.stop();
}
