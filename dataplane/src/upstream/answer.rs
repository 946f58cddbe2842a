//! The answer of an upstream: the header fields that are kept, and the body, whatever it comes from.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;
use hyper::body::Incoming;
use shared::clock::unix_ms;
use shared::routing::{InstanceReach, ProviderInstance};

use super::echo::EchoBody;
use super::http1::UpstreamConnection;
use super::http2::StreamLease;
use super::incoming::poll_incoming;
use super::tap::TappedBody;
use super::voice::VoiceBody;
use super::{Upstreams, limits, request};

/// The head of an upstream's answer, and its body, which is read piece by piece.
#[derive(Debug)]
pub(crate) struct UpstreamResponse {
    pub(crate) status: u16,
    pub(crate) head: KeptHeaders,
    pub(crate) body: UpstreamBody,
}

/// The header fields of an answer that are kept.
#[derive(Debug, Default)]
pub(crate) struct KeptHeaders {
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) processing_ms: Option<HeaderValue>,
    /// The upstream's request id: bounded in length, and restricted to safe characters.
    pub(crate) upstream_id: Option<Box<str>>,
    /// Fields that most answers lack.
    pub(crate) rare: Option<Box<RareHeaders>>,
    /// True if the answer is compressed, although this was not requested.
    pub(crate) encoded: bool,
    /// True if the answer reports a limit of which nothing is left.
    is_spent: bool,
}

/// Header fields of errors and redirects, of answers that use up a limit, and of answers to Codex.
#[derive(Debug, Default)]
pub(crate) struct RareHeaders {
    pub(crate) retry_after: Option<HeaderValue>,
    pub(crate) retry_after_ms: Option<HeaderValue>,
    /// The AWS type of the error; the body contains its message.
    pub(crate) error_type: Option<HeaderValue>,
    /// The target of a redirect.
    pub(crate) location: Option<HeaderValue>,
    /// What Codex sends back with the other requests of its turn.
    pub(crate) turn_state: Option<HeaderValue>,
    /// The time until a limit of which nothing is left is reset.
    pub(crate) spent_wait: Option<Duration>,
}

impl KeptHeaders {
    /// Returns the head of an answer generated inside the process.
    pub(super) fn of_type(content_type: &'static str) -> Self {
        Self { content_type: Some(HeaderValue::from_static(content_type)), ..Self::default() }
    }

    /// Adds a `Retry-After` of `seconds`.
    pub(super) fn asking_to_wait(mut self, seconds: impl Into<HeaderValue>) -> Self {
        self.rare().retry_after = Some(seconds.into());
        self
    }

    /// Returns the time until a limit of which nothing is left is reset, if the answer reports one.
    pub(crate) fn spent_wait(&self) -> Option<Duration> {
        self.rare.as_ref().filter(|_| self.is_spent)?.spent_wait
    }

    /// Keeps one field if it is known. Its name is in lower case, as all names in a map are.
    fn field(&mut self, name: &str, value: &[u8]) {
        let slot = match name {
            "location" => &mut self.rare().location,
            "retry-after" => &mut self.rare().retry_after,
            "retry-after-ms" => &mut self.rare().retry_after_ms,
            "content-type" => &mut self.content_type,
            "content-encoding" => {
                self.encoded |= !value.trim_ascii().eq_ignore_ascii_case(b"identity");
                return;
            }
            "openai-processing-ms" => &mut self.processing_ms,
            "x-amzn-errortype" => &mut self.rare().error_type,
            "x-codex-turn-state" => &mut self.rare().turn_state,
            "x-request-id" => return self.request_id(value, true),
            // Those of Anthropic, AWS, Azure and OpenRouter.
            "request-id" | "x-amzn-requestid" | "x-amz-request-id" | "apim-request-id"
            | "x-ms-request-id" | "x-generation-id" => return self.request_id(value, false),
            _ => return,
        };
        *slot = usual(value).or_else(|| HeaderValue::from_bytes(value).ok());
    }

    /// Keeps the upstream's request id. `x-request-id` takes precedence, because most vendors ask for it.
    fn request_id(&mut self, value: &[u8], is_usual: bool) {
        if is_usual || self.upstream_id.is_none() {
            self.upstream_id = safe_id(value).or_else(|| self.upstream_id.take());
        }
    }

    fn rare(&mut self) -> &mut RareHeaders {
        self.rare.get_or_insert_default()
    }

    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut kept = Self::default();
        for (name, value) in headers {
            kept.field(name.as_str(), value.as_bytes());
            kept.is_spent |= value.as_bytes().first() == Some(&b'0') && limits::is_spent(name, value);
        }
        if kept.is_spent {
            kept.rare().spent_wait = limits::spent_wait(headers, unix_ms());
        }
        kept
    }
}

/// Returns the content types of most answers, which need not be copied.
fn usual(value: &[u8]) -> Option<HeaderValue> {
    match value {
        b"application/json" => Some(request::JSON.clone()),
        b"text/event-stream" => Some(request::EVENT_STREAM.clone()),
        _ => None,
    }
}

/// Returns the id if it is safe to store and display.
fn safe_id(value: &[u8]) -> Option<Box<str>> {
    let is_safe = |byte: &u8| {
        matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9')
            || matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'=' | b'+')
    };
    let fits = (1..=ID_BYTES_MAX).contains(&value.len()) && value.iter().all(is_safe);
    std::str::from_utf8(value).ok().filter(|_| fits).map(Into::into)
}

const ID_BYTES_MAX: usize = 128;

/// The body of an answer. Dropping it before its end closes the connection or resets the stream, which cancels the
/// request.
#[derive(Debug)]
pub(crate) enum UpstreamBody {
    Http1(Box<UpstreamConnection>),
    Http2 {
        incoming: Incoming,
        lease: StreamLease,
    },
    Echo(Box<EchoBody>),
    Voice(Box<VoiceBody>),
    Tapped(Box<TappedBody>),
    /// The body has ended.
    Ended,
}

/// Error: the body broke off.
#[derive(Debug)]
pub(crate) struct Broken;

/// Reason why a body could not be read completely.
#[derive(Debug)]
pub(crate) enum Incomplete {
    Broken,
    TooLarge,
}

impl UpstreamBody {
    /// Returns the next piece, or `None` after the end or an error.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        match self {
            Self::Http1(connection) => {
                connection.poll_data(cx).map(|item| item.map(|data| data.map_err(|_| Broken)))
            }
            Self::Http2 { incoming, lease } => match ready!(poll_incoming(incoming, cx)) {
                // hyper takes an answer for complete that a GOAWAY without an error cuts off.
                None if lease.is_leaving() && !incoming.is_end_stream() => Poll::Ready(Some(Err(Broken))),
                item => Poll::Ready(item.map(|data| data.map_err(|_| Broken))),
            },
            Self::Echo(echo) => echo.poll_data(cx),
            Self::Voice(voice) => voice.poll_data(cx),
            Self::Tapped(tapped) => tapped.poll_data(cx),
            Self::Ended => Poll::Ready(None),
        }
    }

    /// Reads the rest of the body, up to `bytes_max`.
    pub(crate) async fn whole(&mut self, bytes_max: usize) -> Result<Bytes, Incomplete> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.data().await {
            let piece = piece.map_err(|Broken| Incomplete::Broken)?;
            if whole.len() + piece.len() > bytes_max {
                return Err(Incomplete::TooLarge);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    pub(crate) async fn data(&mut self) -> Option<Result<Bytes, Broken>> {
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Ends the body after its last piece and returns a reusable connection to the pool.
    pub(crate) fn recycle(&mut self, upstreams: &Upstreams, provider: &ProviderInstance) {
        let body = match std::mem::replace(self, Self::Ended) {
            Self::Tapped(tapped) => tapped.body,
            body => body,
        };
        if let (Self::Http1(connection), InstanceReach::Network(origin)) = (body, &provider.reach) {
            upstreams.pool.put(origin, connection, upstreams.clock.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_upstream_request_id_is_kept() {
        let long = "x".repeat(129);
        for (fields, want) in [
            (&[("X-Request-Id", "req_1")][..], Some("req_1")),
            (&[("request-id", "req_011CSHoEeqs5C35K2UUqR7Fy")], Some("req_011CSHoEeqs5C35K2UUqR7Fy")),
            (&[("x-amzn-RequestId", "a-b")], Some("a-b")),
            (&[("apim-request-id", "azure"), ("x-request-id", "usual")], Some("usual")),
            (&[("x-request-id", "usual"), ("x-ms-request-id", "azure")], Some("usual")),
            (&[("x-generation-id", "gen-1"), ("x-request-id", "no good")], Some("gen-1")),
            (&[("x-request-id", "")], None),
            (&[("x-request-id", &long)], None),
            (&[("x-request-id", "\u{e4}")], None),
            (&[("x-correlation", "c")], None),
        ] {
            let mut kept = KeptHeaders::default();
            fields.iter().for_each(|(name, value)| kept.field(&name.to_lowercase(), value.as_bytes()));
            assert_eq!(kept.upstream_id.as_deref(), want, "{fields:?}");
        }
    }
}
