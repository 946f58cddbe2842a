//! Usage figures are exact for any boundary and group, and costs are summed exactly like tokens.

use std::time::{Duration, Instant};

use http::{Method, Request};
use serde_json::json;
use shared::id::{KeyId, ModelId, PrincipalId};
use shared::usage::{Outcome, TokenCounts, UsageEvent};

use super::{ADMIN, Gateway};
use crate::usage::tests::event;

/// Exchanges over three days, with several models and keys, at irregular times.
pub(super) fn exchanges() -> Vec<UsageEvent> {
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
                    ..TokenCounts::ZERO
                },
                ..event(n)
            }
        })
        .collect()
}

#[test]
fn usage_totals_are_exact_for_any_time_range() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| assert!(gateway.log.append(event)));
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
    events.iter().for_each(|event| assert!(gateway.log.append(event)));
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

/// Returns the export of an administrator.
pub(super) fn exported(gateway: &Gateway, query: &str) -> String {
    let (status, text, _) =
        gateway.call(Method::GET, &format!("/admin/api/usage/export?{query}"), &[("x-api-key", ADMIN)]);
    assert_eq!(status, 200);
    text.as_str().unwrap().to_owned()
}

#[test]
fn an_export_has_every_exchange_once_in_either_format() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| assert!(gateway.log.append(event)));
    gateway.log.append(&UsageEvent {
        request_id: "=cmd|' /C calc'!A0".into(),
        selector: "a,\"b\"\nc".into(),
        started_at_ms: events.iter().map(|event| event.started_at_ms).max().unwrap(),
        ..event(1)
    });
    gateway.wait_stored(401);
    let lines = exported(&gateway, "format=jsonl");
    let rows: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 401);
    for (row, event) in rows.iter().zip(&events) {
        assert_eq!(row["request_id"], *event.request_id);
        assert_eq!(row["tokens"]["reasoning"], event.tokens.reasoning);
        assert_eq!(row["cost_micro_usd"].is_null(), event.cost_nano_usd.is_none());
    }
    let table = exported(&gateway, "format=csv");
    let records: Vec<&str> = table.split("\r\n").collect();
    assert_eq!((records.len(), records[402]), (403, ""), "a head and a line each, each ended");
    let columns = records[0].split(',').count();
    assert!(records[1..401].iter().all(|record| record.split(',').count() == columns), "{}", records[1]);
    assert!(
        records[401].starts_with("\"'=cmd|' /C calc'!A0\",") && records[401].contains("\"a,\"\"b\"\"\nc\"")
    );
    let some = exported(&gateway, "format=jsonl&model=m3&outcome=completed&cost_micro_usd_min=1");
    let is_dear = |event: &UsageEvent| event.cost_nano_usd.is_some_and(|nano| nano >= 1_000);
    let of_m3 = |event: &UsageEvent| event.model.as_ref().is_some_and(|model| model.as_str() == "m3");
    let want = events.iter().filter(|e| of_m3(e) && is_dear(e) && e.outcome == Outcome::Completed).count();
    assert_eq!(some.lines().count(), want);
    assert!(!records[0].ends_with(",currency"), "amounts have to be asked for");
    let charge = "markup_percent=20&currency=EUR&rate=0.9";
    let table = exported(&gateway, &format!("format=csv&{charge}"));
    assert!(table.starts_with(&format!("{},amount,currency\r\n", records[0])));
    let totals = gateway.get(&format!("/admin/api/usage?{charge}"))["totals"].clone();
    let nano = |amount: &str| {
        let (whole, part) = amount.split_once('.').unwrap_or((amount, ""));
        format!("{whole}{part:0<18}").parse::<u128>().unwrap()
    };
    let amounts = exported(&gateway, &format!("format=jsonl&{charge}"));
    let mut sum = 0;
    for (line, row) in amounts.lines().zip(table.split("\r\n").skip(1)) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (line["amount"].is_null(), &line["currency"]),
            (line["cost_micro_usd"].is_null(), &json!("EUR"))
        );
        let amount = line["amount"].as_str().unwrap_or_default();
        assert!(row.ends_with(&format!(",{amount},EUR")), "{row}");
        sum += if amount.is_empty() { 0 } else { nano(amount) };
    }
    assert_eq!(sum, nano(totals["amount"].as_str().unwrap()), "as the report adds it up");
    let (status, _, param) =
        gateway.refusal(Method::GET, "/admin/api/usage/export?format=xml", &[("x-api-key", ADMIN)]);
    assert_eq!((status, param), (400, json!("format")));
    gateway.stop();
}

#[test]
fn a_third_export_returns_503_until_another_export_ends() {
    let mut gateway = Gateway::start();
    // More than the queued pieces and the piece in progress can hold.
    let long = |n: u64| UsageEvent { selector: format!("{n}{}", "x".repeat(60 << 10)).into(), ..event(n) };
    (0..60).for_each(|n| assert!(gateway.log.append(&long(n))));
    gateway.wait_stored(60);
    let begin = || {
        let request = Request::get("/admin/api/usage/export?format=jsonl").header("x-api-key", ADMIN);
        gateway.send(request.body(shared::port::full("")).unwrap())
    };
    let (first, second, third) = (begin(), begin(), begin());
    assert_eq!([first.status(), second.status(), third.status()].map(|s| s.as_u16()), [200, 200, 503]);
    assert_eq!(third.headers()["retry-after"], "10");
    drop(first);
    let until = Instant::now() + Duration::from_secs(20);
    let again = loop {
        let again = begin();
        if again.status() == 200 {
            break again;
        }
        assert!(Instant::now() < until, "an export that is not read ends");
    };
    assert_eq!(super::text(again.into_body()).lines().count(), 60);
    assert_eq!(super::text(second.into_body()).lines().count(), 60);
    gateway.stop();
}

#[test]
fn repricing_makes_unknown_costs_known_and_is_idempotent() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| assert!(gateway.log.append(event)));
    let (first, last) = (events[0].started_at_ms, events[399].started_at_ms);
    let middle = events[200].started_at_ms;
    let body = format!(
        r#"{{"from": {first}, "to": {middle}, "provider": "p", "model": "m3",
            "prices": {{"input": 2, "cached_input": 0.5, "cache_write": 2.5, "output": 8}}}}"#
    );
    let fits = |e: &&UsageEvent| {
        e.started_at_ms < middle && e.model.as_ref().is_some_and(|model| model.as_str() == "m3")
    };
    let micro = |e: &UsageEvent| {
        let t = e.tokens;
        let pico = t.input * 2_000_000 + t.cache_read * 500_000 + t.cache_write * 2_500_000;
        (pico + (t.output + t.reasoning) * 8_000_000).div_ceil(1_000)
    };
    let nano: u64 =
        events.iter().map(|e| if fits(&e) { micro(e) } else { e.cost_nano_usd.unwrap_or(0) }).sum();
    let unknown = events.iter().filter(|e| !fits(e) && e.cost_nano_usd.is_none()).count();
    let sums = |gateway: &Gateway| {
        let ask = |query: &str| gateway.get(&format!("/admin/api/usage?{query}"))["totals"].clone();
        // Computed from daily sums, from hourly sums, and from the exchanges themselves.
        let all = [ask(""), ask("bucket=hour"), ask(&format!("from={first}&to={}", last + 1))];
        assert!(all.iter().all(|totals| totals["cost_micro_usd"] == all[0]["cost_micro_usd"]), "{all:?}");
        assert!(all.iter().all(|totals| totals["requests_unpriced"] == all[0]["requests_unpriced"]));
        let pieces = ask(&format!("to={middle}"))["requests"].as_u64().unwrap()
            + ask(&format!("from={middle}"))["requests"].as_u64().unwrap();
        assert_eq!(pieces, 400);
        (all[0]["cost_micro_usd"].to_string(), all[0]["requests_unpriced"].as_u64().unwrap())
    };
    gateway.wait_stored(400);
    let reprice = |gateway: &Gateway, body: &str| gateway.send_json(Method::POST, "usage/reprice", body, &[]);
    let (status, answer, _) = reprice(&gateway, &body);
    let of_it = events.iter().filter(fits).count();
    assert_eq!(
        (status.as_u16(), &answer["records"], &answer["changed"]),
        (200, &json!(of_it), &json!(of_it))
    );
    assert_eq!((&answer["unpriced"], &answer["next_cursor"]), (&json!(0), &json!(null)));
    assert_eq!(answer["prices"][0]["before"], "config in 0.05 out 0.05");
    assert!(answer["prices"][0]["after"].as_str().unwrap().starts_with("given 20"), "{answer}");
    let want = (json!(nano as f64 / 1e3).to_string(), unknown as u64);
    assert_eq!(sums(&gateway), want);
    let (_, again, _) = reprice(&gateway, &body);
    assert_eq!((&again["changed"], &again["cost_micro_usd"]), (&json!(0), &answer["cost_micro_usd"]));
    assert_eq!(sums(&gateway), want, "twice is as good as once");
    // Later exchanges are added to the repriced sums and do not overwrite them.
    gateway.log.append(&UsageEvent { cost_nano_usd: Some(0), ..event(1) });
    gateway.wait_stored(401);
    assert_eq!(gateway.get("/admin/api/usage")["totals"]["requests"], 401);
    let actions =
        exported(&gateway, "format=jsonl&model=m3&cost_micro_usd_min=0").matches("given 20").count();
    assert_eq!(actions, of_it);
    for (body, param) in [
        (r#"{"from": 0, "to": 1, "prices": {"input": 1}}"#, "prices"),
        (r#"{"from": 2, "to": 1}"#, "from"),
        (r#"{"from": "yesterday", "to": 1}"#, "from"),
        (r#"{"from": -1, "to": 1}"#, "from"),
        (r#"{"from": 0, "to": {}}"#, "to"),
        (r#"{"from": 0, "to": 1, "provider": "p", "model": "m", "prices": {"input": -1}}"#, "prices"),
        (r#"{"from": 0, "to": 1, "cursor": "x"}"#, "cursor"),
    ] {
        let (status, refused, _) = reprice(&gateway, body);
        assert_eq!((status.as_u16(), &refused["error"]["param"]), (400, &json!(param)), "{body}");
        assert!(!refused.to_string().contains("enum"), "{refused}");
    }
    gateway.stop();
}
