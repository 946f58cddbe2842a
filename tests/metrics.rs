//! `GET /metrics` (ROUTE-5): every metric is documented, and requests are in the histograms of their provider and model.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::support::admin::Admin;
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat, wait};

const PRICED: &str = "models: [{id: m, prices: {input: 3, cached_input: 0.3, output: 15}}]";

/// A page of metrics.
struct Page(String);

/// The type and the labels of a metric, without the bounds of buckets.
type Shape = (String, BTreeSet<String>);

impl Page {
    async fn read(gateway: &Gateway) -> Self {
        let answer = gateway.client().get("/metrics").await.unwrap();
        assert_eq!(answer.status, 200);
        Self(String::from_utf8(answer.body.to_vec()).unwrap())
    }

    /// Waits for the records of the requests that have ended.
    async fn with(gateway: &Gateway, requests: u64) -> Self {
        wait::eventually("the records", async || {
            let page = Self::read(gateway).await;
            let sums = page.0.lines().filter(|line| line.starts_with(&format!("{DURATION}_count")));
            let counted: u64 = sums.map(|line| value(line).parse::<u64>().unwrap()).sum();
            (counted == requests).then_some(page)
        })
        .await
    }

    /// Returns the value of the line with these labels, in the order of the page.
    fn value(&self, name: &str, labels: &str) -> &str {
        let series = format!("{name}{{{labels}}} ");
        let line = self.0.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("{series} is not in {}", self.0))
    }

    /// Returns every metric.
    fn shapes(&self) -> BTreeMap<String, Shape> {
        let mut shapes = BTreeMap::new();
        for line in self.0.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                let other = shapes.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
                assert_eq!(other, None, "{name} appears once");
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let parts = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| name.strip_suffix(end));
                let name = parts.filter(|name| shapes.contains_key(*name)).unwrap_or(name);
                let (_, labels) = shapes.get_mut(name).unwrap_or_else(|| panic!("{name} has a type"));
                labels.extend(labels_of(line).filter(|label| *label != "le").map(str::to_owned));
            }
        }
        shapes
    }
}

fn value(line: &str) -> &str {
    line.rsplit(' ').next().unwrap()
}

fn labels_of(line: &str) -> impl Iterator<Item = &str> {
    let labels = line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
    labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0))
}

/// Returns the metrics of `docs/metrics.md`, without those of one of several nodes.
fn documented() -> BTreeMap<String, Shape> {
    let (page, _) = include_str!("../docs/metrics.md").split_once("\n## Several nodes\n").unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let shape = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(cells.len() == 6 && !cells[4].is_empty(), "{row}");
        let labels = cells[2].split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        (cells[0].trim_matches('`').to_owned(), (cells[1].to_owned(), labels))
    };
    rows.map(shape).collect()
}

const DURATION: &str = "gen_ai_server_request_duration_seconds";
const SECOND: &str = "gen_ai_operation_name=\"chat\",gen_ai_provider_name=\"p1\",gen_ai_request_model=\"m\"";

/// Starts two providers behind `line`, of which the first one answers each request with an error.
async fn failing_over() -> (Gateway, [Upstream; 2]) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Answer::error(503));
    let yaml = Yaml::new()
        .provider("p0", first.base_url())
        .provider_with("p1", second.base_url(), PRICED)
        .endpoint("line", &[("p0", "m"), ("p1", "m")]);
    (Gateway::start(&yaml).await, [first, second])
}

/// Streams an answer of `upstream` whose pieces arrive one by one.
async fn stream_in_pieces(gateway: &Gateway, upstream: &Upstream) {
    let gate = Gate::new();
    upstream.then(Answer::gated_events(&chat::events(&["a", "b"]), &gate));
    // The role and the first content.
    gate.open(2);
    let mut flow = gateway.client().chat_flow(chat::stream_request_with_usage("line")).await;
    for _ in 0..4 {
        flow.event().await;
        gate.open(1);
    }
    let _ = flow.rest().await;
}

#[tokio::test]
async fn every_metric_is_documented_with_its_type_and_labels() {
    let (gateway, [first, second]) = failing_over().await;
    stream_in_pieces(&gateway, &second).await;
    first.then(Answer::completion("without a price"));
    assert_eq!(gateway.client().chat(chat::request("line")).await.status, 200);
    assert_eq!(gateway.client().chat(chat::request("nothing")).await.status, 404);
    // A model rests, and an attempt is in flight.
    first.then(Answer::whole(429, &[("retry-after", "60")], chat::error("slow down", "rate")));
    let gate = Gate::new();
    second.then(Answer::stream().chunk(chat::content("a")).wait(&gate).chunk(chat::done()).end());
    let mut running = gateway.client().chat_flow(chat::stream_request("line")).await;
    running.event().await;
    let waits =
        json!({"subject": {"kind": "gateway"}, "metric": "concurrent_requests", "limit": 9, "wait_ms": 1});
    Admin(gateway.client()).create("quotas", waits).await;
    let found = Page::with(&gateway, 3).await.shapes();
    let documented = documented();
    let names = |shapes: &BTreeMap<String, Shape>| shapes.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&found), names(&documented));
    for (name, (kind, labels)) in &found {
        let (want, all) = &documented[name];
        assert_eq!(kind, want, "{name}");
        // A job that has not run has no end.
        assert!(labels == all || name == "llmgw_job_last_end_timestamp_seconds", "{name}: {labels:?}");
    }
    gate.open(1);
    let _ = running.rest().await;
}

#[tokio::test]
async fn a_stream_after_a_failover_is_in_the_histograms_of_its_target() {
    let (gateway, [_first, second]) = failing_over().await;
    stream_in_pieces(&gateway, &second).await;
    let page = Page::with(&gateway, 1).await;
    for figure in [
        DURATION,
        "gen_ai_server_time_to_first_token_seconds",
        "gen_ai_server_time_per_output_token_seconds",
        "llmgw_gateway_duration_seconds",
        "llmgw_attempt_cost_usd",
    ] {
        assert_eq!(page.value(&format!("{figure}_count"), SECOND), "1", "{figure}");
        assert_eq!(
            page.value(&format!("{figure}_bucket"), &format!("{SECOND},le=\"+Inf\"")),
            "1",
            "{figure}"
        );
    }
    let gaps = page.value("gen_ai_client_operation_time_per_output_chunk_seconds_count", SECOND);
    assert!((1..=5).contains(&gaps.parse::<u64>().unwrap()), "{gaps} gaps between the pieces of 6 events");
    let of_second = |name: &str, more: &str| page.value(name, &format!("{SECOND},{more}"));
    // 11 tokens at 3 and 7 at 15 millionths of a dollar.
    assert_eq!(page.value("llmgw_attempt_cost_usd_sum", SECOND), "0.000138");
    assert_eq!(of_second("gen_ai_client_token_usage_sum", "gen_ai_token_type=\"output\""), "7");
    assert_eq!(of_second("llmgw_tokens_total", "class=\"input\""), "11");
    assert_eq!(of_second("llmgw_target_results_total", "result=\"served\""), "1");
    assert_eq!(page.value("llmgw_failovers_total", SECOND), "1");
    let first = SECOND.replace("p1", "p0");
    assert_eq!(page.value("llmgw_target_results_total", &format!("{first},result=\"status\"")), "1");
}

#[tokio::test]
async fn errors_are_counted_by_kind_and_names_of_strangers_are_no_labels() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&Yaml::one(upstream.base_url())).await;
    for name in ["first-stranger", "second-stranger"] {
        assert_eq!(gateway.client().chat(chat::request(name)).await.status, 404);
    }
    upstream.then(Answer::error(500));
    gateway.client().chat(chat::request("m")).await;
    upstream.then(Answer::json(
        200,
        json!({"data": [], "usage": {"prompt_tokens": 3, "total_tokens": 3}}).to_string(),
    ));
    let body = json!({"model": "m", "input": "a"}).to_string();
    assert_eq!(gateway.client().post("/v1/embeddings", body).await.status, 200);
    let page = Page::with(&gateway, 4).await;
    let of = |operation: &str, provider: &str, model: &str| {
        format!(
            "gen_ai_operation_name=\"{operation}\",gen_ai_provider_name=\"{provider}\",gen_ai_request_model=\"{model}\""
        )
    };
    let unknown = format!("{},error_type=\"model_not_found\"", of("chat", "none", "none"));
    let count = format!("{DURATION}_count");
    assert_eq!(page.value(&count, &unknown), "2");
    assert_eq!(page.value(&count, &of("embeddings", "up", "m")), "1");
    assert!(page.0.contains("error_type=\"upstream_status\""), "{}", page.0);
    assert!(!page.0.contains("stranger"), "{}", page.0);
}
