//! Upstreams over HTTP/2 whose answers have header blocks without end, or of a size that no answer needs.

use std::time::{Duration, Instant};

use super::Rig;
use super::upstreams_http2::http2;
use crate::support::h2_frames::{CONTINUATION, DATA, END_HEADERS, FrameUpstream, HEADERS, Reaction, frame};
use crate::support::h2_wire::literal;

/// The timeout of the provider, which none of these answers may cost.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the frames of a block whose parts go on after the first one.
fn block(stream: u32, parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    // `:status: 200`.
    let first = frame(HEADERS, 0, stream, &[0x88]);
    std::iter::once(first)
        .chain(parts.into_iter().map(|part| frame(CONTINUATION, 0, stream, &part)))
        .collect()
}

/// Returns `count` fields of about 1,000 bytes, each in a part of its own.
fn fields(count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| literal(&format!("x-filler-{number}"), &"f".repeat(980)))
}

/// Returns a block of `count` fields of 3,000 bytes, which takes four bytes and one for each of them: an entry of the table.
fn references(stream: u32, count: usize) -> Vec<u8> {
    let entry = literal("x-filler", &"f".repeat(3_000));
    let block = [&[0x88, 0x40][..], &entry[1..], &[0xbe].repeat(count)].concat();
    frame(HEADERS, END_HEADERS, stream, &block)
}

type Pieces = fn(u32) -> Vec<Vec<u8>>;

const BLOCKS: [(&str, Pieces); 7] = [
    ("fields without end", |stream| block(stream, fields(10_000))),
    ("parts without content", |stream| block(stream, std::iter::repeat_n(Vec::new(), 50_000))),
    ("parts of one byte", |stream| {
        block(stream, literal("x-filler", &"f".repeat(50_000)).chunks(1).map(<[u8]>::to_vec))
    }),
    ("one field without end", |stream| {
        let field = literal("x-filler", &"f".repeat(16 << 20));
        block(stream, field.chunks(16 << 10).map(<[u8]>::to_vec).take(1_000))
    }),
    ("a block over the limit", |stream| {
        let part = fields(15).collect::<Vec<_>>().concat();
        let mut frames = block(stream, [part.clone(), part.clone(), part]);
        frames.push(frame(CONTINUATION, END_HEADERS, stream, &[]));
        frames
    }),
    ("a block of a thousand times the limit", |stream| vec![references(stream, 10_000)]),
    ("another frame within a block", |stream| {
        vec![frame(HEADERS, 0, stream, &[0x88]), frame(DATA, 0, stream, b"x")]
    }),
];

/// On a new connection, and on one that has served.
#[tokio::test]
async fn a_header_block_without_end_is_an_invalid_answer_at_once() {
    for (name, pieces) in BLOCKS {
        let upstream = FrameUpstream::start(move |connection, request| match (connection, request) {
            (0, 0) | (1, 1) => Reaction::write(pieces),
            _ => Reaction::Answer,
        })
        .await;
        let rig = before(&upstream).await;
        rig.row(&format!("upstream: {name}"), async {
            for connection in ["new", "old"] {
                let began = Instant::now();
                let (status, body) = rig.ask("up/m").await.expect("an answer");
                assert!(began.elapsed() < TIMEOUT / 2, "{name}: {:?}", began.elapsed());
                let text = String::from_utf8_lossy(&body);
                let is_clear = text.contains("upstream_invalid") && text.contains("sent an invalid response");
                assert!(status == 502 && is_clear, "{name}, a {connection} connection: {status} {text}");
                assert_eq!(rig.ask("up/m").await.expect("an answer").0, 200, "{name}: afterwards");
                // A block that is only too large ends its stream; the others end the connection.
                if upstream.counts().resets > 0 {
                    return;
                }
            }
        })
        .await;
    }
}

/// A block that does not arrive is a head that does not: it costs the timeout of the provider, as over HTTP/1.1.
#[tokio::test]
async fn a_header_block_that_stands_still_ends_by_the_timeout() {
    const BLOCKS: [(&str, Pieces); 2] = [
        ("the first frame of a block", |stream| vec![frame(HEADERS, 0, stream, &[0x88])]),
        ("half a frame of a block", |stream| {
            vec![frame(HEADERS, END_HEADERS, stream, &literal("x-filler", &"f".repeat(900)))[..400].to_vec()]
        }),
    ];
    for (name, pieces) in BLOCKS {
        let upstream = FrameUpstream::start(move |connection, _| match connection {
            0 => Reaction::write(pieces),
            _ => Reaction::Answer,
        })
        .await;
        let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 0";
        let rig = Rig::start(http2(upstream.base_url(), "timeout: 1").policies(policies), false, &[]).await;
        rig.row(&format!("upstream: {name}"), async {
            assert_eq!(rig.ask("up/m").await.expect("an answer").0, 504, "{name}");
            rig.rests(name).await;
        })
        .await;
    }
}

async fn before(upstream: &FrameUpstream) -> Rig {
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 0";
    let members = format!("timeout: {}", TIMEOUT.as_secs());
    Rig::start(http2(upstream.base_url(), &members).policies(policies), false, &[]).await
}
