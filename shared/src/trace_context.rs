//! W3C Trace Context: the IDs of traces and spans, and the headers `traceparent` and `tracestate`.
//!
//! The headers of clients are untrusted: a value that the specification does not permit is ignored as a whole.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::hex;

/// The header with the trace and the calling span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with vendors' additions to it.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The ID of a trace. Its text has 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub NonZeroU128);

/// The ID of a span. Its text has 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub NonZeroU64);

/// The trace context that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientContext {
    /// The client's trace.
    pub trace: TraceId,
    /// The client's span.
    pub span: SpanId,
    /// True if the client records its span.
    pub is_sampled: bool,
    /// The valid `tracestate`.
    pub state: Option<HeaderValue>,
}

/// The span of one request. The spans of its attempts have IDs that follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSpan {
    /// The trace: the client's, if it sent one.
    pub trace: TraceId,
    /// The span of the request.
    pub span: SpanId,
    /// The client's span.
    pub parent: Option<SpanId>,
    /// True if the span is exported.
    pub is_sampled: bool,
    /// The client's `tracestate`.
    pub state: Option<HeaderValue>,
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl ClientContext {
    /// Reads the trace context of a request; `None` if it has none, or an invalid or repeated `traceparent`.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let (trace, span, is_sampled) = parse(value.to_str().ok()?)?;
        Some(Self { trace, span, is_sampled, state: state(headers) })
    }
}

impl RequestSpan {
    /// Returns the ID of the span of the attempt at this place of the route trace.
    pub fn attempt(&self, place: usize) -> SpanId {
        let place = u64::try_from(place).unwrap_or(u64::MAX).wrapping_add(1);
        let mixed = mix(self.span.0.get().wrapping_add(place.wrapping_mul(STEP)));
        SpanId(NonZeroU64::new(mixed).unwrap_or(NonZeroU64::MIN))
    }
}

/// Returns the `traceparent` for a call that `span` makes.
pub fn traceparent(trace: TraceId, span: SpanId, is_sampled: bool) -> Option<HeaderValue> {
    let mut text = [b'-'; PARENT_BYTES];
    let (version, rest) = text.split_first_chunk_mut::<3>()?;
    let (trace_digits, rest) = rest.split_first_chunk_mut::<33>()?;
    let (span_digits, flags) = rest.split_first_chunk_mut::<17>()?;
    hex::write(&[0], version);
    hex::write(&trace.0.get().to_be_bytes(), trace_digits);
    hex::write(&span.0.get().to_be_bytes(), span_digits);
    hex::write(&[u8::from(is_sampled)], flags);
    HeaderValue::from_bytes(&text).ok()
}

/// Parses a `traceparent`. A later version may append fields, which are ignored.
fn parse(text: &str) -> Option<(TraceId, SpanId, bool)> {
    let (known, rest) = text.split_at_checked(PARENT_BYTES)?;
    let mut fields = known.split('-');
    let mut field = |digits| fields.next().filter(|field: &&str| field.len() == digits);
    let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
    let may_be_longer = version != "00" && rest.starts_with('-');
    if version == "ff" || !known.bytes().all(is_hex) || !(rest.is_empty() || may_be_longer) {
        return None;
    }
    let trace = TraceId(NonZeroU128::new(u128::from_str_radix(trace, 16).ok()?)?);
    let span = SpanId(NonZeroU64::new(u64::from_str_radix(span, 16).ok()?)?);
    Some((trace, span, u8::from_str_radix(flags, 16).ok()? & 1 == 1))
}

/// Returns the `tracestate` of a request in one value; `None` if it has none, or one that is not valid.
fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(TRACESTATE).iter();
    let texts: Vec<&str> = values.map(HeaderValue::to_str).collect::<Result<_, _>>().ok()?;
    let bytes: usize = texts.iter().map(|text| text.len() + 1).sum();
    let joined = Some(texts.join(",")).filter(|_| (2..=STATE_BYTES_MAX + 1).contains(&bytes))?;
    if is_state(&joined) { HeaderValue::try_from(joined).ok() } else { None }
}

/// Returns true for a list of members `key=value` with different keys.
fn is_state(text: &str) -> bool {
    let mut keys = Vec::new();
    for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])) {
        let Some((key, value)) = member.split_once('=') else {
            // Members may be empty.
            if member.is_empty() { continue } else { return false }
        };
        if !is_key(key) || !is_value(value) || keys.contains(&key) || keys.len() == MEMBERS_MAX {
            return false;
        }
        keys.push(key);
    }
    !keys.is_empty()
}

fn is_key(key: &str) -> bool {
    let may_begin = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    key.len() <= MEMBER_BYTES_MAX
        && key.as_bytes().first().is_some_and(may_begin)
        && key.bytes().all(|byte| may_begin(&byte) || b"_-*/@".contains(&byte))
}

fn is_value(value: &str) -> bool {
    (1..=MEMBER_BYTES_MAX).contains(&value.len())
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
}

/// Distributes the bits of a number over all digits (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// The length of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;
const STATE_BYTES_MAX: usize = 512;
const MEMBERS_MAX: usize = 32;
/// The maximum length of a key, and of a value.
const MEMBER_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn context(headers: &[(HeaderName, &str)]) -> Option<ClientContext> {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        ClientContext::of(&headers.collect())
    }

    #[test]
    fn a_traceparent_is_read_strictly() {
        let of = |version: &str, rest: &str| format!("{version}-{TRACE}-{SPAN}-{rest}");
        for (text, want) in [
            (of("00", "01"), Some(true)),
            (of("00", "00"), Some(false)),
            (of("00", "03"), Some(true)),
            (of("01", "01"), Some(true)),
            (of("cc", "00-what-comes-later"), Some(false)),
            (of("cc", "01what"), None),
            (of("00", "01-more"), None),
            (of("ff", "01"), None),
            (of("0", "01"), None),
            (of("00", "1"), None),
            (of("00", "0g"), None),
            (of("00", "01").to_uppercase(), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-+{}-{SPAN}-01", &TRACE[1..]), None),
            (format!("00-{TRACE}{SPAN}--01"), None),
            (format!("00-{}-{TRACE}-01", SPAN), None),
            (String::new(), None),
        ] {
            let read = context(&[(TRACEPARENT, &text)]);
            assert_eq!(read.as_ref().map(|read| read.is_sampled), want, "{text}");
            if let Some(read) = read {
                assert_eq!((read.trace.to_string(), read.span.to_string()), (TRACE.into(), SPAN.into()));
            }
        }
        let valid = of("00", "01");
        assert_eq!(context(&[(TRACEPARENT, &valid), (TRACEPARENT, &valid)]), None);
        assert_eq!(context(&[]), None);
    }

    #[test]
    fn a_tracestate_is_continued_if_all_of_it_is_valid() {
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let long = format!("a={}", "x".repeat(256));
        let longest = format!("{long},b={}", "x".repeat(251));
        let many = (0..33).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(",");
        for (values, want) in [
            (vec!["rojo=00f067aa0ba902b7"], Some("rojo=00f067aa0ba902b7")),
            (vec!["a=1", "b@c=2"], Some("a=1,b@c=2")),
            (vec!["a=1, ,\tb=x y"], Some("a=1, ,\tb=x y")),
            (vec![&long], Some(long.as_str())),
            (vec![&longest], Some(&longest)),
            (vec![&longest, "c="], None),
            (vec![&many], None),
            (vec!["a=1,a=2"], None),
            (vec!["A=1"], None),
            (vec!["a"], None),
            (vec!["a="], None),
            (vec!["a=1=2"], None),
            (vec![""], None),
            (vec![], None),
        ] {
            let mut headers = vec![(TRACEPARENT, parent.as_str())];
            headers.extend(values.iter().map(|value| (TRACESTATE, *value)));
            let state = context(&headers).unwrap().state;
            assert_eq!(state.as_ref().map(|state| state.to_str().unwrap()), want, "{values:?}");
        }
    }

    #[test]
    fn the_attempts_of_a_request_have_different_spans() {
        let client = context(&[(TRACEPARENT, &format!("00-{TRACE}-{SPAN}-01"))]).unwrap();
        let request = RequestSpan {
            trace: client.trace,
            span: client.span,
            parent: None,
            is_sampled: true,
            state: None,
        };
        let mut spans: Vec<String> = (0..100).map(|place| request.attempt(place).to_string()).collect();
        spans.push(request.span.to_string());
        spans.sort();
        spans.dedup();
        assert_eq!(spans.len(), 101);
        let header = traceparent(request.trace, request.attempt(0), true).unwrap();
        assert_eq!(header.to_str().unwrap(), format!("00-{TRACE}-{}-01", request.attempt(0)));
    }
}
