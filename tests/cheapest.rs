//! The order `cheapest` is that of the bills: what `explain` names, and what requests take, is the order of what the same
//! request is billed at each target, for the models of published bills, prices of long prompts, unknown prices and ties.

use serde_json::{Value, json};

use crate::published_bills::models_of_published_bills;
use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

/// A provider with one model.
struct Priced {
    provider: String,
    model: String,
    is_bedrock: bool,
}

impl Priced {
    fn selector(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    /// Returns an answer that reports these amounts.
    fn answer(&self, input: u64, output: u64) -> Answer {
        if self.is_bedrock {
            let message = json!({"role": "assistant", "content": [{"text": "hello"}]});
            let usage = json!({"inputTokens": input, "outputTokens": output, "totalTokens": input + output});
            let answer = json!({"output": {"message": message}, "stopReason": "end_turn", "usage": usage});
            return Answer::json(200, answer.to_string());
        }
        let mut answer: Value = serde_json::from_str(&chat::completion("hello")).unwrap();
        answer["usage"] =
            json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
        Answer::json(200, answer.to_string())
    }
}

/// Returns the models with the members of their providers: those of the published bills, among others whose prices depend on the
/// length of the prompt, are unknown, or equal those of another.
fn models() -> Vec<(Value, Value)> {
    let own = |prices: Value| {
        let model = if prices.is_null() { json!({"id": "m"}) } else { json!({"id": "m", "prices": prices}) };
        (json!({"type": "compatible", "api_key": "k"}), model)
    };
    let long = |from: u64, above: u64| {
        let above = json!([{"input_tokens": from, "input": above, "cached_input": above, "output": above}]);
        own(json!({"input": 0.2, "cached_input": 0.02, "output": 0.2, "above": above}))
    };
    let mut models = vec![own(Value::Null), long(50_000, 90), own(json!({"input": 3, "output": 15}))];
    models.extend(models_of_published_bills());
    models.extend([
        own(json!({"input": 3, "output": 15})),
        long(40_000, 1),
        own(json!({"input": 0, "output": 0})),
        own(Value::Null),
    ]);
    models
}

/// Starts a gateway with an endpoint `line` of all models, and one provider more that has the same models at a dollar for a million
/// tokens of input, so that the cost at it in micro-dollars is the number of those tokens.
async fn start(upstream: &Upstream) -> (Gateway, Vec<Priced>) {
    let (base, mut providers, mut all) = (upstream.base_url(), json!({}), Vec::new());
    let mut counted: Vec<Value> = Vec::new();
    for (place, (mut members, declared)) in models().into_iter().enumerate() {
        let is_bedrock = members["type"] == "bedrock";
        members["base_url"] = json!(if is_bedrock { base.trim_end_matches("/v1") } else { &base });
        let model = declared["id"].as_str().unwrap().to_owned();
        members["models"] = json!([declared]);
        let counter = json!({"id": model, "prices": {"input": 1, "output": 0}});
        if !counted.contains(&counter) {
            counted.push(counter);
        }
        providers[format!("p{place:02}")] = members;
        all.push(Priced { provider: format!("p{place:02}"), model, is_bedrock });
    }
    providers["count"] = json!({"type": "compatible", "api_key": "k", "base_url": base, "models": counted});
    let failover: Vec<Value> =
        all.iter().map(|priced| json!({"provider": priced.provider, "model": priced.model})).collect();
    let config = json!({
        "providers": providers,
        "endpoints": {"line": {"order": "cheapest", "failover": failover}},
        "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
    });
    (Setup::new(&Yaml::new()).yaml(config.to_string()).start().await, all)
}

fn request(model: &str, words: usize, max_tokens: u64) -> Value {
    let text = "word ".repeat(words);
    json!({"model": model, "max_tokens": max_tokens, "messages": [{"role": "user", "content": text}]})
}

fn nano(micro_usd: &Value) -> Option<u64> {
    let micro_usd = micro_usd.as_f64()?;
    Some(format!("{:.0}", micro_usd * 1_000.0).parse().unwrap())
}

fn names(steps: &Value) -> Vec<String> {
    let steps = steps.as_array().unwrap_or_else(|| panic!("{steps}"));
    steps.iter().map(|step| step["provider"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_cheapest_order_is_that_of_the_bills() {
    let upstream = Upstream::start().await;
    let (gateway, all) = start(&upstream).await;
    let admin = Admin(gateway.client());
    let explain = async |body: &Value, draft: Value| {
        let question = json!({"path": "/v1/chat/completions", "body": body, "draft": draft});
        admin.done("POST", "explain", question).await["candidates"].clone()
    };
    let mut orders: Vec<Vec<String>> = Vec::new();
    for (words, max_tokens) in [(10, 500), (2_000, 8), (10, 8_000), (45_000, 100), (60_000, 4_000)] {
        let mut bills: Vec<(Option<u64>, String)> = Vec::new();
        for priced in &all {
            let body = request("counted", words, max_tokens);
            let members = json!([{"provider": "count", "model": priced.model},
                {"provider": priced.provider, "model": priced.model}]);
            let draft = json!({"name": "counted", "order": "cheapest", "failover": members});
            let candidates = explain(&body, draft).await;
            let of = |provider: &str| {
                let all = candidates.as_array().unwrap().iter();
                all.clone().find(|candidate| candidate["provider"] == provider).unwrap()["cost_micro_usd"]
                    .clone()
            };
            let input = nano(&of("count")).unwrap() / 1_000;
            upstream.then(priced.answer(input, max_tokens));
            let sent = request(&priced.selector(), words, max_tokens);
            let answer = gateway.client().chat(sent.to_string()).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
            let bill = nano(&record["cost_micro_usd"]);
            assert_eq!(nano(&of(&priced.provider)), bill, "{}: {input} tokens, {record}", priced.selector());
            bills.push((bill, priced.provider.clone()));
        }
        // Stable: ties stay as listed.
        bills.sort_by_key(|(bill, _)| (bill.is_none(), *bill));
        let want: Vec<String> = bills.iter().map(|(_, provider)| provider.clone()).collect();
        let body = request("line", words, max_tokens);
        assert_eq!(
            names(&explain(&body, Value::Null).await),
            want,
            "{words} words, {max_tokens} tokens: {bills:?}"
        );
        upstream.always(Answer::error(500));
        let answer = gateway.client().chat(body.to_string()).await;
        let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
        assert_eq!(names(&record["trace"]), want, "{words} words, {max_tokens} tokens");
        assert_eq!(bills.iter().filter(|(bill, _)| bill.is_none()).count(), 2, "unknown prices: {bills:?}");
        if words == 60_000 {
            assert_eq!(want[want.len() - 3], "p01", "the price of long prompts counts: {bills:?}");
        }
        orders.push(want);
    }
    orders.sort();
    orders.dedup();
    figure("F1", format!("cheapest: {} models of bills, 5 requests, {} orders", all.len(), orders.len()));
    assert!(orders.len() >= 4, "the orders depend on the request: {orders:?}");
}
