//! Finished exchanges: pages, filters and traces.

use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::id::{EndpointName, KeyId, ModelId, ProjectId, ProviderId};
use shared::operation::Dialect;
use shared::usage::{
    ChosenBy, Details, Finish, Outcome, StepResult, TargetChoice, TargetOrder, TraceStep, UsageEvent,
};

use super::Gateway;
use super::usage::exported;
use crate::usage::tests::event;

#[test]
fn requests_are_paged_newest_first_without_gap_or_repeat() {
    let mut gateway = Gateway::start();
    // Three start in each millisecond, so that the time alone does not order them.
    for n in 0..100 {
        gateway.log.append(&UsageEvent { started_at_ms: 1_000_000 + n / 3, ..event(n) });
    }
    let (mut seen, mut path) = (Vec::new(), "/admin/api/requests?limit=7".to_owned());
    loop {
        let page = gateway.get(&path);
        for row in page["data"].as_array().unwrap() {
            assert!(row.get("trace").is_none());
            let id: u64 = row["request_id"].as_str().unwrap()[4..].parse().unwrap();
            seen.push((row["started_at_ms"].as_u64().unwrap(), id));
        }
        // An exchange that ends meanwhile does not shift the pages.
        gateway.log.append(&UsageEvent { started_at_ms: 2_000_000, ..event(1_000) });
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/admin/api/requests?limit=7&cursor={cursor}"),
            None => break,
        }
    }
    let mut want: Vec<(u64, u64)> = (0..100).map(|n| (1_000_000 + n / 3, n)).collect();
    want.reverse();
    assert_eq!(seen, want);
    gateway.stop();
}

#[test]
fn requests_are_filtered_by_every_recorded_field() {
    let mut gateway = Gateway::start();
    let other = UsageEvent {
        key: KeyId::new("key 2"),
        project: Some(ProjectId::new("team")),
        endpoint: Some(EndpointName::new("fast")),
        provider: Some(ProviderId::new("q")),
        model: Some(ModelId::new("org/ä&b")),
        status: 502,
        outcome: Outcome::Failed,
        error: Some(ErrorKind::UpstreamUnreachable),
        ..event(50)
    };
    (0..3).for_each(|n| assert!(gateway.log.append(&event(n))));
    gateway.log.append(&other);
    for filter in [
        "key=key+2",
        "project=team",
        "endpoint=fast",
        "provider=q",
        "model=org%2F%C3%A4%26b",
        "status=502",
        "outcome=failed",
        "from=1700000000050",
        "from=2023-11-14T22:13:20.05Z&to=1700000000051",
        "provider=q&status=502&limit=1",
    ] {
        let page = gateway.get(&format!("/admin/api/requests?{filter}"));
        let ids: Vec<_> =
            page["data"].as_array().unwrap().iter().map(|row| row["request_id"].clone()).collect();
        assert_eq!(ids, ["req-50"], "{filter}");
        assert_eq!(page["next_cursor"], Value::Null, "{filter}");
    }
    for (filter, count) in [("to=1700000000050", 3), ("provider=p", 3), ("provider=", 4), ("model=x", 0)] {
        let page = gateway.get(&format!("/admin/api/requests?{filter}"));
        assert_eq!(page["data"].as_array().unwrap().len(), count, "{filter}");
    }
    gateway.stop();
}

#[test]
fn one_request_is_shown_with_its_trace() {
    let mut gateway = Gateway::start();
    let step = |provider: &str, result| TraceStep {
        head_us: Some(5),
        ..TraceStep::new(ProviderId::new(provider), ModelId::new("m"), result)
    };
    let trace = vec![step("a", StepResult::Unreachable), step("b", StepResult::Served)];
    gateway.log.append(&UsageEvent { request_id: "odd/id?".into(), trace, ..event(7) });
    let shown = gateway.get("/admin/api/requests/odd%2Fid%3F");
    let mut want = json!({
        "request_id": "odd/id?", "started_at_ms": 1_700_000_000_007_u64, "duration_us": 1_007,
        "operation": "chat_completions", "key": "admin", "project": null, "principal": null,
        "key_name": null, "project_name": null, "principal_name": null, "principal_email": null,
        "selector": "p/m", "endpoint": null, "provider": "p", "model": "m", "stream": false, "status": 200,
        "outcome": "completed", "error": null,
        "tokens": {
            "input": 10, "cache_read": 0, "cache_write": 0, "cache_write_1h": 0, "output": 20, "reasoning": 0,
            "audio_input": 0, "audio_output": 0, "image_input": 0, "image_output": 0,
        },
        "units": {
            "characters": 0, "audio_ms": 0, "video_ms": 0, "images": 0, "searches": 0, "tool_calls": 0,
        },
        "queue_us": null, "provenance": "reported", "tier": null, "picture": null,
        "cost_micro_usd": 1.5, "lost_micro_usd": 0.0, "vendor_cost_micro_usd": null,
        "upstream_id": null, "tags": {}, "end_user": null,
        "price": "config in 0.05 out 0.05", "head_us": 500, "first_content_us": 700,
    });
    want["protocol"] = json!("chat");
    (want["attempts"], want["passed_over"], want["failed_over"]) = (json!(2), json!(0), json!(true));
    want["results"] = json!(["unreachable", "served"]);
    want["trace"] = json!([
        {"provider": "a", "model": "m", "result": "unreachable", "head_us": 5, "attempt": 1},
        {"provider": "b", "model": "m", "result": "served", "head_us": 5, "attempt": 1, "first_content_us": 700},
    ]);
    assert_eq!(shown, want);
    gateway.stop();
}

#[test]
fn details_are_shown_and_a_record_of_an_earlier_release_lacks_them() {
    let mut gateway = Gateway::start();
    let details = Details {
        client: Some("claude-cli/2.1.329".into()),
        session: Some("0123456789abcdef".into()),
        adapted: Some(Dialect::Gemini),
        dropped: Some("seed, logit_bias".into()),
        refused_by: None,
        finish: Some(Finish::ContextFull),
        bytes_in: Some(0),
        bytes_out: None,
        gateway_us: Some(62),
        silence_us_max: Some(7_500_000),
        message: Some("over capacity, all of it".into()),
        choice: Some(TargetChoice { order: TargetOrder::LeastBusy, chosen_by: ChosenBy::Session }),
        ..Details::default()
    };
    let skipped = TraceStep {
        skip_wait_ms: Some(18_000),
        ..TraceStep::new(ProviderId::new("a"), ModelId::new("m"), StepResult::CircuitOpen)
    };
    let failed = TraceStep {
        start_us: Some(70),
        message: Some("over capacity".into()),
        retry_after_ms: Some(0),
        ..TraceStep::new(ProviderId::new("b"), ModelId::new("m"), StepResult::Status)
    };
    let trace = vec![skipped, failed];
    gateway.log.append(&UsageEvent { details, trace, outcome: Outcome::Cut, ..event(1) });
    gateway.log.append(&UsageEvent { outcome: Outcome::Cancelled, ..event(2) });
    gateway.log.append(&UsageEvent { outcome: Outcome::Interrupted, ..event(3) });
    let error = Some(ErrorKind::Cancelled);
    gateway.log.append(&UsageEvent { outcome: Outcome::Cancelled, error, ..event(4) });
    let shown = gateway.get("/admin/api/requests/req-1");
    for (member, want) in [
        ("client", json!("claude-cli/2.1.329")),
        ("session", json!("0123456789abcdef")),
        ("adapted", json!("gemini")),
        ("dropped", json!(["seed", "logit_bias"])),
        ("refused_by", Value::Null),
        ("finish", json!("context_full")),
        ("bytes_in", json!(0)),
        ("bytes_out", Value::Null),
        ("gateway_us", json!(62)),
        ("silence_us_max", json!(7_500_000)),
        ("message", json!("over capacity, all of it")),
        ("order", json!("least_busy")),
        ("chosen_by", json!("session")),
        ("results", json!(["circuit_open", "status"])),
    ] {
        assert_eq!(shown.get(member), Some(&want), "{member} in {shown}");
    }
    let step = json!({"provider": "b", "model": "m", "result": "status", "start_us": 70, "attempt": 1,
        "message": "over capacity", "retry_after_ms": 0});
    let rested = json!({"provider": "a", "model": "m", "result": "circuit_open", "circuit_wait_ms": 18_000});
    assert_eq!(shown["trace"], json!([rested, step]));
    let table = exported(&gateway, "format=csv");
    let ends: Vec<bool> = table.lines().map(|line| line.ends_with(",least_busy,session,")).collect();
    assert_eq!(ends, [false, true, false, false, false], "{table}");
    assert!(table.lines().next().unwrap().ends_with(",order,chosen_by,queue_us"));
    let earlier = gateway.get("/admin/api/requests/req-2");
    assert_eq!((&earlier["cancelled_by"], &earlier["attempts"]), (&json!("client"), &json!(0)));
    let lacking =
        ["client", "session", "adapted", "dropped", "bytes_in", "gateway_us", "refused_by", "message"];
    lacking.iter().for_each(|member| assert_eq!(earlier.get(member), None, "{member}"));
    assert_eq!(gateway.get("/admin/api/requests/req-4")["cancelled_by"], "administrator");
    let interrupted = gateway.get("/admin/api/requests/req-3");
    assert_eq!((interrupted.get("attempts"), interrupted.get("results")), (None, None), "{interrupted}");
    gateway.stop();
}
