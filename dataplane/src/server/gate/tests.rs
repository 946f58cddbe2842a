//! Tests of connections through the gate and hyper: served requests, rejected requests, and the writes of answers.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::server::harness::{Pieces, ReceivedRequest, Recording, through_gate, without_gate};
use crate::turn::TURN_BYTES;

/// Answers `/short/N` with N short pieces, `/long/N` with N bytes, `/cut` as a failed stream, other paths with "ok".
fn answer(request: &ReceivedRequest) -> Pieces {
    let number = request.uri.path().rsplit('/').next().and_then(|number| number.parse::<usize>().ok());
    let piece = Bytes::from_static(b"a piece\n");
    let left = match (request.uri.path().get(..5), number) {
        (Some("/shor"), Some(count)) => vec![piece; count],
        (Some("/long"), Some(count)) => vec![Bytes::from(vec![b'x'; count])],
        _ => vec![Bytes::from_static(b"ok")],
    };
    Pieces { left: VecDeque::from(left), is_cut: request.uri.path() == "/cut" }
}

fn serve(bytes: &str) -> Recording {
    through_gate(&[bytes.as_bytes()], answer)
}

fn paths(recording: &Recording) -> Vec<&str> {
    recording.requests.iter().map(|request| request.uri.path()).collect()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")
}

/// Pipelined requests of every kind.
fn conversation() -> String {
    [
        "\r\nPOST /length HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
        "POST /chunks HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
        "5 ;a=b\r\nhello\r\n6\r\n there\r\n0\r\nx-sum: 1\r\n\r\n",
        "POST /nothing HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
        &get("/short/3"),
        "HEAD /head HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /old HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
        "GET /last HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        &get("/never"),
    ]
    .concat()
}

#[test]
fn pipelined_requests_are_read_the_same_at_any_split() {
    let bytes = conversation();
    let whole = serve(&bytes);
    assert_eq!(
        paths(&whole),
        ["/length", "/chunks", "/nothing", "/short/3", "/head", "/old", "/last"],
        "{}",
        whole.text()
    );
    let bodies = ["hello", "hello there", "", "", "", "", ""].map(|body| Some(Bytes::from(body)));
    assert!(whole.requests.iter().map(|request| request.body.clone()).eq(bodies));
    assert!(whole.is_shut && whole.refused.is_empty());
    assert_eq!(whole.text().matches("HTTP/1.").count(), 7, "{}", whole.text());
    let skipped = bytes.len() - get("/never").len();
    for cut in 0..=skipped {
        let (first, second) = bytes.as_bytes().split_at(cut);
        let parts = through_gate(&[first, second], answer);
        assert_eq!(parts.requests, whole.requests, "cut at {cut}");
    }
    let crumbs: Vec<_> = bytes.as_bytes().chunks(1).collect();
    assert_eq!(through_gate(&crumbs, answer).requests, whole.requests, "byte by byte");
    let straight = without_gate(bytes.as_bytes());
    assert_eq!(straight, whole.requests, "hyper reads the same without the gate");
}

#[test]
fn a_request_that_arrives_whole_takes_one_turn() {
    let head = "POST /length HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n";
    let recording = serve(&[head, "hello"].concat());
    assert_eq!((paths(&recording), recording.turns), (vec!["/length"], 1));
}

#[test]
fn a_refused_head_is_answered_and_ends_the_connection() {
    let bad = "POST /v1/messages HTTP/1.1\r\nhost: a\r\nhost: b\r\ncontent-length: 5\r\n\r\nhello";
    let recording = serve(&[&get("/first"), bad, &get("/behind")].concat());
    assert_eq!(paths(&recording), ["/first"]);
    let [(path, why)] = recording.refused.as_slice() else { panic!("{recording:?}") };
    assert!(path == "/v1/messages" && why.contains("exactly one Host"), "{path}: {why}");
    assert!(recording.is_shut && recording.text().contains("HTTP/1.1 400 "), "{}", recording.text());
    assert!(recording.text().contains("connection: close"), "{}", recording.text());
}

#[test]
fn a_client_cannot_forge_the_placeholder_of_a_rejected_request() {
    let recording = serve(std::str::from_utf8(super::PLACEHOLDER_REQUEST).unwrap());
    assert_eq!((paths(&recording), recording.refused.len()), (vec!["/"], 0));
}

#[test]
fn a_bad_chunk_breaks_the_body_and_ends_the_connection() {
    let head = "POST /chunks HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for chunks in [
        "5;a\0\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nA: b\n\r\n",
        "5\r\nhello\r\n0\r\nno field\r\n\r\n",
    ] {
        let bytes = [head, chunks, &get("/behind")].concat();
        for cut in [0, head.len(), head.len() + 8] {
            let (first, second) = bytes.as_bytes().split_at(cut);
            let recording = through_gate(&[first, second], answer);
            let bodies: Vec<_> = recording.requests.iter().map(|request| request.body.is_some()).collect();
            assert_eq!(bodies, [false], "{chunks:?} cut at {cut}: {recording:?}");
            assert!(
                recording.is_shut && recording.text().starts_with("HTTP/1.1 400 "),
                "{}",
                recording.text()
            );
        }
    }
}

#[test]
fn a_head_in_many_pieces_is_accepted_up_to_the_size_limit() {
    let head =
        |bytes: usize| get("/long/1").replace("\r\n\r\n", &format!("\r\nx: {}\r\n\r\n", "x".repeat(bytes)));
    for (bytes, requests) in [(100 << 10, 1), (super::head::HEAD_BYTES_MAX, 0)] {
        let head = head(bytes);
        let pieces: Vec<_> = head.as_bytes().chunks(5_000).collect();
        let recording = through_gate(&pieces, answer);
        assert_eq!((recording.requests.len(), recording.refused.len()), (requests, 1 - requests), "{bytes}");
    }
}

#[test]
fn buffered_pieces_are_sent_in_one_write() {
    let recording = serve(&get("/short/500"));
    assert_eq!(recording.writes.len(), 1, "{:?}", recording.writes.iter().map(Vec::len).collect::<Vec<_>>());
    assert_eq!(recording.text().matches("a piece\n").count(), 500);
    assert!(recording.text().ends_with("\r\n0\r\n\r\n"), "{}", recording.text());
}

#[test]
fn a_long_response_is_written_in_turns() {
    let recording = serve(&get(&format!("/long/{}", 3 * TURN_BYTES)));
    assert!(recording.writes.iter().all(|write| write.len() <= TURN_BYTES));
    assert!(recording.writes.len() > 3 && recording.text().len() > 3 * TURN_BYTES);
}

#[test]
fn the_connection_closes_after_a_cut_response() {
    let recording = serve(&[get("/cut"), get("/behind")].concat());
    assert_eq!(paths(&recording), ["/cut"]);
    let recording = serve(&get("/cut"));
    assert!(recording.is_shut && recording.text().ends_with("ok"), "{}", recording.text());
}

#[test]
fn an_http_1_0_client_gets_no_chunked_response() {
    let old = |path: &str, fields: &str| serve(&format!("GET {path} HTTP/1.0\r\n{fields}\r\n"));
    let kept = old("/short/1", "connection: keep-alive\r\n");
    assert!(!kept.is_shut && kept.text().contains("connection: keep-alive\r\n"), "{}", kept.text());
    for (path, fields) in [("/short/1", ""), ("/short/2", "connection: keep-alive\r\n")] {
        let recording = old(path, fields);
        let text = recording.text();
        assert!(recording.is_shut && !text.contains("keep-alive") && !text.contains("chunked"), "{text}");
        assert!(text.ends_with("a piece\n"), "{text}");
    }
}

#[test]
fn a_client_with_expect_gets_one_100_continue() {
    let head = "POST /length HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
    let recording = serve(head);
    assert_eq!(recording.text(), "HTTP/1.1 100 Continue\r\n\r\n");
    let recording = through_gate(&[head.as_bytes(), b"hello"], answer);
    assert_eq!((paths(&recording), recording.text().matches("100 Continue").count()), (vec!["/length"], 1));
}

/// Checks the invariants of the fuzz targets on a conversation with one wrong or missing byte.
#[test]
fn requests_with_a_wrong_byte_are_read_as_hyper_does_or_rejected() {
    let bytes = conversation().into_bytes();
    for at in 0..bytes.len() {
        let wrong = b"\r\n\0 ,0x:"[at % 8];
        let changed = [&bytes[..at], &[wrong], &bytes[at + 1..]].concat();
        let shortened = [&bytes[..at], &bytes[at + 1..]].concat();
        for input in [changed, shortened] {
            crate::fuzzing::http1_differential(&input);
            crate::fuzzing::http1_gate(&input);
        }
    }
}
