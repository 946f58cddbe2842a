//! Usage and its cost: equal to the upstream's report, to the token, and billed once (P15, ADM-6, M-082).

use serde_json::{Value, json};

use crate::support::figure::figure;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

/// In dollars per million tokens, in the format of the configuration.
const PRICES: &str = "models: [{id: m, prices: {input: 3, cached_input: 0.3, output: 15}}]";

/// Token classes in the order of a record: input, cache read, output, reasoning.
type Counts = [u64; 4];

/// The kind of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Whole,
    Stream,
    CachedWhole,
    ReasoningStream,
    Cancelled,
    FailedOver,
}

const KINDS: [Kind; 6] =
    [Kind::Whole, Kind::Stream, Kind::CachedWhole, Kind::ReasoningStream, Kind::Cancelled, Kind::FailedOver];
const REQUESTS: u64 = 300;

/// Returns the usage that the upstream reports for the n-th exchange.
fn counts(n: u64, kind: Kind) -> Counts {
    let (input, output) = (100 + n * 7, 20 + n * 3);
    match kind {
        Kind::CachedWhole => [input, 64 + n, output, 0],
        Kind::ReasoningStream => [input, 2 * n, output, 10 + n],
        Kind::Whole | Kind::Stream | Kind::Cancelled | Kind::FailedOver => [input, 0, output, 0],
    }
}

/// Returns the `usage` object of such a report: cached input is part of the prompt, reasoning of the completion.
fn report([input, cached, output, reasoning]: Counts) -> Value {
    let (prompt, completion) = (input + cached, output + reasoning);
    json!({
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    })
}

/// Returns the bill in nano-dollars by the price list above: reasoning has no separate price and is billed as output.
fn bill([input, cached, output, reasoning]: Counts) -> u64 {
    input * 3_000 + cached * 300 + (output + reasoning) * 15_000
}

fn whole(counts: Counts) -> Answer {
    let mut body: Value = serde_json::from_str(&chat::completion("some words")).unwrap();
    body["usage"] = report(counts);
    Answer::json(200, body.to_string())
}

fn stream(counts: Counts) -> Answer {
    let last = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
        "choices": [], "usage": report(counts),
    });
    let deltas = [chat::role(), chat::content("some "), chat::content("words"), chat::finish()];
    Answer::events(&[&deltas[..], &[chat::event(&last.to_string()), chat::done()]].concat())
}

/// Starts two upstreams with the same prices behind `line`.
async fn priced_line() -> (Gateway, Upstream, Upstream) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let yaml = Yaml::new()
        .provider_with("p0", first.base_url(), PRICES)
        .provider_with("p1", second.base_url(), PRICES)
        .endpoint("line", &[("p0", "m"), ("p1", "m")]);
    (Gateway::start(&yaml).await, first, second)
}

/// Sends the n-th exchange, to its end or until the client disconnects.
async fn send(gateway: &Gateway, upstreams: (&Upstream, &Upstream), n: u64, kind: Kind) {
    let (first, second) = upstreams;
    let reported = counts(n, kind);
    let client = gateway.client().with("x-request-id", &format!("usage-{n:03}"));
    match kind {
        Kind::Whole | Kind::CachedWhole => {
            first.then(whole(reported));
            assert_eq!(client.chat(chat::request("line")).await.status, 200);
        }
        Kind::Stream | Kind::ReasoningStream => {
            first.then(stream(reported));
            let body = if n % 4 == 1 {
                chat::stream_request("line")
            } else {
                chat::stream_request_with_usage("line")
            };
            assert_eq!(client.chat(body).await.status, 200);
        }
        Kind::Cancelled => {
            first.then(
                Answer::stream().chunk(chat::role()).chunk(chat::content("four words were said")).hang(),
            );
            let mut flow = client.chat_flow(chat::stream_request("line")).await;
            flow.event().await;
            flow.event().await;
        }
        Kind::FailedOver => {
            first.then(Answer::error(503));
            second.then(whole(reported));
            assert_eq!(client.chat(chat::request("line")).await.status, 200);
        }
    }
}

#[tokio::test]
async fn usage_is_what_the_upstream_reports_and_each_exchange_is_billed_once() {
    let (gateway, first, second) = priced_line().await;
    for n in 0..REQUESTS {
        let kind = KINDS[usize::try_from(n).unwrap() % KINDS.len()];
        send(&gateway, (&first, &second), n, kind).await;
    }
    let records = gateway.records(usize::try_from(REQUESTS).unwrap()).await;
    assert_eq!(records.len(), usize::try_from(REQUESTS).unwrap(), "one record an exchange");
    let (mut tokens, mut nano) = ([0; 4], 0);
    for n in 0..REQUESTS {
        let kind = KINDS[usize::try_from(n).unwrap() % KINDS.len()];
        let id = format!("usage-{n:03}");
        let record = records.iter().find(|record| record["request_id"] == *id).unwrap();
        let class = |name: &str| record["tokens"][name].as_u64().unwrap();
        let recorded = ["input", "cache_read", "output", "reasoning"].map(class);
        if kind == Kind::Cancelled {
            assert_eq!(
                (&record["outcome"], &record["provenance"]),
                (&json!("cancelled"), &json!("estimated"))
            );
            assert!(
                recorded[0] > 0 && (1..20).contains(&recorded[2]),
                "neither free nor more than was relayed: {record}"
            );
        } else {
            assert_eq!(recorded, counts(n, kind), "{kind:?} {record}");
            assert_eq!(record["provenance"], "reported");
        }
        let provider = if kind == Kind::FailedOver { "p1" } else { "p0" };
        assert_eq!(record["provider"], provider, "{kind:?}");
        assert_eq!(record["price"], "config in 3 cached 0.3 out 15");
        let cost = bill(recorded);
        assert_eq!(record["cost_micro_usd"], json!(cost as f64 / 1e3), "{record}");
        nano += cost;
        tokens.iter_mut().zip(recorded).for_each(|(sum, count)| *sum += count);
    }
    let answer = gateway.client().get("/admin/api/usage?group_by=provider").await.unwrap().json();
    let totals = &answer["totals"];
    assert_eq!((&totals["requests"], &totals["requests_unpriced"]), (&json!(REQUESTS), &json!(0)));
    assert_eq!(totals["cost_micro_usd"], json!(nano as f64 / 1e3));
    assert_eq!(
        ["input", "cache_read", "output", "reasoning"].map(|class| totals["tokens"][class].as_u64().unwrap()),
        tokens
    );
    assert_eq!(answer["data"][1]["requests"], REQUESTS / 6, "failed over and served by the second");
    figure(
        "P15",
        format!(
            "{REQUESTS} mixed requests, one record each; tokens {tokens:?} in all, {nano} n$, as reported"
        ),
    );
}

#[tokio::test]
async fn a_whole_response_has_a_cost_header_if_its_cost_is_known() {
    let (gateway, first, second) = priced_line().await;
    let cost = |reply: &crate::support::client::Whole| reply.header("x-llmgw-cost").map(str::to_owned);
    first.then(whole([100, 10, 20, 0]));
    let reply = gateway.client().chat(chat::request("line")).await;
    assert_eq!(cost(&reply).as_deref(), Some("0.000603"));
    assert_eq!(gateway.records(1).await[0]["cost_micro_usd"], 603.0);
    first.then(Answer::error(503));
    second.then(whole([1, 1, 0, 0]));
    let reply = gateway.client().chat(chat::request("line")).await;
    assert_eq!(cost(&reply).as_deref(), Some("0.000003300"), "of the target that answered");
    // The head of a stream is sent before its cost is known, and so is that of a long response.
    first.then(stream([100, 0, 20, 0]));
    assert_eq!(cost(&gateway.client().chat(chat::stream_request("line")).await), None);
    let long = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x".repeat(100 << 10)},
            "finish_reason": "stop"}],
        "usage": report([100, 0, 20, 0])});
    first.then(Answer::json(200, long.to_string()));
    assert_eq!(cost(&gateway.client().chat(chat::request("line")).await), None);
    first.then(Answer::error(400));
    let refused = gateway.client().chat(chat::request("line")).await;
    assert_eq!((refused.status, cost(&refused)), (400, None));
}

#[tokio::test]
async fn a_record_has_the_request_id_of_the_vendor_that_served() {
    let (gateway, first, second) = priced_line().await;
    let answer = |name: &str, id: &str| {
        Answer::whole(200, &[("content-type", "application/json"), (name, id)], chat::completion("words"))
    };
    first.then(Answer::whole(503, &[("x-request-id", "req-of-first")], "{}"));
    second.then(answer("x-request-id", "req-of-second"));
    let client = gateway.client().with("x-request-id", "mine");
    assert_eq!(client.chat(chat::request("line")).await.status, 200);
    let record = &gateway.records(1).await[0];
    assert_eq!((&record["request_id"], &record["upstream_id"]), (&json!("mine"), &json!("req-of-second")));
    let exported = gateway.client().get("/admin/api/usage/export").await.unwrap();
    let text = String::from_utf8(exported.body.to_vec()).unwrap();
    assert!(text.lines().next().unwrap().contains("upstream_id") && text.contains("req-of-second"), "{text}");
    // An id that contains the credential is dropped.
    first.then(answer("request-id", "req-upstream-secret-of-p0"));
    assert_eq!(gateway.client().chat(chat::request("line")).await.status, 200);
    assert!(!format!("{:?}", gateway.records(2).await).contains("upstream-secret"));
}

#[tokio::test]
async fn an_unknown_cost_stays_unknown_until_usage_is_repriced() {
    let upstream = Upstream::start().await;
    upstream.always(whole([1_000, 0, 100, 0]));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    for _ in 0..3 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    let records = gateway.records(3).await;
    assert!(records.iter().all(|record| record["cost_micro_usd"].is_null() && record["price"].is_null()));
    let usage = || async { gateway.client().get("/admin/api/usage").await.unwrap().json()["totals"].clone() };
    let before = usage().await;
    assert_eq!((&before["cost_micro_usd"], &before["requests_unpriced"]), (&json!(0.0), &json!(3)));
    // The price becomes known, as after an update of the list.
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), PRICES);
    gateway.write_config(yaml.text());
    let period = json!({"from": 0, "to": "2100-01-01T00:00:00Z"}).to_string();
    let preview = wait::eventually("the new price", async || {
        let answer = gateway.client().post("/admin/api/usage/reprice?dry_run=true", period.clone()).await;
        let object = answer.json()["object"].clone();
        (object["changed"] == 3).then_some(object)
    })
    .await;
    assert_eq!(usage().await, before, "a dry run changes nothing");
    let changes = preview["requests"].as_array().unwrap();
    assert_eq!(changes.len(), 3);
    let ids = |rows: &[Value]| -> std::collections::BTreeSet<String> {
        rows.iter().map(|row| row["request_id"].to_string()).collect()
    };
    assert_eq!(ids(changes), ids(&records));
    for change in changes {
        let costs = (&change["cost_micro_usd_before"], &change["cost_micro_usd"]);
        assert_eq!(costs, (&Value::Null, &json!(4_500.0)));
    }
    let audit = gateway.client().get("/admin/api/audit?action=usage.reprice").await.unwrap().json();
    assert_eq!(audit["data"], json!([]), "a dry run is not audited");
    let answer = gateway.client().post("/admin/api/usage/reprice", period.clone()).await.json();
    assert_eq!(answer, preview, "the dry run shows what happens");
    assert_eq!(
        answer["prices"],
        json!([{"before": null, "after": "config in 3 cached 0.3 out 15", "records": 3}])
    );
    let after = usage().await;
    assert_eq!((&after["cost_micro_usd"], &after["requests_unpriced"]), (&json!(3.0 * 4_500.0), &json!(0)));
    let again = gateway.client().post("/admin/api/usage/reprice", period).await.json();
    assert_eq!((&again["changed"], &again["cost_micro_usd"]), (&json!(0), &json!(13_500.0)));
    // The audit contains the administrator's action with its figures.
    let audit = gateway.client().get("/admin/api/audit?action=usage.repriced").await.unwrap().json();
    assert_eq!(audit["data"][0]["detail"]["after"]["changed"], 0, "{audit}");
}
