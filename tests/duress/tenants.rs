//! Tenants of unequal weight on shared HTTP/2 connections: one with many fast streams of large chunks, and one with two
//! streams whose events are sent one by one. What the second one waits for is counted in the bytes that the first one gets
//! in the meantime, not in time, so that a slow machine changes nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::upstreams_http2::http2;
use crate::support::admin::Admin;
use crate::support::figure::figure;
use crate::support::gateway::Setup;
use crate::support::h2_frames::{
    self, ACK, DATA, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, RST_STREAM, WINDOW_UPDATE, frame,
};
use crate::support::h2_upstream::{H2Answer, H2Upstream};
use crate::support::h2_wire::{H2Wire, Received, post_as};
use crate::support::{Gate, Gateway, chat, wait};

/// Streams of the heavy tenant. Together with those of the light one, a connection to the upstream has room for them.
const HEAVY: u32 = 98;
/// Streams of the light tenant.
const LIGHT: u32 = 2;
/// Bytes of text in a chunk of the heavy tenant.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks of each of its streams: more than a test reads.
const CHUNKS: usize = 4_000;
/// Events of each stream of the light tenant that are waited for.
const EVENTS: usize = 20;

/// Chunks that each heavy stream may send before an event of the light tenant arrives. What fills the buffers of the kernel and
/// the windows on the way goes first.
const CHUNKS_BETWEEN_MAX: f64 = 32.0;

/// Bytes that a stream holds whose client reads slowly: its window on the upstream connection, in buffers that are not all
/// full, and about half as much again.
const HELD_BYTES_MAX: u64 = 768 << 10;

/// A gateway with one worker, before an upstream that both tenants share.
struct Rig {
    gateway: Gateway,
    upstream: H2Upstream,
    heavy: String,
    light: String,
}

fn stream(pieces: Vec<Bytes>, gate: Option<Gate>) -> H2Answer {
    H2Answer { status: 200, content_type: "text/event-stream", pieces, gate, reset: false }
}

impl Rig {
    async fn start() -> Self {
        let event = chat::content(&"x".repeat(CHUNK_BYTES));
        let pieces = std::iter::once(chat::role()).chain(std::iter::repeat_n(event, CHUNKS)).collect();
        let upstream = H2Upstream::start(stream(pieces, None)).await;
        let yaml = http2(upstream.base_url(), "timeout: 120\nstream_idle_timeout: 120");
        let setup = Setup::new(&yaml).env("LLMGW_WORKERS", "1").env("LLMGW_CLIENT_STALL_SECONDS", "300");
        let gateway = setup.start().await;
        let admin = Admin(gateway.client());
        let mut keys = Vec::new();
        for name in ["heavy", "light"] {
            let project = admin.project(name).await;
            keys.push(admin.key(json!({"project": project})).await.key);
        }
        let light = keys.pop().unwrap();
        Self { gateway, upstream, heavy: keys.pop().unwrap(), light }
    }

    /// Starts the streams of the heavy tenant, and waits until each has begun.
    async fn start_heavy(&self, wire: &mut Wire) {
        for index in 0..HEAVY {
            let stream = wire.opened();
            wire.wire.send(post_as(&self.heavy, stream, &chat::stream_request("m"))).await;
            self.upstream.request(usize::try_from(index).unwrap()).await;
        }
    }

    /// Starts the streams of the light tenant, and waits for two events of each. Returns their numbers and gates.
    async fn start_light(&self, wire: &mut Wire) -> Vec<(u32, Gate)> {
        let mut streams = Vec::new();
        for index in 0..LIGHT {
            let gate = Gate::new();
            let events = std::iter::once(chat::role()).chain((0..=EVENTS).map(|_| chat::content("a")));
            self.upstream.answer(stream(events.collect(), Some(gate.clone())));
            gate.open(2);
            let stream = wire.opened();
            wire.wire.send(post_as(&self.light, stream, &chat::stream_request("m"))).await;
            self.upstream.request(usize::try_from(HEAVY + index).unwrap()).await;
            wire.event(stream).await;
            streams.push((stream, gate));
        }
        streams
    }
}

/// A client connection that opens its windows by what it takes.
struct Wire {
    wire: H2Wire,
    next: u32,
    /// Bytes of all streams but the one that [`Wire::event`] waits for.
    other_bytes: u64,
}

impl Wire {
    /// Connects; the window of the connection has these bytes more than the 65,535 of RFC 9113.
    async fn open(gateway: &Gateway, window: u32, more_bytes: u32) -> Self {
        let mut wire = H2Wire::open(gateway, None, &[(INITIAL_WINDOW_SIZE, window)]).await;
        if more_bytes > 0 {
            wire.send(frame(WINDOW_UPDATE, 0, 0, &more_bytes.to_be_bytes())).await;
        }
        Self { wire, next: 1, other_bytes: 0 }
    }

    fn opened(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        stream
    }

    /// Takes one frame, and opens the windows by its bytes.
    async fn take(&mut self) -> Received {
        let taking = self.wire.next();
        let frame = wait::within(6 * wait::PATIENCE, "a frame", taking).await.expect("an open connection");
        assert!(!matches!(frame.kind, RST_STREAM | GOAWAY), "{frame:?}");
        match frame.kind {
            DATA if !frame.payload.is_empty() => self.grant(&frame).await,
            PING if frame.flags & ACK == 0 => {
                self.wire.send(h2_frames::frame(PING, ACK, 0, &frame.payload)).await;
            }
            _ => {}
        }
        frame
    }

    async fn grant(&mut self, received: &Received) {
        let bytes = u32::try_from(received.payload.len()).unwrap().to_be_bytes();
        let updates = [0, received.stream].map(|stream| frame(WINDOW_UPDATE, 0, stream, &bytes));
        self.wire.send(updates.concat()).await;
    }

    /// Takes frames until an event with content of `stream` is whole; returns the bytes of the others that came before it.
    async fn event(&mut self, stream: u32) -> u64 {
        let before = self.other_bytes;
        let mut event = Vec::new();
        loop {
            let frame = self.take().await;
            match (frame.kind, frame.stream == stream) {
                (DATA, true) => event.extend_from_slice(&frame.payload),
                (DATA, false) => self.other_bytes += frame.payload.len() as u64,
                (HEADERS, _) => assert_eq!(frame.payload.first(), Some(&0x88), "a status of 200"),
                _ => {}
            }
            if event.ends_with(b"\n\n") && event.windows(13).any(|part| part == b"\"content\":\"a\"") {
                return self.other_bytes - before;
            }
        }
    }
}

/// Bytes of the heavy tenant between the sending of an event of the light one and its arrival.
struct Between(Vec<u64>);

impl Between {
    /// Prints them, and asserts that the light tenant did not wait for more than `chunks_max` chunks of each heavy stream.
    fn judge(mut self, what: &str, chunks_max: f64) {
        self.0.sort_unstable();
        let chunks = |bytes: u64| bytes as f64 / CHUNK_BYTES as f64 / f64::from(HEAVY);
        let (median, most) = (chunks(self.0[self.0.len() / 2]), chunks(self.0[self.0.len() - 1]));
        figure(
            "fairness",
            format!(
                "{what}: {} events of a light tenant wait for {median:.2} chunks of each of {HEAVY} heavy streams, {most:.2} at most",
                self.0.len()
            ),
        );
        assert!(most <= chunks_max, "{what}: {most:.2} chunks");
    }
}

/// One connection from a proxy that serves both tenants, and one to the upstream. With the windows that a client has by
/// default, all streams share 64 KiB, so that each byte of the heavy tenant takes room from the light one.
#[tokio::test]
async fn a_light_tenant_has_its_turn_on_connections_that_a_heavy_one_fills() {
    for (name, window, more_bytes) in
        [("windows of 1 MiB", 1 << 20, 256 << 20), ("default windows", 65_535, 0)]
    {
        let rig = Rig::start().await;
        let mut wire = Wire::open(&rig.gateway, window, more_bytes).await;
        rig.start_heavy(&mut wire).await;
        let light = rig.start_light(&mut wire).await;
        let mut between = Vec::new();
        for _ in 0..EVENTS {
            for (stream, gate) in &light {
                gate.open(1);
                between.push(wire.event(*stream).await);
            }
        }
        assert_eq!(rig.upstream.connections(), 1, "all streams share a connection");
        Between(between).judge(&format!("both tenants on one client connection, {name}"), CHUNKS_BETWEEN_MAX);
    }
}

/// Each tenant has a client connection of its own; the one to the upstream is shared.
#[tokio::test]
async fn a_light_tenant_has_its_turn_on_an_upstream_connection_that_a_heavy_one_fills() {
    let rig = Rig::start().await;
    let mut heavy = Wire::open(&rig.gateway, 1 << 20, 256 << 20).await;
    rig.start_heavy(&mut heavy).await;
    let mut wire = Wire::open(&rig.gateway, 1 << 20, 0).await;
    let taken = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&taken);
    let taking = tokio::spawn(async move {
        loop {
            let bytes = heavy.take().await.payload.len();
            counter.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    });
    let light = rig.start_light(&mut wire).await;
    let mut between = Vec::new();
    for _ in 0..EVENTS {
        for (stream, gate) in &light {
            let before = taken.load(Ordering::Relaxed);
            gate.open(1);
            wire.event(*stream).await;
            between.push(taken.load(Ordering::Relaxed) - before);
        }
    }
    assert!(!taking.is_finished());
    taking.abort();
    assert_eq!(rig.upstream.connections(), 1, "all streams share a connection");
    Between(between).judge("each tenant on a client connection of its own", CHUNKS_BETWEEN_MAX);
}

/// The clients of the heavy tenant read, but slowly: each stream gets a kilobyte at a time.
#[tokio::test]
async fn a_light_tenant_is_served_beside_one_whose_clients_read_slowly() {
    let rig = Rig::start().await;
    let memory = rig.gateway.memory();
    let mut heavy = Wire::open(&rig.gateway, 1_000, 0).await;
    rig.start_heavy(&mut heavy).await;
    let taken = Arc::new(Mutex::new(BTreeMap::<u32, usize>::new()));
    let counts = Arc::clone(&taken);
    let taking = tokio::spawn(async move {
        loop {
            let frame = heavy.take().await;
            *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(frame.stream).or_default() +=
                frame.payload.len();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let total = |of: &BTreeMap<u32, usize>| of.values().sum::<usize>() as u64;
    let snapshot = || taken.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // Each slow stream has more than `than` has of it.
    let all_go_on = async |what: &str, than: &BTreeMap<u32, usize>| {
        wait::eventually_within(3 * wait::PATIENCE, what, async || {
            let now = snapshot();
            let is_further =
                |stream| now.get(&stream) > Some(&than.get(&stream).copied().unwrap_or_default());
            (0..HEAVY).all(|index| is_further(2 * index + 1)).then_some(())
        })
        .await;
    };
    all_go_on("each slow stream to begin", &BTreeMap::new()).await;
    let mut wire = Wire::open(&rig.gateway, 1 << 20, 0).await;
    let light = rig.start_light(&mut wire).await;
    let first = snapshot();
    let mut between = Vec::new();
    for _ in 0..EVENTS {
        for (stream, gate) in &light {
            let before = total(&snapshot());
            gate.open(1);
            wire.event(*stream).await;
            between.push(total(&snapshot()) - before);
        }
    }
    assert!(!taking.is_finished());
    all_go_on("each slow stream to go on", &first).await;
    taking.abort();
    let held = memory.peak() / u64::from(HEAVY);
    figure("fairness", format!("a slow stream of large chunks holds {} KiB", held >> 10));
    assert!(held < HELD_BYTES_MAX, "{} KiB a stream", held >> 10);
    assert_eq!(rig.upstream.connections(), 1, "all streams share a connection");
    Between(between).judge("a heavy tenant that reads slowly", CHUNKS_BETWEEN_MAX);
}
