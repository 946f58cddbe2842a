//! The request to the upstream: address and credential come only from the snapshot, headers pass an allow-list, and the
//! body consists of slices of the client's (CHAT-4, LIM-4).

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use shared::answer_head::{self, X_REQUEST_ID};
use shared::clock;
use shared::operation::Dialect;
use shared::port::ExchangeTap;
use shared::provider::signer::RequestSigner;
use shared::provider::sigv4::Signable;
use shared::routing::{Origin, ProviderInstance};
use shared::trace_context::{TRACEPARENT, TRACESTATE};

use super::arriving::ArrivingBody;
use crate::request_span::TraceHeaders;

/// Header fields of a request.
pub(super) type Fields = Vec<(HeaderName, HeaderValue)>;

/// Bytes of a body that are signed before other requests have their turn; this takes up to a millisecond.
const SIGNED_BYTES_PER_TURN: usize = 128 << 10;
/// Maximum bytes of a body that is sent as one segment: those of a frame of HTTP/2.
const JOINED_BYTES_MAX: usize = 16 << 10;

/// Method and repeatability of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// `GET` without a body.
    Get,
    /// `DELETE` without a body. Repeated, it changes nothing.
    Delete,
    /// `POST` without side effects: it starts nothing and is not billed.
    PostSafe,
    /// `POST`.
    Post,
    /// `POST` that must never be processed twice. Over HTTP/1.1 it always uses a new connection, because the close of an
    /// idle one would leave open what became of it.
    PostOnce,
}

impl RequestKind {
    /// Returns true if the request may be sent twice.
    pub(super) fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Delete | Self::PostSafe)
    }

    fn may_have_body(self) -> bool {
        !matches!(self, Self::Get | Self::Delete)
    }

    fn method_name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Delete => "DELETE",
            Self::PostSafe | Self::Post | Self::PostOnce => "POST",
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Delete => Method::DELETE,
            Self::PostSafe | Self::Post | Self::PostOnce => Method::POST,
        }
    }
}

/// The request of one attempt, without the origin.
#[derive(Debug)]
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) provider: Arc<ProviderInstance>,
    pub(crate) kind: RequestKind,
    /// Path from [`ProviderInstance::path`].
    pub(crate) path: PathAndQuery,
    /// The client's forwarded headers, from [`forwarded`].
    pub(crate) forwarded: &'a [(HeaderName, HeaderValue)],
    pub(crate) request_id: &'a HeaderValue,
    /// The headers of the model, which take precedence over all others. Empty without an allocation.
    pub(crate) of_model: Vec<(HeaderName, HeaderValue)>,
    /// The trace that the request belongs to, if the provider instance receives it.
    pub(crate) trace: Option<Box<TraceHeaders>>,
    /// Observes what is exchanged with the upstream.
    pub(crate) tap: Option<&'a Arc<dyn ExchangeTap>>,
    /// The type of the body.
    pub(crate) content_type: &'a HeaderValue,
    /// The accepted type of the answer.
    pub(crate) accept: &'static HeaderValue,
    pub(crate) segments: Vec<Bytes>,
    /// The body, if it is sent while it arrives; `segments` is empty then.
    pub(crate) arriving: Option<Rc<ArrivingBody>>,
}

/// Returns the header allow-list of a dialect. None of them can change the destination, credential or account.
fn allowed(dialect: Dialect) -> &'static [HeaderName] {
    match dialect {
        Dialect::Messages => &MESSAGES,
        Dialect::Gemini | Dialect::GeminiEmbeddings => &[],
        _ => &OPENAI,
    }
}

static OPENAI: [HeaderName; 1] = [HeaderName::from_static("openai-beta")];
static MESSAGES: [HeaderName; 2] = [ANTHROPIC_VERSION, HeaderName::from_static("anthropic-beta")];
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

pub(crate) static JSON: HeaderValue = answer_head::JSON;
pub(crate) static EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
pub(crate) static AWS_EVENTS: HeaderValue = HeaderValue::from_static("application/vnd.amazon.eventstream");
/// For a request of which it is not known yet if it asks for a stream.
pub(crate) static JSON_OR_EVENTS: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream");
pub(crate) static ANYTHING: HeaderValue = HeaderValue::from_static("*/*");
static IDENTITY: HeaderValue = HeaderValue::from_static("identity");
pub(crate) static AGENT: HeaderValue = HeaderValue::from_static(concat!("llmgw/", env!("CARGO_PKG_VERSION")));

impl UpstreamRequest<'_> {
    /// Returns the HTTP/1.1 request: the path alone as target, and `Host` first. `signature` is that of
    /// [`Self::signature`].
    pub(super) fn http1(&self, origin: &Origin, signature: Fields) -> Request<SegmentedBody> {
        self.request(Uri::from(self.path.clone()), self.headers(origin, signature))
    }

    /// Returns the HTTP/2 request: an absolute URI, and no `Host`. `signature` is that of [`Self::signature`].
    pub(super) fn http2(&self, origin: &Origin, signature: Fields) -> Request<SegmentedBody> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(if origin.tls { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
        parts.authority = Some(origin.authority.clone());
        parts.path_and_query = Some(self.path.clone());
        let mut headers = self.headers(origin, signature);
        headers.remove(HOST);
        let mut request = self.request(Uri::from_parts(parts).unwrap_or_default(), headers);
        *request.version_mut() = Version::HTTP_2;
        request
    }

    fn request(&self, uri: Uri, headers: HeaderMap) -> Request<SegmentedBody> {
        let mut request = Request::new(self.body());
        *request.method_mut() = self.kind.method();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request
    }

    /// Returns the body. A short one is joined: over HTTP/2, each segment is a frame of its own.
    fn body(&self) -> SegmentedBody {
        if let Some(arriving) = &self.arriving {
            return SegmentedBody::arriving(Rc::clone(arriving));
        }
        let bytes: usize = self.segments.iter().map(Bytes::len).sum();
        if self.segments.len() < 2 || bytes > JOINED_BYTES_MAX {
            return SegmentedBody::new(self.segments.clone());
        }
        let mut joined = BytesMut::with_capacity(bytes);
        self.segments.iter().for_each(|segment| joined.extend_from_slice(segment));
        SegmentedBody::new(vec![joined.freeze()])
    }

    /// Returns the header fields. Those of the provider instance take precedence over all others.
    fn headers(&self, origin: &Origin, signature: Fields) -> HeaderMap {
        let mut headers =
            self.provider.request_head.get_or_init(|| common_fields(&self.provider, origin)).clone();
        // One pass over the fields is cheaper than a look-up of each of these.
        for (name, value) in &mut headers {
            if let Some(own) = self.own_value(name)
                && !self.is_fixed(name)
            {
                *value = own;
            }
        }
        if !self.kind.may_have_body() {
            headers.remove(CONTENT_LENGTH);
        }
        if !self.has_body() && !self.is_fixed(&CONTENT_TYPE) {
            headers.remove(CONTENT_TYPE);
        }
        self.forward(&mut headers);
        if let Some(trace) = &self.trace {
            self.trace(trace, &mut headers);
        }
        for (name, value) in &self.of_model {
            headers.insert(name.clone(), value.clone());
        }
        headers.extend(signature);
        headers
    }

    /// Returns the value of a field that depends on the request.
    fn own_value(&self, name: &HeaderName) -> Option<HeaderValue> {
        match *name {
            CONTENT_TYPE => Some(self.content_type.clone()),
            ACCEPT => Some(self.accept.clone()),
            CONTENT_LENGTH => Some(self.body_bytes().into()),
            _ if *name == X_REQUEST_ID => Some(self.request_id.clone()),
            _ => None,
        }
    }

    /// Returns the fields that sign the request; none if its provider instance signs no requests.
    pub(super) async fn signature(&self, origin: &Origin) -> Fields {
        match &self.provider.signer {
            None => Fields::new(),
            // Boxed, so that requests without a signature do not reserve space for its state.
            Some(signer) => Box::pin(self.signature_by(signer, origin)).await,
        }
    }

    /// Signs the request. Between two parts of a long body, the other requests of the worker have their turn.
    async fn signature_by(&self, signer: &RequestSigner, origin: &Origin) -> Fields {
        let mut signing = signer.begin(clock::unix_ms() / 1_000);
        let mut bytes = 0;
        for slice in self.segments.iter().flat_map(|segment| segment.chunks(SIGNED_BYTES_PER_TURN)) {
            signing.update(slice);
            bytes += slice.len();
            if bytes >= SIGNED_BYTES_PER_TURN {
                bytes = 0;
                tokio::task::yield_now().await;
            }
        }
        signing.finish(&self.signable(origin))
    }

    /// Adds the client's forwarded fields, which replace those of the provider kind.
    fn forward(&self, headers: &mut HeaderMap) {
        for (index, (name, value)) in self.forwarded.iter().enumerate() {
            if self.is_fixed(name) || (takes_version(&self.provider) && *name == ANTHROPIC_VERSION) {
                continue;
            }
            let is_first = self.forwarded.iter().take(index).all(|(before, _)| before != name);
            if is_first {
                headers.insert(name.clone(), value.clone());
            } else {
                headers.append(name.clone(), value.clone());
            }
        }
    }

    /// Adds the trace headers.
    fn trace(&self, trace: &TraceHeaders, headers: &mut HeaderMap) {
        if !self.is_fixed(&TRACEPARENT) {
            headers.insert(TRACEPARENT, trace.parent.clone());
            if let Some(state) = &trace.state {
                headers.insert(TRACESTATE, state.clone());
            }
        }
    }

    /// True if the provider instance sets this field.
    pub(super) fn is_fixed(&self, name: &HeaderName) -> bool {
        self.provider.headers.iter().any(|(own, _)| own == name)
    }

    fn signable<'a>(&'a self, origin: &'a Origin) -> Signable<'a> {
        Signable {
            method: self.kind.method_name(),
            host: origin.authority.as_str(),
            path: &self.path,
            content_type: JSON.to_str().ok().filter(|_| self.has_body()),
            body: &self.segments,
        }
    }

    fn has_body(&self) -> bool {
        self.kind.may_have_body() && self.body_bytes() > 0
    }

    fn body_bytes(&self) -> u64 {
        if let Some(arriving) = &self.arriving {
            return arriving.bytes();
        }
        length_of(&self.segments)
    }
}

/// Returns the fields of every request to `provider`, `Host` first. The values of the fields that depend on the request
/// are replaced in a copy, which costs less than to build the map.
fn common_fields(provider: &ProviderInstance, origin: &Origin) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(host) = HeaderValue::from_str(origin.authority.as_str()) {
        headers.insert(HOST, host);
    }
    for name in [CONTENT_TYPE, ACCEPT, X_REQUEST_ID, CONTENT_LENGTH] {
        headers.insert(name, HeaderValue::from_static("0"));
    }
    headers.insert(ACCEPT_ENCODING, IDENTITY.clone());
    headers.insert(USER_AGENT, AGENT.clone());
    for (name, value) in provider.kind.headers {
        let name = HeaderName::from_static(name);
        if !(takes_version(provider) && name == ANTHROPIC_VERSION) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    for (name, _) in &provider.headers {
        headers.remove(name);
    }
    headers.extend(provider.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    headers
}

/// Returns true if the body states the version of the Messages API.
fn takes_version(provider: &ProviderInstance) -> bool {
    provider.quirks.messages_version.is_some()
}

/// Returns the client's headers that are forwarded upstream in `dialect`.
pub(crate) fn forwarded(dialect: Dialect, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    // One pass over the fields is cheaper than a look-up of each name.
    let is_forwarded = |name: &HeaderName| match dialect {
        Dialect::Responses => is_allowed_in_responses(name.as_str()),
        _ => allowed(dialect).contains(name),
    };
    let fields = headers.iter().filter(|(name, _)| is_forwarded(name));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The allow-list of Responses: `openai-beta`, and the headers in which Codex describes a turn.
fn is_allowed_in_responses(name: &str) -> bool {
    matches!(
        name,
        "openai-beta"
            | "originator"
            | "session-id"
            | "session_id"
            | "thread-id"
            | "version"
            | "x-client-request-id"
            | "x-codex-beta-features"
            | "x-codex-parent-thread-id"
            | "x-codex-turn-metadata"
            | "x-codex-turn-state"
            | "x-codex-window-id"
            | "x-openai-internal-codex-responses-lite"
            | "x-openai-subagent"
    )
}

/// Returns the length of a body in bytes.
pub(crate) fn length_of(segments: &[Bytes]) -> u64 {
    segments.iter().map(|segment| segment.len() as u64).sum()
}

/// Body of an outgoing request, sent segment by segment.
#[derive(Debug)]
pub(crate) struct SegmentedBody {
    source: Source,
    bytes_left: u64,
}

#[derive(Debug)]
enum Source {
    Whole(std::vec::IntoIter<Bytes>),
    /// A body that is still arriving, and the index of its next segment.
    Arriving(Rc<ArrivingBody>, usize),
}

impl SegmentedBody {
    pub(crate) fn new(segments: Vec<Bytes>) -> Self {
        Self { bytes_left: length_of(&segments), source: Source::Whole(segments.into_iter()) }
    }

    fn arriving(body: Rc<ArrivingBody>) -> Self {
        Self { bytes_left: body.bytes(), source: Source::Arriving(body, 0) }
    }
}

impl Body for SegmentedBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let segment = match &mut self.source {
            Source::Whole(segments) => segments.next(),
            Source::Arriving(body, next) => {
                let segment = ready!(body.poll_segment(*next, cx)).transpose();
                *next += 1;
                match segment {
                    Ok(segment) => segment,
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
            }
        };
        let bytes = segment.as_ref().map_or(0, |segment| segment.len() as u64);
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        Poll::Ready(segment.map(|segment| Ok(Frame::data(segment))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(segments) => segments.len() == 0,
            Source::Arriving(body, next) => body.ends_at(*next),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use shared::provider::path::Paths;
    use shared::provider::signer::ExtensionSigner;
    use shared::routing::{EchoOptions, HttpVersion};
    use shared::secret::Secret;
    use shared::standard_webhooks::WebhookKey;

    use super::*;
    use crate::fixture;

    fn origin() -> Origin {
        Origin {
            tls: false,
            authority: "upstream.example:8080".parse().unwrap(),
            host: "upstream.example".to_owned(),
            port: 8080,
            socket: None,
            way: None,
            paths: Paths::default(),
            lists: Vec::new(),
            http: HttpVersion::Auto,
        }
    }

    /// A request with these segments as its body.
    fn request_of<'a>(
        provider: &Arc<ProviderInstance>,
        request_id: &'a HeaderValue,
        segments: Vec<Bytes>,
    ) -> UpstreamRequest<'a> {
        UpstreamRequest {
            provider: Arc::clone(provider),
            kind: RequestKind::Post,
            path: PathAndQuery::from_static("/v1/x"),
            forwarded: &[],
            request_id,
            of_model: Vec::new(),
            trace: None,
            tap: None,
            content_type: &JSON,
            accept: &ANYTHING,
            segments,
            arriving: None,
        }
    }

    /// Sorted fields of a request with `forwarded` fields of its client.
    fn fields(
        provider: &Arc<ProviderInstance>,
        kind: RequestKind,
        id: &str,
        forwarded: &[(&str, &str)],
    ) -> Vec<String> {
        let text = |(name, value): &(&str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        let forwarded: Vec<(HeaderName, HeaderValue)> = forwarded.iter().map(text).collect();
        let id = id.parse().unwrap();
        let request = request_of(provider, &id, vec![Bytes::from_static(b"12345"); 2]);
        let request = UpstreamRequest { kind, forwarded: &forwarded, ..request };
        let request = request.http1(&origin(), Fields::new());
        let mut fields: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        fields.sort();
        fields
    }

    #[test]
    fn each_request_has_the_headers_of_its_provider_and_its_own() {
        let mut provider = fixture::echo("e", EchoOptions::default());
        let own = [("authorization", "Bearer s"), ("user-agent", "own"), ("x-two", "1"), ("x-two", "2")];
        provider.headers =
            own.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let provider = Arc::new(provider);
        let common = [
            "accept-encoding: identity",
            "accept: */*",
            "authorization: Bearer s",
            "host: upstream.example:8080",
            "user-agent: own",
            "x-two: 1",
            "x-two: 2",
        ];
        let want = |more: &[&str]| {
            let mut want: Vec<_> = common.iter().chain(more).map(ToString::to_string).collect();
            want.sort();
            want
        };
        let beta = [("openai-beta", "a"), ("openai-beta", "b"), ("authorization", "Bearer client")];
        let post =
            ["content-length: 10", "content-type: application/json", "openai-beta: a", "openai-beta: b"];
        for id in ["1", "2"] {
            let id_field = format!("x-request-id: {id}");
            let more = [post.as_slice(), &[&id_field]].concat();
            assert_eq!(fields(&provider, RequestKind::Post, id, &beta), want(&more));
            assert_eq!(fields(&provider, RequestKind::Get, id, &[]), want(&[&id_field]));
        }
    }

    /// A worker is not held for as long as the signature of the longest body takes.
    #[test]
    fn a_long_body_is_signed_in_turns() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let mut provider = fixture::echo("e", EchoOptions::default());
        provider.signer = ExtensionSigner::new(&secret, "msg_".to_owned()).map(RequestSigner::Extension);
        let body = Bytes::from(vec![b'x'; 64 << 20]);
        let id = HeaderValue::from_static("1");
        let request = request_of(&Arc::new(provider), &id, vec![body.slice(..5), body.slice(5..)]);
        let (origin, mut cx) = (origin(), Context::from_waker(Waker::noop()));
        let mut signing = pin!(request.signature(&origin));
        let mut turns = Vec::new();
        let signature = loop {
            let (began, polled) = (Instant::now(), signing.as_mut().poll(&mut cx));
            turns.push(began.elapsed());
            if let Poll::Ready(signature) = polled {
                break signature;
            }
        };
        turns.sort();
        let (count, all): (usize, Duration) = (turns.len(), turns.iter().sum());
        let (median, longest) = (turns[count / 2], turns[count - 1]);
        println!(
            "figure P-sign: 64 MiB are signed in {all:?}: {count} turns of {median:?}, the longest of {longest:?}"
        );
        assert!((512..=514).contains(&count), "{count}");
        let text = |at: usize| signature[at].1.to_str().unwrap();
        let whole = WebhookKey::read(secret.expose()).unwrap();
        assert_eq!(text(2), whole.signature(text(0), text(1), std::iter::once(&body[..])));
    }

    #[test]
    fn a_short_body_is_one_segment() {
        let (provider, id) = (fixture::echo("e", EchoOptions::default()), HeaderValue::from_static("1"));
        let provider = Arc::new(provider);
        for (sizes, want) in [
            (&[5, 6, 7][..], vec![18]),
            (&[16_000, 384], vec![16_384]),
            (&[16_000, 385], vec![16_000, 385]),
            (&[40_000], vec![40_000]),
            (&[], vec![]),
        ] {
            let segments = sizes.iter().map(|size| Bytes::from(vec![b'x'; *size])).collect();
            let body = request_of(&provider, &id, segments).body();
            let Source::Whole(sent) = &body.source else { panic!() };
            let sent: Vec<usize> = sent.as_slice().iter().map(Bytes::len).collect();
            assert_eq!((sent, body.bytes_left), (want.clone(), want.iter().sum::<usize>() as u64));
        }
    }
}
