//! The strict parser of request heads (LIM-5).
//!
//! It rejects everything that another HTTP parser in front of or behind the gateway could read differently: bare line
//! feeds, NUL, folded lines, a missing or second `Host`, more than one length, a length beside a transfer coding, any
//! transfer coding except one `chunked`. Only the framing of the body is kept of an accepted head; hyper parses the head
//! again. hyper must therefore accept every head that passes here, because its own error responses have no envelope.

#![expect(
    clippy::indexing_slicing,
    reason = "positions come from counts of the same bytes; a wrong one must fail in the fuzzer"
)]

use std::mem::MaybeUninit;
use std::sync::LazyLock;

use http::{Method, Uri};
use httparse::{ParserConfig, Status};
use memchr::memchr;
use memchr::memmem::Finder;
use shared::error_kind::ErrorKind;

use super::remaining_body::RemainingBody;
use crate::error::Fault;

/// Reason why a head is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum HeadFault {
    /// The head is ambiguous or not HTTP/1.
    Invalid(&'static str),
    /// The head exceeds a limit.
    TooLarge(&'static str),
}

/// Maximum bytes of a request head.
pub(super) const HEAD_BYTES_MAX: usize = 128 << 10;
/// Maximum number of a request's header fields.
const HEADERS_MAX: usize = 100;
/// Maximum bytes of a target that is not parsed as a URI.
const PLAIN_BYTES_MAX: usize = 256;
/// Maximum bytes of a header field's name.
const NAME_BYTES_MAX: usize = u16::MAX as usize;

impl HeadFault {
    /// Returns the error that the client gets.
    pub(in crate::server) fn fault(self) -> Fault {
        let (status, why) = match self {
            Self::Invalid(why) => (None, why),
            Self::TooLarge(why) => (Some(431), why),
        };
        let message = format!("The request is not valid HTTP/1.1: {why}.");
        Fault { status, ..Fault::new(ErrorKind::BadHttp, message).closing() }
    }
}

/// Returns the length of the head at the start of `bytes` if it is complete; the first `known` bytes were searched
/// before.
pub(super) fn end(bytes: &[u8], known: usize) -> Result<Option<usize>, HeadFault> {
    let from = known.saturating_sub(2);
    let end = LAST_LINES.find(&bytes[from..]).map(|at| from + at + LAST_LINES.needle().len());
    let head = &bytes[..end.unwrap_or(bytes.len())];
    if head.starts_with(b"\n") || has_bare_feed(&head[from..]) {
        return Err(HeadFault::Invalid("a line of the request head ends without a carriage return"));
    }
    if head.len() > HEAD_BYTES_MAX { Err(TOO_LARGE) } else { Ok(end) }
}

/// The end of a head: that of its last line, and the empty line.
static LAST_LINES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\n\r\n"));

/// Returns true if a line feed follows another byte than a carriage return. A loop over all bytes without an early exit compiles to
/// vector instructions.
fn has_bare_feed(bytes: &[u8]) -> bool {
    let pairs = bytes.iter().zip(bytes.get(1..).unwrap_or_default());
    pairs.fold(false, |bare, (before, byte)| bare | ((*byte == b'\n') & (*before != b'\r')))
}

const TOO_LARGE: HeadFault = HeadFault::TooLarge("the request head is larger than 128 KiB");

/// Returns the path of a rejected head: the second word of its first line, or an empty string if the line is incomplete.
pub(super) fn path(bytes: &[u8]) -> &str {
    let bytes = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let Some(end) = memchr(b'\n', bytes) else { return "" };
    let mut words = bytes[..end].split(|byte| *byte == b' ' || *byte == b'\r');
    words.nth(1).and_then(|word| std::str::from_utf8(word).ok()).unwrap_or("")
}

/// Checks a complete head; returns the framing of the body after it.
pub(super) fn check(bytes: &[u8]) -> Result<RemainingBody, HeadFault> {
    let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let status = ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, bytes, &mut fields);
    match status {
        Ok(Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(HeadFault::TooLarge("the request has more than 100 header fields"));
        }
        Ok(Status::Partial) | Err(_) => return Err(HeadFault::Invalid("malformed request head")),
    }
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
    let target = parsed.path.unwrap_or_default();
    if method.is_err() || !(is_plain(target) || Uri::try_from(target).is_ok()) {
        return Err(HeadFault::Invalid("invalid method or request target"));
    }
    let mut framing = Framing::default();
    for field in parsed.headers.iter() {
        framing.field(field.name, field.value)?;
    }
    framing.body(parsed.version == Some(1))
}

/// True for most valid targets: a short path of letters, digits and a few marks. The others are parsed as URIs.
fn is_plain(target: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.');
    target.starts_with('/') && target.len() <= PLAIN_BYTES_MAX && target.bytes().all(is_usual)
}

/// Fields that determine where a request ends.
#[derive(Default)]
struct Framing {
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
}

impl Framing {
    /// Checks one field.
    fn field(&mut self, name: &str, value: &[u8]) -> Result<(), HeadFault> {
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                self.hosts += 1;
                host(value)
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                let length = length(value).ok_or(HeadFault::Invalid("Content-Length is not a number"))?;
                if self.length.replace(length).is_some() { Err(LENGTH_TWICE) } else { Ok(()) }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => self.coding(value),
            0..=NAME_BYTES_MAX => Ok(()),
            _ => Err(HeadFault::TooLarge("a header field name is longer than 64 KiB")),
        }
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        if self.chunked {
            return Err(LENGTH_TWICE);
        }
        self.chunked = value.eq_ignore_ascii_case(b"chunked");
        let known = HeadFault::Invalid("Transfer-Encoding is not a single 'chunked'");
        if self.chunked { Ok(()) } else { Err(known) }
    }

    fn body(&self, http11: bool) -> Result<RemainingBody, HeadFault> {
        if self.hosts > 1 || (self.hosts == 0 && http11) {
            return Err(HeadFault::Invalid("the request must have exactly one Host header"));
        }
        match (self.length, self.chunked) {
            (Some(_), true) => Err(LENGTH_TWICE),
            (None, true) if !http11 => Err(HeadFault::Invalid("an HTTP/1.0 request cannot be chunked")),
            (None, true) => Ok(RemainingBody::chunked()),
            (length, false) => Ok(RemainingBody::Length(length.unwrap_or(0))),
        }
    }
}

const LENGTH_TWICE: HeadFault = HeadFault::Invalid(
    "the request has more than one length (Content-Length, \
     Transfer-Encoding)",
);

/// Checks that the value is a host and an optional port (RFC 9110 section 7.2).
fn host(value: &[u8]) -> Result<(), HeadFault> {
    let mark =
        |b| matches!(b, b'!' | b'$'..=b'.' | b':' | b';' | b'=' | b'[' | b']' | b'_' | b'~') && b != b',';
    let legal = |b: &u8| b.is_ascii_alphanumeric() || mark(*b);
    if value.iter().all(legal) {
        Ok(())
    } else {
        Err(HeadFault::Invalid("the Host header is not a host with an optional port"))
    }
}

/// Maximum Content-Length: more than any body needs, and the most that hyper accepts.
const LENGTH_MAX: u64 = u64::MAX / 2;

fn length(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit).then_some(value)?;
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|length| *length <= LENGTH_MAX)
}

#[cfg(test)]
mod tests;
