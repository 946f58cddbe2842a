//! Upstreams over HTTP/2 that send or accept frames as no library does: trickles, resets of each kind, tiny windows, limits
//! that change in the middle, floods. Each row runs beside neighbours of another provider on the same worker.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Rig;
use super::upstreams_http2::http2;
use crate::http2::connect;
use crate::support::figure::figure;
use crate::support::gateway::{ADMIN_KEY, Gateway};
use crate::support::h2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameUpstream, GOAWAY, HEADER_TABLE_SIZE, HEADERS, INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS, Manners, PING, PRIORITY, RST_STREAM, Reaction, WINDOW_UPDATE, completion, frame,
    head, settings,
};
use crate::support::{Gate, chat};

/// A gateway before this upstream.
async fn before(upstream: &FrameUpstream, members: &str) -> Rig {
    let policies = "retry_max_attempts: 1\ncircuit_failure_threshold: 0";
    Rig::start(http2(upstream.base_url(), members).policies(policies), false, &[]).await
}

async fn served(rig: &Rig, what: &str) {
    let (status, body) = rig.ask("up/m").await.expect("an answer");
    assert_eq!(status, 200, "{what}: {body:?}\n{}", rig.gateway.log());
}

fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

#[tokio::test]
async fn an_answer_that_trickles_is_whole() {
    let upstream = FrameUpstream::start(|_, _| {
        Reaction::write(|stream| completion(stream, "ok").chunks(1).map(<[u8]>::to_vec).collect())
    })
    .await;
    let rig = before(&upstream, "").await;
    rig.row("upstream: an answer a byte at a time", served(&rig, "trickled")).await;
}

/// The codes of RFC 9113 section 7, without REFUSED_STREAM.
const CODES: [u32; 13] = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13];

/// A reset before the head fails its request only: the connection serves on.
#[tokio::test]
async fn a_reset_of_each_kind_before_the_head_fails_one_request() {
    let upstream = FrameUpstream::start(|_, request| match request % 2 {
        0 => {
            let code = CODES[request / 2 % CODES.len()];
            Reaction::write(move |stream| vec![reset(stream, code)])
        }
        _ => Reaction::Answer,
    })
    .await;
    let rig = before(&upstream, "").await;
    rig.row("upstream: a reset of each kind before the head", async {
        for code in CODES {
            let (status, body) = rig.ask("up/m").await.expect("an answer");
            assert_eq!(status, 502, "{code}: {body:?}");
            served(&rig, "after a reset").await;
        }
    })
    .await;
    assert_eq!(upstream.counts().connections, 1);
}

/// Part of an answer is never the whole, whatever the code of the reset.
#[tokio::test]
async fn a_reset_of_each_kind_in_an_answer_is_an_error() {
    let text = chat::completion(&"half ".repeat(100));
    let upstream = FrameUpstream::start(move |_, request| {
        let (code, text) = (CODES[request / 2 % CODES.len()], text.clone());
        Reaction::write(move |stream| {
            let (kind, piece) = match request % 2 {
                0 => ("application/json", text.as_bytes()[..text.len() / 2].to_vec()),
                _ => ("text/event-stream", [chat::role(), chat::content("half")].concat()),
            };
            vec![head(stream, kind), frame(DATA, 0, stream, &piece), reset(stream, code)]
        })
    })
    .await;
    let rig = before(&upstream, "").await;
    rig.row("upstream: a reset of each kind in an answer", async {
        for code in CODES {
            let (status, body) = rig.ask("up/m").await.expect("an answer");
            assert_eq!(status, 502, "a whole answer, {code}: {body:?}");
            let mut flow = rig.gateway.client().chat_flow(chat::stream_request("up/m")).await;
            let (events, _) = flow.rest().await;
            let text: Vec<_> = events.iter().map(|event| String::from_utf8_lossy(&event.bytes)).collect();
            let text = text.concat();
            assert!(text.contains("\"error\"") && !text.contains("[DONE]"), "a stream, {code}: {text}");
        }
    })
    .await;
    assert_eq!(upstream.counts().connections, 1);
}

/// The same by a GOAWAY, with and without an error, below the stream that is being answered.
#[tokio::test]
async fn a_goaway_that_cuts_an_answer_is_an_error() {
    let half = chat::completion(&"half ".repeat(100));
    let half = half.as_bytes()[..half.len() / 2].to_vec();
    let begun = [chat::role(), chat::content("half")].concat();
    for (code, is_stream) in [0_u32, 2, 11].into_iter().flat_map(|code| [(code, false), (code, true)]) {
        let (kind, piece) = match is_stream {
            false => ("application/json", half.clone()),
            true => ("text/event-stream", begun.clone()),
        };
        let upstream = FrameUpstream::start(move |connection, request| match (connection, request) {
            (0, 1) => {
                let piece = piece.clone();
                Reaction::write(move |stream| {
                    let goaway = [&1_u32.to_be_bytes()[..], &code.to_be_bytes()].concat();
                    vec![head(stream, kind), frame(DATA, 0, stream, &piece), frame(GOAWAY, 0, 0, &goaway)]
                })
            }
            _ => Reaction::Answer,
        })
        .await;
        let rig = before(&upstream, "timeout: 5\nstream_idle_timeout: 5").await;
        rig.row(&format!("upstream: GOAWAY with code {code} cuts an answer of type {kind}"), async {
            served(&rig, "before").await;
            if is_stream {
                let mut flow = rig.gateway.client().chat_flow(chat::stream_request("up/m")).await;
                let (events, _) = flow.rest().await;
                let text: Vec<_> = events.iter().map(|event| String::from_utf8_lossy(&event.bytes)).collect();
                let text = text.concat();
                assert!(text.contains("\"error\"") && !text.contains("[DONE]"), "{code}: {text}");
            } else {
                let (status, body) = rig.ask("up/m").await.expect("an answer");
                assert_eq!(status, 502, "{code}: {body:?}");
            }
            served(&rig, "afterwards").await;
        })
        .await;
        assert_eq!(upstream.counts().connections, 2);
    }
}

/// Returns a request for speech.
fn speech(gateway: &Gateway) -> http::Request<Full<Bytes>> {
    let body = r#"{"model":"up/m","input":"Hi.","voice":"alloy"}"#;
    http::Request::post(format!("http://{}/v1/audio/speech", gateway.address()))
        .header("host", gateway.address().to_string())
        .header("authorization", format!("Bearer {ADMIN_KEY}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from_static(body.as_bytes())))
        .unwrap()
}

/// True if the answer came to its proper end.
async fn is_whole(answer: hyper::Result<http::Response<hyper::body::Incoming>>) -> bool {
    match answer {
        Ok(answer) => {
            assert_eq!(answer.status(), 200);
            answer.into_body().collect().await.is_ok()
        }
        Err(_) => false,
    }
}

/// Nothing in sound tells whether it is whole: only the frames do. A client of either version sees a break, never an end.
#[tokio::test]
async fn sound_that_is_cut_is_never_whole() {
    let goaway =
        |last: u32, code: u32| frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &code.to_be_bytes()].concat());
    let end = |stream| frame(DATA, END_STREAM, stream, &[0xff; 10]);
    type Ending = Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>;
    let endings: [(&str, bool, Ending); 7] = [
        ("END_STREAM", true, Box::new(end)),
        ("RST_STREAM with NO_ERROR", false, Box::new(|stream| reset(stream, 0))),
        ("RST_STREAM with CANCEL", false, Box::new(|stream| reset(stream, 8))),
        ("END_STREAM, then RST_STREAM with NO_ERROR", true, {
            Box::new(move |stream| [end(stream), reset(stream, 0)].concat())
        }),
        ("GOAWAY with NO_ERROR below the stream", false, Box::new(move |_| goaway(0, 0))),
        ("GOAWAY with INTERNAL_ERROR below the stream", false, Box::new(move |_| goaway(0, 2))),
        ("GOAWAY with NO_ERROR above the stream, then END_STREAM", true, {
            Box::new(move |stream| [goaway(i32::MAX.unsigned_abs(), 0), end(stream)].concat())
        }),
    ];
    for (name, whole, ending) in endings {
        let ending = Arc::new(ending);
        let upstream = FrameUpstream::start(move |_, _| {
            let ending = Arc::clone(&ending);
            Reaction::write(move |stream| {
                vec![head(stream, "audio/mpeg"), frame(DATA, 0, stream, &[0xff; 1_000]), ending(stream)]
            })
        })
        .await;
        let rig = before(&upstream, "protocols: [speech]\ntimeout: 5\nstream_idle_timeout: 5").await;
        rig.row(&format!("upstream: sound that ends by {name}"), async {
            let tcp = TcpStream::connect(rig.gateway.address()).await.unwrap();
            let (mut http1, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await.unwrap();
            tokio::spawn(connection);
            let answer = http1.send_request(speech(&rig.gateway)).await;
            assert_eq!(is_whole(answer).await, whole, "{name}, HTTP/1.1");
            let mut http2 = connect(&rig.gateway).await;
            let answer = http2.send_request(speech(&rig.gateway)).await;
            assert_eq!(is_whole(answer).await, whole, "{name}, HTTP/2");
        })
        .await;
    }
}

/// RFC 9113 section 8.1: a server may answer before it has read the request, and then ask for its end without an error.
#[tokio::test]
async fn an_early_answer_reaches_the_client_although_the_upload_stands_still() {
    let manners = Manners { reacts_to_heads: true, grants: false, ..Manners::default() };
    let upstream = FrameUpstream::with(manners, |_, _| {
        Reaction::write(|stream| {
            let error = chat::error("too much of it", "too_large");
            // `:status: 413`, and the content type.
            let block = [&b"\x08\x03413\x0f\x10\x10"[..], b"application/json"].concat();
            let answer = [
                frame(HEADERS, END_HEADERS, stream, &block),
                frame(DATA, END_STREAM, stream, error.as_bytes()),
                reset(stream, 0),
            ];
            vec![answer.concat()]
        })
    })
    .await;
    let rig = before(&upstream, "timeout: 10").await;
    rig.row("upstream: an answer in the middle of an upload", async {
        for _ in 0..5 {
            let body = chat::request("up/m").replace("Say hello.", &"x".repeat(1 << 20));
            let answer = rig.gateway.client().chat(body).await;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(answer.status == 413 && text.contains("too much of it"), "{answer:?}");
        }
    })
    .await;
    assert_eq!(upstream.counts().connections, 1);
}

/// An upstream that opens no window costs one timeout, and gets a reset.
#[tokio::test]
async fn an_upload_that_stands_still_ends_by_its_timeout() {
    let settings = vec![(INITIAL_WINDOW_SIZE, 0)];
    let manners = Manners { settings, grants: false, ..Manners::default() };
    let upstream = FrameUpstream::with(manners, |_, _| Reaction::Answer).await;
    let rig = before(&upstream, "timeout: 2").await;
    rig.row("upstream: an upload without window", async {
        let large = chat::request("up/m").replace("Say hello.", &"x".repeat(1 << 20));
        let answer = rig.gateway.client().chat(large).await;
        assert_eq!(answer.status, 504, "{answer:?}");
        upstream.until("a reset", |counts| counts.resets == 1).await;
    })
    .await;
}

/// An upstream that currently accepts no stream is about to leave: requests get another connection, and the old one is
/// used again once it accepts some.
#[tokio::test]
async fn a_stream_limit_that_changes_in_the_middle_is_followed() {
    let gate = Gate::new();
    let held = gate.clone();
    let upstream = FrameUpstream::start(move |connection, request| match (connection, request) {
        (0, 1) => Reaction::Hold(held.clone()),
        _ => Reaction::Answer,
    })
    .await;
    let rig = before(&upstream, "timeout: 5").await;
    let limit = |limit: u32| settings(&[(MAX_CONCURRENT_STREAMS, limit)]);
    rig.row("upstream: SETTINGS_MAX_CONCURRENT_STREAMS 100, 0, 3", async {
        served(&rig, "before").await;
        let client = rig.gateway.client();
        let running = tokio::spawn(async move { client.chat(chat::request("up/m")).await.status });
        upstream.requests(2).await;
        upstream.say(0, limit(0));
        upstream.until("the acknowledgement", |counts| counts.settings_acks >= 2).await;
        for _ in 0..5 {
            served(&rig, "a limit of 0").await;
        }
        assert_eq!(upstream.counts().connections, 2);
        gate.open(1);
        assert_eq!(running.await.unwrap(), 200, "what runs goes on");
        for _ in 0..5 {
            served(&rig, "a limit of 0 without a request").await;
        }
        // The other one accepts none either, but the old one does again.
        upstream.say(1, limit(0));
        upstream.say(0, limit(3));
        upstream.until("the acknowledgements", |counts| counts.settings_acks >= 5).await;
        for _ in 0..5 {
            served(&rig, "a limit of 3").await;
        }
        assert_eq!(upstream.counts().connections, 2);
    })
    .await;
}

/// RFC 7541 section 4.2: the first block after a smaller table begins with its size.
#[tokio::test]
async fn the_header_table_follows_the_upstreams_limit() {
    let upstream = FrameUpstream::start(|_, _| Reaction::Answer).await;
    let rig = before(&upstream, "").await;
    rig.row("upstream: SETTINGS_HEADER_TABLE_SIZE 0, 64, 65536, 4096", async {
        served(&rig, "before").await;
        for (index, size) in [0, 64, 65_536, 4_096].into_iter().enumerate() {
            upstream.say(0, settings(&[(HEADER_TABLE_SIZE, size)]));
            upstream.until("the acknowledgement", |counts| counts.settings_acks >= index + 2).await;
            served(&rig, "after a change").await;
            served(&rig, "once more").await;
        }
    })
    .await;
    let heads = upstream.heads(0);
    assert_eq!(upstream.counts().connections, 1);
    // 001 and five bits of the size.
    assert_eq!((heads[1][0], heads[3][0] & 0xe0), (0x20, 0x20), "sizes are announced: {:x?}", heads[1]);
    assert!(heads[2].len() > heads[0].len() / 2, "without a table, nothing is indexed: {:x?}", heads[2]);
}

/// Frames that an upstream sends without end in the middle of an answer. The stream that it floods may end with an error;
/// neighbours notice nothing.
#[tokio::test]
async fn floods_of_an_upstream_stay_on_its_connection() {
    const ROUNDS: usize = 50_000;
    type Round = fn(u32) -> Vec<u8>;
    let floods: [(&str, Round); 12] = [
        ("SETTINGS", |_| settings(&[(INITIAL_WINDOW_SIZE, 1 << 16)])),
        ("empty SETTINGS", |_| settings(&[])),
        ("PING", |_| frame(PING, 0, 0, &[7; 8])),
        ("PRIORITY", |stream| frame(PRIORITY, 0, stream, &[0, 0, 0, 3, 9])),
        ("unknown frames", |_| frame(0xee, 0, 0, &[1; 16])),
        ("empty DATA", |stream| frame(DATA, 0, stream, &[])),
        ("padded DATA without content", |stream| frame(DATA, 8, stream, &[4, 0, 0, 0, 0])),
        // Empty lines are no events.
        ("DATA of one byte", |stream| frame(DATA, 0, stream, b"\n")),
        ("WINDOW_UPDATE of a stream", |stream| frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1])),
        ("WINDOW_UPDATE of the connection", |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("RST_STREAM of a stream that has ended", |stream| reset(stream - 2, 8)),
        ("GOAWAY", |_| frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0])),
    ];
    for (name, round) in floods {
        let upstream = FrameUpstream::start(move |_, request| match request {
            1 => Reaction::write(move |stream| {
                let begin = [chat::role(), chat::content("a")].concat();
                let end = [chat::finish(), chat::done()].concat();
                let mut pieces = vec![head(stream, "text/event-stream"), frame(DATA, 0, stream, &begin)];
                let flood = round(stream).repeat(500);
                pieces.extend(std::iter::repeat_n(flood, ROUNDS / 500));
                pieces.push(frame(DATA, END_STREAM, stream, &end));
                pieces
            }),
            _ => Reaction::Answer,
        })
        .await;
        let rig = before(&upstream, "").await;
        served(&rig, name).await;
        let whole = rig
            .row(&format!("upstream floods: {name}"), async {
                let mut flow = rig.gateway.client().chat_flow(chat::stream_request("up/m")).await;
                let (events, _) = flow.rest().await;
                events.last().is_some_and(|event| event.bytes == chat::done())
            })
            .await;
        figure(
            "duress",
            format!(
                "upstream floods: {name}: the stream ends {}",
                if whole { "whole" } else { "with an error" }
            ),
        );
        served(&rig, name).await;
    }
}
