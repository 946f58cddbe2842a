//! Clients that disconnect (CAN-1, P1 to P3): the upstream connection is released at once, there is no retry or
//! failover, and the exchange is recorded as cancelled.

use std::time::{Duration, Instant};

use crate::support::figure::{figure, promised, times};
use crate::support::raw::{self, Raw};
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, gateway::ADMIN_KEY, wait};

/// The maximum time between a client's disconnect and the close of the upstream connection.
const RELEASE_MAX: Duration = Duration::from_millis(250);
/// The maximum of the median time of all cancellations.
const RELEASE_MEDIAN: Duration = Duration::from_millis(100);

/// Starts two upstreams behind `line`, with retries on, so that a retry or failover would be visible.
async fn watched_line() -> (Gateway, Upstream, Upstream) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    second.always(Answer::completion("never asked"));
    let yaml = Yaml::line(&[first.base_url(), second.base_url()]);
    let policies = "retry_max_attempts: 3\nretry_initial_backoff_seconds: 0.05\ncircuit_failure_threshold: 0";
    (Gateway::start(&yaml.policies(policies)).await, first, second)
}

/// Disconnects twenty times at the point that `leave` determines, and checks how fast the upstream connection is
/// released.
async fn expect_released(
    when: &str,
    answer: Answer,
    leave: impl AsyncFn(&Gateway, &Upstream, usize) -> Instant,
) {
    const ROUNDS: usize = 20;
    let (gateway, first, second) = watched_line().await;
    first.always(answer);
    let mut taken = Vec::new();
    for round in 0..ROUNDS {
        let left = leave(&gateway, &first, round).await;
        taken.push(first.closed(round).await.saturating_duration_since(left));
    }
    figure("P1", format!("a client leaves {when}, until the upstream is let go: {}", times(&mut taken)));
    assert!(taken[ROUNDS / 2] <= promised(RELEASE_MEDIAN), "{taken:?}");
    assert!(taken[ROUNDS - 1] <= promised(RELEASE_MAX), "{taken:?}");
    let records = gateway.records(ROUNDS).await;
    assert_eq!(records.len(), ROUNDS, "one record an exchange");
    for record in records {
        assert_eq!(record["outcome"], "cancelled", "{record}");
    }
    assert_eq!(first.requests().len(), ROUNDS, "no retry");
    assert_eq!(second.requests().len(), 0, "no failover");
}

#[tokio::test]
async fn a_disconnect_before_the_head_closes_the_upstream_connection() {
    expect_released("before the head", Answer::hang_forever(), async |gateway, upstream, round| {
        let mut client = Raw::open(gateway.address()).await;
        client.send(raw::post(ADMIN_KEY, "", &chat::request("line"))).await;
        upstream.request(round).await;
        drop(client);
        Instant::now()
    })
    .await;
}

/// Bytes behind the body are an empty line, as some clients send, or requests that wait for their turn.
#[tokio::test]
async fn a_disconnect_behind_further_bytes_closes_the_upstream_connection() {
    let next =
        format!("GET /health HTTP/1.1\r\nhost: gateway.test\r\nx-filling: {}\r\n\r\n", "x".repeat(1_000));
    for behind in ["\r\n".to_owned(), "G".to_owned(), next.repeat(10)] {
        expect_released("behind further bytes", Answer::hang_forever(), async |gateway, upstream, round| {
            let mut client = Raw::open(gateway.address()).await;
            client.send(raw::post(ADMIN_KEY, "", &chat::request("line")) + &behind).await;
            upstream.request(round).await;
            drop(client);
            Instant::now()
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_reset_closes_the_upstream_connection() {
    expect_released(
        "before the head, by a reset",
        Answer::hang_forever(),
        async |gateway, upstream, round| {
            let mut client = Raw::open(gateway.address()).await;
            client.send(raw::post(ADMIN_KEY, "", &chat::stream_request("line"))).await;
            upstream.request(round).await;
            client.reset();
            Instant::now()
        },
    )
    .await;
}

#[tokio::test]
async fn a_disconnect_before_content_closes_the_upstream_connection() {
    expect_released(
        "between head and content",
        Answer::stream().chunk(chat::role()).hang(),
        async |gateway, upstream, round| {
            let mut client = Raw::open(gateway.address()).await;
            client.send(raw::post(ADMIN_KEY, "", &chat::stream_request("line"))).await;
            upstream.request(round).await;
            drop(client);
            Instant::now()
        },
    )
    .await;
}

#[tokio::test]
async fn a_disconnect_from_a_silent_stream_closes_the_upstream_connection() {
    let answer = Answer::stream().chunk(chat::role()).chunk(chat::content("some")).hang();
    expect_released("a silent stream", answer, async |gateway, _, _| {
        let mut flow = gateway.client().chat_flow(chat::stream_request("line")).await;
        flow.event().await;
        flow.event().await;
        drop(flow);
        Instant::now()
    })
    .await;
}

#[tokio::test]
async fn a_disconnect_from_a_busy_stream_closes_the_upstream_connection() {
    let answer = Answer::stream().chunk(chat::role()).repeat_chunk(chat::content("more and more"));
    expect_released("a busy stream", answer, async |gateway, _, _| {
        let mut flow = gateway.client().chat_flow(chat::stream_request("line")).await;
        for _ in 0..50 {
            flow.event().await;
        }
        drop(flow);
        Instant::now()
    })
    .await;
}

#[tokio::test]
async fn usage_of_a_cancelled_stream_is_estimated() {
    let (gateway, first, _second) = watched_line().await;
    first.always(Answer::stream().chunk(chat::role()).chunk(chat::content("some words of output")).hang());
    let mut flow = gateway.client().chat_flow(chat::stream_request("line")).await;
    flow.event().await;
    flow.event().await;
    drop(flow);
    let record = gateway.records(1).await.remove(0);
    assert_eq!(record["provenance"], "estimated", "{record}");
    let tokens = |class: &str| record["tokens"][class].as_u64().unwrap_or_default();
    assert!(tokens("input") > 0 && tokens("output") > 0, "{record}");
    assert!(tokens("output") < 20, "never more than was relayed: {record}");
}

/// P2.
#[tokio::test]
async fn no_attempt_follows_a_disconnect_during_the_backoff() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    second.always(Answer::completion("never asked"));
    let gate = crate::support::Gate::new();
    let busy = Answer::new().wait(&gate);
    first.always(Answer { steps: [busy.steps, Answer::error(503).steps].concat() });
    let policies = "retry_max_attempts: 3\nretry_initial_backoff_seconds: 0.2\ncircuit_failure_threshold: 0";
    let yaml = Yaml::line(&[first.base_url(), second.base_url()]).policies(policies);
    let gateway = Gateway::start(&yaml).await;
    let mut client = Raw::open(gateway.address()).await;
    client.send(raw::post(ADMIN_KEY, "", &chat::request("line"))).await;
    first.request(0).await;
    drop(client);
    gate.open(10);
    // The record is written when the exchange is over, so any retry would have happened by then.
    let record = gateway.records(1).await.remove(0);
    assert_eq!(record["outcome"], "cancelled", "{record}");
    // P2 specifies two seconds in which no further request may arrive.
    let further = tokio::time::timeout(Duration::from_secs(2), async {
        loop {
            if first.requests().len() > 1 || !second.requests().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(further.await.is_err(), "a request came after the client had left");
    figure("P2", "the first target answers 503 after the client has left: 0 further requests in 2 s");
}

/// P3: all at once.
#[tokio::test]
async fn two_hundred_simultaneous_disconnects_leak_nothing() {
    const CLIENTS: usize = 200;
    const BEFORE: usize = 16;
    // The database opens and closes files now and then, and this test's own queries use connections too.
    const SLACK: usize = 8;
    let (gateway, first, second) = watched_line().await;
    first.always(Answer::stream().chunk(chat::role()).chunk(chat::content("some")).hang());
    // Runs some exchanges first, so that everything that each worker and database reader opens once is open.
    for index in 0..BEFORE {
        drop(gateway.client().chat_flow(chat::stream_request("line")).await);
        first.closed(index).await;
    }
    gateway.records(BEFORE).await;
    let descriptors = gateway.descriptors();
    let mut flows = Vec::new();
    for _ in 0..CLIENTS {
        flows.push(gateway.client().chat_flow(chat::stream_request("line")).await);
    }
    assert!(gateway.descriptors() + SLACK >= descriptors + 2 * CLIENTS);
    let left = Instant::now();
    drop(flows);
    wait::eventually("all upstream connections closed", async || {
        (first.closed_count() == CLIENTS + BEFORE).then_some(())
    })
    .await;
    let taken = left.elapsed();
    assert!(taken < promised(Duration::from_millis(1_500)), "{taken:?}");
    wait::eventually("descriptors back to where they were", async || {
        (gateway.descriptors() <= descriptors + SLACK).then_some(())
    })
    .await;
    figure(
        "P3",
        format!("{CLIENTS} clients leave at once: all let go in {} ms, descriptors back", taken.as_millis()),
    );
    let records = gateway.records(CLIENTS + BEFORE).await;
    assert_eq!(records.len(), CLIENTS + BEFORE);
    assert!(records.iter().all(|record| record["outcome"] == "cancelled"));
    assert_eq!(second.requests().len(), 0);
}

/// P3: no memory leak.
#[tokio::test]
async fn fifteen_hundred_cancellations_leak_no_memory() {
    let (gateway, first, _second) = watched_line().await;
    first.always(Answer::stream().chunk(chat::role()).chunk(chat::content("some")).hang());
    let cancel = async |count: usize| {
        for _ in 0..count / 50 {
            let mut flows = Vec::new();
            for _ in 0..50 {
                flows.push(gateway.client().chat_flow(chat::stream_request("line")).await);
            }
        }
    };
    cancel(300).await;
    let memory = gateway.memory();
    cancel(1_500).await;
    gateway.records(500).await;
    let kept = memory.kept();
    assert!(kept < 24 << 20, "{} KiB", kept >> 10);
    figure("P3", format!("1,500 cancels leave {} KiB behind", kept >> 10));
}
