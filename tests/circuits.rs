//! Circuits through the real binary (FAIL-4): the failures that open a circuit, its scope and duration, and the
//! failures that do not count against a provider.

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::gateway::ADMIN_KEY;
use crate::support::raw::{Raw, post};
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, wait};

/// Starts a gateway with one provider `up` with the models `fine` and `retired`.
async fn start(policies: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider_with("up", upstream.base_url(), "models: [fine, retired]");
    (Gateway::start(&yaml.policies(policies)).await, upstream)
}

const HOUR: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 2\ncircuit_cooldown_seconds: 3600";
const SECOND: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 1";

async fn ask(gateway: &Gateway, model: &str) -> u16 {
    gateway.client().chat(chat::request(model)).await.status
}

#[tokio::test]
async fn a_retired_model_opens_only_its_own_circuit() {
    for refusal in [
        Answer::json(404, chat::error("The model `retired` does not exist", "model_not_found")),
        Answer::json(400, chat::error("The model `retired` has been decommissioned", "model_decommissioned")),
        Answer::json(
            403,
            chat::error("Project `p` does not have access to model `retired`", "model_not_found"),
        ),
    ] {
        let (gateway, upstream) = start(HOUR).await;
        upstream.answering(move |request| match request.json()["model"].as_str() {
            Some("retired") => refusal.clone(),
            _ => Answer::completion("ok"),
        });
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(ask(&gateway, "up/retired").await);
            assert_eq!(ask(&gateway, "up/fine").await, 200, "after {statuses:?}");
        }
        assert_eq!(statuses[2..], [503, 503], "{statuses:?}");
        assert_eq!(upstream.requests().len(), 2 + 4, "the retired model was asked twice");
        let health = gateway.client().get("/admin/api/health/providers").await.unwrap().json();
        let provider = &health["data"][0];
        assert_eq!(provider["circuit"]["state"], "closed", "{provider}");
        assert_eq!(provider["models"][0]["model"], "retired", "{provider}");
        assert_eq!(provider["models"][0]["circuit"]["state"], "open", "{provider}");
    }
}

/// A client with invalid requests does not keep the circuit of a recovered provider open.
#[tokio::test]
async fn a_probe_with_an_invalid_request_closes_the_circuit() {
    let (gateway, upstream) = start(SECOND).await;
    upstream.then(Answer::error(503)).then(Answer::error(400)).always(Answer::completion("back"));
    assert_eq!(ask(&gateway, "up/fine").await, 503);
    wait::eventually("the end of the cooldown", async || {
        (ask(&gateway, "up/fine").await == 400).then_some(())
    })
    .await;
    assert_eq!(ask(&gateway, "up/fine").await, 200);
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test]
async fn a_probe_whose_client_disconnects_frees_its_slot() {
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 2";
    let (gateway, upstream) = start(policies).await;
    upstream.then(Answer::error(503)).then(Answer::hang_forever()).always(Answer::completion("back"));
    assert_eq!(ask(&gateway, "up/fine").await, 503);
    // The first request that is not rejected is the probe; its client disconnects when the upstream has received it.
    wait::eventually("a probe", async || {
        let mut raw = Raw::open(gateway.address()).await;
        raw.send(post(ADMIN_KEY, "", &chat::request("up/fine"))).await;
        tokio::select! {
            _ = upstream.request(1) => Some(()),
            _ = raw.read_until("HTTP/1.1 503") => None,
        }
    })
    .await;
    upstream.closed(1).await;
    assert_eq!(ask(&gateway, "up/fine").await, 200, "the next one is the probe, without another cooldown");
}

fn limit_descriptors(gateway: &Gateway, current: u64) {
    let pid = Pid::from_raw(i32::try_from(gateway.pid()).unwrap());
    let limit = Rlimit { current: Some(current), maximum: Some(DESCRIPTORS_MAX) };
    prlimit(pid, Resource::Nofile, limit).unwrap();
}

/// Standard input, output and error, which stay open.
const STANDARD_DESCRIPTORS: u64 = 3;
/// More descriptors than the gateway opens here.
const DESCRIPTORS_MAX: u64 = 1_024;

#[tokio::test]
async fn a_lack_of_descriptors_opens_no_circuit() {
    let (gateway, upstream) = start("retry_max_attempts: 1\ncircuit_failure_threshold: 1").await;
    upstream.always(Answer::completion("ok"));
    let mut raw = Raw::open(gateway.address()).await;
    raw.send("HEAD /health HTTP/1.1\r\nhost: gateway.test\r\n\r\n").await;
    raw.read_until("\r\n\r\n").await;
    // Open descriptors above the limit stay usable, and the numbers of those that are closed cannot be used again.
    limit_descriptors(&gateway, STANDARD_DESCRIPTORS);
    raw.send(post(ADMIN_KEY, "", &chat::request("up/fine"))).await;
    let text = raw.read_until("\"request_id\"").await;
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("\"overloaded\""), "{text}");
    assert!(text.contains("no free file descriptors") && text.contains("ulimit -n"), "{text}");
    assert!(text.to_lowercase().contains("retry-after: 1"), "{text}");
    assert_eq!(upstream.connections(), 0);
    limit_descriptors(&gateway, DESCRIPTORS_MAX);
    assert_eq!(ask(&gateway, "up/fine").await, 200, "the provider's circuit is closed");
    let health = gateway.client().get("/admin/api/health/providers").await.unwrap().json();
    assert_eq!(health["data"][0]["circuit"]["failures"], 0, "{health}");
}
