//! Tests of accepted and rejected heads, split at any position.

use super::*;

const TABLE: &[(&str, &[u8], bool)] = &[
    ("plain", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
    ("length", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", true),
    ("chunked", b"POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n", true),
    ("1.0 without host", b"GET / HTTP/1.0\r\n\r\n", true),
    ("bare line feed", b"GET / HTTP/1.1\nHost: a\r\n\r\n", false),
    ("bare line feed at the end", b"GET / HTTP/1.1\r\nHost: a\r\n\n", false),
    ("nul", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", false),
    ("lone carriage return", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", false),
    ("folded", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", false),
    ("no colon", b"GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n", false),
    ("no host", b"GET / HTTP/1.1\r\nX: a\r\n\r\n", false),
    ("host with a space", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", false),
    ("host with a path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", false),
    ("host with a user", b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", false),
    ("host with a port", b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", true),
    ("two hosts", b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", false),
    ("two lengths", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", false),
    ("length list", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n", false),
    ("signed length", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", false),
    ("empty length", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", false),
    (
        "length and coding",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        false,
    ),
    ("twice chunked", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", false),
    ("gzip coding", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", false),
    ("chunked in 1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", false),
    ("version 9.9", b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", false),
    ("tab in the target", b"GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", false),
];

/// Checks a head that arrives in pieces; returns `None` if it is incomplete.
fn read(pieces: &[&[u8]]) -> Option<Result<RemainingBody, HeadFault>> {
    let (mut bytes, mut known) = (Vec::new(), 0);
    for piece in pieces {
        bytes.extend_from_slice(piece);
        match end(&bytes, known) {
            Ok(Some(end)) => return Some(check(&bytes[..end])),
            Ok(None) => known = bytes.len(),
            Err(refusal) => return Some(Err(refusal)),
        }
    }
    None
}

#[test]
fn every_head_gets_the_same_verdict_at_any_split() {
    for (name, head, good) in TABLE {
        for cut in 0..=head.len() {
            let verdict = read(&[&head[..cut], &head[cut..]]).map(|verdict| verdict.is_ok());
            assert_eq!(verdict, Some(*good), "{name}, cut at {cut}");
        }
    }
}

#[test]
fn a_head_ends_at_its_first_empty_line() {
    let bytes = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n\n\nGET / HTTP/1.1\n";
    assert_eq!(end(bytes, 0), Ok(Some(bytes.len() - 17)));
}

#[test]
fn a_head_over_its_limits_is_too_large() {
    let long = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; HEAD_BYTES_MAX]].concat();
    assert_eq!(end(&long[..HEAD_BYTES_MAX], 0), Ok(None));
    assert_eq!(end(&long[..=HEAD_BYTES_MAX], 0), Err(TOO_LARGE));
    let whole = |bytes: usize| [&long[..bytes - 4], b"\r\n\r\n"].concat();
    assert_eq!(end(&whole(HEAD_BYTES_MAX), 0), Ok(Some(HEAD_BYTES_MAX)));
    assert_eq!(end(&whole(HEAD_BYTES_MAX + 1), 0), Err(TOO_LARGE), "even where all of it came at once");
    let of = |fields: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(fields - 1));
    assert!(check(of(HEADERS_MAX).as_bytes()).is_ok());
    assert!(matches!(check(of(HEADERS_MAX + 1).as_bytes()), Err(HeadFault::TooLarge(_))));
    let named = |bytes: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}: b\r\n\r\n", "x".repeat(bytes));
    assert!(check(named(NAME_BYTES_MAX).as_bytes()).is_ok());
    assert!(matches!(check(named(NAME_BYTES_MAX + 1).as_bytes()), Err(HeadFault::TooLarge(_))));
}

/// hyper would reject these itself, without the error envelope.
#[test]
fn heads_beyond_the_limits_of_hyper_are_rejected() {
    let lengths = [(LENGTH_MAX, true), (LENGTH_MAX + 1, false), (u64::MAX, false)];
    for (length, good) in lengths {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(check(head.as_bytes()).is_ok(), good, "a length of {length}");
    }
    for (bytes, good) in [(65_533, true), (65_534, false)] {
        let head = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(bytes));
        assert_eq!(check(head.as_bytes()).is_ok(), good, "a target of {bytes} bytes behind its slash");
    }
}

#[test]
fn the_body_length_follows_from_the_head() {
    for (fields, body) in [
        ("", RemainingBody::Length(0)),
        ("content-length: 0\r\n", RemainingBody::Length(0)),
        ("Content-Length: 007\r\n", RemainingBody::Length(7)),
        ("transfer-encoding: chunked\r\n", RemainingBody::chunked()),
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(check(head.as_bytes()), Ok(body), "{fields}");
    }
}

#[test]
fn a_host_may_hold_only_characters_legal_in_urls() {
    for byte in 0..=u8::MAX {
        let legal = byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(&byte);
        assert_eq!(host(&[b'a', byte, b'a']).is_ok(), legal, "{byte}");
    }
}

#[test]
fn the_path_of_a_rejected_head_needs_a_complete_request_line() {
    for (bytes, want) in [
        ("POST /v1/messages HTTP/1.1\nhost", "/v1/messages"),
        ("POST /v1/messages\r\n", "/v1/messages"),
        ("POST /v1/mess", ""),
        ("POST\nhost: a b", ""),
        ("POST", ""),
        ("", ""),
    ] {
        assert_eq!(path(bytes.as_bytes()), want);
    }
}
