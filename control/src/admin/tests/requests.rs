//! Finished exchanges: pages, filters and traces.

use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::id::{EndpointName, KeyId, ModelId, ProjectId, ProviderId};
use shared::usage::{Outcome, StepResult, TraceStep, UsageEvent};

use super::Gateway;
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
fn requests_are_filtered_by_everything_they_are_known_by() {
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
        provider: ProviderId::new(provider),
        model: ModelId::new("m"),
        result,
        status: None,
        lost: None,
        head_us: Some(5),
        spent_us: None,
    };
    let trace = vec![step("a", StepResult::Unreachable), step("b", StepResult::Served)];
    gateway.log.append(&UsageEvent { request_id: "odd/id?".into(), trace, ..event(7) });
    let shown = gateway.get("/admin/api/requests/odd%2Fid%3F");
    assert_eq!(
        shown,
        json!({
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
            "provenance": "reported", "tier": null, "picture": null,
            "cost_micro_usd": 1.5, "lost_micro_usd": 0.0, "vendor_cost_micro_usd": null,
            "upstream_id": null, "tags": {}, "end_user": null,
            "price": "config in 0.05 out 0.05", "head_us": 500, "first_content_us": 700,
            "trace": [
                {"provider": "a", "model": "m", "result": "unreachable", "head_us": 5},
                {"provider": "b", "model": "m", "result": "served", "head_us": 5},
            ],
        })
    );
    gateway.stop();
}
