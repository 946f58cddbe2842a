//! Streams of unequal weight that share the connections of a worker to one upstream: what a small stream notices of large
//! ones, and of clients that read nothing.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::upstreams_http2::http2;
use crate::support::figure::{figure, promised, times};
use crate::support::gateway::Setup;
use crate::support::h2_frames::{INITIAL_WINDOW_SIZE, PING, RST_STREAM, frame};
use crate::support::h2_upstream::{H2Answer, H2Upstream};
use crate::support::h2_wire::{H2Wire, post};
use crate::support::{Gate, Gateway, chat, wait};

/// Events of the small stream.
const EVENTS: usize = 20;

fn stream(pieces: Vec<Bytes>, gate: Option<Gate>) -> H2Answer {
    H2Answer { status: 200, content_type: "text/event-stream", pieces, gate, reset: false }
}

async fn gateway(upstream: &H2Upstream) -> Gateway {
    let yaml = http2(upstream.base_url(), "timeout: 60\nstream_idle_timeout: 60");
    Setup::new(&yaml).env("LLMGW_WORKERS", "1").start().await
}

/// A stream whose events are sent one by one.
struct Small {
    flow: crate::support::client::Flow,
    gate: Gate,
}

impl Small {
    async fn start(gateway: &Gateway, upstream: &H2Upstream) -> Self {
        let gate = Gate::new();
        let events = std::iter::once(chat::role()).chain((0..3 * EVENTS).map(|_| chat::content("a")));
        upstream.answer(stream(events.collect(), Some(gate.clone())));
        gate.open(2);
        let mut flow = gateway.client().chat_flow(chat::stream_request("m")).await;
        flow.event().await;
        flow.event().await;
        Self { flow, gate }
    }

    /// Returns the delays of some events, each of which is sent when its predecessor has arrived.
    async fn delays(&mut self) -> Vec<Duration> {
        let mut delays = Vec::new();
        for _ in 0..EVENTS {
            let sent_at = Instant::now();
            self.gate.open(1);
            self.flow.event().await;
            delays.push(sent_at.elapsed());
        }
        delays
    }
}

#[tokio::test]
async fn a_small_stream_is_not_delayed_by_large_ones_that_are_not_read() {
    const LARGE: usize = 250;
    let event = chat::content(&"x".repeat(16 << 10));
    let pieces: Vec<_> = std::iter::once(chat::role()).chain(std::iter::repeat_n(event, 1_000)).collect();
    let upstream = H2Upstream::start(stream(pieces, None)).await;
    let gateway = gateway(&upstream).await;
    let memory = gateway.memory();
    let mut wires = Vec::new();
    for _ in 0..5 {
        let mut wire = H2Wire::open(&gateway, None, &[(INITIAL_WINDOW_SIZE, 1_000)]).await;
        for stream in 0..50 {
            wire.send(post(2 * stream + 1, &chat::stream_request("m"))).await;
        }
        wires.push(wire);
    }
    let standing = settled(&upstream).await;
    let held = memory.peak();
    let mut small = Small::start(&gateway, &upstream).await;
    let mut beside = small.delays().await;
    figure(
        "fairness",
        format!(
            "a small stream beside {LARGE} large ones that are not read: {}; {} KiB taken and {} KiB held for each, {} connections",
            times(&mut beside),
            (standing / LARGE as u64) >> 10,
            (held / LARGE as u64) >> 10,
            upstream.connections()
        ),
    );
    let median = beside[beside.len() / 2];
    assert!(median < promised(Duration::from_millis(250)), "{median:?}");
    assert_eq!(upstream.connections(), 3, "no connection was lost");
}

/// Waits until the upstream sends nothing more; returns the bytes that it has sent.
async fn settled(upstream: &H2Upstream) -> u64 {
    let mut sent = 0;
    wait::eventually_within(3 * wait::PATIENCE, "the upstream to stop", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = std::mem::replace(&mut sent, upstream.taken_bytes());
        (before == sent && sent > 0).then_some(sent)
    })
    .await
}

/// Small frames that are not read are an overhead for which h2 ends a connection. The streams of a full connection together
/// must stay below that, even if no client reads.
#[tokio::test]
async fn unread_streams_of_small_events_do_not_end_the_connection_of_others() {
    const UNREAD: u32 = 99;
    let event = Bytes::from_static(
        br#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}

"#,
    );
    let pieces: Vec<_> = std::iter::once(chat::role()).chain(std::iter::repeat_n(event, 5_000)).collect();
    let upstream = H2Upstream::start(stream(pieces, None)).await;
    let gateway = gateway(&upstream).await;
    let mut wire = H2Wire::open(&gateway, None, &[(INITIAL_WINDOW_SIZE, 500)]).await;
    for stream in 0..UNREAD {
        wire.send(post(2 * stream + 1, &chat::stream_request("m"))).await;
    }
    let sent = settled(&upstream).await;
    let mut small = Small::start(&gateway, &upstream).await;
    let mut beside = small.delays().await;
    figure(
        "fairness",
        format!(
            "a small stream beside {UNREAD} streams of small events that are not read: {}; {} KiB taken for each, {} connections",
            times(&mut beside),
            (sent / u64::from(UNREAD)) >> 10,
            upstream.connections()
        ),
    );
    assert_eq!(upstream.connections(), 1, "the connection was not lost");
    drop(small);
    wire.send(frame(PING, 0, 0, &[0; 8])).await;
    let pong = wire
        .find("an answer to the PING, and no reset", |frame| {
            assert_ne!(frame.kind, RST_STREAM, "{frame:?}");
            frame.kind == PING
        })
        .await;
    assert!(pong.is_some(), "the client's connection is open");
}
