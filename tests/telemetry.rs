//! What is measured at targets by minute, through the real binary (STATE-1): counts, times and errors, which no end of the
//! process loses, and changes of circuits, which may be lost without harm.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::admin::Admin;
use crate::support::gateway::Setup;
use crate::support::{Answer, Client, Gateway, Upstream, Yaml, chat, wait};

const NO_CIRCUIT: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 0";
const CIRCUIT: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 1";

async fn measured(gateway: &Gateway, query: &str) -> Value {
    Admin(gateway.client()).done("GET", &format!("telemetry?{query}"), Value::Null).await
}

/// Returns the sum of a figure over all points; a missing figure counts 0.
fn sum(measured: &Value, pointer: &str) -> u64 {
    let points = measured["points"].as_array().unwrap();
    points.iter().filter_map(|point| point.pointer(pointer)).map(|value| value.as_u64().unwrap()).sum()
}

async fn stop(mut gateway: Gateway) -> Setup {
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().await.code(), Some(0), "{}", gateway.log());
    gateway.kill().await
}

/// Returns the changes of circuits once there are `count`, the earliest first.
async fn changes(gateway: &Gateway, count: usize) -> Vec<Value> {
    let mut changes = wait::eventually("changes of circuits", async || {
        let changes = measured(gateway, "").await["circuit_changes"].as_array().unwrap().clone();
        (changes.len() >= count).then_some(changes)
    })
    .await;
    changes.reverse();
    changes
}

/// Sends one request to `up/m` that is answered.
async fn sent(gateway: &Gateway, upstream: &Upstream) {
    upstream.always(Answer::completion("ok"));
    assert_eq!(gateway.client().chat(chat::request("up/m")).await.status, 200);
}

#[tokio::test]
async fn exchanges_are_measured_at_their_targets_in_the_minute_of_their_start() {
    let upstreams = [Upstream::start().await, Upstream::start().await];
    upstreams[0].always(Answer::error(503));
    upstreams[1].then(Answer::events(&chat::events(&["one ", "two"]))).always(Answer::completion("ok"));
    let yaml = Yaml::line(&[upstreams[0].base_url(), upstreams[1].base_url()]).policies(NO_CIRCUIT);
    let gateway = Gateway::start(&yaml).await;
    let client = gateway.client();
    client.chat_flow(chat::stream_request("line")).await.rest().await;
    for (model, status) in [("line", 200), ("p1/m", 200), ("p0/m", 503), ("no-such-model", 404)] {
        assert_eq!(client.chat(chat::request(model)).await.status, status);
    }
    let records = gateway.records(5).await;

    let all = measured(&gateway, "").await;
    assert_eq!(
        (sum(&all, "/requests"), &all["partial"], &all["bucket_ms"]),
        (5, &json!(false), &json!(60_000))
    );
    let started = |record: &Value| {
        let started_at_ms = record["started_at_ms"].as_u64().unwrap();
        started_at_ms - started_at_ms % 60_000
    };
    for point in all["points"].as_array().unwrap() {
        let want = records.iter().filter(|record| started(record) == point["start_ms"]).count();
        assert_eq!(point["requests"], want, "{point}");
    }
    let errors =
        ["upstream_error", "model_not_found"].map(|kind| (kind, sum(&all, &format!("/errors/{kind}"))));
    let failed: Vec<_> = records.iter().filter_map(|record| record["error"].as_str()).collect();
    let want = errors.map(|(kind, _)| {
        (kind, u64::try_from(failed.iter().filter(|error| **error == kind).count()).unwrap())
    });
    assert_eq!((errors, failed.len()), (want, 2), "{failed:?} {all}");

    let first = measured(&gateway, "provider=p0&bucket=3600").await;
    let figures = ["/requests", "/results/status", "/head/count"].map(|figure| sum(&first, figure));
    assert_eq!(figures[..2], [1, 3], "it was tried first for two others: {first}");
    let second = measured(&gateway, "provider=p1&model=m&bucket=86400").await;
    let figures = ["/requests", "/results/served", "/head/count", "/first_content/count", "/gateway/count"];
    assert_eq!(figures.map(|figure| sum(&second, figure)), [3, 3, 3, 1, 3], "{second}");
    let streams: Vec<_> = records.iter().filter(|record| record["stream"] == true).collect();
    let first_content_us = streams[0]["first_content_us"].as_u64().unwrap();
    assert_eq!(sum(&second, "/first_content/sum_us"), first_content_us);
    let times = &second["points"][0]["first_content"];
    let bounds = second["bounds_us"]["first_content"].as_array().unwrap();
    let bucket = bounds.iter().position(|bound| first_content_us <= bound.as_u64().unwrap()).unwrap();
    assert_eq!((&times["buckets"][bucket], &times["p50_us"]), (&json!(1), &bounds[bucket]), "{times}");
    assert_eq!(times["buckets"].as_array().unwrap().len(), bounds.len() + 1);

    let mut targets: Vec<_> = all["targets"].as_array().unwrap().iter().map(Value::to_string).collect();
    targets.sort();
    let mut want = [
        json!({"provider": "p1", "model": "m", "requests": 3, "errors": 0}),
        json!({"provider": "p0", "model": "m", "requests": 1, "errors": 1}),
        json!({"provider": null, "model": null, "requests": 1, "errors": 1}),
    ]
    .map(|target| target.to_string());
    want.sort();
    assert_eq!(targets, want);
}

#[tokio::test]
async fn what_was_measured_is_shown_to_administrators_in_a_bounded_answer() {
    let gateway = Gateway::start(&Yaml::new()).await;
    let admin = Admin(gateway.client());
    let project = admin.project("blue").await;
    let key = admin.key(json!({"project": project})).await;
    for (key, status) in [(Some(key.key.as_str()), 403), (None, 401)] {
        let client = Client::new(gateway.address(), key);
        assert_eq!(client.get("/admin/api/telemetry").await.unwrap().status, status);
    }
    let end = "to=2026-02-01T00:00:00Z";
    for (query, status) in [
        ("from=2026-01-31T18:00:00Z&bucket=60", 200),
        ("from=2026-01-31T17:58:00Z&bucket=60", 400),
        ("from=2026-01-17T00:00:00Z", 200),
        ("from=2024-01-01T00:00:00Z", 400),
        ("bucket=7", 400),
        ("provide=p", 400),
    ] {
        let answer = admin.call("GET", &format!("telemetry?{end}&{query}"), Value::Null).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.json());
    }
}

#[tokio::test]
async fn a_circuit_that_opens_and_closes_is_recorded_and_kept_over_a_restart() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::error(503));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url()).policies(CIRCUIT)).await;
    assert_eq!(gateway.client().chat(chat::request("up/m")).await.status, 503);
    let opened = changes(&gateway, 1).await;
    let health = Admin(gateway.client()).done("GET", "health/providers", Value::Null).await;
    assert_eq!(opened[0]["at_ms"], health["data"][0]["circuit"]["open_since_ms"], "{health}");
    let shown = ["provider", "model", "state", "result", "status"].map(|member| opened[0][member].clone());
    assert_eq!(shown, [json!("up"), json!(null), json!("open"), json!("status"), json!(503)]);

    upstream.always(Answer::completion("back"));
    wait::eventually("the end of the cooldown", async || {
        (gateway.client().chat(chat::request("up/m")).await.status == 200).then_some(())
    })
    .await;
    let both = changes(&gateway, 2).await;
    assert_eq!((&both[0], &both[1]["state"]), (&opened[0], &json!("closed")));
    assert!(both[1]["at_ms"].as_u64() > both[0]["at_ms"].as_u64(), "{both:?}");

    let gateway = stop(gateway).await.start().await;
    assert_eq!(changes(&gateway, 2).await, both);
    let others = measured(&gateway, "provider=other").await;
    assert_eq!(others["circuit_changes"], json!([]));
}

/// Another process goes on in the same minute.
#[tokio::test]
async fn neither_a_stop_nor_a_kill_loses_what_was_measured() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    sent(&gateway, &upstream).await;
    let gateway = stop(gateway).await.start().await;
    assert_eq!(sum(&measured(&gateway, "").await, "/requests"), 1);
    sent(&gateway, &upstream).await;
    assert_eq!(sum(&measured(&gateway, "").await, "/requests"), 2);
    let gateway = gateway.restart().await;
    assert_eq!(sum(&measured(&gateway, "").await, "/requests"), 2);
}

/// Proves M-121.
#[tokio::test]
async fn a_missing_or_damaged_telemetry_db_is_created_again_with_a_warning() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    sent(&gateway, &upstream).await;
    let stopped = stop(gateway).await;
    let file = stopped.state().join("telemetry.db");
    fs::remove_file(&file).unwrap();
    let gateway = stopped.start().await;
    assert_eq!(sum(&measured(&gateway, "").await, "/requests"), 1, "the figures are elsewhere");
    sent(&gateway, &upstream).await;
    assert_eq!(sum(&measured(&gateway, "").await, "/requests"), 2);

    let stopped = stop(gateway).await;
    fs::write(&file, "garbage ".repeat(1_000)).unwrap();
    let gateway = stopped.start().await;
    gateway.logs("only telemetry is lost").await;
    sent(&gateway, &upstream).await;
    assert_eq!(sum(&measured(&gateway, "").await, "/requests"), 3);
    assert_eq!(gateway.records(3).await.len(), 3, "the records are elsewhere");
}

#[tokio::test]
async fn requests_and_their_records_do_not_depend_on_telemetry_db() {
    let upstream = Upstream::start().await;
    let setup = Setup::new(&Yaml::one(upstream.base_url()));
    fs::create_dir_all(setup.state().join("telemetry.db")).unwrap();
    fs::set_permissions(setup.state(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let gateway = setup.start().await;
    sent(&gateway, &upstream).await;
    assert_eq!(gateway.records(1).await.len(), 1);
    let answer = gateway.client().get("/admin/api/telemetry").await.unwrap();
    assert_eq!(answer.status, 503, "{}", answer.json());
    gateway.logs("telemetry.db cannot be opened").await;
    stop(gateway).await;
}

#[tokio::test]
async fn what_cannot_be_written_waits_in_memory() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::error(503));
    let gateway = Gateway::start(&Yaml::one(upstream.base_url()).policies(CIRCUIT)).await;
    assert_eq!(measured(&gateway, "").await["points"], json!([]), "the file exists");
    let locked = rusqlite::Connection::open(gateway.state().join("telemetry.db")).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(gateway.client().chat(chat::request("up/m")).await.status, 503);
    gateway.logs("telemetry.db cannot be written").await;
    assert_eq!(gateway.records(1).await.len(), 1, "it is stored elsewhere");
    let opened = changes(&gateway, 1).await;
    locked.execute_batch("COMMIT").unwrap();
    wait::eventually_within(2 * wait::PATIENCE, "another attempt", async || {
        gateway.log().contains("telemetry.db is written again").then_some(())
    })
    .await;
    let gateway = gateway.restart().await;
    assert_eq!(changes(&gateway, 1).await[0], opened[0], "it was stored before the kill");
}
