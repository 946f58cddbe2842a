//! HTTP/2 upstreams under duress: they are frozen, limited, drain their connections or refuse requests, and clients
//! arrive all at once or read nothing. Each test asserts what honest neighbours notice, and the number of connections.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::h2_frames::{FrameUpstream, Manners, Reaction};
use crate::support::h2_upstream::{H2Answer, H2Upstream};
use crate::support::tls::Authority;
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat, wait};

/// Every failure counts: none is retried by the policy, and the first opens the circuit.
const STRICT: &str = "retry_max_attempts: 1\ncircuit_failure_threshold: 1\ncircuit_cooldown_seconds: 3600";

/// Returns the configuration of a provider that speaks HTTP/2 in clear text, with further `members`.
pub(super) fn http2(base_url: String, members: &str) -> Yaml {
    Yaml::new().provider_with("up", base_url, &format!("http_version: \"2\"\n{members}")).policies(STRICT)
}

/// Starts a gateway with one worker, so that all requests share its connections.
async fn one_worker(yaml: &Yaml) -> Gateway {
    Setup::new(yaml).env("LLMGW_WORKERS", "1").start().await
}

/// Sends `count` requests at once.
fn burst(gateway: &Gateway, count: usize) -> JoinSet<(u16, Option<String>)> {
    let mut burst = JoinSet::new();
    for _ in 0..count {
        let client = gateway.client();
        burst.spawn(async move {
            let answer = client.chat(chat::request("m")).await;
            (answer.status, answer.header("x-llmgw-attempts").map(str::to_owned))
        });
    }
    burst
}

/// Asserts that every request was answered by its first attempt.
async fn all_served(burst: JoinSet<(u16, Option<String>)>) {
    let outcomes = burst.join_all().await;
    let failed: Vec<_> = outcomes
        .iter()
        .filter(|(status, attempts)| (*status, attempts.as_deref()) != (200, Some("1")))
        .collect();
    assert!(failed.is_empty(), "{} of {}: {:?}", failed.len(), outcomes.len(), failed.first());
}

/// Returns the number of failures that the circuit of the provider counts.
async fn failures(gateway: &Gateway) -> u64 {
    let health = gateway.client().get("/admin/api/health/providers").await.unwrap().json();
    assert!(health["data"][0]["circuit"]["failures"].is_u64(), "{health}");
    health["data"][0]["circuit"]["failures"].as_u64().unwrap()
}

#[tokio::test]
async fn a_cold_burst_shares_few_http2_connections() {
    const REQUESTS: usize = 300;
    let (authority, gate) = (Authority::new(&[b"h2"]), Gate::new());
    let held = gate.clone();
    let upstream =
        FrameUpstream::start_tls(authority.acceptor(), move |_, _| Reaction::Hold(held.clone())).await;
    let yaml = Yaml::one(upstream.base_url()).policies(STRICT);
    let setup = Setup::new(&yaml).env("LLMGW_WORKERS", "1");
    let gateway = setup.env("LLMGW_EXTRA_CA_FILE", authority.ca_file().to_str().unwrap()).start().await;
    let burst = burst(&gateway, REQUESTS);
    upstream.requests(REQUESTS).await;
    gate.open(REQUESTS);
    all_served(burst).await;
    let counts = upstream.counts();
    figure(
        "HTTP/2",
        format!("a cold burst of {REQUESTS} requests over TLS: {} connections", counts.connections),
    );
    assert!((3..=4).contains(&counts.connections), "{counts:?}");
    assert!(counts.streams_at_once <= 100, "{counts:?}");
}

/// A cold burst to a provider that turns out to speak HTTP/1.1: each request has a connection of its own.
#[tokio::test]
async fn a_cold_burst_reaches_an_http1_provider_too() {
    const REQUESTS: usize = 50;
    let (authority, gate) = (Authority::new(&[b"http/1.1"]), Gate::new());
    let upstream = Upstream::start_tls(authority.acceptor()).await;
    upstream.always(Answer::gated_events(&chat::events(&["a"]), &gate));
    let yaml = Yaml::one(upstream.base_url()).policies(STRICT);
    let setup = Setup::new(&yaml).env("LLMGW_WORKERS", "1");
    let gateway = setup.env("LLMGW_EXTRA_CA_FILE", authority.ca_file().to_str().unwrap()).start().await;
    let burst = burst(&gateway, REQUESTS);
    upstream.request(REQUESTS - 1).await;
    assert_eq!(upstream.connections(), REQUESTS);
    drop(burst);
}

#[tokio::test]
async fn the_stream_limit_of_an_upstream_is_respected() {
    const LIMIT: u32 = 4;
    const REQUESTS: usize = 12;
    let gate = Gate::new();
    let held = gate.clone();
    let upstream = FrameUpstream::limited(LIMIT, move |connection, request| match (connection, request) {
        (0, 0) => Reaction::Answer,
        _ => Reaction::Hold(held.clone()),
    })
    .await;
    let gateway = one_worker(&http2(upstream.base_url(), "")).await;
    all_served(burst(&gateway, 1)).await;
    let began = Instant::now();
    let burst = burst(&gateway, REQUESTS);
    // None of them waits for the end of another.
    upstream.requests(1 + REQUESTS).await;
    let arrived = began.elapsed();
    gate.open(REQUESTS);
    all_served(burst).await;
    let counts = upstream.counts();
    figure(
        "HTTP/2",
        format!(
            "{REQUESTS} requests, at most {LIMIT} streams on a connection: {} connections, all upstream after {:.0} ms",
            counts.connections,
            arrived.as_secs_f64() * 1e3
        ),
    );
    assert_eq!((counts.connections, counts.streams_at_once), (3, 4), "{counts:?}");
    assert_eq!(counts.unprocessed, 0);
}

/// RFC 9113, section 6.8: requests above the last stream of a GOAWAY were not processed.
#[tokio::test]
async fn requests_that_cross_a_goaway_are_sent_again() {
    const REQUESTS: usize = 40;
    const PROCESSED: usize = 14;
    let upstream = FrameUpstream::start(|connection, request| match (connection, request) {
        (0, PROCESSED..) => Reaction::GoAway,
        _ => Reaction::Answer,
    })
    .await;
    let gateway = one_worker(&http2(upstream.base_url(), "")).await;
    all_served(burst(&gateway, 1)).await;
    all_served(burst(&gateway, REQUESTS)).await;
    let counts = upstream.counts();
    figure(
        "HTTP/2",
        format!(
            "{REQUESTS} requests cross a GOAWAY: {} not processed, {} connections, all served",
            counts.unprocessed, counts.connections
        ),
    );
    assert!(counts.unprocessed > 0 && counts.connections == 2, "{counts:?}");
    assert_eq!(failures(&gateway).await, 0);
}

/// RFC 9113, section 8.7: a stream that was reset with REFUSED_STREAM was not processed.
#[tokio::test]
async fn refused_requests_are_sent_again() {
    let upstream = FrameUpstream::start(|connection, request| match (connection, request) {
        (0, 1..) => Reaction::Refuse,
        _ => Reaction::Answer,
    })
    .await;
    let gateway = one_worker(&http2(upstream.base_url(), "")).await;
    for _ in 0..3 {
        all_served(burst(&gateway, 1)).await;
    }
    let counts = upstream.counts();
    assert_eq!((counts.connections, counts.unprocessed), (2, 1), "{counts:?}");
    assert_eq!(failures(&gateway).await, 0);
}

/// An upstream that processes nothing has failed, after a bounded number of connections.
#[tokio::test]
async fn an_upstream_that_refuses_everything_has_failed() {
    let upstream = FrameUpstream::start(|_, _| Reaction::Refuse).await;
    let gateway = one_worker(&http2(upstream.base_url(), "")).await;
    let answer = gateway.client().chat(chat::request("m")).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (502, "upstream_unreachable"));
    let counts = upstream.counts();
    assert_eq!((counts.connections, counts.requests), (3, 3), "{counts:?}");
    assert_eq!(failures(&gateway).await, 1);
}

/// As over HTTP/1.1: the upstream closes a connection that was idle while the next request is on its way.
#[tokio::test]
async fn a_connection_that_closes_under_a_request_is_no_failure_of_the_provider() {
    let upstream = FrameUpstream::start(|connection, request| match (connection, request) {
        (0, 1..) => Reaction::Close,
        _ => Reaction::Answer,
    })
    .await;
    let yaml = http2(upstream.base_url(), "").policies("retry_max_attempts: 2\ncircuit_failure_threshold: 1");
    let gateway = one_worker(&yaml).await;
    all_served(burst(&gateway, 1)).await;
    let answer = gateway.client().chat(chat::request("m")).await;
    assert_eq!((answer.status, answer.header("x-llmgw-attempts")), (200, Some("2")), "{:?}", answer.body);
    assert_eq!(failures(&gateway).await, 0);
}

/// A load balancer or a NAT has forgotten the connection: nothing is answered, and nothing closes it.
#[tokio::test]
async fn a_frozen_connection_costs_one_timeout() {
    let manners = Manners { grants: false, ..Manners::default() };
    let upstream = FrameUpstream::with(manners, |connection, request| match (connection, request) {
        (0, 1..) => Reaction::Freeze,
        _ => Reaction::Answer,
    })
    .await;
    let yaml = http2(upstream.base_url(), "timeout: 1")
        .policies("retry_max_attempts: 1\ncircuit_failure_threshold: 0");
    let gateway = one_worker(&yaml).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(gateway.client().chat(chat::request("m")).await.status);
    }
    figure("HTTP/2", format!("a connection freezes, one request after the other: {statuses:?}"));
    assert_eq!(statuses, [200, 504, 200, 200, 200, 200]);
    assert_eq!(upstream.counts().connections, 2);
}

/// Clients that read nothing hold what was sent to them. The window of the shared connection has room for all of them.
#[tokio::test]
async fn clients_that_read_nothing_leave_room_on_a_shared_connection() {
    const UNREAD: usize = 18;
    let event = chat::content(&"x".repeat(60 << 10));
    let pieces = std::iter::once(chat::role()).chain(std::iter::repeat_n(event, 256)).collect();
    let stream =
        H2Answer { status: 200, content_type: "text/event-stream", pieces, gate: None, reset: false };
    let upstream = H2Upstream::start(stream).await;
    let gateway = one_worker(&http2(upstream.base_url(), "timeout: 10\nstream_idle_timeout: 10")).await;
    let mut unread = Vec::new();
    for _ in 0..UNREAD {
        unread.push(gateway.client().chat_flow(chat::stream_request("m")).await);
    }
    // Nothing more is sent once every buffer on the way is full.
    let mut sent = 0;
    wait::eventually_within(3 * wait::PATIENCE, "the upstream to stop", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = std::mem::replace(&mut sent, upstream.taken_bytes());
        (before == sent && sent > 0).then_some(())
    })
    .await;
    let pieces = vec![Bytes::from(chat::completion("ok"))];
    upstream.answer(H2Answer {
        status: 200,
        content_type: "application/json",
        pieces,
        gate: None,
        reset: false,
    });
    let began = Instant::now();
    let answer = gateway.client().chat(chat::request("m")).await;
    figure(
        "HTTP/2",
        format!(
            "{UNREAD} clients read nothing: a neighbour on the same connection gets {} after {:.1} ms, {} connections",
            answer.status,
            began.elapsed().as_secs_f64() * 1e3,
            upstream.connections()
        ),
    );
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(upstream.connections(), 1);
    drop(unread);
}
