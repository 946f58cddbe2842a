//! The strict reading of a request head (LIM-5).
//!
//! Whatever another HTTP parser in front of or behind the gateway could read differently is refused: bare line
//! feeds, NUL, folded lines, a missing or second `Host`, more than one length, a length beside a transfer coding, any
//! transfer coding but one `chunked`. A head that breaks a rule is answered with 400 and the connection ends.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use httparse::{ParserConfig, Status};
use memchr::memchr_iter;
use shared::error_kind::ErrorKind;

use crate::error::Fault;
use crate::http1::Body;
use crate::route;

/// A request but for its body, and what its head decides about the connection.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) request: Request<()>,
    pub(super) body: Body,
    /// The client takes chunks, and interim answers.
    pub(super) http11: bool,
    /// Another request may follow.
    pub(super) keep_alive: bool,
    /// The client sends the body once it is told to.
    pub(super) expects_continue: bool,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is ambiguous, or no HTTP/1 at all.
    Invalid(&'static str),
    /// It is over a limit.
    TooLarge(&'static str),
}

/// Bytes of a request head.
pub(super) const HEAD_BYTES_MAX: usize = 128 << 10;
/// Header fields of a request.
const HEADERS_MAX: usize = 100;
/// Header fields that operations read, of most requests.
const HEADERS_USUAL: usize = 6;

impl Refusal {
    /// What the client reads.
    pub(super) fn fault(self) -> Fault {
        let (status, why) = match self {
            Self::Invalid(why) => (None, why),
            Self::TooLarge(why) => (Some(431), why),
        };
        let message = format!("The request is not valid HTTP/1.1: {why}.");
        Fault { status, ..Fault::new(ErrorKind::BadHttp, message).closing() }
    }
}

/// Where the head at the start of `bytes` ends, if it does; `known` of them have been looked at before.
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

/// What a client asked for, as far as that can be told of a head that is refused.
pub(super) fn path(bytes: &[u8]) -> &str {
    let mut words = bytes.split(|byte| *byte == b' ' || *byte == b'\n');
    words.nth(1).and_then(|word| std::str::from_utf8(word).ok()).unwrap_or_default()
}

impl Head {
    /// Reads a whole head. `keeps_host`: its operation reads the `Host`.
    pub(super) fn read(bytes: &Bytes, keeps_host: bool) -> Result<Self, Refusal> {
        let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        let status =
            ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, bytes, &mut fields);
        match status {
            Ok(Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => {
                return Err(Refusal::TooLarge("it has more than 100 header fields"));
            }
            Ok(Status::Partial) | Err(_) => return Err(Refusal::Invalid("its head cannot be parsed")),
        }
        let http11 = parsed.version == Some(1);
        let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
        let target = bytes.slice_ref(parsed.path.unwrap_or_default().as_bytes());
        let (Ok(method), Ok(uri)) = (method, Uri::from_maybe_shared(target)) else {
            return Err(Refusal::Invalid("its method or its target is none"));
        };
        let mut framing = Framing::default();
        let is_operation = route::operation(uri.path()).is_some();
        let mut headers = HeaderMap::with_capacity(HEADERS_USUAL);
        for field in parsed.headers.iter() {
            let told = framing.field(field.name, field.value)?;
            let is_kept = match told {
                Told::Host => keeps_host,
                Told::Connection => false,
                Told::Nothing => !is_unread(field.name),
            };
            if is_operation && !is_kept {
                continue;
            }
            let name = HeaderName::from_bytes(field.name.as_bytes());
            let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(Refusal::Invalid("a field of its head cannot be parsed"));
            };
            headers.append(name, value);
        }
        let body = framing.body(http11)?;
        let keep_alive = if http11 { !framing.says_close } else { framing.says_keep_alive };
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = if http11 { Version::HTTP_11 } else { Version::HTTP_10 };
        *request.headers_mut() = headers;
        let expects_continue = framing.expects_continue && http11 && body != Body::Ended;
        Ok(Self { request, body, http11, keep_alive, expects_continue })
    }
}

/// What nearly every client sends and no operation reads. Requests to the control service keep it.
fn is_unread(name: &str) -> bool {
    match name.len() {
        6 => name.eq_ignore_ascii_case("accept"),
        10 => name.eq_ignore_ascii_case("user-agent"),
        15 => ["accept-encoding", "accept-language"].iter().any(|known| name.eq_ignore_ascii_case(known)),
        // What OpenAI's and Anthropic's SDKs say of themselves, in eight fields.
        _ => name.get(..12).is_some_and(|start| start.eq_ignore_ascii_case("x-stainless-")),
    }
}

/// What the fields say about the connection.
#[derive(Default)]
struct Framing {
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
    says_close: bool,
    says_keep_alive: bool,
    expects_continue: bool,
}

/// The meaning of a field for the framing of a request.
enum Told {
    Host,
    /// It is about the connection, and read nowhere else.
    Connection,
    Nothing,
}

impl Framing {
    /// Looks at one field.
    fn field(&mut self, name: &str, value: &[u8]) -> Result<Told, Refusal> {
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                self.hosts += 1;
                host(value)?;
                return Ok(Told::Host);
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                let length = length(value).ok_or(Refusal::Invalid("Content-Length is not a number"))?;
                if self.length.replace(length).is_some() {
                    return Err(LENGTH_TWICE);
                }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => self.coding(value)?,
            10 if name.eq_ignore_ascii_case("connection") => {
                let mut words = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
                self.says_close |= words.clone().any(|word| word.eq_ignore_ascii_case(b"close"));
                self.says_keep_alive |= words.any(|word| word.eq_ignore_ascii_case(b"keep-alive"));
            }
            6 if name.eq_ignore_ascii_case("expect") => {
                self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            _ => return Ok(Told::Nothing),
        }
        Ok(Told::Connection)
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.chunked {
            return Err(LENGTH_TWICE);
        }
        self.chunked = value.eq_ignore_ascii_case(b"chunked");
        let known = Refusal::Invalid("Transfer-Encoding is something other than one 'chunked'");
        if self.chunked { Ok(()) } else { Err(known) }
    }

    fn body(&self, http11: bool) -> Result<Body, Refusal> {
        if self.hosts > 1 || (self.hosts == 0 && http11) {
            return Err(Refusal::Invalid("the request has no Host header, or more than one"));
        }
        match (self.length, self.chunked) {
            (Some(_), true) => Err(LENGTH_TWICE),
            (None, true) if !http11 => Err(Refusal::Invalid("an HTTP/1.0 request cannot be chunked")),
            (None, true) => Ok(Body::chunked()),
            (length, false) => Ok(Body::of_length(length.unwrap_or(0))),
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

fn length(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit).then_some(value)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Panics where a head breaks a promise; see `fuzzing.rs` of the crate.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn hold_head(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    let _ = path(&bytes);
    let Ok(Some(end)) = end(&bytes, 0) else { return };
    for known in 0..end {
        assert!(matches!(self::end(&bytes, known), Ok(Some(found)) if found == end), "cut at {known}");
    }
    let Ok(head) = Head::read(&bytes.slice(..end), true) else { return };
    for (name, value) in head.request.headers() {
        assert!(!value.as_bytes().iter().any(|byte| b"\r\n\0".contains(byte)), "{name}");
    }
    assert!(head.http11 || head.body != Body::chunked(), "HTTP/1.0 has no chunks");
}

#[cfg(test)]
mod tests;
