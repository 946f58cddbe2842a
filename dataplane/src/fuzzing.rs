//! Invariants of the parsers of client bytes, for `fuzz/`. Each function panics if an invariant is violated.

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};

use crate::server::harness::{Pieces, ReceivedRequest, Recording, through_gate, without_gate};

/// Runs the input through the gate and hyper. Asserts that a connection is parsed the same wherever its bytes are
/// split, and that no served request is ambiguous about its host or its length (request smuggling). The first input
/// byte selects the position of the split.
pub fn http1_gate(input: &[u8]) {
    let Some((at, bytes)) = input.split_first() else { return };
    let whole = answered(&[bytes]);
    let cut = usize::from(*at) * bytes.len() / 256;
    let (first, second) = bytes.split_at(cut);
    let parts = answered(&[first, second]);
    assert_eq!((&whole.requests, &whole.refused), (&parts.requests, &parts.refused), "cut at {cut}");
    for ReceivedRequest { version, headers, .. } in &whole.requests {
        let hosts = headers.get_all(HOST).iter().count();
        assert!(hosts == 1 || hosts == 0 && *version == http::Version::HTTP_10, "{hosts} hosts");
        let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
        let codings = headers.get_all(TRANSFER_ENCODING).iter().count();
        assert!(lengths + codings <= 1, "{lengths} lengths, {codings} codings");
        for (name, value) in headers {
            assert!(!value.as_bytes().iter().any(|byte| b"\r\n\0".contains(byte)), "{name}");
        }
    }
    let written = whole.writes.concat();
    let answers = whole.requests.len() + whole.refused.len();
    assert!(
        written.is_empty() == (answers == 0) || written.starts_with(b"HTTP/1.1 100 "),
        "{answers} answers"
    );
}

/// Asserts that hyper without the gate parses every request that the gate lets through identically, including the
/// bodies.
pub fn http1_differential(input: &[u8]) {
    let straight = without_gate(input);
    let served = answered(&[input]).requests;
    for (index, request) in served.iter().enumerate() {
        if request.body.is_some() {
            assert_eq!(Some(request), straight.get(index), "request {index}");
        }
    }
}

fn answered(pieces: &[&[u8]]) -> Recording {
    through_gate(pieces, |_| Pieces::default())
}
