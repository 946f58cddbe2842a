//! The strict reading of a request head (LIM-5).
//!
//! Whatever another HTTP parser in front of or behind the gateway could read differently is refused: bare line
//! feeds, NUL, folded lines, a missing or second `Host`, more than one length, a length beside a transfer coding, any
//! transfer coding but one `chunked`. Nothing is kept of a head that passes but how far its body reaches: hyper reads
//! it again. So hyper must accept all that passes here, for its own refusals are in no envelope.

use std::mem::MaybeUninit;

use http::{Method, Uri};
use httparse::{ParserConfig, Status};
use memchr::memchr_iter;
use shared::error_kind::ErrorKind;

use super::extent::Extent;
use crate::error::Fault;

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Refusal {
    /// It is ambiguous, or no HTTP/1 at all.
    Invalid(&'static str),
    /// It is over a limit.
    TooLarge(&'static str),
}

/// Bytes of a request head.
pub(super) const HEAD_BYTES_MAX: usize = 128 << 10;
/// Header fields of a request.
const HEADERS_MAX: usize = 100;
/// Bytes of the name of a header field.
const NAME_BYTES_MAX: usize = u16::MAX as usize;

impl Refusal {
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

/// Returns the length of the head at the start of `bytes`, if all of it is there; `known` of them were searched before.
pub(super) fn end(bytes: &[u8], known: usize) -> Result<Option<usize>, Refusal> {
    for at in memchr_iter(b'\n', bytes.get(known..).unwrap_or_default()) {
        let line = bytes.get(..known + at).unwrap_or_default();
        let Some(line) = line.strip_suffix(b"\r") else {
            return Err(Refusal::Invalid("a line of the request head ends without a carriage return"));
        };
        if line.ends_with(b"\n") {
            let end = known + at + 1;
            return if end > HEAD_BYTES_MAX { Err(TOO_LARGE) } else { Ok(Some(end)) };
        }
    }
    if bytes.len() > HEAD_BYTES_MAX { Err(TOO_LARGE) } else { Ok(None) }
}

const TOO_LARGE: Refusal = Refusal::TooLarge("its head is larger than 128 KiB");

/// Returns the path of a head that is refused, as far as it has one.
pub(super) fn path(bytes: &[u8]) -> &str {
    let mut words = bytes.split(|byte| *byte == b' ' || *byte == b'\n');
    words.nth(1).and_then(|word| std::str::from_utf8(word).ok()).unwrap_or_default()
}

/// Judges a whole head; returns the extent of the body behind it.
pub(super) fn judge(bytes: &[u8]) -> Result<Extent, Refusal> {
    let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let status = ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, bytes, &mut fields);
    match status {
        Ok(Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::TooLarge("it has more than 100 header fields"));
        }
        Ok(Status::Partial) | Err(_) => return Err(Refusal::Invalid("its head cannot be parsed")),
    }
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
    let target = Uri::try_from(parsed.path.unwrap_or_default());
    if method.is_err() || target.is_err() {
        return Err(Refusal::Invalid("invalid method or request target"));
    }
    let mut framing = Framing::default();
    for field in parsed.headers.iter() {
        framing.field(field.name, field.value)?;
    }
    framing.extent(parsed.version == Some(1))
}

/// The fields that decide where a request ends.
#[derive(Default)]
struct Framing {
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
}

impl Framing {
    /// Looks at one field.
    fn field(&mut self, name: &str, value: &[u8]) -> Result<(), Refusal> {
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                self.hosts += 1;
                host(value)
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                let length = length(value).ok_or(Refusal::Invalid("Content-Length is not a number"))?;
                if self.length.replace(length).is_some() { Err(LENGTH_TWICE) } else { Ok(()) }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => self.coding(value),
            0..=NAME_BYTES_MAX => Ok(()),
            _ => Err(Refusal::TooLarge("a header field has a name of more than 64 KiB")),
        }
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.chunked {
            return Err(LENGTH_TWICE);
        }
        self.chunked = value.eq_ignore_ascii_case(b"chunked");
        let known = Refusal::Invalid("Transfer-Encoding is something other than one 'chunked'");
        if self.chunked { Ok(()) } else { Err(known) }
    }

    fn extent(&self, http11: bool) -> Result<Extent, Refusal> {
        if self.hosts > 1 || (self.hosts == 0 && http11) {
            return Err(Refusal::Invalid("the request has no Host header, or more than one"));
        }
        match (self.length, self.chunked) {
            (Some(_), true) => Err(LENGTH_TWICE),
            (None, true) if !http11 => Err(Refusal::Invalid("an HTTP/1.0 request cannot be chunked")),
            (None, true) => Ok(Extent::chunked()),
            (length, false) => Ok(Extent::Length(length.unwrap_or(0))),
        }
    }
}

const LENGTH_TWICE: Refusal = Refusal::Invalid("the request states its length more than once");

/// RFC 9110 section 7.2: a host and a port, nothing else of a URL.
fn host(value: &[u8]) -> Result<(), Refusal> {
    let mark =
        |b| matches!(b, b'!' | b'$'..=b'.' | b':' | b';' | b'=' | b'[' | b']' | b'_' | b'~') && b != b',';
    let legal = |b: &u8| b.is_ascii_alphanumeric() || mark(*b);
    if value.iter().all(legal) {
        Ok(())
    } else {
        Err(Refusal::Invalid("the Host header is not a host and a port"))
    }
}

/// Bytes of a body that a head may state: more than any body has, and no more than hyper takes.
const LENGTH_MAX: u64 = u64::MAX / 2;

fn length(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit).then_some(value)?;
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|length| *length <= LENGTH_MAX)
}

#[cfg(test)]
mod tests;
