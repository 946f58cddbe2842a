//! Metrics exported by OTLP: the same figures as in `GET /metrics`.

use rustix::process::Signal;

use crate::support::config::Yaml;
use crate::support::gateway::Setup;
use crate::support::otlp::{SentMetric, metrics};
use crate::support::upstream::Received;
use crate::support::{Answer, Upstream, chat, wait};

async fn upstreams() -> (Upstream, Upstream) {
    let (collector, upstream) = (Upstream::start().await, Upstream::start().await);
    collector.always(Answer::whole(200, &[], ""));
    upstream.always(Answer::completion("ok"));
    (collector, upstream)
}

fn find<'a>(metrics: &'a [SentMetric], name: &str) -> &'a SentMetric {
    metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name} in {metrics:?}"))
}

fn is_of_metrics(request: &Received) -> bool {
    request.head.starts_with("POST /own/metrics ")
}

#[tokio::test]
async fn metrics_by_otlp_are_those_of_prometheus() {
    let (collector, upstream) = upstreams().await;
    let setup = Setup::new(&Yaml::one(upstream.base_url()))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.address()))
        .env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", format!("http://{}/own/metrics", collector.address()))
        .env("OTEL_METRIC_EXPORT_INTERVAL", "200");
    let gateway = setup.start().await;
    for _ in 0..2 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    let sent = wait::eventually("two exchanges in the metrics", async || {
        let exports = collector.requests().into_iter().filter(is_of_metrics);
        let last = exports.last().map(|request| metrics(&request))?;
        let duration = last.iter().find(|metric| metric.name == "gen_ai.server.request.duration")?;
        (duration.points[0].count == 2).then_some(last)
    })
    .await;
    let duration = find(&sent, "gen_ai.server.request.duration");
    let [point] = &duration.points[..] else { panic!("{duration:?}") };
    assert_eq!((&*duration.unit, point.buckets), ("s", point.bounds + 1));
    for (key, want) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "openai"),
        ("gen_ai.request.model", "m"),
        ("llmgw.provider.id", "up"),
    ] {
        assert_eq!(point.attributes[key], want, "{key}");
    }
    assert!(!point.attributes.contains_key("error.type") && point.sum > 0.0);

    let page = gateway.client().get("/metrics").await.unwrap();
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    let usage = find(&sent, "gen_ai.client.token.usage");
    for point in &usage.points {
        let kind = &point.attributes["gen_ai.token.type"];
        let line = page
            .lines()
            .find(|line| {
                line.starts_with("gen_ai_client_token_usage_sum")
                    && line.contains(&format!("type=\"{kind}\""))
            })
            .unwrap();
        assert_eq!(line.rsplit(' ').next().unwrap().parse::<f64>().unwrap(), point.sum, "{kind}: {line}");
    }
    assert!(page.contains("llmgw_otlp_metric_exports_total{result=\"exported\"}"));
    let state = gateway.client().get("/admin/api/state").await.unwrap().json();
    assert!(state["metrics_export"]["exports"].as_u64().unwrap() > 0, "{state}");
}

#[tokio::test]
async fn a_stop_exports_the_metrics_once_more() {
    let (collector, upstream) = upstreams().await;
    let setup = Setup::new(&Yaml::one(upstream.base_url()))
        .env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", format!("http://{}/own/metrics", collector.address()))
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://{}/own/traces", collector.address()))
        .env("OTEL_TRACES_EXPORTER", "none");
    let mut gateway = setup.start().await;
    let answer = gateway.client().chat(chat::request("m")).await;
    gateway.record_of(answer.header("x-request-id").unwrap()).await;
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().await.success(), "{}", gateway.log());
    let exports = collector.requests();
    let [export] = &exports[..] else { panic!("{exports:?}") };
    assert_eq!(find(&metrics(export), "gen_ai.server.request.duration").points[0].count, 1);
}
