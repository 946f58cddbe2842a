//! Clients over HTTP/2, in clear text and over TLS: trickles, tiny windows, floods, and streams that are not read.

use std::time::Duration;

use super::Rig;
use crate::support::figure::figure;
use crate::support::h2_frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, settings,
};
use crate::support::h2_wire::{H2Wire, Received, literal, post, post_block};
use crate::support::{Answer, Upstream, Yaml, chat, wait};

/// An upstream with this answer, and a gateway before it.
async fn rig(answer: Answer, tls: bool, variables: &[(&str, &str)]) -> (Rig, Upstream) {
    let upstream = Upstream::start().await;
    upstream.always(answer);
    (Rig::start(Yaml::one(upstream.base_url()), tls, variables).await, upstream)
}

/// A stream that never ends.
fn endless() -> Answer {
    Answer::stream().repeat_chunk(chat::content(&"x".repeat(4_000)))
}

fn update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// True for frames of a stream.
fn of(stream: u32) -> impl Fn(&Received) -> bool {
    move |frame| frame.stream == stream
}

#[tokio::test]
async fn requests_in_single_bytes_are_served() {
    for tls in [false, true] {
        let (rig, upstream) = rig(Answer::completion("ok"), tls, &[]).await;
        let body = chat::request("up/m").replace("Say hello.", &"x".repeat(1_000));
        rig.row("a body in DATA frames of one byte", async {
            let mut wire = H2Wire::open(&rig.gateway, rig.tls(), &[]).await;
            let mut bytes = frame(HEADERS, END_HEADERS, 1, &post_block());
            for byte in body.as_bytes().chunks(1) {
                bytes.extend(frame(DATA, 0, 1, byte));
            }
            bytes.extend(frame(DATA, END_STREAM, 1, &[]));
            wire.send(bytes).await;
            assert!(String::from_utf8(wire.body(1).await).unwrap().contains("ok"));
        })
        .await;
        let received = upstream.request(0).await.json();
        assert_eq!(received["messages"][0]["content"], "x".repeat(1_000), "every byte goes upstream");
        rig.row("frames that arrive a byte at a time", async {
            let mut wire = H2Wire::open(&rig.gateway, rig.tls(), &[]).await;
            for byte in post(1, &chat::request("up/m")).chunks(1) {
                assert!(wire.send(byte).await);
            }
            assert!(String::from_utf8(wire.body(1).await).unwrap().contains("ok"));
        })
        .await;
    }
}

/// A header block that never ends holds no connection for longer than an idle one may last.
#[tokio::test]
async fn header_blocks_without_end_are_cut() {
    const CLIENTS: usize = 50;
    for tls in [false, true] {
        let variables = [("LLMGW_CLIENT_IDLE_SECONDS", "2")];
        let (rig, upstream) = rig(Answer::completion("ok"), tls, &variables).await;
        rig.row("header blocks that never end", async {
            let mut wires = Vec::new();
            for _ in 0..CLIENTS {
                let mut wire = H2Wire::open(&rig.gateway, rig.tls(), &[]).await;
                let block = post_block();
                wire.send(frame(HEADERS, 0, 1, &block[..block.len() / 2])).await;
                wires.push(wire);
            }
            rig.rests("header blocks that never end").await;
            for mut wire in wires {
                wire.closed().await;
            }
        })
        .await;
        rig.row("a header block in CONTINUATION frames of one byte", async {
            let mut wire = H2Wire::open(&rig.gateway, rig.tls(), &[]).await;
            let mut bytes = frame(HEADERS, 0, 1, &[]);
            for byte in post_block().chunks(1) {
                bytes.extend(frame(CONTINUATION, 0, 1, byte));
            }
            wire.send(bytes).await;
            let goaway = wire.find("GOAWAY", |frame| frame.kind == GOAWAY).await.expect("the reason");
            assert_eq!(goaway.payload[4..8], 11_u32.to_be_bytes(), "ENHANCE_YOUR_CALM");
            wire.closed().await;
        })
        .await;
        assert_eq!(upstream.requests().len(), 0);
    }
}

/// A header list over the limit fails its request; the connection serves others.
#[tokio::test]
async fn a_header_list_over_the_limit_fails_only_its_stream() {
    for tls in [false, true] {
        let (rig, upstream) = rig(Answer::completion("ok"), tls, &[]).await;
        rig.row("header lists over the limit", async {
            let mut wire = H2Wire::open(&rig.gateway, rig.tls(), &[]).await;
            for request in 0..20 {
                let (stream, next) = (4 * request + 1, 4 * request + 3);
                let mut block = post_block();
                for number in 0..5 {
                    block.extend(literal(&format!("x-filler-{number}"), &"f".repeat(8_000)));
                }
                let mut parts = block.chunks(16 << 10);
                let mut bytes = frame(HEADERS, END_STREAM, stream, parts.next().unwrap());
                let rest: Vec<_> = parts.collect();
                for (index, part) in rest.iter().enumerate() {
                    let flags = if index + 1 == rest.len() { END_HEADERS } else { 0 };
                    bytes.extend(frame(CONTINUATION, flags, stream, part));
                }
                wire.send(bytes).await;
                let end = wire.find("an answer", of(stream)).await.expect("an open connection");
                assert!(matches!(end.kind, HEADERS | RST_STREAM), "{end:?}");
                wire.send(post(next, &chat::request("up/m"))).await;
                assert!(String::from_utf8(wire.body(next).await).unwrap().contains("ok"));
            }
        })
        .await;
        assert_eq!(upstream.requests().len(), 20);
    }
}

#[tokio::test]
async fn a_window_of_one_byte_gets_the_whole_answer() {
    let (rig, _upstream) = rig(Answer::completion(&"y".repeat(3_000)), false, &[]).await;
    rig.row("an answer through a window of one byte", async {
        let mut wire = H2Wire::open(&rig.gateway, None, &[(INITIAL_WINDOW_SIZE, 1)]).await;
        wire.send(post(1, &chat::request("up/m"))).await;
        let mut body = Vec::new();
        loop {
            let frame = wire.find("a frame of the answer", of(1)).await.expect("an open connection");
            if frame.kind == DATA {
                assert!(frame.payload.len() <= 1, "{frame:?}");
                body.extend_from_slice(&frame.payload);
                wire.send(update(1, 1)).await;
            }
            if frame.ends() {
                break;
            }
        }
        assert!(String::from_utf8(body).unwrap().contains(&"y".repeat(3_000)));
    })
    .await;
}

/// RFC 9113 section 6.9.2: a window may become negative.
#[tokio::test]
async fn windows_that_change_in_the_middle_lose_nothing() {
    const CHUNKS: usize = 200;
    let event = chat::content(&"x".repeat(4_000));
    let answer = Answer::stream().times_chunk(CHUNKS, &event).chunk(chat::finish()).chunk(chat::done()).end();
    let (rig, _upstream) = rig(answer, false, &[]).await;
    let body = rig
        .row("SETTINGS_INITIAL_WINDOW_SIZE changes in the middle", async {
            let mut wire = H2Wire::open(&rig.gateway, None, &[(INITIAL_WINDOW_SIZE, 20_000)]).await;
            wire.send(update(0, 16 << 20)).await;
            wire.send(post(1, &chat::stream_request("up/m"))).await;
            let mut body = Vec::new();
            while body.len() < 20_000 {
                let frame = wire.find("a frame of the answer", of(1)).await.expect("an open connection");
                body.extend_from_slice(if frame.kind == DATA { &frame.payload } else { &[] });
            }
            for size in [0, 10_000, 0, 30_000, 1, 40_000] {
                wire.send(settings(&[(INITIAL_WINDOW_SIZE, size)])).await;
                let ack = |frame: &Received| frame.kind == SETTINGS && frame.flags & 1 != 0;
                // The first two acknowledge the settings of the opening and of this change.
                while let Some(frame) = wire.find("the acknowledgement", |_| true).await {
                    body.extend_from_slice(if frame.kind == DATA { &frame.payload } else { &[] });
                    if ack(&frame) {
                        break;
                    }
                }
            }
            wire.send(update(1, 16 << 20)).await;
            body.extend(wire.body(1).await);
            body
        })
        .await;
    let whole = [event.repeat(CHUNKS), chat::finish().to_vec(), chat::done().to_vec()].concat();
    assert!(body == whole, "{} bytes of {}", body.len(), whole.len());
}

/// Streams whose client grants no window are reset after the stall limit; until then they cost little, and the connection
/// serves others.
#[tokio::test]
async fn streams_without_window_are_reset_and_the_connection_serves_on() {
    const STREAMS: u32 = 100;
    for tls in [false, true] {
        let (rig, upstream) = rig(endless(), tls, &[("LLMGW_CLIENT_STALL_SECONDS", "3")]).await;
        rig.row(&format!("{STREAMS} streams without window"), async {
            let mut wire = H2Wire::open(&rig.gateway, rig.tls(), &[(INITIAL_WINDOW_SIZE, 0)]).await;
            for stream in 0..STREAMS {
                wire.send(post(2 * stream + 1, &chat::stream_request("up/m"))).await;
            }
            for _ in 0..STREAMS {
                wire.find("a reset", |frame| frame.kind == RST_STREAM).await.expect("an open connection");
            }
            let next = 2 * STREAMS + 1;
            wire.send(post(next, &chat::request("good/m"))).await;
            wire.find("the head of an answer", of(next)).await.expect("an open connection");
            wire.send(update(next, 1 << 16)).await;
            assert!(String::from_utf8(wire.body(next).await).unwrap().contains("ok"));
        })
        .await;
        assert_eq!(upstream.requests().len(), usize::try_from(STREAMS).unwrap());
    }
}

/// The windows are wide open, but nothing is read from the socket.
#[tokio::test]
async fn a_connection_that_is_not_read_holds_little() {
    const STREAMS: u32 = 100;
    for tls in [false, true] {
        let (rig, upstream) = rig(endless(), tls, &[]).await;
        let memory = rig.gateway.memory();
        let wide = [(INITIAL_WINDOW_SIZE, i32::MAX.unsigned_abs())];
        let mut wire = H2Wire::unread(&rig.gateway, rig.tls(), &wide).await;
        wire.send(update(0, i32::MAX.unsigned_abs() - 65_535)).await;
        for stream in 0..STREAMS {
            wire.send(post(2 * stream + 1, &chat::stream_request("up/m"))).await;
        }
        upstream.request(usize::try_from(STREAMS - 1).unwrap()).await;
        let mut sent = 0;
        wait::eventually_within(3 * wait::PATIENCE, "the upstream to stop", async || {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let before = std::mem::replace(&mut sent, upstream.sent_bytes());
            (before == sent).then_some(())
        })
        .await;
        rig.rests("a socket that is not read").await;
        let peak = memory.peak();
        figure(
            "duress",
            format!(
                "{STREAMS} streams that are not read hold {} KiB each",
                (peak / u64::from(STREAMS)) >> 10
            ),
        );
        assert!(peak / u64::from(STREAMS) <= 280 << 10, "{} KiB a stream", (peak / u64::from(STREAMS)) >> 10);
    }
}

/// Returns the frames of one round of a flood.
type Round = Box<dyn Fn(u32) -> Vec<u8> + Send>;

/// A flood: its name, its opening frames, and the frames of each round.
struct Flood(&'static str, Vec<u8>, Round);

/// Floods of frames that a stream or the connection allows, and of resets on either side (CVE-2023-44487, CVE-2025-8671).
fn floods() -> Vec<Flood> {
    let open = || frame(HEADERS, END_HEADERS, 1, &post_block());
    let many: Vec<u8> =
        (0..100).flat_map(|stream| frame(HEADERS, END_HEADERS, 2 * stream + 1, &post_block())).collect();
    // The stream of a round, and a request on it that is reset by the gateway because of the frames that follow.
    let provoked = |bad: fn(u32) -> Vec<u8>| -> Round {
        Box::new(move |round| {
            let stream = 2 * round + 1;
            [frame(HEADERS, END_HEADERS, stream, &post_block()), bad(stream)].concat()
        })
    };
    vec![
        Flood("rapid reset", vec![], provoked(|stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]))),
        Flood("resets by WINDOW_UPDATE of 0", vec![], provoked(|stream| update(stream, 0))),
        Flood(
            "resets by a window that overflows",
            vec![],
            provoked(|stream| update(stream, i32::MAX.unsigned_abs())),
        ),
        Flood(
            "resets by DATA after the end",
            vec![],
            provoked(|stream| {
                [frame(DATA, END_STREAM, stream, b"{}"), frame(DATA, 0, stream, b"{}")].concat()
            }),
        ),
        Flood(
            "resets by HEADERS after the end",
            vec![],
            provoked(|stream| {
                [frame(DATA, END_STREAM, stream, b"{}"), frame(HEADERS, END_HEADERS, stream, &post_block())]
                    .concat()
            }),
        ),
        Flood(
            "resets by a dependency on itself",
            vec![],
            provoked(|stream| frame(PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[0]].concat())),
        ),
        Flood("requests without a key", vec![], {
            let block = [&[0x83, 0x86, 0x04, 20][..], b"/v1/chat/completions", &[0x01, 1, b'a']].concat();
            Box::new(move |round| frame(HEADERS, END_HEADERS, 2 * round + 1, &block))
        }),
        Flood("endless CONTINUATION", frame(HEADERS, 0, 1, &post_block()), {
            Box::new(|_| frame(CONTINUATION, 0, 1, &[0x00, 1, b'x', 1, b'y'].repeat(200)))
        }),
        Flood("empty CONTINUATION", frame(HEADERS, 0, 1, &post_block()), {
            Box::new(|_| frame(CONTINUATION, 0, 1, &[]))
        }),
        Flood("PING", vec![], Box::new(|_| frame(PING, 0, 0, &[7; 8]))),
        Flood("PRIORITY", open(), Box::new(|_| frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]))),
        Flood("unknown frames", vec![], Box::new(|_| frame(0xee, 0, 0, &[1; 16]))),
        Flood("SETTINGS", vec![], Box::new(|_| settings(&[(INITIAL_WINDOW_SIZE, 1 << 16)]))),
        Flood("SETTINGS that change the windows of 100 streams", many, {
            Box::new(|round| settings(&[(INITIAL_WINDOW_SIZE, 60_000 + round % 2)]))
        }),
        Flood("empty SETTINGS", vec![], Box::new(|_| settings(&[]))),
        // Less than the window of the stream.
        Flood("DATA of one byte", open(), Box::new(|_| frame(DATA, 0, 1, b" "))),
        Flood("empty DATA", open(), Box::new(|_| frame(DATA, 0, 1, &[]))),
        Flood("padded DATA without content", open(), Box::new(|_| frame(DATA, 8, 1, &[4, 0, 0, 0, 0]))),
        Flood("WINDOW_UPDATE", open(), Box::new(|_| update(1, 1))),
    ]
}

#[tokio::test]
async fn floods_of_frames_cost_little_memory_and_delay_no_other_client() {
    const ROUNDS: u32 = 50_000;
    for tls in [false, true] {
        let (rig, _upstream) = rig(Answer::completion("ok"), tls, &[]).await;
        for Flood(name, opening, round) in floods() {
            rig.row(&format!("flood: {name}"), async {
                let mut wire = H2Wire::open(&rig.gateway, rig.tls(), &[]).await;
                let mut bytes = opening;
                for index in 0..ROUNDS {
                    bytes.extend(round(index));
                    if bytes.len() > 32 << 10 {
                        if !wire.send(&bytes).await {
                            return;
                        }
                        bytes.clear();
                        tokio::task::yield_now().await;
                    }
                }
                wire.send(&bytes).await;
            })
            .await;
        }
    }
}
