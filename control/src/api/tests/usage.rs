//! The figures are right at any edge and in any group, and money is counted like tokens.

use http::Method;
use serde_json::json;
use shared::id::{KeyId, ModelId, PrincipalId};
use shared::usage::{Outcome, TokenCounts, UsageEvent};

use super::{ADMIN, Gateway};
use crate::meter::tests::event;

/// Exchanges of three days, of several models and keys, at odd moments.
fn exchanges() -> Vec<UsageEvent> {
    let mut moment = 1_700_000_000_000_u64;
    (0..400_u64)
        .map(|n| {
            moment += 1 + n * 7_919 % 1_300_000;
            UsageEvent {
                started_at_ms: moment,
                model: n.is_multiple_of(3).then(|| ModelId::new(format!("m{}", n % 4))),
                key: KeyId::new(format!("k{}", n % 2)),
                outcome: if n.is_multiple_of(5) { Outcome::Cancelled } else { Outcome::Completed },
                principal: n.is_multiple_of(7).then(|| PrincipalId::new("prn")),
                cost_nano_usd: (!n.is_multiple_of(11)).then_some(n * 1_001),
                first_content_us: (!n.is_multiple_of(5)).then_some(n),
                tokens: TokenCounts {
                    input: n,
                    cache_read: 2 * n,
                    cache_write: 1,
                    output: 3,
                    reasoning: 4 * n,
                },
                ..event(n)
            }
        })
        .collect()
}

#[test]
fn usage_is_exact_at_any_edge() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| gateway.log.append(event.clone()));
    let (first, last) = (events[0].started_at_ms, events[399].started_at_ms);
    let (hour, day) = (3_600_000, 86_400_000);
    let noon = first.div_ceil(hour) * hour;
    let edges = [
        (0, last + 1),
        (first, last),
        (first + 1, last + 1),
        (noon, noon + 5 * hour),
        (noon - 1, noon + 5 * hour + 1),
        (noon + 1, noon + 2),
        (noon + 1, noon + hour - 1),
        (noon + 1, noon + hour),
        (noon, noon + hour - 1),
        (noon + 10, noon + 20 * hour + 10),
        (first / day * day, last / day * day),
        (first / day * day + day, last / day * day + hour),
        (first, last / day * day + day),
        (noon, noon),
        (noon + 7, noon + 7),
    ];
    for (from, to) in edges {
        let inside: Vec<_> =
            events.iter().filter(|e| from <= e.started_at_ms && e.started_at_ms < to).collect();
        let answer = gateway.get(&format!("/admin/api/usage?from={from}&to={to}"));
        let sum = |count: fn(&UsageEvent) -> u64| inside.iter().map(|event| count(event)).sum::<u64>();
        let totals = &answer["totals"];
        assert_eq!(totals["requests"], inside.len(), "{from} to {to}");
        let nano = sum(|e| e.cost_nano_usd.unwrap_or(0));
        assert_eq!(totals["cost_micro_usd"].to_string(), json!(nano as f64 / 1e3).to_string());
        assert_eq!(totals["requests_unpriced"], sum(|e| u64::from(e.cost_nano_usd.is_none())));
        assert_eq!(totals["tokens"]["input"], sum(|e| e.tokens.input), "{from} to {to}");
        assert_eq!(totals["tokens"]["cache_read"], sum(|e| e.tokens.cache_read));
        assert_eq!(totals["tokens"]["reasoning"], sum(|e| e.tokens.reasoning));
        assert_eq!(totals["tokens"]["total"], sum(|e| e.tokens.total()));
        let firsts = inside.iter().filter_map(|e| e.first_content_us).count() as u64;
        let average = sum(|e| e.first_content_us.unwrap_or(0)).checked_div(firsts);
        assert_eq!(totals["first_content_us_avg"], json!(average));
        assert_eq!(answer["data"], json!([]));
    }
    gateway.stop();
}

#[test]
fn usage_is_grouped_by_names_and_time() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| gateway.log.append(event.clone()));
    for (bucket, length) in [("hour", 3_600_000), ("day", 86_400_000)] {
        let answer =
            gateway.get(&format!("/admin/api/usage?group_by=model,key&bucket={bucket}&outcome=completed"));
        let mut want = std::collections::BTreeMap::<(u64, Option<String>, String), u64>::new();
        for event in events.iter().filter(|event| event.outcome == Outcome::Completed) {
            let start = event.started_at_ms / length * length;
            let model = event.model.as_ref().map(|model| model.as_str().to_owned());
            *want.entry((start, model, event.key.as_str().to_owned())).or_default() += event.tokens.input;
        }
        let got: std::collections::BTreeMap<_, _> = answer["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| {
                let name = |name: &str| line["group"][name].as_str().map(str::to_owned);
                let key = (line["bucket_start_ms"].as_u64().unwrap(), name("model"), name("key").unwrap());
                (key, line["tokens"]["input"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(got, want, "{bucket}");
        assert_eq!(answer["totals"]["tokens"]["input"], want.values().sum::<u64>());
    }
    let months = gateway.get("/admin/api/usage?bucket=month&group_by=principal");
    let starts: Vec<_> =
        months["data"].as_array().unwrap().iter().map(|l| l["bucket_start_ms"].clone()).collect();
    assert_eq!(starts, [json!(1_698_796_800_000_u64), json!(1_698_796_800_000_u64)], "November 2023 in UTC");
    let human = &months["data"][1];
    assert_eq!((&human["group"], &human["requests"]), (&json!({"principal": "prn"}), &json!(58)));
    let mine = gateway.get("/admin/api/usage?principal=prn&bucket=day");
    assert_eq!(mine["totals"], gateway.get("/admin/api/usage?principal=prn&bucket=hour")["totals"]);
    assert_eq!(mine["totals"]["requests"], 58);
    let all = gateway.get("/admin/api/usage?group_by=outcome");
    assert_eq!(all["data"].as_array().unwrap().len(), 2);
    assert_eq!(all["totals"]["requests"], 400);
    gateway.stop();
}

#[test]
fn an_answer_with_too_many_groups_is_refused() {
    let mut gateway = Gateway::start();
    let model = |n: u64| Some(ModelId::new(format!("m{n}")));
    (0..10_000).for_each(|n| gateway.log.append(UsageEvent { model: model(n), ..event(n) }));
    gateway.wait_stored(10_000);
    let path = "/admin/api/usage?group_by=model";
    assert_eq!(gateway.get(path)["data"].as_array().unwrap().len(), 10_000);
    gateway.log.append(UsageEvent { model: model(10_000), ..event(0) });
    gateway.wait_stored(10_001);
    let (status, _, param) = gateway.refusal(Method::GET, path, &[("x-api-key", ADMIN)]);
    assert_eq!((status, param), (400, json!("group_by")));
    gateway.stop();
}
