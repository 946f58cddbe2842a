//! The request to the upstream: address and credential come only from the snapshot, headers pass an allow-list, and the
//! body consists of slices of the client's (CHAT-4, LIM-4).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use shared::answer_head::{self, X_REQUEST_ID};
use shared::clock;
use shared::operation::Dialect;
use shared::provider::sigv4::{Signable, sha256};
use shared::routing::{InstanceReach, Origin, ProviderInstance};

/// Method and repeatability of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// `GET` without a body.
    Get,
    /// `POST` without side effects: it starts nothing and is not billed.
    PostSafe,
    /// `POST`.
    Post,
    /// `POST` that must never be sent twice; it always uses a new connection.
    PostOnce,
}

impl RequestKind {
    /// Returns true if the request may be sent twice.
    pub(super) fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::PostSafe)
    }

    fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
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
    /// The type of the body.
    pub(crate) content_type: &'a HeaderValue,
    /// The accepted type of the answer.
    pub(crate) accept: &'static HeaderValue,
    pub(crate) segments: Vec<Bytes>,
}

/// Returns the header allow-list of a dialect. None of them can change the destination, credential or account.
fn allowed(dialect: Dialect) -> &'static [HeaderName] {
    match dialect {
        Dialect::Messages => &MESSAGES,
        _ => &OPENAI,
    }
}

static OPENAI: [HeaderName; 1] = [HeaderName::from_static("openai-beta")];
static MESSAGES: [HeaderName; 2] = [ANTHROPIC_VERSION, HeaderName::from_static("anthropic-beta")];
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

pub(crate) static JSON: HeaderValue = answer_head::JSON;
pub(crate) static EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
pub(crate) static AWS_EVENTS: HeaderValue = HeaderValue::from_static("application/vnd.amazon.eventstream");
pub(crate) static ANYTHING: HeaderValue = HeaderValue::from_static("*/*");
static IDENTITY: HeaderValue = HeaderValue::from_static("identity");
pub(crate) static AGENT: HeaderValue = HeaderValue::from_static(concat!("llmgw/", env!("CARGO_PKG_VERSION")));

impl UpstreamRequest<'_> {
    /// Returns the HTTP/1.1 request: the path alone as target, `Host` first, and `Content-Length` if it has a body.
    pub(crate) fn http1(&self, origin: &Origin) -> Request<SegmentedBody> {
        let mut request = self.request(Uri::from(self.path.clone()));
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(origin.authority.as_str()) {
            headers.insert(HOST, host);
        }
        self.each_header(|name, value| {
            headers.append(name.clone(), value.clone());
        });
        if self.has_body() {
            headers.insert(CONTENT_LENGTH, self.body_bytes().into());
        }
        request
    }

    /// Returns the HTTP/2 request: an absolute URI, and no `Host`.
    pub(crate) fn http2(&self, origin: &Origin) -> Request<SegmentedBody> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(if origin.tls { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
        parts.authority = Some(origin.authority.clone());
        parts.path_and_query = Some(self.path.clone());
        let mut request = self.request(Uri::from_parts(parts).unwrap_or_default());
        *request.version_mut() = Version::HTTP_2;
        let headers = request.headers_mut();
        self.each_header(|name, value| {
            headers.append(name.clone(), value.clone());
        });
        request
    }

    /// Returns an HTTP/1.1 request without headers.
    fn request(&self, uri: Uri) -> Request<SegmentedBody> {
        let mut request = Request::new(SegmentedBody::new(self.segments.clone()));
        *request.method_mut() = self.kind.method();
        *request.uri_mut() = uri;
        // Capacity for the fields of most requests, so that the map is not reallocated.
        request.headers_mut().reserve(HEADERS_USUAL);
        request
    }

    /// Calls `put` for each header. The headers of the provider instance take precedence over all others.
    fn each_header(&self, mut put: impl FnMut(&HeaderName, &HeaderValue)) {
        let says_version = self.provider.quirks.messages_version.is_some();
        let fixed = |name: &HeaderName| {
            (says_version && *name == ANTHROPIC_VERSION)
                || self.provider.headers.iter().any(|(own, _)| own == name)
        };
        let usual = [
            (CONTENT_TYPE, self.content_type),
            (ACCEPT, self.accept),
            (ACCEPT_ENCODING, &IDENTITY),
            (USER_AGENT, &AGENT),
            (X_REQUEST_ID, self.request_id),
        ];
        let forwarded = self.forwarded.iter().map(|(name, value)| (name, value));
        let usual = usual.iter().skip(usize::from(!self.has_body())).map(|(name, value)| (name, *value));
        for (name, value) in usual.chain(forwarded.clone()).filter(|(name, _)| !fixed(name)) {
            put(name, value);
        }
        for (name, value) in self.provider.kind.headers {
            let name = HeaderName::from_static(name);
            if !fixed(&name) && !forwarded.clone().any(|(given, _)| *given == name) {
                put(&name, &HeaderValue::from_static(value));
            }
        }
        for (name, value) in &self.provider.headers {
            put(name, value);
        }
        if let (Some(signer), InstanceReach::Network(origin)) = (&self.provider.signer, &self.provider.reach)
        {
            let signed = signer.sign(&self.signable(origin), clock::unix_ms() / 1_000);
            signed.iter().for_each(|(name, value)| put(name, value));
        }
    }

    fn signable<'a>(&'a self, origin: &'a Origin) -> Signable<'a> {
        Signable {
            method: if self.has_body() { "POST" } else { "GET" },
            host: origin.authority.as_str(),
            path: &self.path,
            content_type: JSON.to_str().ok().filter(|_| self.has_body()),
            body: sha256(self.segments.iter().map(|segment| &**segment)),
        }
    }

    fn has_body(&self) -> bool {
        self.kind != RequestKind::Get
    }

    fn body_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len() as u64).sum()
    }
}

/// Initial capacity of a request's header map, in fields.
const HEADERS_USUAL: usize = 12;

/// Returns the client's headers that are forwarded upstream in `dialect`.
pub(crate) fn forwarded(dialect: Dialect, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    if dialect == Dialect::Responses {
        // One pass over the fields is cheaper than a lookup of each name.
        let allowed = headers.iter().filter(|(name, _)| is_allowed_in_responses(name.as_str()));
        return allowed.map(|(name, value)| (name.clone(), value.clone())).collect();
    }
    let all = |name: &'static HeaderName| {
        headers.get_all(name).iter().map(move |value| (name.clone(), value.clone()))
    };
    allowed(dialect).iter().flat_map(all).collect()
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
            | "x-client-request-id"
            | "x-codex-beta-features"
            | "x-codex-parent-thread-id"
            | "x-codex-turn-metadata"
            | "x-codex-turn-state"
            | "x-codex-window-id"
            | "x-openai-subagent"
    )
}

/// Body of an outgoing request, sent segment by segment.
#[derive(Debug)]
pub(crate) struct SegmentedBody {
    segments: std::vec::IntoIter<Bytes>,
    bytes_left: u64,
}

impl SegmentedBody {
    pub(crate) fn new(segments: Vec<Bytes>) -> Self {
        let bytes_left = segments.iter().map(|segment| segment.len() as u64).sum();
        Self { segments: segments.into_iter(), bytes_left }
    }
}

impl Body for SegmentedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let segment = self.segments.next();
        self.bytes_left -= segment.as_ref().map_or(0, |segment| segment.len() as u64);
        Poll::Ready(segment.map(|segment| Ok(Frame::data(segment))))
    }

    fn is_end_stream(&self) -> bool {
        self.segments.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}
