//! Targets that hang, and the time that they leave to others (FAIL-2, M-064, M-215): through the real binary.

use std::time::Duration;

use serde_json::Value;

use crate::support::gateway::Setup;
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat};

/// Starts `count` upstreams behind the endpoint `line`.
async fn line(count: usize, policies: &str) -> (Gateway, Vec<Upstream>) {
    let mut upstreams = Vec::new();
    for _ in 0..count {
        upstreams.push(Upstream::start().await);
    }
    let urls: Vec<String> = upstreams.iter().map(Upstream::base_url).collect();
    (Gateway::start(&Yaml::line(&urls).policies(policies)).await, upstreams)
}

/// Returns `provider result` of each step of a request's trace.
fn steps(record: &Value) -> Vec<String> {
    let text = |step: &Value, member: &str| step[member].as_str().unwrap().to_owned();
    let steps = record["trace"].as_array().unwrap().iter();
    steps.map(|step| format!("{} {}", text(step, "provider"), text(step, "result"))).collect()
}

const ONCE: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 0";

/// The first target hangs: before its response head, before the first event, or only after a comment.
#[tokio::test]
async fn a_hanging_target_leaves_half_of_the_budget_to_the_next() {
    let silent = Answer::stream();
    for (name, body, hanging) in [
        ("no head, whole", chat::request("line"), Answer::hang_forever()),
        ("no head, stream", chat::stream_request("line"), Answer::hang_forever()),
        ("no event", chat::stream_request("line"), silent.clone().hang()),
        ("a comment", chat::stream_request("line"), silent.chunk(": working\n\n").hang()),
    ] {
        let (gateway, upstreams) = line(3, ONCE).await;
        upstreams[0].always(hanging);
        upstreams[1].always(Answer::hang_forever());
        match body.contains("stream") {
            true => upstreams[2].always(Answer::events(&chat::events(&["third"]))),
            false => upstreams[2].always(Answer::completion("third")),
        };
        let client = gateway.client().with("x-llmgw-fallback-timeout-ms", "3000");
        let answer = client.chat(body).await;
        assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p2")), "{name}");
        let id = answer.header("x-request-id").unwrap();
        let record = gateway.record_of(id).await;
        assert_eq!(steps(&record), ["p0 timed_out", "p1 timed_out", "p2 served"], "{name}");
        let spent_ms = |step: usize| record["trace"][step]["spent_us"].as_u64().unwrap() / 1_000;
        assert!((1_490..2_900).contains(&spent_ms(0)), "{name}: half of 3 s in {record}");
        assert!((700..1_500).contains(&spent_ms(1)), "{name}: half of the rest in {record}");
    }
}

/// A stream whose target has shown a sign of life keeps the whole budget, and so does a target without a successor.
#[tokio::test]
async fn a_target_that_works_on_the_request_keeps_the_whole_budget() {
    let begun = Answer::stream().chunk(chat::role());
    for (name, second) in
        [("a lifecycle event", Answer::completion("second")), ("an open circuit", Answer::error(500))]
    {
        let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 600";
        let (gateway, upstreams) = line(2, policies).await;
        upstreams[1].always(second);
        let gate = Gate::new();
        if name == "an open circuit" {
            assert_eq!(gateway.client().chat(chat::request("p1/m")).await.status, 500);
            upstreams[0]
                .always(Answer::stream().wait(&gate).chunk(chat::content("a")).chunk(chat::done()).end());
        } else {
            let rest = begun.clone().wait(&gate);
            upstreams[0].always(rest.chunk(chat::content("a")).chunk(chat::done()).end());
        }
        let client = gateway.client().with("x-llmgw-fallback-timeout-ms", "4000");
        let request = tokio::spawn(async move { client.chat(chat::stream_request("line")).await });
        upstreams[0].request(0).await;
        tokio::time::sleep(Duration::from_millis(2_200)).await;
        gate.open(1);
        let answer = request.await.unwrap();
        assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p0")), "{name}");
    }
}

/// M-064, M-215: the head of a whole answer is not its output.
#[tokio::test]
async fn a_whole_answer_that_stalls_before_its_end_times_out() {
    let (stalling, second) = (Upstream::start().await, Upstream::start().await);
    let half =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{\"id\": \"a\",";
    stalling.always(Answer::new().send(half).hang());
    second.always(Answer::completion("second"));
    let yaml = Yaml::new()
        .provider_with("p0", stalling.base_url(), "timeout: 0.3\nstream_idle_timeout: 300")
        .provider("p1", second.base_url())
        .endpoint("line", &[("p0", "m"), ("p1", "m")]);
    let gateway = Gateway::start(&yaml).await;
    let answer = gateway.client().chat(chat::request("line")).await;
    assert_eq!((answer.status, answer.header("x-llmgw-provider")), (200, Some("p1")));
    let record = gateway.record_of(answer.header("x-request-id").unwrap()).await;
    assert_eq!(steps(&record), ["p0 timed_out", "p1 served"]);
}

/// The stalls that the provider `echo` rehearses. One that has begun a stream keeps the whole budget.
#[tokio::test]
async fn every_stall_of_the_echo_leaves_time_to_the_next_target() {
    let echo = |options: &str| format!("{{type: echo, echo: {{{options}}}}}");
    for (options, streams, want) in [
        ("hang: true", &[false, true][..], (200, Some("p1"))),
        ("hang_after_head: true", &[true], (200, Some("p1"))),
        ("hang_after_chunks: 0", &[true], (504, None)),
    ] {
        let yaml = format!(
            "providers:\n  p0: {}\n  p1: {}\nendpoints:\n  line: {{failover: [{{provider: p0, model: echo}}, \
             {{provider: p1, model: echo}}]}}\n",
            echo(options),
            echo("delay_ms: 0")
        );
        let gateway = Setup::new(&Yaml::new()).yaml(yaml).start().await;
        let client = gateway.client().with("x-llmgw-fallback-timeout-ms", "1000");
        for &stream in streams {
            let body = if stream { chat::stream_request("line") } else { chat::request("line") };
            let answer = client.chat(body).await;
            let provider = answer.header("x-llmgw-provider").filter(|_| answer.status == 200);
            assert_eq!((answer.status, provider), want, "{options}, stream: {stream}");
        }
    }
}

#[tokio::test]
async fn an_endpoint_shows_what_defeats_its_failover() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider_with("p0", upstream.base_url(), "models: [m, n]");
    let gateway = Gateway::start(&yaml.endpoint("same", &[("p0", "m"), ("p0", "n")])).await;
    let endpoint = gateway.client().get("/admin/api/endpoints/same").await.unwrap().json();
    let warning = endpoint["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.starts_with("all targets are models of the provider 'p0'"), "{endpoint}");
}
