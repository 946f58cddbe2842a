//! Bodies of requests over HTTP/2 that crawl: clients that send them in single bytes as the windows of the gateway allow,
//! and upstreams that open a window of one byte for them.

use super::Rig;
use super::upstreams_http2::http2;
use crate::support::figure::figure;
use crate::support::h2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameUpstream, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, Manners, PING,
    Reaction, WINDOW_UPDATE, frame, settings,
};
use crate::support::h2_wire::{H2Wire, post_block};
use crate::support::tls::Authority;
use crate::support::{Answer, Upstream, Yaml, chat};

/// The upstream's name of the model is so much shorter than the selector.
const SHORTER: usize = "up/m".len() - "m".len();
/// Frames that are sent before the gateway is asked for a sign that it has read them. h2 ends a connection on which some
/// 2,000 frames of one byte have not been read by the request: a flood, which another row covers.
const FRAMES_AT_ONCE: usize = 500;

/// Sends `body` on stream 1 in DATA frames of one byte, as fast as the gateway reads them.
async fn upload_in_single_bytes(wire: &mut H2Wire, body: &[u8]) {
    wire.send(frame(HEADERS, END_HEADERS, 1, &post_block())).await;
    for part in body.chunks(FRAMES_AT_ONCE) {
        let mut bytes: Vec<u8> = part.chunks(1).flat_map(|byte| frame(DATA, 0, 1, byte)).collect();
        bytes.extend(frame(PING, 0, 0, &[0; 8]));
        assert!(wire.send(bytes).await, "the connection is open");
        let answer = wire.find("the answer to a PING", |frame| matches!(frame.kind, PING | GOAWAY)).await;
        assert_eq!(answer.map(|frame| frame.kind), Some(PING));
    }
    wire.send(frame(DATA, END_STREAM, 1, &[])).await;
}

/// Each byte has a frame of its own: nine times as much on the wire, and nothing of that is kept.
#[tokio::test]
async fn an_upload_in_single_bytes_is_whole() {
    const BYTES: usize = 200_000;
    for tls in [false, true] {
        let upstream = Upstream::start().await;
        upstream.always(Answer::completion("ok"));
        let rig = Rig::start(Yaml::one(upstream.base_url()), tls, &[]).await;
        let text = "0123456789".repeat(BYTES / 10);
        let body = chat::request("up/m").replace("Say hello.", &text);
        rig.row(&format!("an upload of {BYTES} bytes in as many DATA frames"), async {
            let mut wire = H2Wire::open(&rig.gateway, rig.tls(), &[]).await;
            upload_in_single_bytes(&mut wire, body.as_bytes()).await;
            assert!(String::from_utf8(wire.body(1).await).unwrap().contains("ok"));
        })
        .await;
        let received = upstream.request(0).await.json();
        assert!(received["messages"][0]["content"] == text, "every byte goes upstream, in order");
    }
}

/// Requests that share the connection with an upload are served while that crawls.
#[tokio::test]
async fn an_upstream_with_a_window_of_one_byte_gets_whole_requests() {
    const BYTES: usize = 20_000;
    for tls in [false, true] {
        let authority = Authority::new(&[b"h2"]);
        let settings = vec![(INITIAL_WINDOW_SIZE, 1)];
        let tls_of_upstream = tls.then(|| authority.acceptor());
        let manners = Manners { settings, tls: tls_of_upstream, ..Manners::default() };
        let upstream = FrameUpstream::with(manners, |_, _| Reaction::Answer).await;
        let rig = Rig::with(http2(upstream.base_url(), "timeout: 120"), None, |setup| {
            setup.env("LLMGW_EXTRA_CA_FILE", authority.ca_file().to_str().unwrap())
        })
        .await;
        let small = chat::request("up/m");
        let large = small.replace("Say hello.", &"x".repeat(BYTES));
        let sent = large.len() + 6 * small.len() - 7 * SHORTER;
        let over = if tls { "TLS" } else { "clear text" };
        rig.row(&format!("upstream over {over}: a window of one byte for uploads"), async {
            // The first answer brings the settings, so that the others share its connection.
            assert_eq!(rig.gateway.client().chat(small.clone()).await.status, 200);
            let client = rig.gateway.client();
            let uploading = tokio::spawn(async move { client.chat(large).await.status });
            upstream.until("the start of the upload", |counts| counts.data_frames > small.len() + 100).await;
            for _ in 0..5 {
                assert_eq!(rig.gateway.client().chat(small.clone()).await.status, 200);
            }
            let frames = upstream.counts().data_frames;
            assert!(!uploading.is_finished(), "small requests overtake the upload, after {frames} frames");
            figure("duress", format!("five small requests end after {frames} of {sent} DATA frames"));
            assert_eq!(uploading.await.unwrap(), 200);
        })
        .await;
        let counts = upstream.counts();
        assert_eq!((counts.connections, counts.data_bytes), (1, sent), "{counts:?}");
        // The first request may have been sent before the settings arrived.
        assert!(counts.data_frames >= sent - small.len(), "a byte a frame: {counts:?}");
    }
}

/// The window shrinks to one byte while an upload is under way (RFC 9113 section 6.9.2: it may become negative).
#[tokio::test]
async fn an_upload_survives_a_window_that_shrinks_to_one_byte() {
    const BYTES: usize = 80_000;
    let upstream =
        FrameUpstream::with(Manners { grants: false, ..Manners::default() }, |_, _| Reaction::Answer).await;
    let rig = Rig::start(http2(upstream.base_url(), "timeout: 60"), false, &[]).await;
    let large = chat::request("up/m").replace("Say hello.", &"x".repeat(BYTES));
    let sent = large.len() - SHORTER;
    rig.row("upstream: the window shrinks from 65,535 bytes to one", async {
        let client = rig.gateway.client();
        let uploading = tokio::spawn(async move { client.chat(large).await });
        upstream.until("the first window", |counts| counts.data_bytes == 65_535).await;
        upstream.say(0, settings(&[(INITIAL_WINDOW_SIZE, 1)]));
        upstream.until("the acknowledgement", |counts| counts.settings_acks == 2).await;
        // The window of the stream is 65,534 bytes below zero.
        let update = |stream: u32, bytes: u32| frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
        upstream.say(0, [update(0, 1 << 20), update(1, 65_534)].concat());
        for byte in 0..10 {
            upstream.say(0, update(1, 1));
            upstream.until("a byte", |counts| counts.data_bytes == 65_536 + byte).await;
        }
        upstream.say(0, update(1, 1 << 20));
        let answer = uploading.await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    })
    .await;
    assert_eq!(upstream.counts().data_bytes, sent);
}
