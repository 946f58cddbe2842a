//! Series: figures by point, equal to the reports and to the records.

use http::Method;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::id::{KeyId, ModelId, ProviderId};
use shared::usage::{Lost, Outcome, StepResult, TokenCounts, TraceStep, UsageEvent};

use super::usage::exchanges;
use super::{ADMIN, Gateway};
use crate::usage::tests::event;

const FROM: u64 = 1_700_000_000_000;

fn step(provider: &str, result: StepResult) -> TraceStep {
    let status = (result == StepResult::Status).then_some(503);
    TraceStep { status, ..TraceStep::new(ProviderId::new(provider), ModelId::new("m"), result) }
}

/// An exchange of the provider `q` with this end and these earlier steps.
fn ended(n: u64, outcome: Outcome, status: u16, mut trace: Vec<TraceStep>) -> UsageEvent {
    if matches!(outcome, Outcome::Completed | Outcome::Cut) {
        trace.push(step("q", StepResult::Served));
    }
    let error = (outcome == Outcome::Failed).then_some(ErrorKind::UpstreamStatus);
    UsageEvent { provider: Some(ProviderId::new("q")), outcome, status, error, trace, ..event(n) }
}

/// Returns the lists of the figures of a group by name, without zeros.
fn figures(points: &Value) -> Value {
    let is_seen =
        |list: &&Value| list.as_array().unwrap().iter().any(|value| *value != 0 && !value.is_null());
    let seen = points.as_object().unwrap().iter().filter(|(_, list)| is_seen(list));
    seen.filter(|(name, _)| !name.contains("_us_")).map(|(name, list)| (name.clone(), list.clone())).collect()
}

#[test]
fn a_series_separates_client_outcomes_from_upstream_failures() {
    let mut gateway = Gateway::start();
    let lost = Lost {
        tokens: TokenCounts { input: 5, ..TokenCounts::ZERO },
        cost_nano_usd: Some(500),
        ..Lost::default()
    };
    let failed_step = TraceStep { lost: Some(Box::new(lost)), ..step("p", StepResult::Status) };
    let refused = TraceStep { status: Some(400), ..step("q", StepResult::Status) };
    for event in [
        ended(0, Outcome::Completed, 200, vec![]),
        ended(1, Outcome::Completed, 200, vec![failed_step, step("p", StepResult::TimedOut)]),
        ended(2, Outcome::Completed, 200, vec![step("p", StepResult::CircuitOpen)]),
        ended(3, Outcome::Failed, 503, vec![step("p", StepResult::CircuitOpen)]),
        ended(4, Outcome::Failed, 404, vec![step("p", StepResult::NotAllowed)]),
        ended(5, Outcome::Failed, 400, vec![refused]),
        ended(6, Outcome::Cancelled, 499, vec![step("q", StepResult::Cancelled)]),
        ended(7, Outcome::Cut, 200, vec![]),
        ended(8, Outcome::Interrupted, 499, vec![]),
    ] {
        assert!(gateway.log.append(&event));
    }
    let path = format!("/admin/api/series?from={FROM}&to={}&step=1", FROM + 2_000);
    let series = gateway.get(&path);
    assert_eq!((&series["from_ms"], &series["to_ms"]), (&json!(FROM), &json!(FROM + 2_000)));
    assert_eq!((&series["step_ms"], &series["partial"]), (&json!(1_000), &json!(false)));
    assert_eq!(series["groups"][0]["group"], json!({}));
    let points = &series["groups"][0]["points"];
    assert_eq!(
        figures(points),
        json!({
            "requests": [9, 0], "completed": [3, 0], "failed_over": [2, 0], "failed": [1, 0], "refused": [2, 0],
            "cancelled": [1, 0], "cut": [2, 0], "attempts": [8, 0], "attempt_failures": [3, 0],
            "input": [95, 0], "output": [180, 0], "cost_micro_usd": [14.0, 0.0],
        })
    );
    assert_eq!((&points["duration_us_p50"], &points["cache_read"]), (&json!([1000, null]), &json!([0, 0])));
    assert_eq!(series["groups"][0]["whole"]["duration_us_p50"], json!(1000));

    let grouped = gateway.get(&format!("{path}&group_by=provider"));
    let [served, failing] = grouped["groups"].as_array().unwrap().as_slice() else { panic!("{grouped}") };
    assert_eq!((&served["group"], &failing["group"]), (&json!({"provider": "q"}), &json!({"provider": "p"})));
    assert_eq!(served["points"]["attempts"], json!([6, 0]));
    assert_eq!(
        figures(&failing["points"]),
        json!({"attempts": [2, 0], "attempt_failures": [2, 0], "input": [5, 0], "cost_micro_usd": [0.5, 0.0]})
    );
    let one = gateway.get(&format!("{path}&outcome=cut&group_by=outcome"));
    assert_eq!(one["groups"][0]["group"], json!({"outcome": "cut"}));
    assert_eq!(one["groups"][0]["points"]["requests"], json!([1, 0]));
    gateway.stop();
}

#[test]
fn the_points_of_a_series_add_up_to_the_report() {
    let mut gateway = Gateway::start();
    let events = exchanges();
    events.iter().for_each(|event| assert!(gateway.log.append(event)));
    let (first, last) = (events[0].started_at_ms, events[399].started_at_ms);
    let sum =
        |list: &Value| list.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).sum::<f64>();
    for step in [3_600, 21_600, 86_400] {
        let series =
            gateway.get(&format!("/admin/api/series?from={first}&to={last}&step={step}&group_by=model,key"));
        let (from, to) = (&series["from_ms"], &series["to_ms"]);
        let report = gateway.get(&format!("/admin/api/usage?from={from}&to={to}&group_by=model,key"));
        let lines = report["data"].as_array().unwrap();
        assert_eq!(series["groups"].as_array().unwrap().len(), lines.len(), "{step}");
        for group in series["groups"].as_array().unwrap() {
            let line = lines.iter().find(|line| line["group"] == group["group"]).unwrap();
            let points = &group["points"];
            for (figure, want) in [
                ("requests", &line["requests"]),
                ("requests_unpriced", &line["requests_unpriced"]),
                ("input", &line["tokens"]["input"]),
                ("cache_read", &line["tokens"]["cache_read"]),
                ("output", &line["tokens"]["output"]),
                ("cost_micro_usd", &line["cost_micro_usd"]),
            ] {
                let error = (sum(&points[figure]) - want.as_f64().unwrap()).abs();
                assert!(error < 0.001, "{figure} of {}: {} and {want}", group["group"], points[figure]);
            }
            assert_eq!(group["names"], line["names"]);
        }
    }
    gateway.stop();
}

#[test]
fn a_series_has_the_largest_groups_and_counts_the_others() {
    let mut gateway = Gateway::start();
    for n in 0..60_u64 {
        for _ in 0..=n {
            assert!(gateway.log.append(&UsageEvent { key: KeyId::new(format!("k{n}")), ..event(1) }));
        }
    }
    let series =
        gateway.get(&format!("/admin/api/series?from={FROM}&to={}&step=1&group_by=key", FROM + 1_000));
    let groups = series["groups"].as_array().unwrap();
    let keys: Vec<_> =
        groups.iter().map(|group| group["group"]["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(keys, (10..60).rev().map(|n| format!("k{n}")).collect::<Vec<_>>());
    assert_eq!((&groups[0]["points"]["requests"], &series["groups_omitted"]), (&json!([60]), &json!(10)));
    gateway.stop();
}

#[test]
fn a_series_of_too_many_points_is_rejected_with_the_step_that_fits() {
    let gateway = Gateway::start();
    let refusal = |query: &str| {
        let path = format!("/admin/api/series?{query}");
        let (status, value, _) = gateway.call(Method::GET, &path, &[("x-api-key", ADMIN)]);
        let error = &value["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        (status.as_u16(), text("param"), text("message"))
    };
    let (status, param, message) = refusal(&format!("from={FROM}&to={}&step=1", FROM + 3_600_000));
    assert_eq!((status, param.as_str()), (400, "step"));
    assert!(message.contains("3600 points") && message.contains("step=10 "), "{message}");
    let (status, param, message) = refusal(&format!("from=0&to={FROM}"));
    assert_eq!((status, param.as_str()), (400, "from"), "{message}");
    for (query, param) in [
        ("step=5", "step"),
        ("group_by=colour", "group_by"),
        ("group_by=key,model,provider", "group_by"),
        ("from=2&to=1", "from"),
        ("limit=1", "limit"),
    ] {
        let (status, named, message) = refusal(query);
        assert_eq!((status, named.as_str()), (400, param), "{query}: {message}");
    }
    // Ten seconds are the finest step of an hour, whose ends cut a point.
    let hour = gateway.get(&format!("/admin/api/series?from={}&to={}", FROM + 7, FROM + 3_600_007));
    let points = hour["groups"][0]["points"]["requests"].as_array().unwrap().len();
    assert_eq!((&hour["step_ms"], points), (&json!(10_000), 361));
    let recent = gateway.get("/admin/api/series?step=60");
    assert!(recent["groups"][0]["points"]["requests"].as_array().unwrap().len() <= 61, "{recent}");
    gateway.stop();
}
