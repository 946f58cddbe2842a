//! Upstreams: sends one request to one provider instance and reads its answer, over the network or inside the process.
//! Retries are implemented elsewhere.

use std::cell::Cell;
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use shared::port::BoxError;
use shared::routing::{InstanceReach, Origin, ProviderInstance};

pub(crate) mod dial;
mod echo;
pub(crate) mod fetch;
pub(crate) mod http1;
mod interim;
mod limits;
pub(crate) mod pool;
pub(crate) mod request;
pub(crate) mod resolve;
mod tap;
pub(crate) mod voice;

use self::dial::{DialError, Tls, UpstreamIo, dial, is_local};
use self::http1::{Progress, Unanswered, UpstreamConnection};
use self::interim::{Counted, INTERIM_WITHOUT_END};
use self::pool::{Pool, SharedConnection};
use self::request::{RequestKind, UpstreamRequest};
use self::tap::TappedBody;
use self::voice::Voices;
use crate::clock::CoarseClock;

/// The upstream side of one worker: its connections, and the parts that all workers share.
#[derive(Debug)]
pub(crate) struct Upstreams {
    pub(crate) pool: Pool,
    pub(crate) tls: Arc<Tls>,
    pub(crate) voices: Arc<Voices>,
    pub(crate) clock: CoarseClock,
}

impl Upstreams {
    /// Returns the kept header fields of an answer, and stores the limits that it reports.
    fn keep(&self, request: &UpstreamRequest<'_>, head: &response::Parts) -> KeptHeaders {
        limits::keep(&request.provider, &head.headers, self.clock.now());
        tap::note_answer(request, head);
        KeptHeaders::of(&head.headers)
    }
}

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
}

/// Header fields of errors and redirects, and of answers to Codex.
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
}

impl KeptHeaders {
    /// Returns the head of an answer generated inside the process.
    fn of_type(content_type: &'static str) -> Self {
        Self { content_type: Some(HeaderValue::from_static(content_type)), ..Self::default() }
    }

    /// Adds a `Retry-After` of `seconds`.
    fn asking_to_wait(mut self, seconds: impl Into<HeaderValue>) -> Self {
        self.rare().retry_after = Some(seconds.into());
        self
    }

    /// Keeps one field if it is known. The length of its name rules out nearly every other field.
    fn field(&mut self, name: &str, value: &[u8]) {
        let slot = match name.len() {
            8 if name.eq_ignore_ascii_case("location") => &mut self.rare().location,
            11 if name.eq_ignore_ascii_case("retry-after") => &mut self.rare().retry_after,
            12 if name.eq_ignore_ascii_case("content-type") => &mut self.content_type,
            16 if name.eq_ignore_ascii_case("content-encoding") => {
                self.encoded |= !value.trim_ascii().eq_ignore_ascii_case(b"identity");
                return;
            }
            16 if name.eq_ignore_ascii_case("x-amzn-errortype") => &mut self.rare().error_type,
            14 if name.eq_ignore_ascii_case("retry-after-ms") => &mut self.rare().retry_after_ms,
            18 if name.eq_ignore_ascii_case("x-codex-turn-state") => &mut self.rare().turn_state,
            20 if name.eq_ignore_ascii_case("openai-processing-ms") => &mut self.processing_ms,
            10 | 12 | 15 | 16 => return self.request_id(name, value),
            _ => return,
        };
        *slot = usual(value).or_else(|| HeaderValue::from_bytes(value).ok());
    }

    /// Keeps the upstream's request id. `x-request-id` takes precedence, because most vendors ask for it.
    fn request_id(&mut self, name: &str, value: &[u8]) {
        let is_usual = name.eq_ignore_ascii_case("x-request-id");
        let is_known = is_usual || REQUEST_IDS.iter().any(|known| name.eq_ignore_ascii_case(known));
        if is_known && (is_usual || self.upstream_id.is_none()) {
            self.upstream_id = safe_id(value).or_else(|| self.upstream_id.take());
        }
    }

    fn rare(&mut self) -> &mut RareHeaders {
        self.rare.get_or_insert_default()
    }

    fn of(headers: &HeaderMap) -> Self {
        let mut kept = Self::default();
        for (name, value) in headers {
            kept.field(name.as_str(), value.as_bytes());
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
/// Names of request id fields besides `x-request-id`: Anthropic, AWS, Azure and OpenRouter.
const REQUEST_IDS: [&str; 6] = [
    "request-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "apim-request-id",
    "x-ms-request-id",
    "x-generation-id",
];

/// Reason why there is no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The connection failed.
    Dial(DialError),
    /// The connection broke.
    Broke(BoxError),
    /// A connection from the pool was closed after the request had been written, before a byte of an answer.
    Stale,
    /// The gateway itself has no memory for the connection.
    Local(io::Error),
    /// The answer is invalid.
    Invalid(&'static str),
}

impl std::error::Error for SendError {}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dial(error) => error.fmt(f),
            Self::Broke(error) => error.fmt(f),
            Self::Stale => f.write_str("the connection closed while the request was being sent"),
            Self::Local(error) => error.fmt(f),
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl From<Unanswered> for SendError {
    fn from(unanswered: Unanswered) -> Self {
        unanswered.error
    }
}

impl From<hyper::Error> for SendError {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            return Self::Invalid("its response head is too large");
        }
        if error.is_parse() {
            return Self::Invalid("its response is not valid HTTP");
        }
        if error.is_incomplete_message() {
            return Self::Broke("the connection closed before a response".into());
        }
        match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
            Some(source) if is_local(source) => Self::Local(io::Error::new(source.kind(), error)),
            _ => Self::Broke(Box::new(error)),
        }
    }
}

/// The body of an answer. Dropping it before its end closes the connection or resets the stream, which cancels the
/// request.
#[derive(Debug)]
pub(crate) enum UpstreamBody {
    Http1(Box<UpstreamConnection>),
    Http2 {
        incoming: Incoming,
        _lease: StreamLease,
    },
    Echo(Box<echo::EchoBody>),
    Voice(Box<voice::VoiceBody>),
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
            Self::Http2 { incoming, .. } => {
                poll_incoming(incoming, cx).map(|item| item.map(|data| data.map_err(|_| Broken)))
            }
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

/// Returns the next data frame. Skips trailers, which are never relayed.
fn poll_incoming(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
    loop {
        match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        }
    }
}

/// Counts one request on a shared connection until it is dropped with the body.
#[derive(Debug)]
pub(crate) struct StreamLease(Rc<Cell<u32>>);

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Sends `request` and waits for the head of its answer.
pub(crate) async fn send(
    upstreams: &Upstreams,
    request: &UpstreamRequest<'_>,
) -> Result<UpstreamResponse, SendError> {
    match &request.provider.reach {
        InstanceReach::Network(origin) => {
            send_network(upstreams, origin, request).await.map(|answer| tap::around(request, answer))
        }
        InstanceReach::Echo(options) => {
            Ok(Box::pin(echo::answer(&request.provider.id, options, request)).await)
        }
        InstanceReach::Speech => {
            Ok(Box::pin(voice::answer(&upstreams.voices, &request.provider, request)).await)
        }
    }
}

async fn send_network(
    upstreams: &Upstreams,
    origin: &Origin,
    request: &UpstreamRequest<'_>,
) -> Result<UpstreamResponse, SendError> {
    while request.kind != RequestKind::PostOnce
        && let Some(connection) = upstreams.pool.take(origin)
    {
        match send_http1(upstreams, connection, (origin, request)).await {
            Ok(answer) => return Ok(answer),
            // No byte of the request has been sent, so another connection may be used.
            Err(Unanswered { progress: Progress::Unsent, .. }) => {}
            Err(Unanswered { progress: Progress::Sent, error: SendError::Broke(_) }) => {
                if !request.kind.is_safe() {
                    return Err(SendError::Stale);
                }
                break;
            }
            Err(Unanswered { error, .. }) => return Err(error),
        }
    }
    // Boxed, so that a request on an idle connection does not reserve space for the state of a dial.
    Box::pin(send_on_new_connection(upstreams, origin, request)).await
}

/// Sends over a shared HTTP/2 connection or over a new connection.
async fn send_on_new_connection(
    upstreams: &Upstreams,
    origin: &Origin,
    request: &UpstreamRequest<'_>,
) -> Result<UpstreamResponse, SendError> {
    if let Some(shared) = upstreams.pool.share(origin) {
        match send_http2(upstreams, shared.clone(), (origin, request)).await {
            // The upstream is closing the connection, and the request was not sent.
            Err(NotSent::Request) => upstreams.pool.drop_shared(origin, &shared),
            Err(NotSent::Error(error)) => return Err(error),
            Ok(answer) => return Ok(answer),
        }
    }
    let (io, is_http2) = dial(origin, &upstreams.tls).await.map_err(SendError::Dial)?;
    if is_http2 {
        let shared = handshake_http2(io).await?;
        upstreams.pool.put_shared(origin, shared.clone());
        return send_http2(upstreams, shared, (origin, request)).await.map_err(SendError::from);
    }
    let connection = Box::new(UpstreamConnection::handshake(io).await?);
    Ok(send_http1(upstreams, connection, (origin, request)).await?)
}

async fn send_http1(
    upstreams: &Upstreams,
    mut connection: Box<UpstreamConnection>,
    (origin, request): (&Origin, &UpstreamRequest<'_>),
) -> Result<UpstreamResponse, Unanswered> {
    let signature = request.signature(origin).await;
    let head = connection.send(tap::noted(request, request.http1(origin, signature))).await?;
    let kept = upstreams.keep(request, &head);
    Ok(UpstreamResponse { status: head.status.as_u16(), head: kept, body: UpstreamBody::Http1(connection) })
}

/// Reason why a request over HTTP/2 has no answer.
enum NotSent {
    /// The request was not sent, because the connection is closing.
    Request,
    Error(SendError),
}

impl From<NotSent> for SendError {
    fn from(returned: NotSent) -> Self {
        match returned {
            NotSent::Request => Self::Broke("the connection closed before the request was sent".into()),
            NotSent::Error(error) => error,
        }
    }
}

async fn send_http2(
    upstreams: &Upstreams,
    mut shared: SharedConnection,
    (origin, request): (&Origin, &UpstreamRequest<'_>),
) -> Result<UpstreamResponse, NotSent> {
    shared.live.set(shared.live.get() + 1);
    let lease = StreamLease(Rc::clone(&shared.live));
    let signature = request.signature(origin).await;
    shared.sender.ready().await.map_err(|_| NotSent::Request)?;
    let sent = shared.sender.try_send_request(tap::noted(request, request.http2(origin, signature))).await;
    let (head, incoming) = sent
        .map_err(|mut error| match error.take_message() {
            Some(_) => NotSent::Request,
            None if shared.flooded.get() => NotSent::Error(SendError::Invalid(INTERIM_WITHOUT_END)),
            None => NotSent::Error(error.into_error().into()),
        })?
        .into_parts();
    let kept = upstreams.keep(request, &head);
    let body = UpstreamBody::Http2 { incoming, _lease: lease };
    Ok(UpstreamResponse { status: head.status.as_u16(), head: kept, body })
}

async fn handshake_http2(io: UpstreamIo) -> hyper::Result<SharedConnection> {
    let flooded = Rc::<Cell<bool>>::default();
    let io = Counted::new(io, Rc::clone(&flooded));
    let (sender, driver) = http2::Builder::new(LocalExecutor)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES * 16)
        .max_header_list_size(32 << 10)
        .handshake(TokioIo::new(io))
        .await?;
    // Ends when the last sender is dropped or the upstream disconnects; the requests themselves get its errors.
    tokio::task::spawn_local(async move { driver.await.ok() });
    Ok(SharedConnection { sender, live: Rc::default(), flooded })
}

/// Stream window: bytes of an answer that an upstream may send before the gateway reads them.
const HTTP2_WINDOW_BYTES: u32 = 256 << 10;

/// Runs hyper's HTTP/2 tasks on the worker's own thread.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
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
            fields.iter().for_each(|(name, value)| kept.field(name, value.as_bytes()));
            assert_eq!(kept.upstream_id.as_deref(), want, "{fields:?}");
        }
    }
}
