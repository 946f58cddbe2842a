//! Memory of streams that are held open: in clear text, from TLS clients, and to an HTTP/2 upstream.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Rig;
use super::upstreams_http2::http2;
use crate::support::figure::{figure, is_full};
use crate::support::gateway::ADMIN_KEY;
use crate::support::h2_frames::{DATA, FrameUpstream, Reaction, frame, head};
use crate::support::h2_wire::socket;
use crate::support::{Answer, Upstream, Yaml, chat, proc, raw, wait};

/// Opens `count` streams one after the other, waits for the first events of each, and returns the KiB that each holds.
async fn held(name: &str, rig: &Rig, count: usize) -> u64 {
    let open = async || {
        let mut socket = socket(&rig.gateway, rig.tls(), b"http/1.1").await.unwrap();
        let request = raw::post(ADMIN_KEY, "", &chat::stream_request("up/m"));
        socket.write_all(request.as_bytes()).await.unwrap();
        socket.flush().await.unwrap();
        let mut received = Vec::new();
        while !String::from_utf8_lossy(&received).contains("hello") {
            let reading = socket.read_buf(&mut received);
            assert_ne!(wait::within(wait::PATIENCE, "an event", reading).await.unwrap(), 0, "{name}");
        }
        socket
    };
    // What the first streams allocate for all later ones does not count.
    let mut streams = Vec::new();
    for _ in 0..50 {
        streams.push(open().await);
    }
    let before = proc::resident_bytes(rig.gateway.pid());
    for _ in 0..count {
        streams.push(open().await);
    }
    let grown = proc::resident_bytes(rig.gateway.pid()).saturating_sub(before);
    let each = grown / count as u64;
    figure("held", format!("{name}: {:.1} KiB for each of {count} streams", each as f64 / 1024.0));
    each >> 10
}

/// Returns an upstream with HTTP/2 whose streams begin and stay open.
async fn http2_upstream() -> FrameUpstream {
    FrameUpstream::start(|_, _| {
        Reaction::write(|stream| {
            let events = [chat::role(), chat::content("hello")].concat();
            vec![head(stream, "text/event-stream"), frame(DATA, 0, stream, &events)]
        })
    })
    .await
}

/// The limits are about a third above the figures, because memory comes in pages and the allocator keeps some for later.
#[tokio::test]
#[ignore = "opens thousands of connections: run it alone, for its figures"]
async fn a_held_stream_costs_little() {
    let count = if is_full() { 5_000 } else { 500 };
    let first = Upstream::start().await;
    first.always(Answer::stream().chunk(chat::role()).chunk(chat::content("hello")).hang());
    let second = http2_upstream().await;
    for (name, yaml, tls, limit) in [
        ("clear text on both sides", Yaml::one(first.base_url()), false, 50),
        ("TLS clients", Yaml::one(first.base_url()), true, 64),
        ("an HTTP/2 upstream", http2(second.base_url(), ""), false, 34),
        ("TLS clients, an HTTP/2 upstream", http2(second.base_url(), ""), true, 48),
    ] {
        let rig = Rig::start(yaml, tls, &[]).await;
        let idle = proc::status_kib(rig.gateway.pid(), "RssAnon:");
        figure("held", format!("{name}: {idle} KiB of its own when idle"));
        assert!(idle <= 24 << 10, "{name}: {idle} KiB when idle");
        let each = held(name, &rig, count).await;
        assert!(each <= limit, "{name}: {each} KiB");
    }
}
