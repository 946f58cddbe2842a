//! Clients that disconnect after the end of the content and before the usage (CAN-1, ADM-6): the gateway continues to
//! read the upstream for a bounded time, so that hidden reasoning is billed.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::figure::promised;
use crate::support::gateway::Setup;
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat, wait};

async fn gateway(upstream: &Upstream, grace_ms: &str) -> Gateway {
    let setup = Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_USAGE_GRACE_MS", grace_ms);
    setup.env("LLMGW_METRICS_PUBLIC", "true").start().await
}

fn finished() -> Answer {
    Answer::stream().chunk(chat::role()).chunk(chat::content("some")).chunk(chat::finish())
}

/// Reads a stream up to its finish reason, and disconnects.
async fn disconnect_after_finish(gateway: &Gateway) -> Instant {
    let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
    for _ in 0..3 {
        flow.event().await;
    }
    drop(flow);
    Instant::now()
}

/// Returns once the gateway has noticed that every other client has disconnected.
async fn alone(gateway: &Gateway) {
    wait::eventually("the client has left", async || {
        let metrics = gateway.client().get("/metrics").await.ok()?;
        let text = String::from_utf8(metrics.body.to_vec()).ok()?;
        text.lines().any(|line| line == "llmgw_connections 1").then_some(())
    })
    .await;
}

#[tokio::test]
async fn usage_that_arrives_after_a_disconnect_is_recorded() {
    let (upstream, gate) = (Upstream::start().await, Gate::new());
    upstream.always(finished().wait(&gate).chunk(chat::usage()).hang());
    let gateway = gateway(&upstream, "30000").await;
    disconnect_after_finish(&gateway).await;
    alone(&gateway).await;
    assert_eq!(upstream.closed_count(), 0, "it is read on");
    gate.open(1);
    upstream.closed(0).await;
    let record = gateway.records(1).await.remove(0);
    assert_eq!(
        (&record["outcome"], &record["provenance"]),
        (&json!("cancelled"), &json!("reported")),
        "{record}"
    );
    assert_eq!((&record["tokens"]["input"], &record["tokens"]["output"]), (&json!(11), &json!(7)));
}

#[tokio::test]
async fn an_upstream_that_reports_no_usage_is_closed_after_the_grace() {
    const GRACE: Duration = Duration::from_millis(400);
    let upstream = Upstream::start().await;
    upstream.always(finished().hang());
    let gateway = gateway(&upstream, "400").await;
    let left = disconnect_after_finish(&gateway).await;
    let taken = upstream.closed(0).await.saturating_duration_since(left);
    assert!(taken >= GRACE - Duration::from_millis(50) && taken < promised(2 * GRACE), "{taken:?}");
    let record = gateway.records(1).await.remove(0);
    assert_eq!(
        (&record["outcome"], &record["provenance"]),
        (&json!("cancelled"), &json!("estimated")),
        "{record}"
    );
}

#[tokio::test]
async fn without_a_grace_the_upstream_is_closed_at_once() {
    let upstream = Upstream::start().await;
    upstream.always(finished().hang());
    let gateway = gateway(&upstream, "0").await;
    let left = disconnect_after_finish(&gateway).await;
    let taken = upstream.closed(0).await.saturating_duration_since(left);
    // Also far less than the default of 2 s.
    assert!(taken < promised(Duration::from_millis(250)).min(Duration::from_millis(1_500)), "{taken:?}");
    assert_eq!(gateway.records(1).await[0]["provenance"], "estimated");
}

#[tokio::test]
async fn a_response_waiting_for_usage_is_recorded_when_the_gateway_stops() {
    let upstream = Upstream::start().await;
    upstream.always(finished().hang());
    let mut gateway = gateway(&upstream, "30000").await;
    disconnect_after_finish(&gateway).await;
    alone(&gateway).await;
    gateway.signal(rustix::process::Signal::TERM);
    assert!(gateway.exit().await.success());
    let gateway = gateway.restart().await;
    let records = gateway.records(1).await;
    assert_eq!((records.len(), &records[0]["outcome"]), (1, &json!("cancelled")));
}

/// Mistral does not support `stream_options`: its usage arrives with the end of the stream or not at all.
#[tokio::test]
async fn an_upstream_without_stream_options_is_closed_at_once() {
    let upstream = Upstream::start().await;
    upstream.always(finished().hang());
    let provider =
        json!({"registry_id": "mistral", "base_url": upstream.base_url(), "api_key": "k", "models": ["m"]});
    let config = json!({"providers": {"up": provider}}).to_string();
    let setup = Setup::new(&Yaml::new()).yaml(config).env("LLMGW_USAGE_GRACE_MS", "30000");
    let gateway = setup.start().await;
    disconnect_after_finish(&gateway).await;
    upstream.closed(0).await;
    let record = gateway.records(1).await.remove(0);
    assert_eq!((&record["outcome"], &record["provenance"]), (&json!("cancelled"), &json!("estimated")));
}
